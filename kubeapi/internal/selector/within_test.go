package selector

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/store"
)

var pods = FieldsOf(store.Info{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}, store.Description{})

func parse(t require.TestingT, labelSelector, fieldSelector string) Selector {
	s, err := pods.Parse(labelSelector, fieldSelector)
	require.NoError(t, err)
	return s
}

func TestWithin(t *testing.T) {
	tests := []struct {
		name                     string
		labels, fields           string
		outerLabels, outerFields string
		within                   bool
	}{
		{name: "everything in everything", within: true},
		{name: "something in everything", labels: "app=web", fields: "spec.nodeName=edge-1", within: true},
		{name: "everything in something", outerFields: "spec.nodeName=edge-1"},
		{name: "everything in labels", outerLabels: "app"},

		{name: "same field", fields: "spec.nodeName=edge-1", outerFields: "spec.nodeName=edge-1", within: true},
		{name: "alias of a field", fields: "spec.host=edge-1", outerFields: "spec.nodeName=edge-1", within: true},
		{name: "another value", fields: "spec.nodeName=edge-2", outerFields: "spec.nodeName=edge-1"},
		{name: "another field", fields: "metadata.name=edge-1", outerFields: "spec.nodeName=edge-1"},
		{name: "one more field", fields: "spec.nodeName=edge-1,metadata.name=a", outerFields: "spec.nodeName=edge-1", within: true},
		{name: "one field less", fields: "spec.nodeName=edge-1", outerFields: "spec.nodeName=edge-1,metadata.name=a"},
		{name: "one more label", labels: "app=web", fields: "spec.nodeName=edge-1", outerFields: "spec.nodeName=edge-1", within: true},
		{name: "same exclusion", fields: "status.phase!=Failed", outerFields: "status.phase!=Failed", within: true},
		{name: "another exclusion", fields: "status.phase!=Failed", outerFields: "status.phase!=Running"},
		{name: "a value in an exclusion", fields: "status.phase=Running", outerFields: "status.phase!=Failed", within: true},
		{name: "the excluded value", fields: "status.phase=Failed", outerFields: "status.phase!=Failed"},
		{name: "an exclusion in a value", fields: "status.phase!=Failed", outerFields: "status.phase=Running"},

		{name: "same label", labels: "app=web", outerLabels: "app=web", within: true},
		{name: "a value in a set", labels: "app=web", outerLabels: "app in (web,db)", within: true},
		{name: "a set in a larger one", labels: "app in (web,db)", outerLabels: "app in (db,web,dns)", within: true},
		{name: "a set in a smaller one", labels: "app in (web,db)", outerLabels: "app=web"},
		{name: "a set, narrowed", labels: "app in (web,db),app!=db", outerLabels: "app=web", within: true},
		{name: "a value exists", labels: "app=web", outerLabels: "app", within: true},
		{name: "existence in a value", labels: "app", outerLabels: "app=web"},
		{name: "a number exists", labels: "tier>3", outerLabels: "tier", within: true},
		{name: "an exclusion may not exist", labels: "app!=web", outerLabels: "app"},
		{name: "a label in an exclusion", labels: "app=web", outerLabels: "app notin (db,dns)", within: true},
		{name: "an exclusion in a smaller one", labels: "app notin (db,dns)", outerLabels: "app!=db", within: true},
		{name: "an exclusion in a larger one", labels: "app!=db", outerLabels: "app notin (db,dns)"},
		{name: "a bound in an exclusion", labels: "tier>3", outerLabels: "tier notin (x,2)", within: true},
		{name: "a bound includes the excluded", labels: "tier>3", outerLabels: "tier!=4"},
		{name: "absence in absence", labels: "!app", outerLabels: "!app", within: true},
		{name: "absence in an exclusion", labels: "!app", outerLabels: "app!=web", within: true},
		{name: "absence in existence", labels: "!app", outerLabels: "app"},
		{name: "existence in absence", labels: "app", outerLabels: "!app"},
		{name: "a higher lower bound", labels: "tier>3", outerLabels: "tier>2", within: true},
		{name: "a lower lower bound", labels: "tier>2", outerLabels: "tier>3"},
		{name: "a lower upper bound", labels: "tier<2", outerLabels: "tier<3", within: true},
		{name: "a higher upper bound", labels: "tier<3", outerLabels: "tier<2"},
		{name: "the other bound", labels: "tier<3", outerLabels: "tier>2"},
		{name: "a number in a bound", labels: "tier in (3,4)", outerLabels: "tier>2", within: true},
		{name: "another label", labels: "app=web", outerLabels: "tier=web"},
		{name: "label but no field", labels: "app=web", outerLabels: "app=web", outerFields: "spec.nodeName=edge-1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, outer := parse(t, test.labels, test.fields), parse(t, test.outerLabels, test.outerFields)
			require.Equal(t, test.within, s.Within(outer))
		})
	}
}

