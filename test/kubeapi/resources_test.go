package kubeapi

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource is a cached resource.
type resource struct {
	schema.GroupVersionResource
	clusterScoped bool

	// selectors are field selectors of fields that only this resource has.
	selectors []string

	// objects are the metadata of the objects, in the order of their keys.
	objects []metav1.ObjectMeta

	// before is a revision from before the first objects, which were there when the agent started. A
	// change was made at old, and later changes up to newest, the resourceVersion of the last one.
	before, old, newest string
}

// cachedResources returns what the agent caches.
func cachedResources() []*resource {
	var all []*resource
	add := func(gvr string, clusterScoped bool, selectors ...string) {
		parsed, _ := schema.ParseResourceArg(gvr)
		all = append(all, &resource{GroupVersionResource: *parsed, clusterScoped: clusterScoped, selectors: selectors})
	}
	add("pods.v1.", false, "spec.nodeName=edge-1", "spec.nodeName!=edge-1", "spec.nodeName=", "spec.host=edge-1", "status.phase=Running,spec.nodeName=edge-1",
		"status.phase!=Succeeded", "spec.restartPolicy=Never", "spec.schedulerName=other", "spec.serviceAccountName=robot", "spec.hostNetwork=true",
		"spec.hostNetwork=false", "status.podIP=10.1.0.5", "status.podIPs=10.1.0.5", "status.podIPs=", "status.nominatedNodeName=edge-1", "spec.containers=c")
	add("services.v1.", false, "spec.clusterIP=None", "spec.clusterIP!=None", "spec.type=LoadBalancer", "spec.type!=ClusterIP", "spec.ports=80")
	add("configmaps.v1.", false, "data.key=value")
	add("secrets.v1.", false, "type=Opaque", "type!=Opaque", "type=kubernetes.io/tls", "data.password=x")
	add("namespaces.v1.", true, "status.phase=Active", "status.phase=Terminating", "metadata.namespace=", "metadata.namespace=ns")
	add("nodes.v1.", true, "spec.unschedulable=true", "spec.unschedulable=false", "spec.unschedulable!=true", "metadata.namespace=ns")
	add("events.v1.", false, "involvedObject.kind=Pod", "involvedObject.name=web-0,involvedObject.namespace=ns", "involvedObject.uid=u-1",
		"involvedObject.apiVersion=v1", "involvedObject.resourceVersion=", "involvedObject.fieldPath=spec.containers{c}", "reason=Pulled", "reason!=Pulled",
		"reportingComponent=example.com/agent", "source=kubelet", "source=example.com/agent", "type=Warning", "type!=Warning", "reportingController=x")
	add("endpointslices.v1.discovery.k8s.io", false, "addressType=IPv4")
	add("deployments.v1.apps", false, "spec.replicas=3")
	add("replicasets.v1.apps", false, "status.replicas=0")
	add("jobs.v1.batch", false, "status.successful=1", "status.successful=0", "status.successful!=0", "status.succeeded=1")
	add("leases.v1.coordination.k8s.io", false, "spec.holderIdentity=x")
	add("widgets.v1.lab.example.com", false, "spec.size=3", "spec.size=-5", "spec.size!=3", "spec.size=9223372036854775807", "spec.color=red", "spec.color=",
		"spec.color!=red,spec.size=-5", "spec.on=true", "spec.on=false", "spec.on=", "spec.ratio=2")
	add("gadgets.v1.lab.example.com", true, "metadata.namespace=", "any=text")
	add("voids.v1.lab.example.com", false, "spec.x=1")
	return all
}

// name is the resource's name in the agent's configuration.
func (r *resource) name() string {
	return strings.TrimSuffix(fmt.Sprintf("%s.%s.%s", r.Resource, r.Version, r.Group), ".")
}

// prefix is the path of the group and version, without a slash at its end.
func (r *resource) prefix() string {
	if r.Group == "" {
		return "/api/" + r.Version
	}
	return "/apis/" + r.Group + "/" + r.Version
}

// path returns the path of the resource in a namespace, or in all if it is empty.
func (r *resource) path(namespace string) string {
	if namespace == "" {
		return r.prefix() + "/" + r.Resource
	}
	return r.prefix() + "/namespaces/" + namespace + "/" + r.Resource
}
