package table

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
)

// ready returns how many replicas of a workload are ready, of how many.
func ready(o object) any {
	return fmt.Sprintf("%d/%d", o.get("status.readyReplicas").Int(), o.get("spec.replicas").Int())
}

func deploymentSelector(o object) any {
	s, err := metav1.LabelSelectorAsSelector(o.labelSelector("spec.selector"))
	if err != nil {
		return "<invalid>"
	}
	return s.String()
}

func controller(o object) any {
	for _, ref := range o.get("metadata.ownerReferences").Array() {
		if ref.Get("controller").Bool() {
			kind := schema.FromAPIVersionAndKind(ref.Get("apiVersion").String(), ref.Get("kind").String()).GroupKind()
			return strings.ToLower(kind.String()) + "/" + ref.Get("name").String()
		}
	}
	return none
}

func jobState(o object) any {
	for _, state := range []string{"Complete", "Failed", "Terminating", "Suspended", "FailureTarget", "SuccessCriteriaMet"} {
		if state == "Terminating" && o.deleted() || o.isTrue(state) {
			return state
		}
	}
	return "Running"
}

// jobCompletions returns how many pods have succeeded, of how many. Without completions, the success of
// one of several parallel pods is enough.
func jobCompletions(o object) any {
	done, parallel := o.get("status.succeeded").Int(), o.get("spec.parallelism").Int()
	switch {
	case o.has("spec.completions"):
		return fmt.Sprintf("%d/%d", done, o.get("spec.completions").Int())
	case parallel > 1:
		return fmt.Sprintf("%d/1 of %d", done, parallel)
	}
	return fmt.Sprintf("%d/1", done)
}

func jobDuration(o object) any {
	start, end := o.get("status.startTime").Time(), o.get("status.completionTime").Time()
	switch {
	case start.IsZero():
		return ""
	case end.IsZero():
		end = o.now
	}
	return duration.HumanDuration(end.Sub(start))
}

// suspended returns a string, as a server does, though the column's type is boolean.
func suspended(o object) any {
	if !o.has("spec.suspend") {
		return unset
	}
	if o.get("spec.suspend").Bool() {
		return "True"
	}
	return "False"
}

// quota returns the cell with the limits of a quota, or with its other resources.
func quota(limits bool) cell {
	return func(o object) any {
		var texts []string
		hard, used := o.get("status.hard").Map(), o.get("status.used").Map()
		for _, name := range slices.Sorted(maps.Keys(hard)) {
			if strings.HasPrefix(name, "limits.") == limits {
				// Quantities are in the form in which a server prints them.
				texts = append(texts, fmt.Sprintf("%s: %s/%s", name, cmp.Or(used[name].String(), "0"), hard[name].String()))
			}
		}
		return strings.Join(texts, ", ")
	}
}

func roleRef(o object) any { return o.text("roleRef.kind") + "/" + o.text("roleRef.name") }

// subjects returns the cell with the subjects of a binding that are of one kind.
func subjects(kind string) cell {
	return func(o object) any {
		var names []string
		for _, s := range o.get("subjects").Array() {
			if s.Get("kind").String() != kind {
				continue
			}
			name := s.Get("name").String()
			if kind == "ServiceAccount" {
				name = s.Get("namespace").String() + "/" + name
			}
			names = append(names, name)
		}
		return strings.Join(names, ", ")
	}
}

func nodeState(o object) any {
	state := "Unknown"
	if o.isTrue("Ready") {
		state = "Ready"
	} else if o.condition("Ready").Exists() {
		state = "NotReady"
	}
	if o.get("spec.unschedulable").Bool() {
		state += ",SchedulingDisabled"
	}
	return state
}

// nodeRoles returns the roles that the node's labels name, sorted.
func nodeRoles(o object) any {
	var roles []string
	for key, value := range o.get("metadata.labels").Map() {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok {
			roles = append(roles, role)
		} else if key == "kubernetes.io/role" {
			roles = append(roles, value.String())
		}
	}
	slices.Sort(roles)
	roles = slices.DeleteFunc(slices.Compact(roles), func(role string) bool { return role == "" })
	return cmp.Or(strings.Join(roles, ","), none)
}

func nodeAddress(kind string) cell {
	return func(o object) any {
		for _, a := range o.get("status.addresses").Array() {
			if a.Get("type").String() == kind {
				return a.Get("address").String()
			}
		}
		return none
	}
}

func kernel(o object) any {
	version := cmp.Or(o.text("status.nodeInfo.kernelVersion"), unknown)
	if architecture := o.text("status.nodeInfo.architecture"); architecture != "" {
		version += " (" + architecture + ")"
	}
	return version
}

// eventRow returns the printer of Events, of which some fields have other names in each group.
func eventRow(target, note, source, first, last, count, controller string) func(object) []any {
	return func(o object) []any {
		first, last, count := o.get(first).Time(), o.get(last).Time(), cmp.Or(o.get(count).Int(), 1)
		if first.IsZero() {
			first = o.get("eventTime").Time()
		}
		if last.IsZero() {
			last = first
		}
		if o.has("series") {
			last, count = o.get("series.lastObservedTime").Time(), o.get("series.count").Int()
		}
		about := strings.ToLower(o.text(target + ".kind"))
		if name := o.text(target + ".name"); name != "" {
			about += "/" + name
		}
		from := cmp.Or(o.text(source+".component"), o.text(controller))
		if host := cmp.Or(o.text(source+".host"), o.text("reportingInstance")); host != "" {
			from += ", " + host
		}
		return []any{
			since(last, o.now), o.text("type"), o.text("reason"), about, o.text(target + ".fieldPath"), from,
			strings.TrimSpace(o.text(note)), since(first, o.now), count, name(o),
		}
	}
}

