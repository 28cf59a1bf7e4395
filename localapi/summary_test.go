package localapi

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHeadline(t *testing.T) {
	in := Collection{ID: "pods", Synced: true, CaughtUp: true, Objects: 1200}
	old := Collection{ID: "nodes", Synced: true, Objects: 34, AgeSeconds: (3*time.Hour + 12*time.Minute).Seconds()}
	fresh := Collection{ID: "services", Synced: true, Objects: 1, AgeSeconds: 2}
	never := Collection{ID: "widgets.example.com"}
	online := &AgentStatus{Connected: true}
	waiting := &AgentStatus{Problem: "no route"}
	for _, tc := range []struct {
		name        string
		agent       *AgentStatus
		store       StoreStatus
		collections []Collection
		want        string
	}{
		{"caught up", online, StoreStatus{}, []Collection{in, in}, "caught up: 2,400 objects in 2 collections"},
		{"one collection", online, StoreStatus{}, []Collection{in}, "caught up: 1,200 objects in 1 collection"},
		{"offline", waiting, StoreStatus{}, []Collection{old, fresh}, "OFFLINE: data is 3h12m old: 35 objects in 2 collections, 0 of 2 caught up; waiting: no route"},
		{"partly offline", online, StoreStatus{}, []Collection{in, old, fresh}, "data is 3h12m old: 1,235 objects in 3 collections, 1 of 3 caught up"},
		{"one never synced", online, StoreStatus{}, []Collection{in, never}, "1 of 2 never synced: 1,200 objects in 1 collection"},
		{"old and never synced", waiting, StoreStatus{}, []Collection{old, never}, "OFFLINE: data is 3h12m old: 34 objects in 1 collection, 0 of 2 caught up, 1 never synced; waiting: no route"},
		{"never synced", waiting, StoreStatus{}, []Collection{never}, "never synced; waiting: no route"},
		{"a file", nil, StoreStatus{}, []Collection{old}, "data is 3h12m old: 34 objects in 1 collection, 0 of 1 caught up"},
		{"nothing", online, StoreStatus{}, nil, "nothing is cached yet"},
		{"disk full", online, StoreStatus{Problem: "no space"}, []Collection{in}, "caught up: 1,200 objects in 1 collection; changes can't be stored: no space"},
		{"configuration", &AgentStatus{Connected: true, ConfigProblem: "line 3"}, StoreStatus{}, []Collection{in}, "caught up: 1,200 objects in 1 collection; the newest configuration was refused: line 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := Status{Agent: tc.agent, Store: tc.store, Collections: tc.collections}
			require.Equal(t, tc.want, s.Headline())
		})
	}
}

