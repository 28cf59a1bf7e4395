package table

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ignored is a JSON value that is only counted.
type ignored struct{}

func (*ignored) UnmarshalJSON([]byte) error { return nil }

type configMap struct {
	object
	Data       map[string]ignored `json:"data"`
	BinaryData map[string]ignored `json:"binaryData"`
}

func (c *configMap) cells(now clock) []any {
	return []any{c.name(), int64(len(c.Data) + len(c.BinaryData)), c.age(now)}
}

type secret struct {
	object
	Type string             `json:"type"`
	Data map[string]ignored `json:"data"`
}

func (s *secret) cells(now clock) []any {
	return []any{s.name(), s.Type, int64(len(s.Data)), s.age(now)}
}

type namespace struct {
	object
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

func (n *namespace) cells(now clock) []any {
	return []any{n.name(), n.Status.Phase, n.age(now)}
}

type resourceQuota struct {
	object
	Status struct {
		Hard map[string]string `json:"hard"` // in the form in which a server prints them
		Used map[string]string `json:"used"`
	} `json:"status"`
}

func (q *resourceQuota) cells(now clock) []any {
	var requests, limits []string
	for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
		text := fmt.Sprintf("%s: %s/%s", name, cmp.Or(q.Status.Used[name], "0"), q.Status.Hard[name])
		if strings.HasPrefix(name, "limits.") {
			limits = append(limits, text)
		} else {
			requests = append(requests, text)
		}
	}
	return []any{q.name(), strings.Join(requests, ", "), strings.Join(limits, ", "), q.age(now)}
}

type roleBinding struct {
	object
	RoleRef struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"roleRef"`
	Subjects []struct {
		Kind      string `json:"kind"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"subjects"`
}

func (b *roleBinding) cells(now clock) []any {
	var users, groups, accounts []string
	for _, s := range b.Subjects {
		switch s.Kind {
		case "User":
			users = append(users, s.Name)
		case "Group":
			groups = append(groups, s.Name)
		case "ServiceAccount":
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return []any{
		b.name(), b.RoleRef.Kind + "/" + b.RoleRef.Name, b.age(now),
		strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", "),
	}
}

type priorityClass struct {
	object
	Value            int64  `json:"value"`
	GlobalDefault    bool   `json:"globalDefault"`
	PreemptionPolicy string `json:"preemptionPolicy"`
}

func (c *priorityClass) cells(now clock) []any {
	return []any{c.name(), c.Value, c.GlobalDefault, c.age(now), c.PreemptionPolicy}
}
