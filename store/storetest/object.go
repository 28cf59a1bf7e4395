package storetest

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

type manifest struct {
	Kind       string            `json:"kind"`
	APIVersion string            `json:"apiVersion"`
	Metadata   metadata          `json:"metadata"`
	Data       map[string]string `json:"data"`
}

type metadata struct {
	Name            string            `json:"name"`
	Namespace       string            `json:"namespace,omitempty"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
}

// Object returns a ConfigMap with payload at the field path "data.payload". If name is empty, it
// returns nil.
func Object(ns, name, uid, rv string, labels map[string]string, payload string) *object.Object {
	raw, err := json.Marshal(manifest{
		Kind: "ConfigMap", APIVersion: "v1",
		Metadata: metadata{Name: name, Namespace: ns, UID: uid, ResourceVersion: rv, Labels: labels},
		Data:     map[string]string{"payload": payload},
	})
	if err != nil {
		return nil
	}
	o, err := object.Parse(raw)
	if err != nil {
		return nil
	}
	return o
}

// Info returns the identity of all ConfigMaps, under an ID.
func Info(id string) store.Info {
	return store.Info{ID: id, Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
}

// Put returns the change that sets an object under its own key.
func Put(o *object.Object) store.Change {
	return store.Change{Key: o.Key(), Object: o}
}

// Delete returns the change that deletes a key.
func Delete(key string) store.Change {
	return store.Change{Key: key}
}

// HistoryRetention is longer than the checkpoints of [Checkpoint] are old: a store with it, that goes by
// the time of the day, does not trim the histories of a test when it is closed.
const HistoryRetention = 100 * 365 * 24 * time.Hour

// Checkpoint returns a checkpoint whose every field is set and differs from another RV's. Its
// times are whole seconds in UTC.
func Checkpoint(rv int) store.Checkpoint {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(rv) * time.Minute)
	return store.Checkpoint{
		RV: strconv.Itoa(rv), Cluster: "cluster-" + strconv.Itoa(rv%2), ListReason: store.Reason("reason-" + strconv.Itoa(rv)),
		LastEvent: at, LastBookmark: at.Add(time.Second), LastList: at.Add(2 * time.Second),
		Skipped: rv%2 == 1,
	}
}

// cm is Object with defaults for the arguments that most tests do not need.
func cm(ns, name string, rv int, labels ...string) *object.Object {
	var m map[string]string
	for i := 0; i+1 < len(labels); i += 2 {
		if m == nil {
			m = make(map[string]string)
		}
		m[labels[i]] = labels[i+1]
	}
	return Object(ns, name, "uid-"+ns+"-"+name, strconv.Itoa(rv), m, "payload of "+name)
}

// none is the zero checkpoint, which leaves the stored one as it is.
var none store.Checkpoint
