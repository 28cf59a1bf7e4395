package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/internal/logging/logtest"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
)

// TestCorruptRecordOffline checks that without a server a corrupt record is left out of each read,
// and reported in the status and, once, in the log.
func TestCorruptRecordOffline(t *testing.T) {
	n := newNode(t, podsOnly+"\nmetrics: {address: 127.0.0.1:0}\n")
	n.seed(t)
	raw, err := bbolt.Open(n.cfg.Store.Path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, raw.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("c")).Bucket([]byte("pods")).Bucket([]byte("g1")).Bucket([]byte("objects"))
		record := bytes.Clone(b.Get([]byte("shop/a")))
		record[len(record)-1] ^= 1
		meta := tx.Bucket([]byte("meta"))
		last := binary.BigEndian.AppendUint64(nil, uint64(tx.ID()))
		return errors.Join(
			b.Put([]byte("shop/a"), record),
			meta.Put([]byte("last"), append(last, meta.Get([]byte("last"))[8:]...)), // no writes were lost
		)
	}))
	require.NoError(t, raw.Close())
	var log logtest.Buffer
	client, stop := n.run(t, &log)
	for range 3 {
		var keys []string
		err := client.Objects(t.Context(), []string{"pods"}, localapi.ObjectQuery{}, func(json []byte) error {
			o, err := object.Parse(bytes.Clone(json))
			require.NoError(t, err)
			keys = append(keys, o.Key())
			return nil
		})
		require.ErrorAs(t, err, new(*localapi.CorruptRecordsError))
		require.Equal(t, []string{"shop/b"}, keys)
	}
	require.Eventually(t, func() bool {
		status, err := client.Status(t.Context())
		require.NoError(t, err)
		return status.Collections[0].ID == "pods" && status.Collections[0].CorruptRecords == 1 &&
			strings.Contains(log.String(), "a stored record is corrupt")
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, stop())
	require.Equal(t, 1, strings.Count(log.String(), "a stored record is corrupt"), log.String())
	require.Contains(t, log.String(), "key=shop/a")
}
