package table

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
)

type jobSpec struct {
	Completions *int32                `json:"completions"`
	Parallelism int32                 `json:"parallelism"`
	Selector    *metav1.LabelSelector `json:"selector"`
	Template    podTemplate           `json:"template"`
}

type job struct {
	object
	Spec   jobSpec `json:"spec"`
	Status struct {
		Conditions     []condition  `json:"conditions"`
		StartTime      *metav1.Time `json:"startTime"`
		CompletionTime *metav1.Time `json:"completionTime"`
		Succeeded      int32        `json:"succeeded"`
	} `json:"status"`
}

func (j *job) cells(now clock) []any {
	cells := []any{j.name(), j.state(), j.completions(), j.duration(now), j.age(now)}
	return append(append(cells, j.Spec.Template.containers()...), metav1.FormatLabelSelector(j.Spec.Selector))
}

func (j *job) state() string {
	is := func(kind string) bool { return isTrue(j.Status.Conditions, kind) }
	switch {
	case is("Complete"):
		return "Complete"
	case is("Failed"):
		return "Failed"
	case j.deleted():
		return "Terminating"
	case is("Suspended"):
		return "Suspended"
	case is("FailureTarget"):
		return "FailureTarget"
	case is("SuccessCriteriaMet"):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

// completions returns how many pods have succeeded, of how many. Without completions, the success of
// one of several parallel pods is enough.
func (j *job) completions() string {
	done := j.Status.Succeeded
	switch {
	case j.Spec.Completions != nil:
		return fmt.Sprintf("%d/%d", done, *j.Spec.Completions)
	case j.Spec.Parallelism > 1:
		return fmt.Sprintf("%d/1 of %d", done, j.Spec.Parallelism)
	}
	return fmt.Sprintf("%d/1", done)
}

func (j *job) duration(now clock) string {
	if j.Status.StartTime == nil {
		return ""
	}
	end := now.now
	if j.Status.CompletionTime != nil {
		end = j.Status.CompletionTime.Time
	}
	return duration.HumanDuration(end.Sub(j.Status.StartTime.Time))
}

type cronJob struct {
	object
	Spec struct {
		Schedule    string  `json:"schedule"`
		TimeZone    *string `json:"timeZone"`
		Suspend     *bool   `json:"suspend"`
		JobTemplate struct {
			Spec jobSpec `json:"spec"`
		} `json:"jobTemplate"`
	} `json:"spec"`
	Status struct {
		Active           []struct{}   `json:"active"`
		LastScheduleTime *metav1.Time `json:"lastScheduleTime"`
	} `json:"status"`
}

func (c *cronJob) cells(now clock) []any {
	// The column's type is boolean, but a server prints a string.
	suspend := unset
	if c.Spec.Suspend != nil {
		suspend = map[bool]string{true: "True", false: "False"}[*c.Spec.Suspend]
	}
	last := none
	if c.Status.LastScheduleTime != nil {
		last = now.since(c.Status.LastScheduleTime.Time)
	}
	job := c.Spec.JobTemplate.Spec
	cells := []any{
		c.name(), c.Spec.Schedule, ptr.Deref(c.Spec.TimeZone, none), suspend, int64(len(c.Status.Active)), last, c.age(now),
	}
	return append(append(cells, job.Template.containers()...), metav1.FormatLabelSelector(job.Selector))
}
