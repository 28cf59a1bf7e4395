package config

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/snapcache/snapcache/object"
)

// keptPaths can't be dropped: type, identity, version, and the labels, which selectors match.
var keptPaths = []string{
	"apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion", "metadata.labels",
}

func (c *AgentConfiguration) validateResources(p *problems) {
	if len(c.Resources) == 0 {
		p.add("resources", "the list is empty: name a resource, or leave the field out for the default ones")
	}
	first := make(map[schema.GroupResource]int, len(c.Resources))
	for i := range c.Resources {
		r := &c.Resources[i]
		field := fmt.Sprintf("resources[%d]", i)
		j, twice := first[r.Resource.GroupResource()]
		switch {
		case r.Resource == ResourceName{}:
			p.add(field+".resource", "missing: name a resource, as in pods, deployments.apps or widgets.v1.example.com")
		case twice:
			p.add(field+".resource", "%s is already listed as resources[%d] (%s): a resource can be listed once",
				r.Resource, j, c.Resources[j].Resource)
		default:
			first[r.Resource.GroupResource()] = i
		}
		// A wrong sentence is reported at its own field, not for Secrets too.
		if r.Resource.IsSecrets() && c.Secrets.StoreOnDisk == "" {
			p.add(field+".resource", "Secrets are refused unless the file has, at its top level, secrets: {storeOnDisk: %q}", SecretsConsent)
		}
		r.validate(p, field)
	}
}

func (r *Resource) validate(p *problems, field string) {
	first := make(map[string]int, len(r.Namespaces))
	for i, namespace := range r.Namespaces {
		at := fmt.Sprintf("%s.namespaces[%d]", field, i)
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			p.add(at, "%s is not a namespace: at most 63 lower-case letters, digits and '-', with a letter or digit at both ends", quote(namespace))
		} else if j, twice := first[namespace]; twice {
			p.add(at, "%s is already listed as namespaces[%d]", namespace, j)
		} else {
			first[namespace] = i
		}
	}
	if _, err := labels.Parse(r.LabelSelector); err != nil {
		// The library starts some errors with the path of a field, and has none here.
		p.add(field+".labelSelector", "%s", strings.ReplaceAll(err.Error(), "<nil>: ", ""))
	}
	if _, err := fields.ParseSelector(r.FieldSelector); err != nil {
		p.add(field+".fieldSelector", "%v", err)
	}
	r.Transform.validate(p, field+".transform")
	r.Staleness.validate(p, field+".staleness")
	names := make(map[string]int, len(r.Indexes))
	for i := range r.Indexes {
		at := fmt.Sprintf("%s.indexes[%d]", field, i)
		index := &r.Indexes[i]
		index.validate(p, at, &r.Transform)
		if j, twice := names[index.Name]; twice && index.Name != "" {
			p.add(at+".name", "%s is already the name of indexes[%d]", quote(index.Name), j)
		} else {
			names[index.Name] = i
		}
	}
}

func (t *Transform) validate(p *problems, field string) {
	for i, path := range t.Drop {
		at := fmt.Sprintf("%s.drop[%d]", field, i)
		if err := checkFieldPath(path); err != nil {
			p.add(at, "%v", err)
		} else if slices.ContainsFunc(keptPaths, func(kept string) bool { return within(kept, path) || within(path, kept) }) {
			p.add(at, "%s can't be dropped: apiVersion, kind and metadata's name, namespace, uid, resourceVersion and labels are needed", path)
		}
	}
}

func (s *Staleness) validate(p *problems, field string) {
	oneOf(p, field+".policy", s.Policy, StalenessServe, StalenessWarn, StalenessRefuse)
	field += ".maxAge"
	switch d := s.MaxAge.Duration; {
	case s.Policy != StalenessRefuse && d != 0:
		p.add(field, "only policy: refuse has a maximum age: remove the field, or set policy: refuse")
	case s.Policy == StalenessRefuse && d == 0:
		p.add(field, "missing: policy: refuse needs the age at which requests are refused, as in 1h")
	case s.Policy == StalenessRefuse:
		validateDuration(p, field, d, MinStalenessAge, MaxStalenessAge, "")
	}
}

func (x *Index) validate(p *problems, field string, t *Transform) {
	switch {
	case x.Name == "":
		p.add(field+".name", "missing: an index needs a name")
	case x.Name == NamespaceIndex:
		p.add(field+".name", "%q is the name of the index that every resource has: choose another", NamespaceIndex)
	case len(validation.IsValidLabelValue(x.Name)) > 0:
		p.add(field+".name", "%s is not an index name: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends", quote(x.Name))
	}
	switch {
	case x.Field == "" && x.Label == "":
		p.add(field, "the index has neither field nor label: give one of them")
		return
	case x.Field != "" && x.Label != "":
		p.add(field, "the index has both field and label: give one of them, and make a second index for the other")
		return
	case x.Label != "":
		if len(validation.IsQualifiedName(x.Label)) > 0 {
			p.add(field+".label", "%s is not a label key, as in app or app.kubernetes.io/name", quote(x.Label))
		}
		return
	}
	if err := checkFieldPath(x.Field); err != nil {
		p.add(field+".field", "%v", err)
	} else if !t.KeepManagedFields && within(x.Field, "metadata.managedFields") {
		p.add(field+".field", "%s is dropped unless transform.keepManagedFields is true, so the index would always be empty", x.Field)
	} else if i := slices.IndexFunc(t.Drop, func(path string) bool { return within(x.Field, path) }); i >= 0 {
		p.add(field+".field", "%s is dropped by transform.drop[%d], so the index would always be empty", x.Field, i)
	}
}

func checkFieldPath(path string) error {
	if !object.IsPath(path) {
		return fmt.Errorf(`%s is not the path of a field, as in spec.nodeName or metadata.annotations.example\.com/owner: `+
			`give keys of letters, digits, "-", "_" and "/" with single dots between them`, quote(path))
	}
	return nil
}
