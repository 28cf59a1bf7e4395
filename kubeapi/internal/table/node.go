package table

import (
	"cmp"
	"slices"
	"strings"
)

type node struct {
	object
	Spec struct {
		Unschedulable bool `json:"unschedulable"`
	} `json:"spec"`
	Status struct {
		Conditions []condition   `json:"conditions"`
		Addresses  []nodeAddress `json:"addresses"`
		NodeInfo   struct {
			KubeletVersion          string `json:"kubeletVersion"`
			OSImage                 string `json:"osImage"`
			KernelVersion           string `json:"kernelVersion"`
			ContainerRuntimeVersion string `json:"containerRuntimeVersion"`
			Architecture            string `json:"architecture"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

type nodeAddress struct {
	Type    string `json:"type"`
	Address string `json:"address"`
}

func (n *node) cells(now clock) []any {
	i := n.Status.NodeInfo
	kernel := cmp.Or(i.KernelVersion, unknown)
	if i.Architecture != "" {
		kernel += " (" + i.Architecture + ")"
	}
	return []any{
		n.name(), n.state(), n.roles(), n.age(now), i.KubeletVersion, n.address("InternalIP"), n.address("ExternalIP"),
		cmp.Or(i.OSImage, unknown), kernel, cmp.Or(i.ContainerRuntimeVersion, unknown),
	}
}

func (n *node) state() string {
	state := "Unknown"
	if c, ok := find(n.Status.Conditions, "Ready"); ok {
		state = "NotReady"
		if c.Status == "True" {
			state = "Ready"
		}
	}
	if n.Spec.Unschedulable {
		state += ",SchedulingDisabled"
	}
	return state
}

// roles returns the roles that the node's labels name, sorted.
func (n *node) roles() string {
	var roles []string
	for key, value := range n.Metadata.Labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok {
			roles = append(roles, role)
		} else if key == "kubernetes.io/role" {
			roles = append(roles, value)
		}
	}
	slices.Sort(roles)
	roles = slices.DeleteFunc(slices.Compact(roles), func(role string) bool { return role == "" })
	return cmp.Or(strings.Join(roles, ","), none)
}

func (n *node) address(kind string) string {
	for _, a := range n.Status.Addresses {
		if a.Type == kind {
			return a.Address
		}
	}
	return none
}

type lease struct {
	object
	Spec struct {
		HolderIdentity string `json:"holderIdentity"`
	} `json:"spec"`
}

func (l *lease) cells(now clock) []any {
	return []any{l.name(), l.Spec.HolderIdentity, l.age(now)}
}

type runtimeClass struct {
	object
	Handler string `json:"handler"`
}

func (c *runtimeClass) cells(now clock) []any {
	return []any{c.name(), c.Handler, c.age(now)}
}
