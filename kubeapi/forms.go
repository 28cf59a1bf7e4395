package kubeapi

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// metadataOf returns the metadata of an object, as it is in its JSON.
func metadataOf(raw []byte) []byte {
	if m := gjson.GetBytes(raw, "metadata"); m.IsObject() {
		return raw[m.Index : m.Index+len(m.Raw)]
	}
	return []byte("{}")
}

// appendPartial appends an object's metadata as a PartialObjectMetadata.
func (f form) appendPartial(dst, raw []byte) []byte {
	return f.appendMetadata(dst, metadataOf(raw))
}

// appendMetadata appends metadata as a PartialObjectMetadata.
func (f form) appendMetadata(dst, metadata []byte) []byte {
	dst = append(dst, `{"kind":"PartialObjectMetadata","apiVersion":"`+f.version+`","metadata":`...)
	dst = append(dst, metadata...)
	return append(dst, '}')
}

// withRV returns a copy of an object with another resourceVersion.
func withRV(raw []byte, rv string) []byte {
	v := gjson.GetBytes(raw, "metadata.resourceVersion")
	if v.Index == 0 {
		return raw
	}
	out := make([]byte, 0, len(raw)+len(rv))
	out = append(append(out, raw[:v.Index]...), '"')
	out = append(append(out, rv...), '"')
	return append(out, raw[v.Index+len(v.Raw):]...)
}

// row is a row of a Table, before its object.
type row struct {
	Cells      []any                      `json:"cells"`
	Conditions []metav1.TableRowCondition `json:"conditions,omitempty"`
}

// appendItem appends an object, or a table's row of it, in the form of an answer.
func (s *served) appendItem(dst, raw []byte, f form, now time.Time) ([]byte, error) {
	switch f.as {
	case asPartial:
		return f.appendPartial(dst, raw), nil
	case asTable:
		cells, conditions, err := s.printer.Row(raw, now)
		if err != nil {
			return nil, err
		}
		if dst, err = appendJSON(dst, row{Cells: cells, Conditions: conditions}); err != nil {
			return nil, err
		}
		dst = append(dst[:len(dst)-1], `,"object":`...)
		switch f.include {
		case "", metav1.IncludeMetadata:
			dst = f.appendPartial(dst, raw)
		case metav1.IncludeObject:
			dst = append(dst, raw...)
		default:
			dst = append(dst, "null"...)
		}
		return append(dst, '}'), nil
	}
	return f.drop.Append(dst, raw)
}

// appendAlone appends an object in the form of an answer that is not the object itself: a table has it as its
// only row. A watch has its columns only in its first frame.
func (s *served) appendAlone(dst, raw []byte, f form, columns bool, now time.Time) ([]byte, error) {
	if f.as != asTable {
		return s.appendItem(dst, raw, f, now)
	}
	dst, err := s.appendTableHead(dst, f, listMeta{RV: gjson.GetBytes(raw, "metadata.resourceVersion").String()}, columns)
	if err != nil {
		return nil, err
	}
	if dst, err = s.appendItem(dst, raw, f, now); err != nil {
		return nil, err
	}
	return append(dst, "]}"...), nil
}

// isStored reports whether objects are sent as they are stored.
func (f form) isStored() bool { return f.as == "" && f.drop.None() }

// appendBare appends an object without its kind, which a kube-apiserver leaves out of the items of
// lists of built-in types.
func (s *served) appendBare(dst, raw []byte) []byte {
	if rest, ok := bytes.CutPrefix(raw, s.typed); ok {
		return append(append(dst, '{'), rest...)
	}
	return append(dst, raw...)
}

// appendJSON appends a value as JSON, with < and > as they are, which objects have too.
func appendJSON(dst []byte, v any) ([]byte, error) {
	b := bytes.NewBuffer(dst)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// appendTableHead appends the beginning of a Table up to its rows.
func (s *served) appendTableHead(dst []byte, f form, meta listMeta, columns bool) ([]byte, error) {
	head := struct {
		Kind              string                         `json:"kind"`
		APIVersion        string                         `json:"apiVersion"`
		Metadata          listMeta                       `json:"metadata"`
		ColumnDefinitions []metav1.TableColumnDefinition `json:"columnDefinitions"`
	}{Kind: asTable, APIVersion: f.version, Metadata: meta}
	if columns {
		head.ColumnDefinitions = s.printer.Columns()
	}
	dst, err := appendJSON(dst, head)
	return append(bytes.TrimSuffix(dst, []byte("}")), `,"rows":[`...), err
}

// listMeta is the metadata of a list.
type listMeta struct {
	RV        string `json:"resourceVersion"`
	Continue  string `json:"continue,omitempty"`
	Remaining *int64 `json:"remainingItemCount,omitempty"`
}
