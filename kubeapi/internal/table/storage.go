package table

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
)

// storageClassAnnotation had the name of the class before there was a field for it, and still wins.
const storageClassAnnotation = "volume.beta.kubernetes.io/storage-class"

// capacity is a list of resources of which only the storage matters. A server sends quantities in the
// form in which it prints them.
type capacity struct {
	Storage string `json:"storage"`
}

func (c capacity) String() string { return cmp.Or(c.Storage, "0") }

// modeNames are the short names of access modes, in the order in which they are printed.
var modeNames = []struct{ mode, name string }{
	{"ReadWriteOnce", "RWO"}, {"ReadOnlyMany", "ROX"}, {"ReadWriteMany", "RWX"}, {"ReadWriteOncePod", "RWOP"},
}

func accessModes(modes []string) string {
	var names []string
	for _, m := range modeNames {
		if slices.Contains(modes, m.mode) {
			names = append(names, m.name)
		}
	}
	return strings.Join(names, ",")
}

// volumeSpec are the fields that claims and volumes have in common.
type volumeSpec struct {
	StorageClassName          string  `json:"storageClassName"`
	VolumeAttributesClassName *string `json:"volumeAttributesClassName"`
	VolumeMode                *string `json:"volumeMode"`
}

func (s *volumeSpec) class(o *object) string {
	if class, ok := o.Metadata.Annotations[storageClassAnnotation]; ok {
		return class
	}
	return s.StorageClassName
}

type volumeClaim struct {
	object
	Spec struct {
		volumeSpec
		VolumeName string `json:"volumeName"`
	} `json:"spec"`
	Status struct {
		Phase       string   `json:"phase"`
		AccessModes []string `json:"accessModes"`
		Capacity    capacity `json:"capacity"`
	} `json:"status"`
}

func (c *volumeClaim) cells(now clock) []any {
	size, modes := "", ""
	if c.Spec.VolumeName != "" {
		size, modes = c.Status.Capacity.String(), accessModes(c.Status.AccessModes)
	}
	return []any{
		c.name(), phase(&c.object, c.Status.Phase), c.Spec.VolumeName, size, modes, c.Spec.class(&c.object),
		ptr.Deref(c.Spec.VolumeAttributesClassName, unset), c.age(now), ptr.Deref(c.Spec.VolumeMode, unset),
	}
}

type volume struct {
	object
	Spec struct {
		volumeSpec
		Capacity                      capacity `json:"capacity"`
		AccessModes                   []string `json:"accessModes"`
		PersistentVolumeReclaimPolicy string   `json:"persistentVolumeReclaimPolicy"`
		ClaimRef                      *struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"claimRef"`
	} `json:"spec"`
	Status struct {
		Phase  string `json:"phase"`
		Reason string `json:"reason"`
	} `json:"status"`
}

func (v *volume) cells(now clock) []any {
	claim := ""
	if ref := v.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
	}
	return []any{
		v.name(), v.Spec.Capacity.String(), accessModes(v.Spec.AccessModes),
		v.Spec.PersistentVolumeReclaimPolicy, phase(&v.object, v.Status.Phase), claim, v.Spec.class(&v.object),
		ptr.Deref(v.Spec.VolumeAttributesClassName, unset), v.Status.Reason, v.age(now), ptr.Deref(v.Spec.VolumeMode, unset),
	}
}

// phase returns the phase of a claim or a volume.
func phase(o *object, phase string) string {
	if o.deleted() {
		return "Terminating"
	}
	return phase
}

type storageClass struct {
	object
	Provisioner          string `json:"provisioner"`
	ReclaimPolicy        string `json:"reclaimPolicy"`
	VolumeBindingMode    string `json:"volumeBindingMode"`
	AllowVolumeExpansion bool   `json:"allowVolumeExpansion"`
}

func (c *storageClass) cells(now clock) []any {
	name := c.name()
	for _, domain := range []string{"storageclass.kubernetes.io", "storageclass.beta.kubernetes.io"} {
		if c.Metadata.Annotations[domain+"/is-default-class"] == "true" {
			name += " (default)"
			break
		}
	}
	return []any{
		name, c.Provisioner, cmp.Or(c.ReclaimPolicy, "Delete"), cmp.Or(c.VolumeBindingMode, "Immediate"),
		c.AllowVolumeExpansion, c.age(now),
	}
}

type csiNode struct {
	object
	Spec struct {
		Drivers []struct{} `json:"drivers"`
	} `json:"spec"`
}

func (n *csiNode) cells(now clock) []any {
	return []any{n.name(), int64(len(n.Spec.Drivers)), n.age(now)}
}

type volumeAttachment struct {
	object
	Spec struct {
		Attacher string `json:"attacher"`
		NodeName string `json:"nodeName"`
		Source   struct {
			PersistentVolumeName string `json:"persistentVolumeName"`
		} `json:"source"`
	} `json:"spec"`
	Status struct {
		Attached bool `json:"attached"`
	} `json:"status"`
}

func (a *volumeAttachment) cells(now clock) []any {
	return []any{
		a.name(), a.Spec.Attacher, a.Spec.Source.PersistentVolumeName, a.Spec.NodeName, a.Status.Attached, a.age(now),
	}
}
