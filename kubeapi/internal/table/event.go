package table

import (
	"cmp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// eventObject is the reference of an event to its object.
type eventObject struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	FieldPath string `json:"fieldPath"`
}

type eventSource struct {
	Component string `json:"component"`
	Host      string `json:"host"`
}

// eventBase are the fields that have the same names in both groups.
type eventBase struct {
	object
	Type              string           `json:"type"`
	Reason            string           `json:"reason"`
	ReportingInstance string           `json:"reportingInstance"`
	EventTime         metav1.MicroTime `json:"eventTime"`
	Series            *struct {
		Count            int64            `json:"count"`
		LastObservedTime metav1.MicroTime `json:"lastObservedTime"`
	} `json:"series"`
}

// coreEvent is an Event of the core group, whose fields have other names in events.k8s.io.
type coreEvent struct {
	eventBase
	InvolvedObject     eventObject `json:"involvedObject"`
	Message            string      `json:"message"`
	Source             eventSource `json:"source"`
	FirstTimestamp     metav1.Time `json:"firstTimestamp"`
	LastTimestamp      metav1.Time `json:"lastTimestamp"`
	Count              int64       `json:"count"`
	ReportingComponent string      `json:"reportingComponent"`
}

// event is an Event of events.k8s.io.
type event struct {
	eventBase
	Regarding           eventObject `json:"regarding"`
	Note                string      `json:"note"`
	Source              eventSource `json:"deprecatedSource"`
	FirstTimestamp      metav1.Time `json:"deprecatedFirstTimestamp"`
	LastTimestamp       metav1.Time `json:"deprecatedLastTimestamp"`
	Count               int64       `json:"deprecatedCount"`
	ReportingController string      `json:"reportingController"`
}

func (e *coreEvent) cells(now clock) []any {
	converted := event{
		e.eventBase, e.InvolvedObject, e.Message, e.Source, e.FirstTimestamp, e.LastTimestamp, e.Count, e.ReportingComponent,
	}
	return converted.cells(now)
}

func (e *event) cells(now clock) []any {
	first, last, count := e.FirstTimestamp.Time, e.LastTimestamp.Time, cmp.Or(e.Count, 1)
	if first.IsZero() {
		first = e.EventTime.Time
	}
	if last.IsZero() {
		last = first
	}
	if e.Series != nil {
		last, count = e.Series.LastObservedTime.Time, e.Series.Count
	}
	target := strings.ToLower(e.Regarding.Kind)
	if e.Regarding.Name != "" {
		target += "/" + e.Regarding.Name
	}
	source := cmp.Or(e.Source.Component, e.ReportingController)
	if host := cmp.Or(e.Source.Host, e.ReportingInstance); host != "" {
		source += ", " + host
	}
	return []any{
		now.since(last), e.Type, e.Reason, target, e.Regarding.FieldPath, source, strings.TrimSpace(e.Note),
		now.since(first), count, e.name(),
	}
}
