package kubeapi

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// tampering changes an answer, and reports false if it can't.
type tampering struct {
	name   string
	change func(r *response) bool
}

var tamperings = []tampering{
	{"another status", func(r *response) bool { r.status++; return true }},
	{"no Content-Type", withoutHeader("Content-Type")},
	{"no Cache-Control", withoutHeader("Cache-Control")},
	{"no Retry-After", withoutHeader("Retry-After")},
	{"a Warning", func(r *response) bool { r.header.Add("Warning", `299 - "x"`); return true }},
	{"a charset", func(r *response) bool {
		r.header.Set("Content-Type", r.header.Get("Content-Type")+"; charset=utf-8")
		return true
	}},
	{"cut", func(r *response) bool {
		if len(r.body) < 5 {
			return false
		}
		r.body = r.body[:len(r.body)-5]
		return true
	}},
	{"a field twice", func(r *response) bool {
		before := r.body
		r.body = bytes.Replace(r.body, []byte(`"kind":`), []byte(`"kind":"x","kind":`), 1)
		return !bytes.Equal(before, r.body)
	}},
	{"not pretty", func(r *response) bool {
		var compact bytes.Buffer
		if formOf(r.body) == "compact, ends with a newline" || json.Compact(&compact, r.body) != nil || bytes.Equal(compact.Bytes(), r.body) {
			return false
		}
		r.body = compact.Bytes()
		return true
	}},
	{"no last newline", func(r *response) bool {
		before := len(r.body)
		r.body = bytes.TrimSuffix(r.body, []byte("\n"))
		return len(r.body) < before
	}},
	{"another message", edit(func(m map[string]any) bool { return m["kind"] == "Status" && replace(m, "message", "x") })},
	{"another reason", edit(func(m map[string]any) bool { return m["kind"] == "Status" && replace(m, "reason", "x") })},
	{"no details", edit(func(m map[string]any) bool { return m["kind"] == "Status" && drop(m, "details") })},
	{"no item", edit(func(m map[string]any) bool { return shorten(m, "items") || shorten(m, "rows") })},
	{"items in another order", edit(func(m map[string]any) bool { return swap(m["items"]) || swap(m["rows"]) })},
	{"another kind", edit(func(m map[string]any) bool { return replace(m, "kind", "x") })},
	{"no apiVersion", edit(func(m map[string]any) bool { return drop(m, "apiVersion") })},
	{"an older revision", edit(func(m map[string]any) bool { return m["uid"] != nil && replace(m, "resourceVersion", "1") })},
	{"a list that is older than its items", edit(func(m map[string]any) bool {
		meta, _ := m["metadata"].(map[string]any)
		return m["items"] != nil && newestOf(m) > 1 && replace(meta, "resourceVersion", "1")
	})},
	{"no remainingItemCount", edit(func(m map[string]any) bool { return drop(m, "remainingItemCount") })},
	{"no continue", edit(func(m map[string]any) bool { return drop(m, "continue") })},
	{"no labels", edit(func(m map[string]any) bool { return drop(m, "labels") })},
	{"another annotation", edit(func(m map[string]any) bool { return replace(m, "touched", "no") })},
	{"a number", edit(func(m map[string]any) bool { return replace(m, "size", json.Number("9223372036854775808")) })},
	{"a float", edit(func(m map[string]any) bool { return replace(m, "ratio", json.Number("0.10000000000000001")) })},
	{"a null", edit(func(m map[string]any) bool { return drop(m, "nul") })},
	{"unicode", edit(func(m map[string]any) bool { return replace(m, "unicode", "Zu\u0308rich") })},
	{"no column", edit(func(m map[string]any) bool { return shorten(m, "columnDefinitions") })},
	{"another cell", edit(func(m map[string]any) bool {
		cells, _ := m["cells"].([]any)
		if len(cells) == 0 {
			return false
		}
		cells[0] = "x"
		return true
	})},
	{"an old age", edit(func(m map[string]any) bool {
		cells, _ := m["cells"].([]any)
		i := slices.IndexFunc(cells, func(cell any) bool { s, _ := cell.(string); _, ok := ageOf(s); return ok })
		if i < 0 {
			return false
		}
		cells[i] = "59m"
		return true
	})},
	{"no object in a row", edit(func(m map[string]any) bool { return m["cells"] != nil && drop(m, "object") })},
	{"another type of frame", edit(func(m map[string]any) bool { return m["type"] == "DELETED" && replace(m, "type", "MODIFIED") })},
	{"no frame", frames(func(all []any) []any { return all[1:] })},
	{"a frame twice", frames(func(all []any) []any { return append(all, all[len(all)-1]) })},
	{"frames in another order", frames(func(all []any) []any {
		if len(all) < 2 {
			return nil
		}
		slices.Reverse(all)
		return all
	})},
	{"another text", func(r *response) bool {
		if strings.HasPrefix(r.header.Get("Content-Type"), "application/json") {
			return false
		}
		r.body = append(r.body, '.')
		return true
	}},
}

