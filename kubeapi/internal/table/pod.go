package table

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podConditions returns the row's condition once the pod has ended.
func podConditions(o object) []metav1.TableRowCondition {
	phase := o.text("status.phase")
	message := map[string]string{"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}[phase]
	if message == "" {
		return nil
	}
	return []metav1.TableRowCondition{{
		Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: phase, Message: message,
	}}
}

func podCells(o object) []any {
	p := summarize(o)
	return []any{
		name(o), fmt.Sprintf("%d/%d", p.ready, p.lasting), p.status, p.restarts.text(o.now), age(o),
		filled("status.podIPs.0.ip", none)(o), filled("spec.nodeName", none)(o), filled("status.nominatedNodeName", none)(o),
		podGates(o),
	}
}

// podGates returns how many readiness gates are open, of how many.
func podGates(o object) any {
	gates := texts(o.get("spec.readinessGates"), "conditionType")
	if len(gates) == 0 {
		return none
	}
	open := 0
	for _, gate := range gates {
		if o.isTrue(gate) {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(gates))
}

// restarts sums up the restarts of containers.
type restarts struct {
	count int64
	last  time.Time // zero if it is not known
}

func (r *restarts) add(container gjson.Result) {
	r.count += container.Get("restartCount").Int()
	if t := container.Get("lastState.terminated.finishedAt").Time(); r.last.Before(t) {
		r.last = t
	}
}

func (r restarts) text(now time.Time) string {
	if r.count == 0 || r.last.IsZero() {
		return strconv.FormatInt(r.count, 10)
	}
	return fmt.Sprintf("%d (%s ago)", r.count, since(r.last, now))
}

// state returns why a container has ended and with which code, or else why it waits.
func state(container gjson.Result) (ended string, code int64, waiting string) {
	s := container.Get("state")
	t := s.Get("terminated")
	if t.IsObject() {
		code = t.Get("exitCode").Int()
		ended = fmt.Sprintf("ExitCode:%d", code)
		if signal := t.Get("signal").Int(); signal != 0 {
			ended = fmt.Sprintf("Signal:%d", signal)
		}
		ended = cmp.Or(t.Get("reason").String(), ended)
	}
	return ended, code, s.Get("waiting.reason").String()
}

// summary sums up a pod's containers for its row.
type summary struct {
	status         string
	ready, lasting int // containers that run as long as the pod
	restarts       restarts
}

func summarize(o object) *summary {
	phase, reason := o.text("status.phase"), o.text("status.reason")
	s := &summary{status: cmp.Or(reason, phase), lasting: len(o.get("spec.containers").Array())}
	const gated = "SchedulingGated"
	if o.condition("PodScheduled").Get("reason").String() == gated {
		s.status = gated
	}
	sidecars, initialized := s.addInit(o)
	if initialized || o.isTrue("Initialized") {
		s.restarts = sidecars
		s.addContainers(o)
	}
	switch {
	case o.deleted() && reason == "NodeLost":
		s.status = "Unknown"
	case o.deleted() && phase != "Succeeded" && phase != "Failed":
		s.status = "Terminating"
	}
	return s
}

// addInit adds the init containers up to the first one that has neither succeeded nor, if it is a
// sidecar, started; that one's state is the pod's status. It returns the restarts of sidecars, and
// whether there is no such container.
func (s *summary) addInit(o object) (sidecars restarts, initialized bool) {
	specs := o.get("spec.initContainers").Array()
	isSidecar := map[string]bool{}
	for _, spec := range specs {
		if spec.Get("restartPolicy").String() == "Always" {
			isSidecar[spec.Get("name").String()] = true
			s.lasting++
		}
	}
	for i, c := range o.get("status.initContainerStatuses").Array() {
		s.restarts.add(c)
		sidecar := isSidecar[c.Get("name").String()]
		if sidecar {
			sidecars.add(c)
		}
		ended, code, waiting := state(c)
		switch {
		case ended != "" && code == 0:
		case sidecar && c.Get("started").Bool():
			if c.Get("ready").Bool() {
				s.ready++
			}
		case ended != "":
			s.status = "Init:" + ended
			return sidecars, false
		case waiting != "" && waiting != "PodInitializing":
			s.status = "Init:" + waiting
			return sidecars, false
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(specs))
			return sidecars, false
		}
	}
	return sidecars, true
}

// addContainers adds the containers. The status is the one of the first that waits or has ended, but
// "Completed" only if no other one runs or has failed.
func (s *summary) addContainers(o object) {
	running, failure := false, ""
	for _, c := range slices.Backward(o.get("status.containerStatuses").Array()) {
		s.restarts.add(c)
		ended, code, waiting := state(c)
		switch {
		case waiting != "":
			s.status = waiting
		case ended != "":
			s.status = ended
			if code != 0 {
				failure = s.status
			}
		case c.Get("ready").Bool() && c.Get("state.running").IsObject():
			running = true
			s.ready++
		}
	}
	if s.status != "Completed" {
		return
	}
	switch {
	case running && o.isTrue("Ready"):
		s.status = "Running"
	case failure != "":
		s.status = failure
	case running:
		s.status = "NotReady"
	}
}
