package kubeapi

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A client that was away for a day, while 30 % of the objects changed, continues from the history, and an
// agent that asks first gets the reason HistorySince. When it was away for longer, it has to list.
func TestWatchAfterADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := started(t, t.TempDir())
		w.always = false
		const objects = 200
		for i := range objects {
			w.change(fmt.Sprintf("a/o-%d", i), "web", "")
		}
		left := w.coll.State().RV
		exact := "/api/v1/pods?limit=1&resourceVersionMatch=Exact&resourceVersion=" + left
		w.stop(false)
		w.start() // without the events in memory
		day := 24*time.Hour - time.Minute
		for i := range objects * 3 / 10 {
			time.Sleep(day * 10 / 3 / objects)
			w.change(fmt.Sprintf("a/o-%d", i), "db", "")
		}
		l := ask(t, w.server, exact)
		require.Equal(t, http.StatusGone, l.Code)
		require.Contains(t, l.raw, `"reason":"HistorySince"`)
		s := open(t, w, "allowWatchBookmarks=true&resourceVersion="+left)
		texts := s.texts()
		require.Len(t, texts, objects*3/10+1, "the changes, and a bookmark")
		require.Equal(t, fmt.Sprintf("MODIFIED a/o-0@%d", objects+13), texts[0])

		time.Sleep(2 * time.Hour)
		w.change("a/o-1", "web", "") // a flush follows, and with it a trim
		time.Sleep(2 * time.Minute)
		w.change("a/o-1", "db", "")
		l = ask(t, w.server, exact)
		require.Equal(t, http.StatusGone, l.Code)
		require.NotContains(t, l.raw, "HistorySince")
		require.Equal(t, []string{"ERROR 410"}, open(t, w, "allowWatchBookmarks=true&resourceVersion="+left).texts())
	})
}
