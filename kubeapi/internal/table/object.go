package table

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// The texts of cells without a value.
const (
	none    = "<none>"
	unset   = "<unset>"
	unknown = "<unknown>"
)

// object is the part that all kinds have. Each kind's type has only the fields that its row needs.
type object struct {
	Metadata struct {
		Name              string                  `json:"name"`
		Labels            map[string]string       `json:"labels"`
		Annotations       map[string]string       `json:"annotations"`
		CreationTimestamp metav1.Time             `json:"creationTimestamp"`
		DeletionTimestamp *metav1.Time            `json:"deletionTimestamp"`
		OwnerReferences   []metav1.OwnerReference `json:"ownerReferences"`
	} `json:"metadata"`
}

func (o *object) name() string         { return o.Metadata.Name }
func (o *object) age(now clock) string { return now.since(o.Metadata.CreationTimestamp.Time) }
func (o *object) deleted() bool        { return o.Metadata.DeletionTimestamp != nil }

// cells returns those of a kind with name and age alone.
func (o *object) cells(now clock) []any { return []any{o.name(), o.age(now)} }

// defaultCells returns those of defaultColumns.
func (o *object) defaultCells(clock) []any {
	return []any{o.name(), o.Metadata.CreationTimestamp.UTC().Format(time.RFC3339)}
}

// clock prints times as seen from one point in time.
type clock struct{ now time.Time }

// since returns the time since t for people, such as "5m30s".
func (c clock) since(t time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return duration.HumanDuration(c.now.Sub(t))
}

// condition is a condition of a status.
type condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	Reason string `json:"reason"`
}

func find(conditions []condition, kind string) (condition, bool) {
	for _, c := range conditions {
		if c.Type == kind {
			return c, true
		}
	}
	return condition{}, false
}

func isTrue(conditions []condition, kind string) bool {
	c, _ := find(conditions, kind)
	return c.Status == string(metav1.ConditionTrue)
}
