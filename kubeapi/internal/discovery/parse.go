package discovery

import (
	"encoding/json"
	"errors"
	"fmt"

	apidiscovery "k8s.io/api/apidiscovery/v2"
)

// Parse returns the documents of a server whose aggregated ones, at /api and at /apis, are given. Its other documents are
// made of these; they lack the hashes of storage versions.
func Parse(core, groups []byte) (*Documents, error) {
	one, err := parseGroups(core)
	if err == nil && len(one) != 1 {
		err = fmt.Errorf("the document of the core group has %d groups", len(one))
	}
	if err != nil {
		return nil, err
	}
	named, err := parseGroups(groups)
	if err != nil {
		return nil, err
	}
	d := &Documents{byPath: map[string]document{}}
	d.addAll(one[0], named)
	return d, nil
}

// parseGroups returns the groups of an aggregated document. Before Kubernetes 1.30 its version is v2beta1, with the
// same fields.
func parseGroups(raw []byte) ([]apidiscovery.APIGroupDiscovery, error) {
	var list apidiscovery.APIGroupDiscoveryList
	if err := json.Unmarshal(raw, &list); err != nil || list.Kind != "APIGroupDiscoveryList" {
		return nil, errors.New("the answer is no aggregated discovery, which Kubernetes has from 1.27")
	}
	for _, g := range list.Items {
		if len(g.Versions) == 0 {
			return nil, fmt.Errorf("the group %q has no versions", g.Name)
		}
	}
	if list.Items == nil {
		list.Items = []apidiscovery.APIGroupDiscovery{}
	}
	return list.Items, nil
}
