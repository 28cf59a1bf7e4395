package kubeapi

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// recordedResources are the resources that are recorded, with the place of their objects in etcd.
var recordedResources = map[string]string{
	"configmaps": "configmaps", "secrets": "secrets", "pods": "pods", "services": "services", "nodes": "minions",
	"namespaces": "namespaces", "endpointslices": "endpointslices", "servicecidrs": "servicecidrs",
}

// recorder is between a component and the agent, and records what the component lists and watches.
// It accepts connections while the agent does: a component that is refused waits, and one that gets
// another error lists again.
type recorder struct {
	component  string
	kubeconfig string // for the component

	agent       string // address
	address     string // of the recorder
	certificate tls.Certificate
	proxy       *httputil.ReverseProxy

	mu       sync.Mutex
	server   *http.Server                // nil while connections are refused
	streams  map[selection][]*recordings // since the component's start, in the order of the requests
	begun    []string                    // requests that got all objects
	problems []string
}

// recordings is a stream whose end is not recorded yet.
type recordings struct {
	stream
	list    bool
	partial bytes.Buffer // the beginning of the next frame, or of the list
}

// newRecorder returns a recorder for the component with a kubeconfig, which refuses connections until
// accept.
func newRecorder(t *testing.T, component, kubeconfig, dir string) *recorder {
	t.Helper()
	r := &recorder{component: component, kubeconfig: filepath.Join(dir, component+".recorded.kubeconfig"), address: harness.FreeAddress(t)}
	r.forget()
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	require.NoError(t, err)
	r.certificate, err = tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(t, err)

	own := restConfig(t, kubeconfig) // the recorder has no credentials but the component's
	target, err := url.Parse(own.Host)
	require.NoError(t, err)
	r.agent = target.Host
	transport, err := rest.TransportFor(own)
	require.NoError(t, err)
	r.proxy = &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ModifyResponse: r.record, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.Out.Header.Del("Accept-Encoding") // else frames are compressed for the component
			if p.Out.Body != nil {
				p.Out.Body = p.In.Body // ReverseProxy's own does not end when an early answer closes it
			}
		},
		ErrorHandler: func(_ http.ResponseWriter, q *http.Request, _ error) {
			if q.Context().Err() == nil {
				r.refuseWithAgent()
			}
			panic(http.ErrAbortHandler) // the component sees what it saw without the recorder
		},
	}
	config, err := clientcmd.LoadFromFile(kubeconfig)
	require.NoError(t, err)
	for _, c := range config.Clusters {
		c.Server, c.CertificateAuthority, c.CertificateAuthorityData = "https://"+r.address, "", certPEM
	}
	require.NoError(t, clientcmd.WriteToFile(*config, r.kubeconfig))
	t.Cleanup(r.refuse)
	return r
}

// accept lets connections through. The agent runs.
func (r *recorder) accept(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server != nil {
		return
	}
	listener, err := net.Listen("tcp", r.address)
	require.NoError(t, err)
	r.server = &http.Server{
		Handler: r.proxy, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: patience,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{r.certificate}, MinVersion: tls.VersionTLS12},
	}
	go func(s *http.Server) { _ = s.ServeTLS(listener, "", "") }(r.server) // ends with Close
}

// refuse ends all connections, and refuses new ones.
func (r *recorder) refuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server != nil {
		_ = r.server.Close()
		r.server = nil
	}
}

// refuseWithAgent refuses connections if the agent does, before the component learns that the agent
// has ended.
func (r *recorder) refuseWithAgent() {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := net.Dial("tcp", r.agent)
	switch {
	case err == nil:
		_ = c.Close()
	case r.server != nil:
		_ = r.server.Close()
		r.server = nil
	}
}

// forget begins with a new process of the component, which has no state.
func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams, r.begun, r.problems = map[selection][]*recordings{}, nil, nil
}

// lists returns the lists and the watches that began with all objects.
func (r *recorder) lists() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.begun)
}

// record records an answer, if it is a list or a watch of a recorded resource.
func (r *recorder) record(answer *http.Response) error {
	of, is := selectionOf(answer.Request)
	if !is || answer.StatusCode != http.StatusOK {
		return nil
	}
	q := answer.Request.URL.Query()
	watch := q.Get("watch") != "" && q.Get("watch") != "false"
	asked, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	s := &recordings{stream: stream{from: asked, begins: !watch || q.Get("sendInitialEvents") == "true"}, list: !watch}
	r.mu.Lock()
	defer r.mu.Unlock()
	if is := answer.Header.Get("Content-Type"); !strings.HasPrefix(is, "application/json") {
		r.problems = append(r.problems, fmt.Sprintf("%s is answered with %s", answer.Request.URL, is))
	}
	if asked != 0 {
		r.trim(of, asked)
	}
	if s.begins {
		s.from = max(asked, r.newest(of)) // whatever it asks for, it must not get what is older
		r.begun = append(r.begun, answer.Request.URL.String())
	}
	r.streams[of] = append(r.streams[of], s)
	answer.Body = &recordedBody{ReadCloser: answer.Body, recorder: r, to: s, request: answer.Request}
	return nil
}

