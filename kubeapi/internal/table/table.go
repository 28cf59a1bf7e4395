package table

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/store"
)

// Printer prints the objects of one resource. It is safe for concurrent use.
type Printer struct {
	resource schema.GroupResource
	columns  []metav1.TableColumnDefinition
	cells    func(object) []any
	custom   *customPrinter // in place of cells
}

// For returns the printer of a collection's resource: with the columns of the built-in kind, or of
// its CustomResourceDefinition, or else with name and time of creation. A custom resource without
// columns has name and age.
func For(info store.Info, d store.Description) *Printer {
	p := &Printer{resource: schema.GroupResource{Group: info.Group, Resource: info.Resource}}
	builtin, known := printers[p.resource.String()]
	switch {
	case d.Custom:
		p.columns, p.custom = newCustomPrinter(d.Columns)
	case known:
		p.columns, p.cells = builtinColumns()[p.resource.String()], builtin
	default:
		p.columns, p.cells = defaultColumns, row(name, created)
	}
	return p
}

// Columns returns the definitions of the columns, which the caller must not change.
func (p *Printer) Columns() []metav1.TableColumnDefinition { return p.columns }

// Row returns the cells of an object, from its JSON, and the row's conditions. Ages are
// relative to now.
func (p *Printer) Row(raw []byte, now time.Time) (cells []any, conditions []metav1.TableRowCondition, err error) {
	switch {
	case p.custom != nil:
		cells, err = p.custom.cells(raw, now)
	case !gjson.ValidBytes(raw):
		err = errors.New("the object is not JSON")
	default:
		o := object{gjson.ParseBytes(raw).Map(), now}
		cells = p.cells(o)
		if p.resource == (schema.GroupResource{Resource: "pods"}) {
			conditions = podConditions(o)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("table row of %s: %w", p.resource, err)
	}
	return cells, conditions, nil
}

// printers are the built-in kinds with columns of their own, by resource and group. Each has the cells of
// its columns in columnsJSON.
var printers = map[string]func(object) []any{
	"configmaps": row(name, count("data", "binaryData"), age),
	"endpoints":  row(name, endpointAddresses, age),
	"events": eventRow(
		"involvedObject", "message", "source", "firstTimestamp", "lastTimestamp", "count", "reportingComponent"),
	"namespaces": row(name, text("status.phase"), age),
	"nodes": row(name, nodeState, nodeRoles, age, text("status.nodeInfo.kubeletVersion"), nodeAddress("InternalIP"),
		nodeAddress("ExternalIP"), filled("status.nodeInfo.osImage", unknown), kernel,
		filled("status.nodeInfo.containerRuntimeVersion", unknown)),
	"persistentvolumeclaims": row(name, volumePhase, text("spec.volumeName"), ifBound(filled("status.capacity.storage", "0")),
		ifBound(modes("status.accessModes")), volumeClass, optional("spec.volumeAttributesClassName", unset), age,
		optional("spec.volumeMode", unset)),
	"persistentvolumes": row(name, filled("spec.capacity.storage", "0"), modes("spec.accessModes"),
		text("spec.persistentVolumeReclaimPolicy"), volumePhase, volumeClaim, volumeClass,
		optional("spec.volumeAttributesClassName", unset), text("status.reason"), age, optional("spec.volumeMode", unset)),
	"pods":         podCells,
	"podtemplates": row(name, joined("template.spec.containers", "name"), joined("template.spec.containers", "image"), labelMap("template.metadata.labels")),
	"replicationcontrollers": row(name, number("spec.replicas"), number("status.replicas"), number("status.readyReplicas"), age,
		containers, images, labelMap("spec.selector")),
	"resourcequotas":  row(name, quota(false), quota(true), age),
	"secrets":         row(name, text("type"), count("data"), age),
	"serviceaccounts": row(name, age),
	"services": row(name, text("spec.type"), optional("spec.clusterIPs.0", none), external, servicePorts, age,
		labelMap("spec.selector")),
	"mutatingadmissionpolicies.admissionregistration.k8s.io":         row(name, count("spec.mutations"), parameterKind, age),
	"mutatingadmissionpolicybindings.admissionregistration.k8s.io":   policyBindingRow,
	"mutatingwebhookconfigurations.admissionregistration.k8s.io":     row(name, count("webhooks"), age),
	"validatingadmissionpolicies.admissionregistration.k8s.io":       row(name, count("spec.validations"), parameterKind, age),
	"validatingadmissionpolicybindings.admissionregistration.k8s.io": policyBindingRow,
	"validatingwebhookconfigurations.admissionregistration.k8s.io":   row(name, count("webhooks"), age),
	"apiservices.apiregistration.k8s.io":                             row(name, serviceOf, available, age),
	"controllerrevisions.apps":                                       row(name, controller, number("revision"), age),
	"daemonsets.apps": row(name, number("status.desiredNumberScheduled"), number("status.currentNumberScheduled"),
		number("status.numberReady"), number("status.updatedNumberScheduled"), number("status.numberAvailable"),
		labelMap("spec.template.spec.nodeSelector"), age, containers, images, selector("spec.selector")),
	"deployments.apps": row(name, ready, number("status.updatedReplicas"), number("status.availableReplicas"), age,
		containers, images, deploymentSelector),
	"replicasets.apps": row(name, number("spec.replicas"), number("status.replicas"), number("status.readyReplicas"), age,
		containers, images, selector("spec.selector")),
	"statefulsets.apps": row(name, ready, age, containers, images),
	"horizontalpodautoscalers.autoscaling": row(name, scaleTarget, scaleMetrics, optional("spec.minReplicas", unset), number("spec.maxReplicas"),
		number("status.currentReplicas"), age),
	"cronjobs.batch": row(name, text("spec.schedule"), optional("spec.timeZone", none), suspended, count("status.active"),
		ago("status.lastScheduleTime", none), age, joined("spec.jobTemplate.spec.template.spec.containers", "name"),
		joined("spec.jobTemplate.spec.template.spec.containers", "image"), selector("spec.jobTemplate.spec.selector")),
	"jobs.batch": row(name, jobState, jobCompletions, jobDuration, age, containers, images,
		selector("spec.selector")),
	"certificatesigningrequests.certificates.k8s.io": row(name, age, filled("spec.signerName", none), text("spec.username"), validity, requestState),
	"leases.coordination.k8s.io":                     row(name, text("spec.holderIdentity"), age),
	"endpointslices.discovery.k8s.io":                row(name, text("addressType"), slicePorts, sliceAddresses, age),
	"events.events.k8s.io": eventRow("regarding", "note", "deprecatedSource", "deprecatedFirstTimestamp",
		"deprecatedLastTimestamp", "deprecatedCount", "reportingController"),
	"flowschemas.flowcontrol.apiserver.k8s.io": row(name, text("spec.priorityLevelConfiguration.name"), number("spec.matchingPrecedence"),
		optional("spec.distinguisherMethod.type", none), age, dangling),
	"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": row(name, text("spec.type"), numberIf("spec.limited", "nominalConcurrencyShares"),
		numberIf("spec.limited.limitResponse.queuing", "queues"), numberIf("spec.limited.limitResponse.queuing", "handSize"),
		numberIf("spec.limited.limitResponse.queuing", "queueLengthLimit"), age),
	"ingressclasses.networking.k8s.io": row(named("ingressclass.kubernetes.io/is-default-class"), text("spec.controller"),
		classParameters, age),
	"ingresses.networking.k8s.io": row(name, optional("spec.ingressClassName", none), ingressHosts, ingressAddresses,
		ingressPorts, age),
	"ipaddresses.networking.k8s.io":     row(name, addressOwner, age), // a server sends a cell more than columns
	"networkpolicies.networking.k8s.io": row(name, selector("spec.podSelector"), age),
	"servicecidrs.networking.k8s.io":    row(name, joined("spec.cidrs", ""), age),
	"runtimeclasses.node.k8s.io":        row(name, text("handler"), age),
	"poddisruptionbudgets.policy": row(name, optional("spec.minAvailable", "N/A"), optional("spec.maxUnavailable", "N/A"),
		number("status.disruptionsAllowed"), age),
	"clusterrolebindings.rbac.authorization.k8s.io": bindingRow,
	"rolebindings.rbac.authorization.k8s.io":        bindingRow,
	"deviceclasses.resource.k8s.io":                 row(name, age),
	"resourceclaims.resource.k8s.io":                row(name, claimState, age),
	"resourceclaimtemplates.resource.k8s.io":        row(name, age),
	"resourceslices.resource.k8s.io":                row(name, text("spec.nodeName"), text("spec.driver"), text("spec.pool.name"), age),
	"priorityclasses.scheduling.k8s.io":             row(name, number("value"), boolean("globalDefault"), age, text("preemptionPolicy")),
	"csidrivers.storage.k8s.io": row(name, unlessFalse("spec.attachRequired"), boolean("spec.podInfoOnMount"), boolean("spec.storageCapacity"),
		audiences, boolean("spec.requiresRepublish"), modesOfLife, age),
	"csinodes.storage.k8s.io": row(name, count("spec.drivers"), age),
	"storageclasses.storage.k8s.io": row(
		named("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"),
		text("provisioner"), filled("reclaimPolicy", "Delete"), filled("volumeBindingMode", "Immediate"),
		boolean("allowVolumeExpansion"), age),
	"volumeattachments.storage.k8s.io": row(name, text("spec.attacher"), text("spec.source.persistentVolumeName"),
		text("spec.nodeName"), boolean("status.attached"), age),
	"volumeattributesclasses.storage.k8s.io": row(name, text("driverName"), age),
}

var (
	age              = ago("metadata.creationTimestamp", unknown)
	policyBindingRow = row(name, text("spec.policyName"), parameters, age)
	bindingRow       = row(name, roleRef, age, subjects("User"), subjects("Group"), subjects("ServiceAccount"))
	containers       = joined("spec.template.spec.containers", "name")
	images           = joined("spec.template.spec.containers", "image")
)

// columnsJSON has the columns of the kinds in printers, as a kube-apiserver v1.36 defines them.
//
//go:embed columns.json
var columnsJSON []byte

// builtinColumns returns the content of columnsJSON. It is parsed once, when the first table is asked for.
var builtinColumns = sync.OnceValue(func() map[string][]metav1.TableColumnDefinition {
	var columns map[string][]metav1.TableColumnDefinition
	if err := json.Unmarshal(columnsJSON, &columns); err != nil {
		panic(fmt.Sprintf("columns.json: %v", err)) // a broken build
	}
	return columns
})

var (
	nameColumn = metav1.TableColumnDefinition{
		Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"],
	}

	creationDescription = metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]

	// defaultColumns are the columns of a built-in kind without a printer, such as Roles.
	defaultColumns = []metav1.TableColumnDefinition{
		nameColumn, {Name: "Created At", Type: "date", Description: creationDescription},
	}
)
