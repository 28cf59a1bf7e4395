package kubeapi

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
)

// settle replaces what differs between two answers of one kube-apiserver, after it has checked it: the
// resourceVersion of a list or a bookmark, which is a revision that the server had seen, and what
// follows from the time of the request.
func settle(q request, a *answer) error {
	values, _ := url.ParseQuery(q.query)
	asked, err := strconv.ParseUint(values.Get("resourceVersion"), 10, 64)
	if err != nil {
		asked = 0
	}
	if !q.asksForInitialEvents() {
		a.Body = slices.DeleteFunc(a.Body, func(document any) bool { return at(document, "type") == "BOOKMARK" }) // it came when it was time
		if len(a.Body) == 0 {
			a.Form, a.Body = "", []any{""} // as if there had been none
		}
	}
	var newest uint64 // of the objects in the frames so far
	for _, document := range a.Body {
		switch {
		case isFrame(document):
			object := at(document, "object")
			if at(document, "type") == "BOOKMARK" {
				if err := settleBookmark(object, max(asked, newest)); err != nil {
					return fmt.Errorf("bookmark: %w", err)
				}
			} else {
				newest = max(newest, newestOf(object))
			}
			settleStatus(object)
		case isList(document):
			meta, _ := at(document, "metadata").(map[string]any)
			exact := values.Get("resourceVersionMatch") == "Exact" && asked > 0
			if rv := at(meta, "resourceVersion"); exact && rv != strconv.FormatUint(asked, 10) {
				return fmt.Errorf("a list at exactly %d has resourceVersion %v", asked, rv)
			}
			if err := settleRevision(meta, max(asked, newestOf(document))); err != nil {
				return fmt.Errorf("list: %w", err)
			}
			if _, ok := meta["continue"]; ok { // it contains a resourceVersion; the next pages prove it
				meta["continue"] = "a token"
			}
		default:
			settleStatus(document)
		}
	}
	return nil
}

// isList reports whether the document is a list of objects, in any form.
func isList(document any) bool {
	return at(document, "metadata", "resourceVersion") != nil && (at(document, "items") != nil || at(document, "rows") != nil)
}

// settleBookmark replaces the resourceVersion of a bookmark. In a Table it is there twice: in the
// metadata of the Table and of the object in its row.
func settleBookmark(object any, least uint64) error {
	meta, _ := at(object, "metadata").(map[string]any)
	if err := settleRevision(meta, least); err != nil {
		return err
	}
	rows, _ := at(object, "rows").([]any)
	for _, row := range rows {
		if inner := at(row, "object"); inner != nil {
			if err := settleBookmark(inner, least); err != nil {
				return err
			}
		}
	}
	return nil
}

// settleRevision replaces a resourceVersion, which must be least or more.
func settleRevision(meta map[string]any, least uint64) error {
	text, _ := meta["resourceVersion"].(string)
	rv, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return fmt.Errorf("resourceVersion %q: %w", text, err)
	}
	if rv < least {
		return fmt.Errorf("resourceVersion %d is older than %d, which was asked for or is that of an object", rv, least)
	}
	meta["resourceVersion"] = "a revision"
	return nil
}

// newestOf returns the newest resourceVersion of the objects in a list, a Table or a frame.
func newestOf(value any) uint64 {
	var newest uint64
	for _, name := range []string{"items", "rows"} {
		list, _ := at(value, name).([]any)
		for _, item := range list {
			newest = max(newest, newestOf(item), newestOf(at(item, "object")))
		}
		if list != nil {
			return newest
		}
	}
	rv, _ := at(value, "metadata", "resourceVersion").(string)
	newest, _ = strconv.ParseUint(rv, 10, 64)
	return newest
}

// serverRevision matches what a message has of the server's own revisions.
var serverRevision = regexp.MustCompile(`current: \d+|\(\d+\)$`)

// settleStatus replaces what a Status contains of the server's state and of its luck.
func settleStatus(document any) {
	status, _ := document.(map[string]any)
	if status["kind"] != "Status" {
		return
	}
	if message, ok := status["message"].(string); ok {
		status["message"] = serverRevision.ReplaceAllString(message, "a revision")
	}
	details, _ := status["details"].(map[string]any)
	if seconds, ok := details["retryAfterSeconds"].(json.Number); ok && len(seconds) == 1 && seconds != "0" {
		details["retryAfterSeconds"] = "soon"
	}
}
