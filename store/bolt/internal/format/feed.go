package format

import (
	"encoding/binary"
	"errors"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/internal/history"
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
	flags, ok := b[checksumBytes], false
	if e.Gap = flags == feedGap; e.Gap {
		rv, ok = history.GapRV(key)
	} else {
		rv, ok = history.RV(key)
	}
	if !ok || !e.Gap && flags > feedDeleted|feedAttributes {
		return "", e, ErrFeedEntry
	}
	e.Deleted = flags&feedDeleted != 0
	at, b, err := uvarint(b[checksumBytes+1:])
	if err != nil {
		return "", e, ErrFeedEntry
	}
	first, b, err := uvarint(b)
	if err != nil || at > 1<<40 || first > 1<<40 {
		return "", e, ErrFeedEntry
	}
	e.Time, e.FirstTime = int64(at), int64(first)
	firstRV, b, err := lengthPrefixed(b)
	if err != nil {
		return "", e, ErrFeedEntry
	}
	e.FirstRV, e.Key = string(firstRV), string(b)
	if flags&feedAttributes != 0 && decodeAttributes(&e, b) != nil {
		return "", e, ErrFeedEntry
	}
	return rv, e, nil
}

// decodeAttributes reads the part of an entry that begins with the object's key.
func decodeAttributes(e *history.Entry, b []byte) error {
	key, b, err := lengthPrefixed(b)
	if err != nil {
		return err
	}
	since, b, err := lengthPrefixed(b)
	if err != nil {
		return err
	}
	e.Key, e.RowsSince = string(key), string(since)
	for len(b) > 0 {
		var rv, value []byte
		var n uint64
		if rv, b, err = lengthPrefixed(b); err != nil {
			return err
		}
		if n, b, err = uvarint(b); err != nil {
			return err
		}
		row := store.AttributesRow{RV: string(rv)}
		for range n {
			if value, b, err = lengthPrefixed(b); err != nil {
				return err
			}
			row.Values = append(row.Values, string(value))
		}
		e.Rows = append(e.Rows, row)
	}
	return nil
}

// FeedBytes returns the bytes of an entry and its tombstone, nil for none, with their keys.
func FeedBytes(key, entry, tomb []byte) int64 {
	n := len(key) + len(entry)
	if tomb != nil {
		n += len(key) + len(tomb)
	}
	return int64(n)
}