// trim takes back the frames after a resourceVersion from which the component continues: the
// connection was cut before it had them.
func (r *recorder) trim(of selection, rv uint64) {
	for _, s := range r.streams[of] {
		s.frames = slices.DeleteFunc(s.frames, func(f frame) bool { return f.rv > rv })
	}
}

// newest returns the resourceVersion of what the component has, 0 for nothing.
func (r *recorder) newest(of selection) (rv uint64) {
	for _, s := range r.streams[of] {
		for _, f := range s.frames {
			rv = max(rv, f.rv)
		}
	}
	return rv
}

// selectionOf returns what a request lists or watches. It reports false for other requests, and for
// resources that are not recorded.
func selectionOf(q *http.Request) (of selection, is bool) {
	parts := strings.Split(strings.Trim(q.URL.Path, "/"), "/")
	switch {
	case q.Method != http.MethodGet:
		return of, false
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	}
	if len(parts) == 3 && parts[0] == "namespaces" {
		of.namespace, parts = parts[1], parts[2:]
	}
	query := q.URL.Query()
	of.resource, of.labels, of.fields = parts[0], query.Get("labelSelector"), query.Get("fieldSelector")
	_, recorded := recordedResources[of.resource]
	// client-go's own check of its watches reads at exact resourceVersions.
	return of, recorded && len(parts) == 1 && query.Get("resourceVersionMatch") != "Exact"
}

// recordedBody records an answer before it is passed on.
type recordedBody struct {
	io.ReadCloser
	recorder *recorder
	to       *recordings
	request  *http.Request
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.recorder.add(b.to, p[:n], errors.Is(err, io.EOF))
	if err != nil && !errors.Is(err, io.EOF) && b.request.Context().Err() == nil {
		b.recorder.refuseWithAgent()
	}
	return n, err
}

// add adds what comes to a stream.
func (r *recorder) add(s *recordings, data []byte, end bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.partial.Write(data)
	for !s.list {
		i := bytes.IndexByte(s.partial.Bytes(), '\n')
		if i < 0 {
			return
		}
		r.note(s.addFrame(s.partial.Next(i + 1)))
	}
	if end {
		_, err := (&streamClient{}).readList(&s.partial, &s.stream)
		r.note(err)
	}
}

func (r *recorder) note(err error) {
	if err != nil {
		r.problems = append(r.problems, err.Error())
	}
}

func (s *recordings) addFrame(line []byte) error {
	var f struct {
		Type   string
		Object json.RawMessage
	}
	if err := json.Unmarshal(line, &f); err != nil {
		return fmt.Errorf("a frame: %w", err)
	}
	if f.Type == "ERROR" {
		return nil
	}
	v, err := parseVersion(f.Object)
	s.frames = append(s.frames, frame{typ: f.Type, version: v})
	return err
}

// requireTrue compares what the component got since its start with the changes that etcd had: no
// object went back, was lost or revived. The component may have been killed before it had everything.
// complete returns the changes so far. It is called while nothing more is recorded: a component may get an
// event at any time.
func (r *recorder) requireTrue(t *testing.T, complete func() map[string][]change, killed bool) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	changes := complete()
	require.Empty(t, r.problems, r.component)
	require.NotEmpty(t, r.streams, r.component)
	streams, frames := 0, 0
	for of, recorded := range r.streams {
		newest := r.newest(of)
		var until []change
		for _, c := range changes[recordedResources[of.resource]] {
			if c.rv <= newest {
				until = append(until, c)
			}
		}
		matches, err := of.matcher()
		require.NoError(t, err)
		all := make([]stream, len(recorded))
		for i, s := range recorded {
			all[i] = s.stream
			frames += len(s.frames)
		}
		streams += len(all)
		h := newHistory(until, matches)
		problems := followStreams(h, false, all).problems
		if !killed {
			problems, _ = checkStreams(h, false, all)
		}
		if len(problems) > 0 {
			t.Errorf("%s got of %+v:\n%s", r.component, of, strings.Join(problems[:min(len(problems), 20)], "\n"))
		}
	}
	t.Logf("%s made %d selections, with %d streams of %d frames; %d times it got all objects", r.component, len(r.streams), streams, frames, len(r.begun))
}
