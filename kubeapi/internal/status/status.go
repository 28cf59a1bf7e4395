package status

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/munnerz/goautoneg"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Error returns an error that is answered with a Status.
func Error(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: &metav1.StatusDetails{},
	}}
}

// Bare returns an error as Error does, whose Status has no details.
func Bare(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	err := Error(code, reason, message)
	err.ErrStatus.Details = nil
	return err
}

// NotAcceptable returns the error for a client that accepts no JSON or, if form is set, that accepts JSON in
// other forms.
func NotAcceptable(form bool) *apierrors.StatusError {
	if form {
		return Bare(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "only the following media types are accepted: application/json")
	}
	return Error(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "406: Not Acceptable\n\nAvailable representations: application/json")
}

// Later returns an error that asks the client to repeat its request in a second.
func Later(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	err := Error(code, reason, message)
	err.ErrStatus.Details.RetryAfterSeconds = 1
	return err
}

// TooMany returns the error of [Later] with 429.
func TooMany(message string) *apierrors.StatusError {
	return Later(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, message)
}

// Of returns the Status of an error: an internal error if it has none.
func Of(err error) metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = Bare(http.StatusInternalServerError, metav1.StatusReasonInternalError, "Internal error occurred: "+err.Error())
	}
	s := known.Status()
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return s
}

// Send answers with a Status, in the form for people if indent is set.
func Send(w http.ResponseWriter, s metav1.Status, indent bool) {
	body, err := json.Marshal(s)
	if indent {
		body, err = json.MarshalIndent(s, "", "  ")
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if !indent { // a kube-apiserver ends only this form with a line feed
		body = append(body, '\n')
	}
	h := w.Header()
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		h.Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	h.Set("Cache-Control", "no-cache, private")
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(int(s.Code))
	_, _ = w.Write(body) // if it fails, the client is gone
}

// Indented returns a JSON document in the form for people, which, unlike the other, does not end with a
// line feed.
func Indented(body []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, bytes.TrimSuffix(body, []byte("\n")), "", "  ") != nil {
		return body
	}
	return b.Bytes()
}

// AcceptsJSON reports whether a client accepts JSON; if plain is set, in no other form such as a Table.
func AcceptsJSON(header string, plain bool) bool {
	return header == "" || slices.ContainsFunc(goautoneg.ParseAccept(header), func(a goautoneg.Accept) bool {
		return IsJSON(a) && !(plain && a.Params["as"] != "")
	})
}

// IsJSON reports whether a clause of an Accept header includes JSON.
func IsJSON(a goautoneg.Accept) bool {
	return a.Type == "*" || a.Type == "application" && (a.SubType == "json" || a.SubType == "*")
}
