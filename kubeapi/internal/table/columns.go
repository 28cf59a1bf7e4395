package table

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// printers are the built-in kinds with columns of their own, by resource and group.
var printers = map[string]printFunc{
	"configmaps":                        rowOf((*configMap).cells),
	"endpoints":                         rowOf((*endpoints).cells),
	"events":                            rowOf((*coreEvent).cells),
	"namespaces":                        rowOf((*namespace).cells),
	"nodes":                             rowOf((*node).cells),
	"persistentvolumeclaims":            rowOf((*volumeClaim).cells),
	"persistentvolumes":                 rowOf((*volume).cells),
	"pods":                              printPod,
	"replicationcontrollers":            rowOf((*replicationController).cells),
	"resourcequotas":                    rowOf((*resourceQuota).cells),
	"secrets":                           rowOf((*secret).cells),
	"serviceaccounts":                   rowOf((*object).cells),
	"services":                          rowOf((*service).cells),
	"controllerrevisions.apps":          rowOf((*controllerRevision).cells),
	"daemonsets.apps":                   rowOf((*daemonSet).cells),
	"deployments.apps":                  rowOf((*deployment).cells),
	"replicasets.apps":                  rowOf((*replicaSet).cells),
	"statefulsets.apps":                 rowOf((*statefulSet).cells),
	"cronjobs.batch":                    rowOf((*cronJob).cells),
	"jobs.batch":                        rowOf((*job).cells),
	"leases.coordination.k8s.io":        rowOf((*lease).cells),
	"endpointslices.discovery.k8s.io":   rowOf((*endpointSlice).cells),
	"events.events.k8s.io":              rowOf((*event).cells),
	"ingressclasses.networking.k8s.io":  rowOf((*ingressClass).cells),
	"ingresses.networking.k8s.io":       rowOf((*ingress).cells),
	"networkpolicies.networking.k8s.io": rowOf((*networkPolicy).cells),
	"runtimeclasses.node.k8s.io":        rowOf((*runtimeClass).cells),
	"poddisruptionbudgets.policy":       rowOf((*disruptionBudget).cells),
	"clusterrolebindings.rbac.authorization.k8s.io": rowOf((*roleBinding).cells),
	"rolebindings.rbac.authorization.k8s.io":        rowOf((*roleBinding).cells),
	"priorityclasses.scheduling.k8s.io":             rowOf((*priorityClass).cells),
	"csinodes.storage.k8s.io":                       rowOf((*csiNode).cells),
	"storageclasses.storage.k8s.io":                 rowOf((*storageClass).cells),
	"volumeattachments.storage.k8s.io":              rowOf((*volumeAttachment).cells),
}

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

	// defaultColumns are those of a built-in kind without a printer, such as Roles.
	defaultColumns = []metav1.TableColumnDefinition{
		nameColumn, {Name: "Created At", Type: "date", Description: creationDescription},
	}
)
