package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/localapi"
)

// selectCollections returns the collections that a RESOURCE argument means: all
// for none, those of one resource (one for each namespace, where it is cached so),
// or the one of an ID such as "pods@shop".
func selectCollections(all []localapi.Collection, resource string) ([]localapi.Collection, error) {
	if resource == "" {
		return all, nil
	}
	name, namespace, scoped := strings.Cut(resource, "@")
	wanted, err := config.ParseResourceName(strings.ToLower(name))
	if err != nil {
		return nil, usagef("%w", err)
	}
	var found []localapi.Collection
	groups := map[string]bool{}
	for _, c := range all {
		if !isResource(c, wanted) || scoped && c.Namespace != namespace {
			continue
		}
		found = append(found, c)
		groups[c.Group] = true
	}
	switch {
	case len(found) == 0:
		return nil, usagef("%s is not cached: %s", resource, cachedList(all))
	case len(groups) > 1 && groups[""]:
		// As with kubectl, a name without a group is the core group's first.
		return slices.DeleteFunc(found, func(c localapi.Collection) bool { return c.Group != "" }), nil
	case len(groups) > 1:
		return nil, usagef("%s is ambiguous: %s", resource, cachedList(found))
	}
	return found, nil
}

// isResource says whether a collection is of a resource, named in lower case by
// its plural or its kind, with or without version and group.
func isResource(c localapi.Collection, wanted config.ResourceName) bool {
	return (wanted.Resource == c.Resource || wanted.Resource == strings.ToLower(c.Kind)) &&
		(wanted.Group == "" || wanted.Group == c.Group) &&
		(wanted.Version == "" || wanted.Version == c.Version || c.Version == "")
}

// inNamespace leaves out what can't hold objects of a namespace. It is an error
// where nothing is left: that the namespace is not cached does not make it empty.
func inNamespace(collections []localapi.Collection, namespace string) ([]localapi.Collection, error) {
	if namespace == "" {
		return collections, nil
	}
	var found []localapi.Collection
	for _, c := range collections {
		if c.Namespace == "" || c.Namespace == namespace {
			found = append(found, c)
		}
	}
	if len(found) == 0 && len(collections) > 0 {
		return nil, usagef("nothing of namespace %s is cached: %s", namespace, cachedList(collections))
	}
	return found, nil
}

// cachedList names what there is.
func cachedList(collections []localapi.Collection) string {
	if len(collections) == 0 {
		return "nothing is"
	}
	ids := make([]string, len(collections))
	for i, c := range collections {
		ids[i] = c.ID
	}
	return "there is " + strings.Join(ids, ", ")
}

// synced parts the collections into those that can be read and those that can't.
func synced(collections []localapi.Collection) (yes, no []localapi.Collection) {
	for _, c := range collections {
		if c.Synced {
			yes = append(yes, c)
		} else {
			no = append(no, c)
		}
	}
	return yes, no
}

// notSynced is the error for collections that can not be read: those without a
// complete list, and those that are damaged as a whole.
func notSynced(collections []localapi.Collection) error {
	var ids []string
	var unreadable []error
	why := ""
	for _, c := range collections {
		if c.Damaged {
			unreadable = append(unreadable, withCode(exitDamaged, errors.New(c.Problem)))
			continue
		}
		ids = append(ids, c.ID)
		if why == "" && c.Problem != "" {
			why = fmt.Sprintf(" (%s: %s)", c.ID, c.Problem)
		}
	}
	if len(ids) == 0 {
		return errors.Join(unreadable...)
	}
	return errors.Join(append(unreadable, withCode(exitNotSynced, fmt.Errorf("%s: %w: no list of it is complete yet%s; snapcache status tells how far the agent is",
		strings.Join(ids, ", "), localapi.ErrNotSynced, why)))...)
}

// nothingCached is the error for a cache without collections.
func nothingCached() error {
	return withCode(exitNotSynced, fmt.Errorf("nothing is cached yet: %w; snapcache status tells how far the agent is", localapi.ErrNotSynced))
}
