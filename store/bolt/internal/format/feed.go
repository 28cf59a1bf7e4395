package format

import (
	"encoding/binary"
	"errors"

	"github.com/snapcache/snapcache/store/internal/history"
)

// A generation has its history in two buckets, both by [history.Key]. An entry of
// the feed:
//
//	bytes 0..3   CRC-32C, little endian, over the key and the rest
//	byte  4      1 for a deletion, 0 for anything else
//	uvarint      time, seconds since 1970
//	uvarint      time of the change with which the object appeared; 0 if that was
//	             before the history
//	uvarint, n   resourceVersion of that change
//	rest         the object's key
//
// The bucket "tombs" has the records of deleted objects, as they were.
var ErrFeedEntry = errors.New("entry of the change feed is corrupt")

// EncodeFeedEntry returns the entry for key.
func EncodeFeedEntry(key []byte, e history.Entry) []byte {
	b := make([]byte, checksumBytes, checksumBytes+len(e.Key)+len(e.FirstRV)+24)
	if e.Deleted {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(e.Time))
	b = binary.AppendUvarint(b, uint64(e.FirstTime))
	b = binary.AppendUvarint(b, uint64(len(e.FirstRV)))
	b = append(b, e.FirstRV...)
	b = append(b, e.Key...)
	putChecksum(nameSum(key), b, 0)
	return b
}

// DecodeFeedEntry reads the entry for key, which is a resourceVersion, and verifies it.
func DecodeFeedEntry(key, b []byte) (rv string, e history.Entry, err error) {
	rv, ok := history.RV(key)
	if !ok || len(b) <= checksumBytes || !checksumMatches(nameSum(key), b, 0) || b[checksumBytes] > 1 {
		return "", e, ErrFeedEntry
	}
	e.Deleted = b[checksumBytes] == 1
	at, b, err := uvarint(b[checksumBytes+1:])
	if err != nil {
		return "", e, ErrFeedEntry
	}
	first, b, err := uvarint(b)
	if err != nil || at > 1<<40 || first > 1<<40 {
		return "", e, ErrFeedEntry
	}
	firstRV, b, err := lengthPrefixed(b)
	if err != nil {
		return "", e, ErrFeedEntry
	}
	e.Time, e.FirstTime, e.FirstRV, e.Key = int64(at), int64(first), string(firstRV), string(b)
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
