package kubectl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/snapcache/snapcache/object"
)

// item is an object of a list, or a row of a Table.
type item struct {
	// raw is the JSON of the object, with its type, or of the row, until the callback returns.
	raw []byte

	isRow   bool
	columns []metav1.TableColumnDefinition // of the row's Table
}

func readList(r io.Reader, of *resource, each func(item) error) (meta metav1.ListMeta, err error) {
	d := jsontext.NewDecoder(r, jsontext.AllowDuplicateNames(true))
	if token, err := d.ReadToken(); err != nil || token.Kind() != '{' {
		return meta, fmt.Errorf("the server's answer is no list: %w", err)
	}
	var columns []metav1.TableColumnDefinition
	for d.PeekKind() != '}' {
		token, err := d.ReadToken()
		if err != nil {
			return meta, err
		}
		switch member := token.String(); {
		case member == "metadata":
			err = readInto(d, &meta)
		case member == "columnDefinitions":
			err = readInto(d, &columns)
		case member == "rows" && d.PeekKind() == '[':
			err = readItems(d, func(raw []byte) error { return each(item{raw: raw, isRow: true, columns: columns}) })
		case member == "items" && d.PeekKind() == '[':
			err = readItems(d, func(raw []byte) error {
				return each(item{raw: object.WithType(raw, of.apiVersion(), of.kind)})
			})
		default:
			err = d.SkipValue()
		}
		if err != nil {
			return meta, err
		}
	}
	_, err = d.ReadToken()
	return meta, err
}

func readInto(d *jsontext.Decoder, v any) error {
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, v)
}

func readItems(d *jsontext.Decoder, each func([]byte) error) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != ']' {
		raw, err := d.ReadValue()
		if err != nil {
			return err
		}
		if err := each(raw); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// readOne calls each for an object, or for the row of its Table.
func readOne(raw []byte, of *resource, each func(item) error) error {
	if gjson.GetBytes(raw, "kind").Str == "Table" {
		_, err := readList(bytes.NewReader(raw), of, each)
		return err
	}
	return each(item{raw: object.WithType(raw, of.apiVersion(), of.kind)})
}

// object returns an item as printers take it: a row in a Table of its own.
func (i item) object() (runtime.Object, error) {
	if !i.isRow {
		return decode(i.raw)
	}
	row, err := decodeRow(i.raw)
	return &metav1.Table{ColumnDefinitions: i.columns, Rows: []metav1.TableRow{row}}, err
}

// decode returns an object as printers take it: with integers as int64.
func decode(raw []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	return u, utiljson.Unmarshal(raw, &u.Object)
}

// decodeRow returns a row. It keeps only the printed parts of its object: namespace and labels.
func decodeRow(raw []byte) (metav1.TableRow, error) {
	var in struct {
		Cells  json.RawMessage `json:"cells"`
		Object struct {
			Metadata struct {
				Namespace string            `json:"namespace"`
				Labels    map[string]string `json:"labels"`
			} `json:"metadata"`
		} `json:"object"`
	}
	var row metav1.TableRow
	if err := json.Unmarshal(raw, &in); err != nil {
		return row, err
	}
	m := metav1.ObjectMeta{Namespace: in.Object.Metadata.Namespace, Labels: in.Object.Metadata.Labels}
	row.Object.Object = &metav1.PartialObjectMetadata{ObjectMeta: m}
	err := utiljson.Unmarshal(in.Cells, &row.Cells) // with integers as int64
	for i, cell := range row.Cells {
		// The printer does so, too, but makes the column as wide as the whole text.
		if text, ok := cell.(string); ok && strings.ContainsAny(text, breaks) {
			row.Cells[i] = text[:strings.IndexAny(text, breaks)] + "..."
		}
	}
	return row, err
}

// breaks are the characters at which the text of a cell is cut.
const breaks = "\f\n\r"
