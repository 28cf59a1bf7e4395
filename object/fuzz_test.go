package object_test

import (
	"bytes"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/snapcache/snapcache/object"
)

// Bytes that begin as protobuf does are an object or an error, and what can be read of an object does
// not panic: its message may be damaged behind the metadata.
func FuzzProtobuf(f *testing.F) {
	whole := protobufPod(f)
	f.Add(whole[object.ProtobufPrefixLen:])
	f.Add(whole[object.ProtobufPrefixLen : len(whole)-20])
	deep := bytes.Clone(whole)
	deep[bytes.Index(deep, []byte("edge-1"))-1] = 0x7f // longer than its message
	f.Add(deep[object.ProtobufPrefixLen:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		raw := append([]byte("k8s\x00"), in...)
		before := bytes.Clone(raw)
		o, err := object.FromValid(raw)
		shown, errJSON := object.JSON(raw)
		if (err == nil) != (errJSON == nil) {
			t.Fatalf("FromValid: %v, JSON: %v", err, errJSON)
		}
		if err != nil {
			return
		}
		if o.GetName() == "" || !o.Protobuf() || !bytes.Equal(o.Raw(), raw) {
			t.Fatalf("an object %q of %q", o.Key(), raw)
		}
		m := o.GetObjectMeta()
		if m.GetName() != o.GetName() || m.GetNamespace() != o.GetNamespace() || m.GetUID() != o.GetUID() || m.GetResourceVersion() != o.GetResourceVersion() {
			t.Fatalf("the metadata of %s is %v", o.Key(), m)
		}
		var fields struct {
			Metadata struct{ Name *string }
			Protobuf []byte
		}
		if err := json.Unmarshal(o.JSON(), &fields); err != nil || fields.Metadata.Name == nil || !bytes.Equal(fields.Protobuf, raw) {
			t.Fatalf("%v: %s", err, o.JSON())
		}
		if !bytes.Equal(shown, o.JSON()) {
			t.Fatalf("JSON is %s and %s", shown, o.JSON())
		}
		_ = o.Into(&corev1.Pod{})
		_, _ = o.Field("metadata.labels.app")
		if !bytes.Equal(raw, before) {
			t.Fatal("the bytes were changed")
		}
	})
}
