package selector

import (
	"cmp"
	"slices"
	"strings"

	"github.com/snapcache/snapcache/store"
)

// kind has the differences between resources.
type kind struct {
	fields      []field           // without metadata.name and metadata.namespace
	aliases     map[string]string // further names of fields
	noNamespace bool              // metadata.namespace can't be selected
	unknown     string            // the error for any other field, a format; empty for the usual one
}

// index returns the place of a field, -1 if the kind has none of that name.
func (k kind) index(name string) int {
	return slices.IndexFunc(k.fields, func(x field) bool { return x.name == name })
}

// field is a field that selectors can name. Its value is a text, a number or a bool in the object.
type field struct {
	name   string
	path   string // in the object's JSON, names joined by dots; empty if it never has a value
	or     string // the name of the field whose value it has if its own is empty
	absent string // the value if the object has none
}

// kinds are the built-in resources with fields, by resource and group. The table has the values of
// kube-apiserver 1.36; its sources are the functions passed to AddFieldLabelConversionFunc (which names are
// accepted) and the GetAttrs of each registry (their values).
var kinds = map[string]kind{
	"pods": {
		fields: append(
			stored("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
				"status.phase", "status.podIP", "status.nominatedNodeName"),
			field{name: "spec.hostNetwork", path: "spec.hostNetwork", absent: "false"},
			field{name: "status.podIPs"}),
		aliases: map[string]string{"spec.host": "spec.nodeName"},
	},
	"events": {fields: append(
		append(reference("involvedObject"), stored("reason", "reportingComponent", "type")...),
		field{name: "source", path: "source.component", or: "reportingComponent"})},
	"events.events.k8s.io": {fields: append(reference("regarding"), stored("reason", "reportingController", "type")...)},
	"namespaces":           {fields: stored("status.phase"), noNamespace: true},
	"nodes": {
		fields:      []field{{name: "spec.unschedulable", path: "spec.unschedulable", absent: "false"}},
		noNamespace: true,
	},
	"secrets":                {fields: stored("type")},
	"services":               {fields: stored("spec.clusterIP", "spec.type")},
	"replicationcontrollers": {fields: []field{{name: "status.replicas", path: "status.replicas", absent: "0"}}},
	"jobs.batch": {
		fields:  []field{{name: "status.successful", path: "status.succeeded", absent: "0"}},
		unknown: "field label %q not supported for Job",
	},
	"certificatesigningrequests.certificates.k8s.io": {fields: stored("spec.signerName"), noNamespace: true},
	"clustertrustbundles.certificates.k8s.io":        {fields: stored("spec.signerName"), noNamespace: true},
	"podcertificaterequests.certificates.k8s.io": {
		fields:      stored("spec.signerName", "spec.podName", "spec.nodeName"),
		noNamespace: true,
	},
	"resourceslices.resource.k8s.io": {
		fields:      stored("spec.nodeName", "spec.driver"),
		noNamespace: true,
		unknown:     "field label not supported for resource.k8s.io/VERSION, Kind=ResourceSlice: %s",
	},
}

// kindOf returns the kind of a collection's resource, with a kube-apiserver's error for a field that can't
// be selected.
func kindOf(info store.Info, d store.Description) kind {
	k, known := kinds[info.GVR().GroupResource().String()]
	switch {
	case d.Custom:
		k = kind{noNamespace: !info.Namespaced}
		for _, path := range d.SelectableFields {
			k.fields = append(k.fields, stored(strings.TrimPrefix(path, "."))...)
		}
	case !known:
		return kind{unknown: `%q is not a known field selector: only "metadata.name", "metadata.namespace"`}
	}
	k.unknown = strings.ReplaceAll(cmp.Or(k.unknown, "field label not supported: %s"), "VERSION", info.Version)
	return k
}

// stored returns fields whose names are their paths.
func stored(names ...string) []field {
	fields := make([]field, len(names))
	for i, name := range names {
		fields[i] = field{name: name, path: name}
	}
	return fields
}

// reference returns the fields of an object reference.
func reference(path string) []field {
	return stored(path+".kind", path+".namespace", path+".name", path+".uid", path+".apiVersion",
		path+".resourceVersion", path+".fieldPath")
}
