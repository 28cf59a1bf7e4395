package kubectl

import (
	"errors"
	"slices"
	"strings"
)

// targets are named by the arguments: either types, whose objects are listed, or objects.
type targets struct {
	types   []*resource
	objects []target

	// single is set if one object is named. It is printed without a list around it.
	single bool
}

type target struct {
	*resource
	object string // its name
}

var errMixed = errors.New("there is no need to specify a resource type as a separate argument when passing arguments in resource/name form " +
	"(e.g. 'snapcache get resource/<resource_name>' instead of 'snapcache get resource resource/<resource_name>'")

// parse finds the targets of a command line: "pods,svc", "pods a b", "pod/a svc/b".
func (rs resources) parse(args []string, o Options) (targets, error) {
	if len(args) == 0 {
		return targets{}, errors.New("you must specify the type of resource to get")
	}
	inOne := 0
	if types := unique(args[0]); len(args) > 1 && len(types) > 1 {
		var each []string // "pods,svc a b" is pods/a pods/b svc/a svc/b
		for _, t := range types {
			for _, name := range args[1:] {
				each = append(each, t+"/"+name)
			}
		}
		args = each
	}
	for _, arg := range args {
		if strings.Contains(arg, "/") {
			inOne++
		}
	}
	switch {
	case inOne == len(args):
		return rs.parsePairs(args, o)
	case inOne > 0:
		return targets{}, errMixed
	case len(args) == 1:
		types, err := rs.parseTypes(args[0])
		return targets{types: types}, err
	case o.LabelSelector != "" || o.FieldSelector != "":
		return targets{}, errors.New("name cannot be provided when a selector is specified")
	}
	types, err := rs.parseTypes(args[0])
	if err != nil {
		return targets{}, err
	}
	if len(types) != 1 {
		return targets{}, errors.New("you must specify only one resource")
	}
	t := targets{single: len(args) == 2}
	for _, name := range args[1:] {
		t.objects = append(t.objects, target{types[0], name})
	}
	return t, t.check(o)
}

// parseTypes reads "pods,svc,all".
func (rs resources) parseTypes(arg string) (found []*resource, err error) {
	for _, name := range unique(arg) {
		more := rs.inCategory(name)
		if len(more) == 0 {
			r, err := rs.find(name)
			if err != nil {
				return nil, err
			}
			more = []*resource{r}
		}
		for _, r := range more {
			if !slices.Contains(found, r) {
				found = append(found, r)
			}
		}
	}
	return found, nil
}

// parsePairs reads "pod/a" "svc/b".
func (rs resources) parsePairs(args []string, o Options) (targets, error) {
	if o.LabelSelector != "" || o.FieldSelector != "" {
		return targets{}, errors.New("selectors and the all flag cannot be used when passing resource/name arguments")
	}
	t := targets{single: len(args) == 1}
	for _, arg := range args {
		name, object, _ := strings.Cut(arg, "/")
		switch {
		case strings.Contains(object, "/"):
			return t, errors.New("arguments in resource/name form may not have more than one slash")
		case name == "" || object == "" || len(unique(name)) != 1:
			return t, errors.New("arguments in resource/name form must have a single resource and name")
		}
		r, err := rs.find(name)
		if err != nil {
			return t, err
		}
		t.objects = append(t.objects, target{r, object})
	}
	return t, t.check(o)
}

func (t targets) check(o Options) error {
	for _, x := range t.objects {
		if o.AllNamespaces && x.namespaced {
			return errors.New("a resource cannot be retrieved by name across all namespaces")
		}
	}
	return nil
}

// unique splits a list at its commas.
func unique(list string) (parts []string) {
	for part := range strings.SplitSeq(list, ",") {
		if !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return parts
}
