package format

import (
	"encoding/binary"
	"errors"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/history"
)

// A generation has its history in two buckets, both by [history.Key]. An entry of the feed:
//
//	bytes 0..3   CRC-32C, little endian, over the key and the rest
//	byte  4      flags: 1 for a deletion, 2 for rows of attributes, 4 for a gap
//	uvarint      time, seconds since 1970
//	uvarint      time of the change with which the object appeared; 0 if that was
//	             before the history
//	uvarint, n   resourceVersion of that change
//	rest         the object's key; with rows of attributes, instead:
//
//	uvarint, n   the object's key
//	uvarint, n   resourceVersion since which the rows are complete
//	rest         the rows: each
//	uvarint, n     resourceVersion of the change
//	uvarint        number of values before the change, and for each
//	uvarint, n     the value
//
// The entry of a gap is under [history.GapKey]: its resourceVersion is where the gap begins, and
// there is no key of an object.
//
// The bucket "tombs" has the records of deleted objects, as they were.
var ErrFeedEntry = errors.New("entry of the change feed is corrupt")

const (
	feedDeleted    = 1
	feedAttributes = 2
	feedGap        = 4
)

// EncodeFeedEntry returns the entry for key.
func EncodeFeedEntry(key []byte, e history.Entry) []byte {
	b := make([]byte, checksumBytes+1, checksumBytes+len(e.Key)+len(e.FirstRV)+24)
	flags := &b[checksumBytes]
	if e.Deleted {
		*flags |= feedDeleted
	}
	if e.Gap {
		*flags |= feedGap
	}
	attributes := len(e.Rows) > 0 || e.RowsSince != ""
	if attributes {
		*flags |= feedAttributes
	}
	b = binary.AppendUvarint(b, uint64(e.Time))
	b = binary.AppendUvarint(b, uint64(e.FirstTime))
	b = appendPrefixed(b, e.FirstRV)
	if attributes {
		b = appendPrefixed(appendPrefixed(b, e.Key), e.RowsSince)
		for _, row := range e.Rows {
			b = binary.AppendUvarint(appendPrefixed(b, row.RV), uint64(len(row.Values)))
			for _, v := range row.Values {
				b = appendPrefixed(b, v)
			}
		}
	} else {
		b = append(b, e.Key...)
	}
	putChecksum(nameSum(key), b, 0)
	return b
}

// DecodeFeedEntry reads the entry for key, which has the resourceVersion rv, and verifies it.
func DecodeFeedEntry(key, b []byte) (rv string, e history.Entry, err error) {
	if len(b) <= checksumBytes || !checksumMatches(nameSum(key), b, 0) {
		return "", e, ErrFeedEntry
	}
	flags := b[checksumBytes]
	rv, ok := history.RV(key)
	if e.Gap = flags == feedGap; e.Gap {
		rv, ok = history.GapRV(key)
	}
	in := reader{rest: b[checksumBytes+1:]}
	at, first := in.uvarint(), in.uvarint()
	e.Deleted, e.Time, e.FirstTime, e.FirstRV = flags&feedDeleted != 0, int64(at), int64(first), string(in.prefixed())
	if flags&feedAttributes == 0 {
		e.Key, in.rest = string(in.rest), nil
	} else {
		e.Key, e.RowsSince = string(in.prefixed()), string(in.prefixed())
	}
	for len(in.rest) > 0 {
		row := store.AttributesRow{RV: string(in.prefixed())}
		for n := in.uvarint(); n > 0 && in.err == nil; n-- {
			row.Values = append(row.Values, string(in.prefixed()))
		}
		e.Rows = append(e.Rows, row)
	}
	if !ok || !e.Gap && flags > feedDeleted|feedAttributes || in.err != nil || max(at, first) > 1<<40 {
		return "", history.Entry{}, ErrFeedEntry
	}
	return rv, e, nil
}

// FeedBytes returns the bytes of an entry and its tombstone, nil for none, with their keys.
func FeedBytes(key, entry, tomb []byte) int64 {
	n := len(key) + len(entry)
	if tomb != nil {
		n += len(key) + len(tomb)
	}
	return int64(n)
}
