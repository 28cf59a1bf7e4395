package objects

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// WidgetResource is the custom resource of the definition [WidgetCRD].
var WidgetResource = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// WidgetCRD returns the definition of widgets.example.com: namespaced, with a
// schema and a status subresource.
func WidgetCRD() *unstructured.Unstructured {
	text := map[string]any{"type": "string"}
	number := map[string]any{"type": "integer", "format": "int64"}
	status := map[string]any{"type": "object", "properties": map[string]any{
		"phase": text, "observedGeneration": number, "serial": text, "lastSeen": map[string]any{"type": "string", "format": "date-time"},
	}}
	spec := map[string]any{"type": "object", "required": []any{"model"}, "properties": map[string]any{
		"model":    text,
		"firmware": text,
		"shelf":    map[string]any{"type": "integer", "minimum": int64(0)},
		"settings": map[string]any{"type": "object", "additionalProperties": text},
		"channels": map[string]any{"type": "array", "items": map[string]any{"type": "object", "properties": map[string]any{
			"name": text, "address": text, "rateHz": number}}},
	}}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": WidgetResource.GroupResource().String()},
		"spec": map[string]any{
			"group": WidgetResource.Group,
			"scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": []any{"wg"}},
			"versions": []any{map[string]any{
				"name": WidgetResource.Version, "served": true, "storage": true,
				"subresources": map[string]any{"status": map[string]any{}},
				"schema":       map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": spec, "status": status}}},
				"additionalPrinterColumns": []any{
					map[string]any{"name": "Model", "type": "string", "jsonPath": ".spec.model"},
					map[string]any{"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
				},
			}},
		},
	}}
}

// Widget returns widget number i of a namespace, without status.
func Widget(namespace string, i int, seed int64) *unstructured.Unstructured {
	s := newSource("widget", namespace, i, seed)
	channels := make([]any, 0, 4)
	for n := range 1 + s.IntN(4) {
		channels = append(channels, map[string]any{
			"name": fmt.Sprintf("channel-%d", n), "address": s.ip(10, 40), "rateHz": int64(1 + s.IntN(1000))})
	}
	settings := make(map[string]any)
	for range 3 + s.IntN(5) {
		settings[s.text(8)] = s.hex(16)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": WidgetResource.GroupVersion().String(),
		"kind":       "Widget",
		"metadata": map[string]any{
			"name":      fmt.Sprintf("widget-%d-%s", i, s.text(5)),
			"namespace": namespace,
			"labels":    map[string]any{"example.com/line": s.from("scale", "scanner", "gate", "sign")},
		},
		"spec": map[string]any{
			"model":    s.from("S", "M", "X") + "-" + s.hex(4),
			"firmware": fmt.Sprintf("%d.%d.%d", s.IntN(5), s.IntN(20), s.IntN(100)),
			"shelf":    int64(s.IntN(400)),
			"settings": settings,
			"channels": channels,
		},
	}}
}

// widgetStatus returns a status as the widgets' controller would report it.
func widgetStatus(s source) map[string]any {
	return map[string]any{
		"phase":              s.from("Ready", "Ready", "Ready", "Degraded"),
		"observedGeneration": int64(1),
		"serial":             s.hex(20),
		"lastSeen":           at(s.IntN(200 * 86400)).UTC().Format("2006-01-02T15:04:05Z"),
	}
}
