package statuspage

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize/english"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/store"
)

// maxYAMLBytes limits the JSON of an object that is shown as YAML.
const maxYAMLBytes = 4 << 20

func (h *handler) object(r *http.Request, s *sheet) error {
	c, err := h.collection(r, s)
	if err != nil {
		return err
	}
	key := r.FormValue("key")
	if key == "" {
		return fmt.Errorf("%w: the parameter key is missing", localapi.ErrBadQuery)
	}
	s.Title = key
	err = h.opts.Source.Objects(r.Context(), []string{c.ID}, localapi.ObjectQuery{Key: key}, func(raw []byte) error { return s.show(raw, c, key) })
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	var last localapi.Change
	q := localapi.ChangeQuery{Since: c.HistorySince.RV, Key: key}
	if q.Since == "" {
		q.SinceTime = time.Unix(0, 0) // the error has the reason why there is no history
	}
	failed := h.opts.Source.Changes(r.Context(), c.ID, q, func(x localapi.Change) error {
		if x.Type != localapi.Bookmark {
			last = x
		}
		return nil
	})
	switch now := h.opts.Clock.Now(); {
	case failed != nil: // the history can't be read, but the object was
		s.Facts.add("Change", failed.Error())
	case last.Type == "":
		s.Facts.addAt("Change", "none since the history began, "+localapi.Ago(now, c.HistorySince.Time), c.HistorySince.Time)
	default:
		s.Facts.addAt("Change", strings.ToLower(string(last.Type))+" "+localapi.Ago(now, last.Time), last.Time)
	}
	return err
}

// show adds an object to the page. The values of a Secret are left out.
func (s *sheet) show(raw []byte, c localapi.Collection, key string) error {
	s.Facts.add("Size", localapi.Size(int64(len(raw))))
	secret := isSecret(c)
	if secret {
		s.Notes = append(s.Notes, "The values are not shown here: snapcache dump "+c.Resource+" prints them.")
	} else {
		s.Links = append(s.Links, cell{Text: "as JSON", Link: link("/v1alpha1/collections/", c.ID, "/objects", "key", key)})
	}
	if len(raw) > maxYAMLBytes {
		s.Notes = append(s.Notes, "The object is too large to be shown.")
		return nil
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return err
	}
	if secret {
		hide(object)
	}
	var text bytes.Buffer
	e := yaml.NewEncoder(&text)
	e.SetIndent(2)
	e.CompactSeqIndent() // as kubectl prints lists
	err := errors.Join(e.Encode(object), e.Close())
	s.Text = text.String()
	return err
}

func isSecret(c localapi.Collection) bool { return c.Resource == "secrets" || c.Kind == "Secret" }

// isForeignSecret reports whether objects may have values of a Secret in columns of their own.
func isForeignSecret(c localapi.Collection) bool { return isSecret(c) && c.Group != "" }

// hide replaces all values of a Secret that don't describe it by their lengths. Its annotations may
// repeat the data: kubectl apply keeps the last applied object in one.
func hide(secret map[string]any) {
	for field, value := range secret {
		switch field {
		case "apiVersion", "kind", "type", "immutable":
		case "metadata":
			if m, ok := value.(map[string]any); ok && m["annotations"] != nil {
				m["annotations"] = lengths(m["annotations"])
			}
		default:
			secret[field] = lengths(value)
		}
	}
}

// lengths returns the keys of a map of texts, with the length of each as it is stored.
func lengths(v any) map[string]string {
	all := map[string]string{}
	values, _ := v.(map[string]any)
	for k, value := range values {
		all[k] = english.Plural(utf8.RuneCountInString(fmt.Sprint(value)), "character", "")
	}
	return all
}
