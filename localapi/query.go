package localapi

import (
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// parameters maps the parameters of a URL to the fields of a query that have their values.
type parameters map[string]any

func (q *KeyQuery) parameters() parameters {
	return parameters{
		"index": &q.Index, "value": &q.Value, "namespace": &q.Namespace, "namePrefix": &q.NamePrefix, "after": &q.After, "limit": &q.Limit,
	}
}

func (q *ObjectQuery) parameters() parameters {
	return parameters{"namespace": &q.Namespace, "labelSelector": &q.LabelSelector, "name": &q.Names, "key": &q.Key}
}

func (q *ChangeQuery) parameters() parameters {
	return parameters{
		"since": &q.Since, "sinceTime": &q.SinceTime, "namespace": &q.Namespace, "key": &q.Key, "objects": &q.Objects, "follow": &q.Follow,
	}
}

func (q *VerifyQuery) parameters() parameters {
	return parameters{"collection": &q.Collections, "repair": &q.Repair}
}

// encode returns the parameters that are not empty.
func (p parameters) encode() url.Values {
	v := url.Values{}
	for name, field := range p {
		text := ""
		switch x := field.(type) {
		case *string:
			text = *x
		case *[]string:
			v[name] = *x
		case *int:
			text = strconv.Itoa(*x)
		case *bool:
			text = strconv.FormatBool(*x)
		case *time.Time:
			if !x.IsZero() {
				text = x.Format(time.RFC3339Nano)
			}
		}
		if text != "" {
			v.Set(name, text)
		}
	}
	return v
}

// decode sets the fields to the values in v. The fields of empty and missing values stay as they are.
func (p parameters) decode(v url.Values) (err error) {
	for name, field := range p {
		text, expected := v.Get(name), ""
		if list, ok := field.(*[]string); ok {
			*list = v[name]
		} else if text == "" {
			continue
		}
		switch x := field.(type) {
		case *string:
			*x = text
		case *int:
			var n uint64
			n, err = strconv.ParseUint(text, 10, 31)
			*x, expected = int(n), "a number"
		case *bool:
			*x, err = strconv.ParseBool(text)
			expected = "true or false"
		case *time.Time:
			*x, err = time.Parse(time.RFC3339, text)
			expected = "a time such as 2026-01-02T15:04:05Z"
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %s expected, found %q", ErrBadQuery, name, expected, text)
		}
	}
	return nil
}
