package table

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

type pod struct {
	object
	Spec struct {
		NodeName       string      `json:"nodeName"`
		InitContainers []container `json:"initContainers"`
		Containers     []container `json:"containers"`
		ReadinessGates []struct {
			ConditionType string `json:"conditionType"`
		} `json:"readinessGates"`
	} `json:"spec"`
	Status struct {
		Phase             string `json:"phase"`
		Reason            string `json:"reason"`
		NominatedNodeName string `json:"nominatedNodeName"`
		PodIPs            []struct {
			IP string `json:"ip"`
		} `json:"podIPs"`
		Conditions            []condition       `json:"conditions"`
		InitContainerStatuses []containerStatus `json:"initContainerStatuses"`
		ContainerStatuses     []containerStatus `json:"containerStatuses"`
	} `json:"status"`
}

type container struct {
	Name          string `json:"name"`
	Image         string `json:"image"`
	RestartPolicy string `json:"restartPolicy"`
}

// sidecar reports whether an init container runs as long as the pod.
func (c container) sidecar() bool { return c.RestartPolicy == "Always" }

type containerStatus struct {
	Name         string         `json:"name"`
	Ready        bool           `json:"ready"`
	Started      bool           `json:"started"`
	RestartCount int32          `json:"restartCount"`
	State        containerState `json:"state"`
	LastState    containerState `json:"lastState"`
}

type containerState struct {
	Waiting *struct {
		Reason string `json:"reason"`
	} `json:"waiting"`
	Running    *struct{}    `json:"running"`
	Terminated *termination `json:"terminated"`
}

// waiting returns the reason why the container waits, or "".
func (s containerState) waiting() string {
	if s.Waiting == nil {
		return ""
	}
	return s.Waiting.Reason
}

type termination struct {
	ExitCode   int32       `json:"exitCode"`
	Signal     int32       `json:"signal"`
	Reason     string      `json:"reason"`
	FinishedAt metav1.Time `json:"finishedAt"`
}

// String returns why the container ended.
func (t *termination) String() string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
}

// restarts sums up the restarts of containers.
type restarts struct {
	count int
	last  time.Time // zero if it is not known
}

func (r *restarts) add(s containerStatus) {
	r.count += int(s.RestartCount)
	if t := s.LastState.Terminated; t != nil && r.last.Before(t.FinishedAt.Time) {
		r.last = t.FinishedAt.Time
	}
}

func (r restarts) text(now clock) string {
	if r.count == 0 || r.last.IsZero() {
		return strconv.Itoa(r.count)
	}
	return fmt.Sprintf("%d (%s ago)", r.count, now.since(r.last))
}

func printPod(raw []byte, now clock) ([]any, []metav1.TableRowCondition, error) {
	var p pod
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, nil, err
	}
	return p.cells(now), p.completed(), nil
}

// completed returns the row's condition once the pod has ended.
func (p *pod) completed() []metav1.TableRowCondition {
	var message string
	switch p.Status.Phase {
	case "Succeeded":
		message = "The pod has completed successfully."
	case "Failed":
		message = "The pod failed."
	default:
		return nil
	}
	return []metav1.TableRowCondition{{
		Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: p.Status.Phase, Message: message,
	}}
}

func (p *pod) cells(now clock) []any {
	s := p.summary()
	ip := ""
	if len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	return []any{
		p.name(), fmt.Sprintf("%d/%d", s.ready, p.lasting()), s.status, s.restarts.text(now), p.age(now),
		cmp.Or(ip, none), cmp.Or(p.Spec.NodeName, none), cmp.Or(p.Status.NominatedNodeName, none), p.gates(),
	}
}

// lasting returns how many containers run as long as the pod.
func (p *pod) lasting() int {
	n := len(p.Spec.Containers)
	for _, c := range p.Spec.InitContainers {
		if c.sidecar() {
			n++
		}
	}
	return n
}

// gates returns how many readiness gates are open, of how many.
func (p *pod) gates() string {
	if len(p.Spec.ReadinessGates) == 0 {
		return none
	}
	open := 0
	for _, g := range p.Spec.ReadinessGates {
		if isTrue(p.Status.Conditions, g.ConditionType) {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(p.Spec.ReadinessGates))
}

// podSummary is what a row shows of a pod's containers.
type podSummary struct {
	status   string
	ready    int
	restarts restarts
}

func (p *pod) summary() podSummary {
	s := podSummary{status: cmp.Or(p.Status.Reason, p.Status.Phase)}
	const gated = "SchedulingGated"
	if c, _ := find(p.Status.Conditions, "PodScheduled"); c.Reason == gated {
		s.status = gated
	}
	sidecars, initialized := p.summarizeInit(&s)
	if initialized || isTrue(p.Status.Conditions, "Initialized") {
		s.restarts = sidecars
		p.summarizeContainers(&s)
	}
	switch {
	case p.deleted() && p.Status.Reason == "NodeLost":
		s.status = "Unknown"
	case p.deleted() && p.Status.Phase != "Succeeded" && p.Status.Phase != "Failed":
		s.status = "Terminating"
	}
	return s
}

// summarizeInit adds the init containers up to the first one that has neither succeeded nor, if it is
// a sidecar, started; that one's state is the pod's status. It returns the restarts of sidecars, and
// whether there is no such container.
func (p *pod) summarizeInit(s *podSummary) (sidecars restarts, initialized bool) {
	for i, c := range p.Status.InitContainerStatuses {
		s.restarts.add(c)
		sidecar := slices.ContainsFunc(p.Spec.InitContainers, func(spec container) bool {
			return spec.Name == c.Name && spec.sidecar()
		})
		if sidecar {
			sidecars.add(c)
		}
		ended, waiting := c.State.Terminated, c.State.waiting()
		switch {
		case ended != nil && ended.ExitCode == 0:
		case sidecar && c.Started:
			if c.Ready {
				s.ready++
			}
		case ended != nil:
			s.status = "Init:" + ended.String()
			return sidecars, false
		case waiting != "" && waiting != "PodInitializing":
			s.status = "Init:" + waiting
			return sidecars, false
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
			return sidecars, false
		}
	}
	return sidecars, true
}

// summarizeContainers adds the containers. The status is that of the first one that waits or has ended,
// but "Completed" only if no other one runs or has failed.
func (p *pod) summarizeContainers(s *podSummary) {
	running, failure := false, ""
	for _, c := range slices.Backward(p.Status.ContainerStatuses) {
		s.restarts.add(c)
		ended, waiting := c.State.Terminated, c.State.waiting()
		switch {
		case waiting != "":
			s.status = waiting
		case ended != nil:
			s.status = ended.String()
			if ended.ExitCode != 0 {
				failure = s.status
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.status != "Completed" {
		return
	}
	switch {
	case running && isTrue(p.Status.Conditions, "Ready"):
		s.status = "Running"
	case failure != "":
		s.status = failure
	case running:
		s.status = "NotReady"
	}
}
