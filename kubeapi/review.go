package kubeapi

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/snapcache/snapcache/kubeapi/internal/discovery"
	"github.com/snapcache/snapcache/kubeapi/internal/status"
	"github.com/snapcache/snapcache/store"
)

// maxReview limits the bytes of a review, as the head of a request is limited.
const maxReview = 64 << 10

// The kinds of reviews.
const (
	accessReview  = "SelfSubjectAccessReview"
	rulesReview   = "SelfSubjectRulesReview"
	subjectReview = "SelfSubjectReview"
)

// reviews are the reviews that callers ask for about themselves. Each caller may: the answer is what its
// requests would show. They are never forwarded, so that the answers are the same without the server.
var reviews = []discovery.Resource{
	reviewResource(authorizationv1.SchemeGroupVersion, accessReview),
	reviewResource(authorizationv1.SchemeGroupVersion, rulesReview),
	reviewResource(authenticationv1.SchemeGroupVersion, subjectReview),
}

func reviewResource(gv schema.GroupVersion, kind string) discovery.Resource {
	singular := strings.ToLower(kind)
	return discovery.Resource{
		Info:        store.Info{Group: gv.Group, Version: gv.Version, Resource: singular + "s", Kind: kind},
		Description: store.Description{Singular: singular},
		Verbs:       metav1.Verbs{"create"},
	}
}

// reviewScheme has the types of reviews, to decode them as a kube-apiserver does.
var reviewScheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(authorizationv1.AddToScheme(s))
	utilruntime.Must(authenticationv1.AddToScheme(s))
	return s
}()

var reviewTypes = serializer.NewCodecFactory(reviewScheme).SupportedMediaTypes()

// reviewed returns the kind of the reviews that a path names; empty for another path.
func (p path) reviewed() string {
	for _, x := range reviews {
		if x.GVR() == p.GroupVersionResource {
			return x.Kind
		}
	}
	return ""
}

// isReview reports whether a request is a review of its caller's own rights.
func (r *request) isReview() bool {
	return r.Method == http.MethodPost && r.noReview() == nil && r.path.reviewed() != ""
}

// noReview is the answer to a request for a kind of reviews that is no review; nil for a POST of one.
func (r *request) noReview() error {
	switch p := r.path; {
	case p.watch || p.namespace != "" || p.name != "":
		return notServed()
	case r.Method != http.MethodPost:
		return notAllowed()
	}
	return nil
}

// review answers a review.
func (s *Server) review(w http.ResponseWriter, r *request) {
	answer, err := s.answerReview(w, r)
	if err != nil {
		sendError(w, r, err)
		return
	}
	body, err := appendJSON(nil, answer)
	if err != nil {
		sendError(w, r, err)
		return
	}
	if body = append(body, '\n'); r.pretty() {
		body = status.Indented(body)
	}
	_ = sendAs(w, http.StatusCreated, body) // a client that is gone needs no answer
}

// answerReview returns the answer to a review. Warnings of its body are in the header then.
func (s *Server) answerReview(w http.ResponseWriter, r *request) (runtime.Object, error) {
	if accept := r.Header.Get("Accept"); !status.AcceptsJSON(accept, true) {
		return nil, status.NotAcceptable(status.AcceptsJSON(accept, false))
	}
	body, err := s.readReview(w, r)
	if err != nil {
		return nil, err
	}
	var answer runtime.Object
	switch r.path.reviewed() {
	case accessReview:
		answer, err = s.reviewAccess(r, body)
	case rulesReview:
		answer, err = s.reviewRules(r, body)
	case subjectReview:
		answer, err = s.reviewSubject(r, body)
	}
	if err != nil {
		return nil, err
	}
	for _, text := range body.warnings {
		w.Header().Add("Warning", fmt.Sprintf("299 - %q", text))
	}
	return answer, nil
}

// reviewBody is the body of a review that is not decoded yet.
type reviewBody struct {
	raw      []byte
	info     runtime.SerializerInfo
	strict   string // metav1.FieldValidationStrict and so on
	warnings []string
}

// readReview reads the body and the options of a review.
func (s *Server) readReview(w http.ResponseWriter, r *request) (*reviewBody, error) {
	b := &reviewBody{}
	mediaType := runtime.ContentTypeJSON
	if header := r.Header.Get("Content-Type"); header != "" {
		var err error
		if mediaType, _, err = mime.ParseMediaType(header); err != nil {
			return nil, unsupportedMediaType()
		}
	}
	var ok bool
	if b.info, ok = runtime.SerializerInfoForMediaType(reviewTypes, mediaType); !ok {
		return nil, unsupportedMediaType()
	}
	var err error
	if b.raw, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxReview)); err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxReview))
		}
		return nil, badRequest(err.Error())
	}
	if err := s.hold(r, 3*len(b.raw)); err != nil { // raw, decoded, and in the question to the server
		return nil, err
	}
	var opts metav1.CreateOptions
	if err := optionsCodec.DecodeParameters(r.query, metav1.SchemeGroupVersion, &opts); err != nil {
		return nil, badRequest(err.Error())
	}
	if errs := validation.ValidateCreateOptions(&opts); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "CreateOptions"}, "", errs)
	}
	b.strict = opts.FieldValidation
	return b, nil
}

// decode decodes the body into a review.
func (b *reviewBody) decode(into runtime.Object, as schema.GroupVersionKind) error {
	d := b.info.StrictSerializer
	if b.strict == metav1.FieldValidationIgnore {
		d = b.info.Serializer
	}
	decoded, found, err := d.Decode(b.raw, &as, into)
	if strict, ok := runtime.AsStrictDecodingError(err); ok && decoded != nil && b.strict != metav1.FieldValidationStrict {
		for _, err := range strict.Errors() {
			b.warnings = append(b.warnings, err.Error())
		}
		err = nil
	}
	switch {
	case found != nil && found.GroupKind() == as.GroupKind() && found.Version != as.Version:
		return badRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", found.GroupVersion(), as.GroupVersion()))
	case err == nil && decoded != into:
		err = fmt.Errorf("it is not a %s", as.Kind)
		fallthrough
	case err != nil && found != nil && found.Kind != "":
		return badRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", found.Kind, found.Version, as.Kind, err))
	case err != nil:
		return badRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", as.Kind, err, summary(b.raw)))
	}
	into.GetObjectKind().SetGroupVersionKind(as)
	return nil
}

// summary returns the beginning of a body, as a kube-apiserver's errors have it.
func summary(raw []byte) string {
	const most = 30 // bytes
	begin, more := raw, ""
	if len(raw) > most {
		begin, more = raw[:most], " ..."
	}
	switch {
	case len(raw) == 0:
		return "<empty>"
	case raw[0] == '{':
		return string(begin) + more
	}
	return hex.EncodeToString(begin) + more
}

// optionsCodec reads the options of a review from its query.
var optionsCodec = runtime.NewParameterCodec(func() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, metav1.SchemeGroupVersion)
	return s
}())

func unsupportedMediaType() error {
	var accepted []string
	for _, info := range reviewTypes {
		accepted = append(accepted, info.MediaType)
	}
	return status.Bare(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+strings.Join(accepted, ", "))
}