// balanced returns the IPs, or else names, of a Service's or an Ingress's load balancer, sorted.
func balanced(o object) []string {
	var addresses []string
	for _, i := range o.get("status.loadBalancer.ingress").Array() {
		if a := cmp.Or(i.Get("ip").String(), i.Get("hostname").String()); a != "" {
			addresses = append(addresses, a)
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

// external returns the addresses or the name of a Service outside the cluster.
func external(o object) any {
	addresses := texts(o.get("spec.externalIPs"), "")
	switch o.text("spec.type") {
	case "ClusterIP", "NodePort":
		return cmp.Or(strings.Join(addresses, ","), none)
	case "LoadBalancer":
		return cmp.Or(strings.Join(append(balanced(o), addresses...), ","), "<pending>")
	case "ExternalName":
		return o.text("spec.externalName")
	}
	return unknown
}

func servicePorts(o object) any {
	var ports []string
	for _, p := range o.get("spec.ports").Array() {
		port := strconv.FormatInt(p.Get("port").Int(), 10)
		if node := p.Get("nodePort").Int(); node > 0 {
			port = fmt.Sprintf("%s:%d", port, node)
		}
		ports = append(ports, port+"/"+p.Get("protocol").String())
	}
	return cmp.Or(strings.Join(ports, ","), none)
}

// ingressHosts returns the hosts of the rules. As soon as there are three, the other rules are only
// counted, with and without a host; rules without one that come earlier are not.
func ingressHosts(o object) any {
	var hosts []string
	more := ""
	rules := texts(o.get("spec.rules"), "host")
	for _, host := range rules {
		if len(hosts) == listed {
			more = fmt.Sprintf(" + %d more...", len(rules)-listed)
			break
		}
		if host != "" {
			hosts = append(hosts, host)
		}
	}
	return cmp.Or(strings.Join(hosts, ","), "*") + more
}

func ingressAddresses(o object) any { return strings.Join(balanced(o), ",") }

func ingressPorts(o object) any {
	if count("spec.tls")(o) == int64(0) {
		return "80"
	}
	return "80, 443"
}

// named returns the cell with the name of a class, which one of the annotations makes the default.
func named(defaults ...string) cell {
	return func(o object) any {
		isDefault := func(key string) bool { return o.annotation(key).String() == "true" }
		if slices.ContainsFunc(defaults, isDefault) {
			return o.text("metadata.name") + " (default)"
		}
		return name(o)
	}
}

func classParameters(o object) any {
	p := o.get("spec.parameters")
	if !p.IsObject() {
		return none
	}
	kind := p.Get("kind").String()
	if group := p.Get("apiGroup"); group.Type != gjson.Null {
		kind += "." + group.String()
	}
	return kind + "/" + p.Get("name").String()
}

// listed is how many values a cell lists before the others are only counted.
const listed = 3

// firstOf returns the first values, up to most, and how many more there are, or the text without values.
func firstOf(values []string, most int, between, without string) string {
	text := strings.Join(values[:min(most, len(values))], between)
	if len(values) > most {
		return fmt.Sprintf("%s + %d more...", text, len(values)-most)
	}
	return cmp.Or(text, without)
}

func slicePorts(o object) any {
	var ports []string
	for _, p := range o.get("ports").Array() {
		switch port, name := p.Get("port"), p.Get("name"); {
		case port.Type != gjson.Null:
			ports = append(ports, port.String())
		case name.Type != gjson.Null:
			ports = append(ports, name.String())
		default:
			ports = append(ports, "*")
		}
	}
	return firstOf(ports, listed, ",", unset)
}

func sliceAddresses(o object) any {
	var addresses []string
	for _, endpoint := range o.get("endpoints").Array() {
		addresses = append(addresses, texts(endpoint.Get("addresses"), "")...)
	}
	return firstOf(addresses, listed, ",", unset)
}

func endpointAddresses(o object) any {
	without := none
	var addresses []string
	for _, s := range o.get("subsets").Array() {
		without = ""
		ips, ports := texts(s.Get("addresses"), "ip"), texts(s.Get("ports"), "port")
		if len(ports) == 0 {
			addresses = append(addresses, ips...)
		}
		for _, port := range ports {
			for _, ip := range ips {
				addresses = append(addresses, net.JoinHostPort(ip, port))
			}
		}
	}
	return firstOf(addresses, listed, ",", without)
}

// modes returns the cell with the short names of access modes, in the order in which they are printed.
func modes(path string) cell {
	return func(o object) any {
		has := texts(o.get(path), "")
		var names []string
		for _, m := range [][2]string{
			{"ReadWriteOnce", "RWO"}, {"ReadOnlyMany", "ROX"}, {"ReadWriteMany", "RWX"}, {"ReadWriteOncePod", "RWOP"},
		} {
			if slices.Contains(has, m[0]) {
				names = append(names, m[1])
			}
		}
		return strings.Join(names, ",")
	}
}

// ifBound returns a cell that is empty as long as a claim has no volume.
func ifBound(c cell) cell {
	return func(o object) any {
		if o.text("spec.volumeName") == "" {
			return ""
		}
		return c(o)
	}
}

// volumePhase returns the phase of a claim or a volume.
func volumePhase(o object) any {
	if o.deleted() {
		return "Terminating"
	}
	return o.text("status.phase")
}

// volumeClass returns the class of a claim or a volume. The annotation had it before there was a field
// for it, and still wins.
func volumeClass(o object) any {
	if class := o.annotation("volume.beta.kubernetes.io/storage-class"); class.Exists() {
		return class.String()
	}
	return o.text("spec.storageClassName")
}

func volumeClaim(o object) any {
	if !o.has("spec.claimRef") {
		return ""
	}
	return o.text("spec.claimRef.namespace") + "/" + o.text("spec.claimRef.name")
}
