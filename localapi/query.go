package localapi

import (
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// parameters returns URL parameters, without those that are empty.
func parameters(all map[string]string) url.Values {
	v := url.Values{}
	for name, value := range all {
		if value != "" {
			v.Set(name, value)
		}
	}
	return v
}

// values encodes a query as URL parameters.
func (q KeyQuery) values() url.Values {
	v := parameters(map[string]string{
		"index": q.Index, "value": q.Value, "namespace": q.Namespace, "namePrefix": q.NamePrefix, "after": q.After,
	})
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

// parseKeyQuery decodes the parameters made by values.
func parseKeyQuery(v url.Values) (KeyQuery, error) {
	q := KeyQuery{
		Index: v.Get("index"), Value: v.Get("value"), Namespace: v.Get("namespace"), NamePrefix: v.Get("namePrefix"), After: v.Get("after"),
	}
	if s := v.Get("limit"); s != "" {
		var err error
		if q.Limit, err = strconv.Atoi(s); err != nil || q.Limit < 0 {
			return q, fmt.Errorf("%w: limit: a number expected, found %q", ErrBadQuery, s)
		}
	}
	return q, nil
}

// values encodes a query as URL parameters.
func (q ChangeQuery) values() url.Values {
	v := parameters(map[string]string{
		"since": q.Since, "namespace": q.Namespace, "key": q.Key,
		"objects": strconv.FormatBool(q.Objects), "follow": strconv.FormatBool(q.Follow),
	})
	if !q.SinceTime.IsZero() {
		v.Set("sinceTime", q.SinceTime.Format(time.RFC3339Nano))
	}
	return v
}

// parseChangeQuery decodes the parameters made by values.
func parseChangeQuery(v url.Values) (q ChangeQuery, err error) {
	q.Since, q.Namespace, q.Key = v.Get("since"), v.Get("namespace"), v.Get("key")
	if s := v.Get("sinceTime"); s != "" {
		if q.SinceTime, err = time.Parse(time.RFC3339, s); err != nil {
			return q, fmt.Errorf("%w: sinceTime: %w", ErrBadQuery, err)
		}
	}
	for name, flag := range map[string]*bool{"objects": &q.Objects, "follow": &q.Follow} {
		if s := v.Get(name); s != "" {
			if *flag, err = strconv.ParseBool(s); err != nil {
				return q, fmt.Errorf("%w: %s: true or false expected, found %q", ErrBadQuery, name, s)
			}
		}
	}
	return q, nil
}
