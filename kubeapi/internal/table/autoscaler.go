package table

import (
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
)

// scaleTarget returns what a HorizontalPodAutoscaler scales.
func scaleTarget(o object) any {
	return o.text("spec.scaleTargetRef.kind") + "/" + o.text("spec.scaleTargetRef.name")
}

// scaled is how many metrics a cell lists before the others are only counted.
const scaled = 2

// scaleMetrics returns each metric of a HorizontalPodAutoscaler, now and as it should be.
func scaleMetrics(o object) any {
	specs, states := o.get("spec.metrics").Array(), o.get("status.currentMetrics").Array()
	var metrics []string
	for i, spec := range specs {
		var state gjson.Result
		if i < len(states) {
			state = states[i]
		}
		metrics = append(metrics, scaleMetric(spec, state))
	}
	return firstOf(metrics, scaled, ", ", none)
}

// scaleMetric returns one metric, of which a source has the target and the current value.
func scaleMetric(spec, state gjson.Result) string {
	kind := spec.Get("type").String()
	if kind == "" {
		return "<unknown type>"
	}
	source := strings.ToLower(kind[:1]) + kind[1:]
	spec, state = spec.Get(source), state.Get(source)
	value := func(field, format, without string) string {
		now, target := unknown, without
		if v := state.Get("current." + field); v.Exists() {
			now = fmt.Sprintf(format, v.String())
		}
		if v := spec.Get("target." + field); v.Exists() {
			target = fmt.Sprintf(format, v.String())
		}
		return now + "/" + target
	}
	average := spec.Get("target.averageValue").Exists()
	switch kind {
	case "Resource", "ContainerResource":
		if average {
			return spec.Get("name").String() + ": " + value("averageValue", "%s", "")
		}
		return spec.Get("name").String() + ": " + value("averageUtilization", "%s%%", "<auto>")
	case "Pods":
		return value("averageValue", "%s", "")
	case "Object", "External":
		if average {
			return value("averageValue", "%s", "") + " (avg)"
		}
		return value("value", "%s", "")
	}
	return "<unknown type>"
}
