package kubeapi

import (
	"bufio"
	"bytes"
	"encoding/json"
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

	dropped []byte // the item without what the client drops
	after   []byte // what follows the items
}

// begin writes what comes before the items. Lists of custom resources have their keys in
// alphabetical order, with the metadata after the items.
func (l *listWriter) begin() error {
	var head []byte
	meta, err := appendJSON(nil, l.meta)
	if err != nil {
		return err
	}
	kind, version := l.q.info.Kind+"List", l.q.info.APIVersion()
	switch {
	case l.q.form.as == asTable:
		if head, err = l.q.appendTableHead(nil, l.q.form, l.meta, true); err != nil {
			return err
		}
		l.after = []byte("]}\n")
	case l.q.form.as == asPartial:
		head = append([]byte(`{"kind":"PartialObjectMetadataList","apiVersion":"`+l.q.form.version+`","metadata":`), meta...)
		head, l.after = append(head, `,"items":[`...), []byte("]}\n")
	case l.q.desc.Custom:
		head = []byte(`{"apiVersion":"` + version + `","items":[`)
		l.after = append([]byte(`],"kind":"`+kind+`","metadata":`), l.customMeta()...)
		l.after = append(l.after, "}\n"...)
	default:
		head = append([]byte(`{"kind":"`+kind+`","apiVersion":"`+version+`","metadata":`), meta...)
		head, l.after = append(head, `,"items":[`...), []byte("]}\n")
	}
	if l.q.form.pretty {
		head, l.after = l.indent(head)
	}
	_, err = l.w.Write(head)
	return err
}

// customMeta returns the metadata of a list of custom resources, whose keys are in order, and which
// always has continue.
func (l *listWriter) customMeta() []byte {
	m := map[string]any{"continue": l.meta.Continue, "resourceVersion": l.meta.RV}
	if l.meta.Remaining != nil {
		m["remainingItemCount"] = *l.meta.Remaining
	}
	b, _ := json.Marshal(m) // never fails
	return b
}

// indent splits the indented form of the list without its items in two.
func (l *listWriter) indent(head []byte) (before, after []byte) {
	var b bytes.Buffer
	if json.Indent(&b, append(append([]byte(nil), head...), bytes.TrimSuffix(l.after, []byte("\n"))...), "", "  ") != nil {
		return head, l.after
	}
	const empty = ": []"
	i := bytes.LastIndex(b.Bytes(), []byte(empty)) + len(empty) - 1
	return append([]byte(nil), b.Bytes()[:i]...), append([]byte(nil), b.Bytes()[i:]...)
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

// end writes what comes after the items.
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
