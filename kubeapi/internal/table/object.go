package table

import (
	"cmp"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/json"
)

// The texts of cells without a value.
const (
	none    = "<none>"
	unset   = "<unset>"
	unknown = "<unknown>"
)

// object is an object whose row is printed: its fields, which are found once for all of its cells.
type object struct {
	fields map[string]gjson.Result
	now    time.Time
}

// get returns the value at a path.
func (o object) get(path string) gjson.Result {
	field, rest, nested := strings.Cut(path, ".")
	if !nested {
		return o.fields[field]
	}
	return o.fields[field].Get(rest)
}

func (o object) text(path string) string { return o.get(path).String() }

// has reports whether the object has a value, other than null, at a path.
func (o object) has(path string) bool { return o.get(path).Type != gjson.Null }

func (o object) deleted() bool { return o.has("metadata.deletionTimestamp") }

func (o object) annotation(key string) gjson.Result {
	return o.get("metadata.annotations." + gjson.Escape(key))
}

// texts returns the elements of a list, or a field of each.
func texts(list gjson.Result, field string) []string {
	var values []string
	for _, element := range list.Array() {
		if field != "" {
			element = element.Get(field)
		}
		values = append(values, element.String())
	}
	return values
}

// condition returns a condition of the status, which does not exist if the object has none of that type.
func (o object) condition(kind string) gjson.Result {
	for _, c := range o.get("status.conditions").Array() {
		if c.Get("type").String() == kind {
			return c
		}
	}
	return gjson.Result{}
}

func (o object) isTrue(kind string) bool { return o.condition(kind).Get("status").String() == "True" }

// since returns the time since t for people, such as "5m30s".
func since(t, now time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return duration.HumanDuration(now.Sub(t))
}

// cell returns the value of an object in one column.
type cell func(object) any

// row returns the printer of a kind with the given cells.
func row(cells ...cell) func(object) []any {
	return func(o object) []any {
		values := make([]any, len(cells))
		for i, c := range cells {
			values[i] = c(o)
		}
		return values
	}
}

func name(o object) any { return o.text("metadata.name") }

func created(o object) any {
	return o.get("metadata.creationTimestamp").Time().UTC().Format(time.RFC3339)
}

// text returns the cell of a text, which may be empty.
func text(path string) cell { return filled(path, "") }

// filled returns the cell of a text, with another one in place of an empty one.
func filled(path, empty string) cell {
	return func(o object) any { return cmp.Or(o.text(path), empty) }
}

// optional returns the cell of a text, which may be empty, with another one if there is none.
func optional(path, without string) cell {
	return func(o object) any {
		if !o.has(path) {
			return without
		}
		return o.text(path)
	}
}

// ago returns the cell with the time since a time, or a text if there is none.
func ago(path, without string) cell {
	return func(o object) any {
		if !o.has(path) {
			return without
		}
		return since(o.get(path).Time(), o.now)
	}
}

func number(path string) cell { return func(o object) any { return o.get(path).Int() } }

func boolean(path string) cell { return func(o object) any { return o.get(path).Bool() } }

// count returns the cell with the number of elements of lists or maps.
func count(paths ...string) cell {
	return func(o object) any {
		n := 0
		for _, path := range paths {
			if r := o.get(path); r.IsArray() {
				n += len(r.Array())
			} else {
				n += len(r.Map())
			}
		}
		return int64(n)
	}
}

// joined returns the cell with a field of each element of a list.
func joined(list, field string) cell {
	return func(o object) any { return strings.Join(texts(o.get(list), field), ",") }
}

// labelMap returns the cell of a map of labels.
func labelMap(path string) cell {
	return func(o object) any {
		set := map[string]string{}
		for key, value := range o.get(path).Map() {
			set[key] = value.String()
		}
		return labels.FormatLabels(set)
	}
}

// labelSelector returns the label selector at a path; nil if there is none.
func (o object) labelSelector(path string) (s *metav1.LabelSelector) {
	if r := o.get(path); r.IsObject() {
		_ = json.Unmarshal([]byte(r.Raw), &s) // a server has checked it
	}
	return s
}

func selector(path string) cell {
	return func(o object) any { return metav1.FormatLabelSelector(o.labelSelector(path)) }
}
