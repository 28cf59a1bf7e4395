package selector

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

func TestNameAndNamespace(t *testing.T) {
	tests := []struct {
		fields          string
		name, namespace string // "none" for none
		empty           bool
	}{
		{fields: "", name: "none", namespace: "none", empty: true},
		{fields: "=", name: "none", namespace: "none", empty: true},
		{fields: "metadata.name=till", name: "till", namespace: "none"},
		{fields: "spec.nodeName=edge-1,metadata.name==till,metadata.namespace=shop", name: "till", namespace: "shop"},
		{fields: "metadata.name!=till,metadata.namespace!=shop", name: "none", namespace: "none"},
		{fields: "metadata.namespace=", name: "none", namespace: ""},
	}
	for _, test := range tests {
		t.Run(test.fields, func(t *testing.T) {
			s := parse(t, "", test.fields)
			require.Equal(t, test.empty, s.Empty())
			for _, part := range []struct {
				want string
				get  func() (string, bool)
			}{{test.name, s.Name}, {test.namespace, s.Namespace}} {
				got, ok := part.get()
				require.Equal(t, part.want != "none", ok)
				if ok {
					require.Equal(t, part.want, got)
				}
			}
		})
	}
}

// TestZeroSelector uses the zero value without a parser.
func TestZeroSelector(t *testing.T) {
	var s Selector
	require.True(t, s.Empty())
	require.True(t, s.Matches("shop/till", Attributes{}))
	require.True(t, s.Within(s))
	require.False(t, s.Within(parse(t, "app", "")))
}

// TestFieldNotStored checks that a field that the cache can't know is an error and not an empty value.
func TestFieldNotStored(t *testing.T) {
	tests := []struct {
		name     string
		info     store.Info
		drop     []string
		selector string
		message  string
	}{
		{name: "the field", drop: []string{"spec.nodeName"}, selector: "spec.nodeName=edge-1", message: "the field is not in the cache: spec.nodeName"},
		{name: "by its alias", drop: []string{"spec.nodeName"}, selector: "spec.host=edge-1", message: "the field is not in the cache: spec.nodeName"},
		{name: "what contains it", drop: []string{object.ManagedFields, "spec"}, selector: "spec.nodeName=edge-1", message: "the field is not in the cache: spec.nodeName"},
		{name: "beside it", drop: []string{"spec.node", "spec.nodeName.x", "status.phase"}, selector: "spec.nodeName=edge-1,metadata.name=a"},
		{name: "by another name", info: store.Info{Group: "batch", Resource: "jobs"}, drop: []string{"status.succeeded"}, selector: "status.successful=1", message: "the field is not in the cache: status.successful"},
		{name: "in place of an empty one", info: store.Info{Resource: "events"}, drop: []string{"reportingComponent"}, selector: "source=kubelet", message: "the field is not in the cache: reportingComponent"},
		{name: "unknown", drop: []string{"spec.nodeName"}, selector: "spec.node=edge-1", message: "field label not supported: spec.node"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.info.Resource == "" {
				test.info.Resource = "pods"
			}
			test.info.Transform = object.NewPrune(test.drop...).ID()
			_, err := FieldsOf(test.info, store.Description{}).Parse("", test.selector)
			if test.message == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.message)
			if strings.HasPrefix(test.message, ErrNotStored.Error()) {
				require.ErrorIs(t, err, ErrNotStored)
			}
		})
	}
}

func TestOf(t *testing.T) {
	tests := []struct {
		name   string
		info   store.Info
		fields []string // of a custom resource
		raw    string
		want   map[string]string // without empty ones
	}{
		{
			name: "values that a server omits", info: store.Info{Resource: "pods"}, raw: `{"metadata":{"name":"a"},"spec":null,"status":{}}`,
			want: map[string]string{"spec.hostNetwork": "false"},
		},
		{
			name: "a number that is missing", info: store.Info{Resource: "replicationcontrollers"}, raw: `{"metadata":{"name":"a"}}`,
			want: map[string]string{"status.replicas": "0"},
		},
		{
			name: "names that are data elsewhere", info: store.Info{Resource: "pods"},
			raw: `{"metadata":{"name":"a","annotations":{"spec":"x"}},"spec":{"containers":[{"nodeName":"x","spec":{"nodeName":"x"}}],"nodeName":"edge-1","hostNetwork":true},
				"status":{"podIPs":[{"ip":"10.0.0.1"}],"podIP":"10.0.0.1"}}`,
			want: map[string]string{"spec.nodeName": "edge-1", "spec.hostNetwork": "true", "status.podIP": "10.0.0.1"},
		},
		{
			name: "a source", info: store.Info{Resource: "events"}, raw: `{"metadata":{"name":"a"},"reportingComponent":"other","source":{"component":"kubelet"}}`,
			want: map[string]string{"source": "kubelet", "reportingComponent": "other"},
		},
		{
			name: "no source", info: store.Info{Resource: "events"}, raw: `{"metadata":{"name":"a"},"reportingComponent":"other","source":{}}`,
			want: map[string]string{"source": "other", "reportingComponent": "other"},
		},
		{
			name: "types of a custom resource", fields: []string{".spec.text", ".spec.size", ".spec.on", ".spec.no", ".spec.deep.er", ".spec.list"},
			raw:  `{"metadata":{"name":"a"},"spec":{"text":"a\"b\u0000","size":-9007199254740993,"on":false,"no":null,"deep":{"er":"x"},"other":1}}`,
			want: map[string]string{"spec.text": "a\"b\x00", "spec.size": "-9007199254740993", "spec.on": "false", "spec.deep.er": "x"},
		},
		{name: "no fields", info: store.Info{Resource: "configmaps"}, raw: `{"metadata":{"name":"a"},"spec":{"nodeName":"x"}}`, want: map[string]string{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o, err := object.Parse([]byte(test.raw))
			require.NoError(t, err)
			a, err := FieldsOf(test.info, store.Description{Custom: test.fields != nil, SelectableFields: test.fields}).Of(o)
			require.NoError(t, err)
			require.Equal(t, test.want, withoutEmpty(a).Fields)
		})
	}
}

// TestOfProtobuf checks that an object whose fields can't be read has its labels, and an error if it
// has fields.
func TestOfProtobuf(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{NodeName: "edge-1"}}
	raw, message := object.NewEnvelope("v1", "Pod").New(pod.Size())
	_, err := pod.MarshalToSizedBuffer(message)
	require.NoError(t, err)
	o, err := object.Parse(raw)
	require.NoError(t, err)
	want := Attributes{Labels: map[string]string{"app": "web"}}

	a, err := pods.Of(o)
	require.ErrorIs(t, err, ErrNotStored)
	require.Equal(t, want, a)
	a, err = FieldsOf(store.Info{Resource: "podtemplates"}, store.Description{}).Of(o)
	require.NoError(t, err)
	require.Equal(t, want, a)
}