// TestWithinProperty tries every object of a small universe: none may be selected by a selector but
// not by another one that this one is within. And one with more requirements is always within.
func TestWithinProperty(t *testing.T) {
	// Each list has a value that no selector names.
	labelValues := []string{"absent", "", "0", "1", "2", "3", "02", "x", "other"}
	names, namespaces, nodes := []string{"x", "y", "other"}, []string{"", "x", "y", "other"}, []string{"", "x", "y", "other"}
	var keys []string
	for _, namespace := range namespaces {
		for _, name := range names {
			keys = append(keys, strings.TrimPrefix(namespace+"/"+name, "/"))
		}
	}
	var universe []Attributes
	for _, a := range labelValues {
		for i, b := range labelValues {
			set := map[string]string{"a": a, "b": b}
			for label, value := range set {
				if value == "absent" {
					delete(set, label)
				}
			}
			universe = append(universe, Attributes{Labels: set, Fields: map[string]string{"spec.nodeName": nodes[i%len(nodes)]}})
		}
	}
	label := rapid.Custom(func(t *rapid.T) string {
		key := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "label")
		values := func(n int) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"", "0", "1", "2", "02", "x"}), n, n).Draw(t, "values"), ",")
		}
		number := rapid.SampledFrom([]string{"0", "1", "2", "02"}).Draw(t, "number")
		switch rapid.IntRange(0, 7).Draw(t, "operator") {
		case 0:
			return key
		case 1:
			return "!" + key
		case 2:
			return key + "=" + values(1)
		case 3:
			return key + "!=" + values(1)
		case 4:
			return key + " in (" + values(3) + ")"
		case 5:
			return key + " notin (" + values(2) + ")"
		case 6:
			return key + ">" + number
		default:
			return key + "<" + number
		}
	})
	field := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"metadata.name", "metadata.namespace", "spec.nodeName"}).Draw(t, "field") +
			rapid.SampledFrom([]string{"=", "!="}).Draw(t, "operator") + rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "value")
	})
	type text struct{ labels, fields []string }
	selectors := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) text {
		return text{rapid.SliceOfN(label, 0, 2).Draw(t, "labels"), rapid.SliceOfN(field, 0, 2).Draw(t, "fields")}
	}), 8, 8)
	rapid.Check(t, func(t *rapid.T) {
		texts := selectors.Draw(t, "selectors")
		for _, inner := range texts {
			s := parse(t, strings.Join(inner.labels, ","), strings.Join(inner.fields, ","))
			require.True(t, s.Within(s))
			for _, o := range texts {
				outer := parse(t, strings.Join(o.labels, ","), strings.Join(o.fields, ","))
				both := parse(t, strings.Join(slices.Concat(inner.labels, o.labels), ","), strings.Join(slices.Concat(inner.fields, o.fields), ","))
				require.True(t, both.Within(s) && both.Within(outer))
				// What holds for the labels, and for the fields, holds for both.
				for _, part := range [][2]Selector{{{labels: s.labels}, {labels: outer.labels}}, {{fields: s.fields}, {fields: outer.fields}}} {
					if !part[0].Within(part[1]) {
						continue
					}
					for _, key := range keys {
						for _, a := range universe {
							if part[0].Matches(key, a) && !part[1].Matches(key, a) {
								t.Fatalf("%v is within %v, but not for %s %v", inner, o, key, a)
							}
						}
					}
				}
			}
		}
	})
}
