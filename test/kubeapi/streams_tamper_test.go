package kubeapi

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
)

// tamperedVersion returns a version from "name uid tier rv".
func tamperedVersion(text string, rv uint64) version {
	f := strings.Fields(text)
	return version{key: "n/" + f[0], uid: f[1], labels: labels.Set{"tier": f[2]}, rv: rv}
}

// tamperedHistory has the events of objects with the tier a.
func tamperedHistory() *history {
	put := func(rv uint64, text string) change { return change{version: tamperedVersion(text, rv)} }
	gone := func(rv uint64, text string) change {
		return change{version: tamperedVersion(text, rv), deleted: true}
	}
	return newHistory([]change{
		put(9, "leaves u1 a"), put(10, "again u2 a"), put(11, "deleted u3 a"),
		put(12, "again u2 b"), gone(13, "deleted u3 a"), put(14, "again u2 a"), put(15, "comes u4 a"), gone(16, "again u2 a"),
		put(17, "leaves u1 b"), put(18, "again u5 a"), put(19, "comes u4 a"), put(20, "leaves u1 b"), put(21, "other u6 b"),
	}, func(v version) bool { return v.labels.Get("tier") == "a" })
}

// framesOf returns frames from lines "TYPE name uid tier rv", or "BOOKMARK rv".
func framesOf(lines ...string) []frame {
	var all []frame
	for _, line := range lines {
		f := strings.Fields(line)
		var rv uint64
		for _, digit := range f[len(f)-1] {
			rv = 10*rv + uint64(digit-'0')
		}
		v := version{rv: rv}
		if f[0] != bookmark {
			v = tamperedVersion(strings.Join(f[1:4], " "), rv)
		}
		all = append(all, frame{typ: f[0], version: v})
	}
	return all
}

