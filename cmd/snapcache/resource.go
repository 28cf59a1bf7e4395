package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/localapi"
)

// selectCollections returns the collections that a RESOURCE argument selects: all for "", all of one
// resource (one per namespace, if it is cached so), or the one of an ID such as "pods@shop".
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
	for _, called := range []func(localapi.Collection, string) bool{byName, byShortName} {
		for _, c := range all {
			if called(c, wanted.Resource) && inVersion(c, wanted) && (!scoped || c.Namespace == namespace) {
				found = append(found, c)
			}
		}
		if len(found) > 0 {
			break // a name counts more than a short name
		}
	}
	groups := sets.New[string]()
	for _, c := range found {
		groups.Insert(c.Group)
	}
	switch {
	case len(found) == 0:
		return nil, usagef("%s is not cached: %s", resource, cachedList(all))
	case len(groups) > 1 && groups.Has(""):
		// As in kubectl, a name without a group is first one of the core group.
		return slices.DeleteFunc(found, func(c localapi.Collection) bool { return c.Group != "" }), nil
	case len(groups) > 1:
		return nil, usagef("%s is ambiguous: %s", resource, cachedList(found))
	}
	return found, nil
}

func byName(c localapi.Collection, name string) bool {
	return name == c.Resource || name == c.Singular || name == strings.ToLower(c.Kind)
}

func byShortName(c localapi.Collection, name string) bool { return slices.Contains(c.ShortNames, name) }

func inVersion(c localapi.Collection, wanted config.ResourceName) bool {
	return (wanted.Group == "" || wanted.Group == c.Group) && (wanted.Version == "" || wanted.Version == c.Version || c.Version == "")
}

// inNamespace drops collections that can't hold objects of a namespace. If none is left, it returns
// an error: a namespace that is not cached is not empty.
func inNamespace(collections []localapi.Collection, namespace string) ([]localapi.Collection, error) {
	found := slices.DeleteFunc(slices.Clone(collections), func(c localapi.Collection) bool {
		return namespace != "" && c.Namespace != "" && c.Namespace != namespace
	})
	if len(found) == 0 && len(collections) > 0 {
		return nil, usagef("namespace %s is not cached: %s", namespace, cachedList(collections))
	}
	return found, nil
}

func cachedList(collections []localapi.Collection) string {
	if len(collections) == 0 {
		return "nothing is"
	}
	return "there is " + strings.Join(ids(collections), ", ")
}

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

// notSynced is the error for collections that are corrupt or have no complete list.
func notSynced(collections []localapi.Collection) error {
	var ids []string
	var unreadable []error
	why := ""
	for _, c := range collections {
		if c.Corrupt {
			unreadable = append(unreadable, withCode(exitCorrupt, errors.New(c.Problem)))
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
	return errors.Join(append(unreadable, withCode(exitNotSynced, fmt.Errorf("%s: %w: no list is complete yet%s; snapcache status shows the progress",
		strings.Join(ids, ", "), localapi.ErrNotSynced, why)))...)
}

func nothingCached() error {
	return withCode(exitNotSynced, fmt.Errorf("nothing is cached yet: %w; snapcache status shows the progress", localapi.ErrNotSynced))
}
