package kubeapi

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// listWriter writes a list item by item, in the form of a query.
type listWriter struct {
	w     *bufio.Writer
	q     *query
	meta  listMeta
	now   time.Time
	items int
	buf   []byte

	dropped []byte // the item without the fields that the client drops
	after   []byte // the text after the items
}

// begin writes the text before the items. Lists of custom resources have their keys in
// alphabetical order, with the metadata after the items.
func (l *listWriter) begin() error {
	var head []byte
	var err error
	kind, version := cmp.Or(l.q.desc.ListKind, l.q.info.Kind+"List"), l.q.info.APIVersion()
	if l.q.form.as == asPartial {
		kind, version = asPartial+"List", l.q.form.version
	}
	l.after = []byte("]}\n")
	switch {
	case l.q.form.as == asTable:
		head, err = l.q.appendTableHead(nil, l.q.form, l.meta, true)
	case l.q.form.as == "" && l.q.desc.Custom:
		head = []byte(`{"apiVersion":"` + version + `","items":[`)
		l.after, err = appendJSON([]byte(`],"kind":"`+kind+`","metadata":`), struct { // it always has continue
			Continue  string `json:"continue"`
			Remaining *int64 `json:"remainingItemCount,omitempty"`
			RV        string `json:"resourceVersion"`
		}{l.meta.Continue, l.meta.Remaining, l.meta.RV})
		l.after = append(l.after, "}\n"...)
	default:
		head, err = appendJSON([]byte(`{"kind":"`+kind+`","apiVersion":"`+version+`","metadata":`), l.meta)
		head = append(head, `,"items":[`...)
	}
	if err != nil {
		return err
	}
	if l.q.form.pretty {
		head, l.after = l.indent(head)
	}
	_, err = l.w.Write(head)
	return err
}

// indent splits the indented form of the list without its items in two.
func (l *listWriter) indent(head []byte) (before, after []byte) {
	var b bytes.Buffer
	if json.Indent(&b, slices.Concat(head, bytes.TrimSuffix(l.after, []byte("\n"))), "", "  ") != nil {
		return head, l.after
	}
	const empty = ": []"
	i := bytes.LastIndex(b.Bytes(), []byte(empty)) + len(empty) - 1
	return b.Bytes()[:i], b.Bytes()[i:]
}

// item writes an item.
func (l *listWriter) item(raw []byte) error {
	var err error
	if l.q.form.as == "" && !l.q.desc.Custom {
		if !l.q.form.drop.None() {
			if l.dropped, err = l.q.form.drop.Append(l.dropped[:0], raw); err != nil {
				return err
			}
			raw = l.dropped
		}
		l.buf = l.q.appendBare(l.buf[:0], raw)
	} else if l.buf, err = l.q.appendItem(l.buf[:0], raw, l.q.form, l.now); err != nil {
		return err
	}
	item := l.buf
	if l.q.form.pretty {
		var b bytes.Buffer
		b.WriteString("\n    ")
		if err := json.Indent(&b, item, "    ", "  "); err != nil {
			return err
		}
		item = b.Bytes()
	}
	if l.items++; l.items > 1 {
		if err := l.w.WriteByte(','); err != nil {
			return err
		}
	}
	_, err = l.w.Write(item)
	return err
}

// end writes the text after the items.
func (l *listWriter) end() error {
	if l.q.form.pretty && l.items > 0 {
		if _, err := l.w.WriteString("\n  "); err != nil {
			return err
		}
	}
	if _, err := l.w.Write(l.after); err != nil {
		return err
	}
	return l.w.Flush()
}
