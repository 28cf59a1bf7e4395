package clustercheck

import (
	"fmt"
	"strings"
	"time"

	"github.com/snapcache/snapcache/localapi"
)

// Report has the properties of a server. Its JSON form is stable: later versions only add fields.
type Report struct {
	Server   string   `json:"server"`
	Version  string   `json:"version"`
	Features Features `json:"features"`
	Clock    Clock    `json:"clock"`
	Latency  Latency  `json:"latency"`

	// Problems have to be solved before an agent can run with its configuration here: missing permissions,
	// and resources that the server lacks or that can't be followed.
	Problems []string `json:"problems"`

	Collections []Collection `json:"collections"`

	// Resume and List are the cost of a restart of the agent, with its collections one after another:
	// if it resumes all of its watches, and if it has to list everything.
	Resume Cost `json:"resume"`
	List   Cost `json:"list"`

	// Notes are for a person: each names a fault and the next step.
	Notes []string `json:"notes"`
}

// Answer is yes, no or unknown.
type Answer string

// The answers.
const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "unknown"
)

func answerOf(yes bool) Answer {
	if yes {
		return Yes
	}
	return No
}

// Features differ between the versions of Kubernetes. An agent needs none of them.
type Features struct {
	WatchList           Answer `json:"watchList"`           // a watch that begins with a list (sendInitialEvents)
	AggregatedDiscovery Answer `json:"aggregatedDiscovery"` // in its form v2
	ConsistentReads     Answer `json:"consistentReads"`     // lists of the newest state come from the server's cache
}

// Clock compares the clocks of the server and of this machine.
type Clock struct {
	AheadSeconds float64 `json:"aheadSeconds"` // how far the server's clock is ahead; negative: behind
	ErrorSeconds float64 `json:"errorSeconds"` // the truth is at most so far from that
	Problem      string  `json:"problem,omitempty"`
}

// Latency is how long small requests took, on an open connection.
type Latency struct {
	Requests      int     `json:"requests"`
	MedianSeconds float64 `json:"medianSeconds"`
	WorstSeconds  float64 `json:"worstSeconds"`
}

// Collection has the measurements of one resource in one scope.
type Collection struct {
	Collection string `json:"collection"` // as in status, such as pods@shop

	// Problem is the first failure; later measurements are then left out.
	Problem string `json:"problem,omitempty"`

	Objects  int64    `json:"objects"`
	List     Cost     `json:"list"`   // of all objects; a request is a page
	Resume   Cost     `json:"resume"` // of a watch, without the changes that follow
	Window   Window   `json:"window"`
	Bookmark Bookmark `json:"bookmark"`
}

// Cost is the expense of one measurement.
type Cost struct {
	Requests int64   `json:"requests"`
	Seconds  float64 `json:"seconds"`
	Bytes    int64   `json:"bytes"` // of the bodies as sent, compressed if they were

	// UnpackedBytes is Bytes if nothing was compressed.
	UnpackedBytes int64 `json:"unpackedBytes"`
}

func (c *Cost) add(o Cost) {
	c.Requests += o.Requests
	c.Seconds += o.Seconds
	c.Bytes += o.Bytes
	c.UnpackedBytes += o.UnpackedBytes
}

// Window is how far back a watch resumes. It is found by watches from resourceVersions of objects, so
// the true window is between two of those: at least since ResumesFrom.
type Window struct {
	Known bool `json:"known"`

	// ResumesFrom is the oldest resourceVersion of an object from which a watch resumes; empty if there is
	// none. Changed is when that object was changed, by its own account, zero if it has none.
	ResumesFrom string     `json:"resumesFrom,omitempty"`
	Changed     *time.Time `json:"changed,omitempty"`

	// Expired is the next older one, from which a watch ends with 410. If it is empty, a watch resumes from
	// each object's, and the window may reach further back.
	Expired string `json:"expired,omitempty"`
}

// Bookmark is the first one of a watch.
type Bookmark struct {
	Arrived      bool    `json:"arrived"`
	AfterSeconds float64 `json:"afterSeconds"` // until it arrived, or until that was given up

	// NotDue reports that nothing in the cluster changed meanwhile, so that none had to arrive.
	NotDue  bool   `json:"notDue,omitempty"`
	Problem string `json:"problem,omitempty"`
}

const (
	// minCompressed is the size of a body from which on a kube-apiserver compresses it, in bytes.
	minCompressed = 128 << 10

	// maxAhead is the difference of clocks that is worth a note, beyond the error of the measurement.
	maxAhead = 5.0 // seconds
)

// Unmeasured returns the collections that were not measured to the end.
func (r *Report) Unmeasured() (ids []string) {
	for _, c := range r.Collections {
		if c.Problem != "" {
			ids = append(ids, c.Collection)
		}
	}
	return ids
}

// complete sums the costs up and writes the notes.
func (r *Report) complete() {
	var silent, plain []string
	for _, c := range r.Collections {
		r.Resume.add(c.Resume)
		r.List.add(c.List)
		if c.Problem == "" && !c.Bookmark.Arrived && !c.Bookmark.NotDue {
			silent = append(silent, c.Collection)
		}
		if pages := max(c.List.Requests, 1); c.List.Bytes >= c.List.UnpackedBytes && c.List.UnpackedBytes/pages > minCompressed {
			plain = append(plain, c.Collection)
		}
	}
	note := func(format string, args ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, args...)) }
	if len(silent) > 0 {
		note("no bookmark for %s, though the cluster changed: while nothing changes there, the checkpoint stands still, and after a restart "+
			"of the server it is listed again; set --watch-progress-notify-interval of etcd to 1m, or try without the proxies in between", strings.Join(silent, ", "))
	}
	if len(plain) > 0 {
		note("lists of %s are not compressed, though large: a proxy may take the header Accept-Encoding away, or the server runs with "+
			"--feature-gates=APIResponseCompression=false; a restart that lists costs %s instead of about a tenth",
			strings.Join(plain, ", "), localapi.Size(r.List.Bytes))
	}
	if ahead := r.Clock.AheadSeconds; ahead-r.Clock.ErrorSeconds > maxAhead || -ahead-r.Clock.ErrorSeconds > maxAhead {
		note("the clocks of the server and this machine differ by %s: set them by NTP; certificates may be refused, and ages are wrong",
			time.Duration(max(ahead, -ahead)*float64(time.Second)).Round(time.Second))
	}
}