// TestAlarms checks that each fault is one alarm.
func TestAlarms(t *testing.T) {
	with := func(f func(*Collection)) Status {
		c := Collection{ID: "pods", Synced: true, CaughtUp: true, Phase: "watching"}
		f(&c)
		return Status{Collections: []Collection{c}}
	}
	for _, tc := range []struct {
		name string
		s    Status
		want []string
	}{
		{"none", with(func(*Collection) {}), nil},
		{"store", Status{Store: StoreStatus{Problem: "x"}}, []string{"bad store: changes can't be stored: x"}},
		{"disk", Status{Store: StoreStatus{ReadProblem: "x"}}, []string{"bad store: the disk fails to read parts of the file: x"}},
		{"quarantine", Status{Store: StoreStatus{Quarantined: "corrupt"}}, []string{"warn store: the file was set aside at the start: corrupt"}},
		{"snapshots", Status{Snapshots: &SnapshotStatus{Problem: "x"}}, []string{"warn snapshots: no snapshot could be made: x"}},
		{"configuration", Status{Agent: &AgentStatus{ConfigProblem: "x"}}, []string{"warn configuration: the newest configuration was refused: x"}},
		{"unreadable", Status{Collections: []Collection{{ID: "pods", Corrupt: true, Problem: "x"}}}, []string{"bad pods: can't be read: x"}},
		{"never synced", with(func(c *Collection) { c.Synced, c.CaughtUp, c.Problem = false, false, "x" }), []string{"bad pods: never synced: x"}},
		{"old", with(func(c *Collection) { c.CaughtUp, c.AgeSeconds = false, 359 }), []string{"bad pods: data is 5m old"}},
		{"not caught up", with(func(c *Collection) { c.CaughtUp, c.AgeSeconds, c.Problem = false, 299, "x" }), []string{"warn pods: not caught up: x"}},
		{"unknown age", with(func(c *Collection) { c.CaughtUp, c.AgeUnknown = false, true }), []string{"bad pods: data is of unknown age: the clock is behind it"}},
		{"reconnecting", with(func(c *Collection) { c.CaughtUp, c.AgeSeconds = false, 299 }), nil},
		{"old in a file", with(func(c *Collection) { c.CaughtUp, c.AgeSeconds, c.Phase = false, 7200, phaseStored }), nil},
		{"corrupt in a file", with(func(c *Collection) { c.CaughtUp, c.Phase, c.Problem = false, phaseStored, "x" }), []string{"warn pods: can't be read completely: x"}},
		{"untrusted", with(func(c *Collection) { c.Untrusted = "rv-ahead" }), []string{"warn pods: UNTRUSTED until it is listed: rv-ahead"}},
		{"skipped", with(func(c *Collection) { c.SkippedEvents = true }), []string{"warn pods: events with objects of another type were skipped: it is listed at the next start"}},
		{"corrupt records", with(func(c *Collection) { c.CorruptRecords = 1200 }), []string{"bad pods: 1,200 corrupt records left out until fetched again"}},
		{"forbidden", with(func(c *Collection) { c.ForbiddenSeconds = 60 }), []string{"warn pods: forbidden for 1m0s: the stored objects are deleted after secrets.purgeAfter"}},
		{"purged", with(func(c *Collection) { c.Purged = &Purge{Objects: 3} }), []string{"warn pods: PURGED: the server forbids it: 3 objects deleted"}},
		{
			"drift", with(func(c *Collection) { c.Verification = &Verification{Missing: 1, Extra: 2, Stale: 3} }),
			[]string{"bad pods: DIFFERS from the server: 1 missing, 2 extra, 3 stale: snapcache verify --repair fixes it"},
		},
		{"not compared", with(func(c *Collection) { c.Verification = &Verification{Problem: "x"} }), []string{"warn pods: could not be compared with the server: x"}},
		{
			"one cause", Status{Collections: []Collection{
				{ID: "pods", Synced: true, AgeSeconds: 7201, Problem: "no network"}, {ID: "nodes", Synced: true, AgeSeconds: 7202, Problem: "no network"},
			}},
			[]string{"bad pods, nodes: data is 2h0m old: no network"},
		},
		{
			"the worst first", Status{Store: StoreStatus{Quarantined: "corrupt"}, Collections: []Collection{{ID: "pods", Synced: true, CaughtUp: true, CorruptRecords: 1}}},
			[]string{"bad pods: 1 corrupt record left out until fetched again", "warn store: the file was set aside at the start: corrupt"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, a := range tc.s.Alarms() {
				got = append(got, string(a.Level)+" "+a.String())
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestFactsInWords(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	for want, got := range map[string]string{
		"":                     StoreStatus{}.Encryption(),
		"encrypted with key a": StoreStatus{EncryptionKey: "a"}.Encryption(),
		"encrypted with key b, being rewritten under the configured key": StoreStatus{EncryptionKey: "b", EncryptionDue: true}.Encryption(),
		"none; 0 made, 2 failed since the start":                         (&SnapshotStatus{Failed: 2}).Summary(now),
		"newest 3h0m ago, 2.0 KiB; 1 made, 0 failed since the start":     (&SnapshotStatus{Newest: now.Add(-3 * time.Hour), Bytes: 2048, Made: 1}).Summary(now),
		"same":                                Verification{}.Result(),
		"same, except 2 keys still undecided": Verification{Undecided: 2}.Result(),
		"DIFFERS":                             Verification{Missing: 1}.Result(),
		"repaired":                            Verification{Missing: 1, Repaired: 1}.Result(),
		"not compared: no route":              Verification{Problem: "no route"}.Result(),
		"unknown":                             Collection{Synced: true}.Age(),
		"2m5s":                                Collection{Synced: true, AgeSeconds: 125}.Age(),
	} {
		require.Equal(t, want, got)
	}
	require.Empty(t, Collection{Synced: true, CaughtUp: true, AgeSeconds: 1}.Age())
	require.Empty(t, Collection{AgeSeconds: 1}.Age())
}