// TestCheckStreams has streams that are right, and tampered ones, each of which is noticed.
func TestCheckStreams(t *testing.T) {
	t.Parallel()
	list := []string{"ADDED leaves u1 a 9", "ADDED again u2 a 10", "ADDED deleted u3 a 11", "BOOKMARK 11"}
	exact := []string{
		"DELETED again u2 a 12", "DELETED deleted u3 a 13", "ADDED again u2 a 14", "ADDED comes u4 a 15", "DELETED again u2 a 16",
		"DELETED leaves u1 a 17", "ADDED again u5 a 18", "MODIFIED comes u4 a 19",
	}
	coalesced := []string{"DELETED deleted u3 a 13", "ADDED again u5 a 18", "ADDED comes u4 a 19", "DELETED leaves u1 b 20", "BOOKMARK 20"}
	inPlace := []string{"DELETED deleted u3 a 13", "DELETED leaves u1 b 17", "ADDED again u5 a 18", "ADDED comes u4 a 19", "BOOKMARK 20"}
	const inPlaceExit = "DELETED again u2 b 12"
	replace := func(lines []string, i int, with ...string) []string {
		return slices.Replace(slices.Clone(lines), i, i+1, with...)
	}
	for _, c := range []struct {
		name      string
		list      []string
		watch     []string
		bookmarks bool
		cut       int    // after how many frames of the watch, if it is not 0
		from      uint64 // from where the client continues then
		then      []string
		want      string // what is noticed; empty for nothing
	}{
		{name: "exact", list: list, watch: exact},
		{name: "exact, continued", list: list, watch: exact, cut: 4, from: 15, then: exact[4:]},
		{name: "exact, for a client with bookmarks", list: list, watch: exact, bookmarks: true},
		{name: "a list without an object", list: list[1:], watch: exact, want: "n/leaves at 9 is missing"},
		{name: "a list with another object", list: replace(list, 0, "ADDED leaves u1 a 9", "ADDED comes u4 a 15"), watch: exact, want: "has n/comes at 15, which the server has not"},
		{name: "missing event", list: list, watch: replace(exact, 3), want: "ADDED of n/comes at 15 is missing"},
		{name: "missing at the end", list: list, watch: exact[:7], want: "at the end, 19"},
		{name: "missing DELETED", list: list, watch: replace(exact, 1), want: "DELETED of n/deleted at 13 is missing"},
		{name: "event doubled", list: list, watch: replace(exact, 3, exact[3], exact[3]), want: "ADDED of n/comes at 15 comes after 15"},
		{name: "wrong type", list: list, watch: replace(exact, 7, "ADDED comes u4 a 19"), want: "ADDED of n/comes at 19, which the client has"},
		{name: "wrong content", list: list, watch: replace(exact, 7, "MODIFIED comes u4 b 19"), want: "MODIFIED of {n/comes"},
		{name: "wrong content of a deletion", list: list, watch: replace(exact, 5, "DELETED leaves u1 b 17"), want: "are not the server's: DELETED"},
		{name: "coalesced", list: list, watch: coalesced[:4], want: "are not the server's"},
		{name: "wrong order", list: list, watch: slices.Concat(exact[:2], []string{exact[3], exact[2]}, exact[4:]), want: "ADDED of n/again at 14 comes after 15"},
		{name: "continued too early", list: list, watch: exact, cut: 4, from: 15, then: exact[3:], want: "ADDED of n/comes at 15 comes after 15"},
		{name: "continued too late", list: list, watch: exact, cut: 4, from: 15, then: exact[5:], want: "DELETED of n/again at 16 is missing"},
		{name: "a bookmark that was not asked for", list: list, watch: append(exact, "BOOKMARK 19"), want: "did not ask"},
		{name: "not selected", list: list, watch: append(exact, "ADDED other u6 b 21"), want: "ADDED of {n/other"},

		{name: "coalesced, with bookmarks", bookmarks: true, list: list, watch: coalesced},
		{name: "coalesced, with the exit in its place", bookmarks: true, list: list, watch: inPlace},
		{name: "continued from a bookmark", bookmarks: true, list: list, watch: coalesced, cut: 3, from: 11, then: coalesced},
		{name: "a deletion that a list found", bookmarks: true, list: list, watch: replace(coalesced, 0, "DELETED deleted u3 a 12")},
		{name: "missing DELETED before a bookmark", bookmarks: true, list: list, watch: replace(coalesced, 0), want: "has n/deleted at 11, which the server has not"},
		{name: "object lost by the selector", bookmarks: true, list: list, watch: replace(coalesced, 3), want: "has n/leaves at 9, which the server has not"},
		{name: "missing event before a bookmark", bookmarks: true, list: list, watch: replace(coalesced, 2), want: "n/comes at 19 is missing"},
		{name: "older state before a bookmark", bookmarks: true, list: list, watch: replace(coalesced, 2, "ADDED comes u4 a 15"), want: "comes after 18"},
		{name: "bookmark too early", bookmarks: true, list: list, watch: replace(coalesced, 4, "BOOKMARK 12"), want: "a bookmark at 12 goes back"},
		{name: "doubled, coalesced", bookmarks: true, list: list, watch: replace(coalesced, 1, coalesced[1], coalesced[1]), want: "comes after 18"},
		{name: "MODIFIED of what the client lacks", bookmarks: true, list: list, watch: replace(coalesced, 2, "MODIFIED comes u4 a 19"), want: "which the client does not have"},
		{name: "DELETED of what the client lacks", bookmarks: true, list: list, watch: replace(coalesced, 0, "DELETED deleted u3 a 13", "DELETED comes u4 a 15"), want: "DELETED of n/comes with the UID u4"},
		{name: "DELETED of the object before", bookmarks: true, list: list, watch: replace(coalesced, 3, "DELETED again u2 a 20"), want: "DELETED of n/again with the UID u2"},
		{name: "DELETED of what exists", bookmarks: true, list: list, watch: replace(coalesced, 3, "DELETED again u5 a 19"), want: "comes after 19"},
		{name: "MODIFIED of what was created again", bookmarks: true, list: list, watch: replace(coalesced, 1, "MODIFIED again u5 a 18"), want: "which the client does not have"},
		{name: "cut in a replay", bookmarks: true, list: list, watch: inPlace, cut: 3, from: 18, then: []string{"MODIFIED comes u4 a 19", "BOOKMARK 20"}},
		{name: "cut in a replay after an exit, before the object is there again", bookmarks: true, list: list, watch: []string{inPlaceExit, inPlace[0], "ADDED comes u4 a 15"}, cut: 3, from: 15,
			then: []string{"DELETED again u2 a 16", "DELETED leaves u1 b 17", "ADDED again u5 a 18", "MODIFIED comes u4 a 19", "BOOKMARK 20"}},
		{name: "missing after an exit and a cut", bookmarks: true, list: list, watch: []string{inPlaceExit, inPlace[0], "ADDED comes u4 a 15"}, cut: 3, from: 15,
			then: []string{"DELETED leaves u1 b 17", "MODIFIED comes u4 a 19", "BOOKMARK 20"}, want: "n/again at 18 is missing"},
		{name: "missing after a cut in a replay", bookmarks: true, list: list, watch: inPlace, cut: 3, from: 18, then: []string{"BOOKMARK 20"}, want: "n/comes at 19 is missing"},
		{name: "missing DELETED after a cut in a replay", bookmarks: true, list: list, watch: coalesced, cut: 2, from: 18, then: []string{"MODIFIED comes u4 a 19", "BOOKMARK 20"},
			want: "has n/leaves at 9, which the server has not"},
		{name: "wrong type of what came before a cut", bookmarks: true, list: list, watch: inPlace, cut: 4, from: 19, then: []string{"MODIFIED comes u4 a 19", "BOOKMARK 20"}, want: "comes after 19"},
	} {
		t.Run(c.name, func(t *testing.T) {
			streams := []stream{{begins: true, frames: framesOf(c.list...)}, {from: 11, frames: framesOf(c.watch...)}}
			if c.cut > 0 {
				streams[1].frames = streams[1].frames[:c.cut]
				streams = append(streams, stream{from: c.from, frames: framesOf(c.then...)})
			}
			problems, _ := checkStreams(tamperedHistory(), !c.bookmarks, streams)
			if c.want == "" {
				require.Empty(t, problems)
				return
			}
			require.Contains(t, strings.Join(problems, "\n"), c.want)
		})
	}
	t.Run("a list that goes back", func(t *testing.T) {
		streams := []stream{{begins: true, frames: framesOf(list...)}, {begins: true, from: 12, frames: framesOf(list...)}}
		problems, _ := checkStreams(tamperedHistory(), true, streams)
		require.Contains(t, strings.Join(problems, "\n"), "a list at 11 goes back from 12")
	})
}