// apply returns the pages of an answer with the last one changed. It reports false if there is
// nothing to change.
func (c tampering) apply(pages []response) ([]response, bool) {
	pages = slices.Clone(pages)
	last := &pages[len(pages)-1]
	last.header, last.body = last.header.Clone(), bytes.Clone(last.body)
	return pages, c.change(last)
}

func withoutHeader(name string) func(*response) bool {
	return func(r *response) bool {
		had := r.header.Get(name) != ""
		r.header.Del(name)
		return had
	}
}

func replace(m map[string]any, name string, value any) bool {
	if was, ok := m[name]; !ok || was == value {
		return false
	}
	m[name] = value
	return true
}

func drop(m map[string]any, name string) bool {
	_, ok := m[name]
	delete(m, name)
	return ok
}

func shorten(m map[string]any, name string) bool {
	list, _ := m[name].([]any)
	if len(list) == 0 {
		return false
	}
	m[name] = list[:len(list)-1]
	return true
}

func swap(value any) bool {
	list, _ := value.([]any)
	if len(list) < 2 {
		return false
	}
	list[0], list[1] = list[1], list[0]
	return true
}

// edit returns a change of the first JSON object, in any depth, that change takes.
func edit(change func(map[string]any) bool) func(*response) bool {
	var within func(value any) bool
	within = func(value any) bool {
		switch v := value.(type) {
		case map[string]any:
			if change(v) {
				return true
			}
			for _, name := range slices.Sorted(maps.Keys(v)) {
				if within(v[name]) {
					return true
				}
			}
		case []any:
			return slices.ContainsFunc(v, within)
		}
		return false
	}
	return rewrite(func(documents []any) []any {
		documents = slices.DeleteFunc(documents, timedBookmark)
		if !slices.ContainsFunc(documents, within) {
			return nil
		}
		return documents
	})
}

// frames returns a change of the frames of a watch; nil means that there is none.
func frames(change func([]any) []any) func(*response) bool {
	return rewrite(func(documents []any) []any {
		documents = slices.DeleteFunc(documents, timedBookmark)
		if len(documents) == 0 || !isFrame(documents[0]) {
			return nil
		}
		return change(documents)
	})
}

// rewrite returns a change of the JSON documents of a response, which keeps their layout.
func rewrite(change func([]any) []any) func(*response) bool {
	return func(r *response) bool {
		if !strings.HasPrefix(r.header.Get("Content-Type"), "application/json") {
			return false
		}
		var documents []any
		decoder := json.NewDecoder(bytes.NewReader(r.body))
		decoder.UseNumber()
		for decoder.More() {
			var document any
			if decoder.Decode(&document) != nil {
				return false
			}
			documents = append(documents, document)
		}
		changed := change(documents)
		if changed == nil {
			return false
		}
		form := formOf(r.body)
		var out bytes.Buffer
		encoder := json.NewEncoder(&out)
		if strings.HasPrefix(form, "pretty") {
			encoder.SetIndent("", "  ")
		}
		for _, document := range changed {
			if encoder.Encode(document) != nil {
				return false
			}
		}
		r.body = out.Bytes()
		if !strings.HasSuffix(form, "newline") {
			r.body = bytes.TrimSuffix(r.body, []byte("\n"))
		}
		return true
	}
}
