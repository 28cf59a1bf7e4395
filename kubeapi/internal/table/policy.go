package table

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
)

// parameterKind returns the kind of the parameters of an admission policy.
func parameterKind(o object) any {
	if !o.has("spec.paramKind") {
		return unset
	}
	return o.text("spec.paramKind.apiVersion") + "/" + o.text("spec.paramKind.kind")
}

// parameters returns those of a binding of an admission policy. Without a namespace they may have none.
func parameters(o object) any {
	if name := o.text("spec.paramRef.name"); name != "" {
		return cmp.Or(o.text("spec.paramRef.namespace"), "*") + "/" + name
	}
	if s := o.labelSelector("spec.paramRef.selector"); s != nil {
		return s.String()
	}
	return unset
}

// serviceOf returns the Service that answers for an APIService.
func serviceOf(o object) any {
	if !o.has("spec.service") {
		return "Local"
	}
	return o.text("spec.service.namespace") + "/" + o.text("spec.service.name")
}

// available returns whether an APIService answers, and why not.
func available(o object) any {
	c := o.condition("Available")
	status := cmp.Or(c.Get("status").String(), "Unknown")
	if reason := c.Get("reason").String(); reason != "" && status != "True" {
		return status + " (" + reason + ")"
	}
	return status
}

// validity returns how long a requested certificate is to be valid.
func validity(o object) any {
	if !o.has("spec.expirationSeconds") {
		return none
	}
	return duration.HumanDuration(time.Duration(o.get("spec.expirationSeconds").Int()) * time.Second)
}

// requestState returns the state of a CertificateSigningRequest.
func requestState(o object) any {
	state := "Pending"
	switch {
	case o.condition("Denied").Exists():
		state = "Denied"
	case o.condition("Approved").Exists():
		state = "Approved"
	}
	if o.condition("Failed").Exists() {
		state += ",Failed"
	}
	if o.text("status.certificate") != "" {
		state += ",Issued"
	}
	return state
}

// dangling returns whether the priority level of a FlowSchema is missing.
func dangling(o object) any { return cmp.Or(o.condition("Dangling").Get("status").String(), "?") }

// addressOwner returns whom an IPAddress belongs to.
func addressOwner(o object) any {
	r := o.get("spec.parentRef")
	if !r.IsObject() {
		return none
	}
	of := schema.GroupResource{Group: r.Get("group").String(), Resource: r.Get("resource").String()}
	owner := strings.ToLower(of.String())
	if namespace := r.Get("namespace").String(); namespace != "" {
		owner += "/" + namespace
	}
	return owner + "/" + r.Get("name").String()
}

// claimState returns the state of a ResourceClaim.
func claimState(o object) any {
	var states []string
	if o.deleted() {
		states = append(states, "deleted")
	}
	switch {
	case !o.has("status.allocation"):
		if !o.deleted() {
			states = append(states, "pending")
		}
	case count("status.reservedFor")(o) != int64(0):
		states = append(states, "allocated", "reserved")
	default:
		states = append(states, "allocated")
	}
	return strings.Join(states, ",")
}

// audiences returns whom the tokens are for that a CSI driver asks for.
func audiences(o object) any {
	if !o.has("spec.tokenRequests") {
		return unset
	}
	return strings.Join(texts(o.get("spec.tokenRequests"), "audience"), ",")
}

// modesOfLife returns how the volumes of a CSI driver live.
func modesOfLife(o object) any {
	return cmp.Or(strings.Join(texts(o.get("spec.volumeLifecycleModes"), ""), ","), none)
}

// unlessFalse returns the cell of a boolean that is true by default.
func unlessFalse(path string) cell {
	return func(o object) any { return !o.has(path) || o.get(path).Bool() }
}

// numberIf returns the cell of a number in an object that may be missing.
func numberIf(path, field string) cell {
	return func(o object) any {
		if !o.has(path) {
			return none
		}
		return o.get(path + "." + field).Int()
	}
}
