package main

import (
	"slices"
	"strings"

	"github.com/snapcache/snapcache/test/controlplane"
)

// scenario is a thing that happens on the servers of users, with the tests that cover it.
type scenario struct {
	title string
	tests []string // folder and name
	short bool     // whether it is part of a short run
}

var scenarios = []scenario{
	{"First list, each object like the server's", []string{"e2e/TestEveryObjectEqualsTheServers", "e2e/TestServerDocuments"}, true},
	{"Restart of the agent: no list; a start without the server", []string{"e2e/TestRestartMakesNoList", "e2e/TestStartWithoutServer"}, true},
	{"Agent killed at any moment of a change", []string{"e2e/TestKilledAtAnyMoment"}, false},
	{"200 changes a second while agent and server are killed, the datastore is compacted and restored, the network fails",
		[]string{"e2e/TestFaultLongRun"}, true},
	{"Each fault of a server by itself: outages, refusals, credentials, servers that lag, another cluster", []string{"e2e/TestFaultServer"}, false},
	{"Restart of the server: only the changed objects are read; a quiet collection whose checkpoint stands still",
		[]string{"e2e/TestServerRestart", "e2e/TestQuietCheckpoint", "e2e/TestQuietWatch"}, true},
	{"Outage past a compaction", []string{"e2e/TestExpiredWhileStopped", "e2e/TestExpiredWhileRunning"}, true},
	{"Datastore restored to before, and to past the checkpoint", []string{"e2e/TestRestoredEtcdPastCheckpoint", "library/TestRestoredPastCheckpoint"}, true},
	{"Definition added, each field of it changed, recreated, a version no longer served",
		[]string{"e2e/TestDefinitionChanges", "e2e/TestServedVersionGone", "e2e/TestSchemaChanged"}, false},
	{"Conversion webhook that fails", []string{"e2e/TestConversionWebhookGone"}, false},
	{"Aggregated API that is down, hangs, has no watch or no resourceVersion", []string{"e2e/TestAggregatedAPI", "e2e/TestUnknownResource"}, false},
	{"5,000 objects deleted at once, objects of 1.4 MB, names with colons and letters beyond ASCII", []string{"e2e/TestUnusualObjects"}, false},
	{"resourceVersions above 2^53", []string{"e2e/TestLargeResourceVersions"}, false},
	{"Kubernetes API: random requests, with selectors, answered as by the server, WatchList, consistent reads, tables, discovery",
		[]string{"kubeapi/TestAgentEqualsServer", "library/TestWatchList"}, true},
	{"Kubernetes API: kubectl, client-go and controller-runtime as clients, online and offline",
		[]string{"kubeapi/TestClients", "kubeapi/TestKubectl", "kubeapi/TestKubectlFollows", "kubeapi/TestKubectlFollowsOffline"}, false},
	{"Access: each decision like the server's; remembered tokens", []string{"kubeapi/TestAccessMatrix", "kubeapi/TestRememberedTokens"}, false},
	{"Requests forwarded", []string{"kubeapi/TestForward", "kubeapi/TestForwardKubectl", "kubeapi/TestForwardOutage"}, false},
	{"Informers of the library beside client-go's, killed and restored", []string{"library/TestLiveParity", "library/TestServerKilledAndRestored"}, false},
}

// exception is a test that a server can't have.
type exception struct {
	test string
	on   func(controlplane.Server) bool
	note string
}

var exceptions = []exception{
	{"e2e/TestExpiredWhileRunning", onKine, intoEtcd},
	{"e2e/TestServerRestart", onKine, intoEtcd},
	{"e2e/TestLargeResourceVersions", onKine, "etcd's tool moves a restored datastore on to a revision; kine has none for it."},
	{"kubeapi/TestAgentEqualsServer", answersDiffer, otherAnswers},
	{"kubeapi/TestKubectl", answersDiffer, otherAnswers},
	{"library/TestLiveParity", withoutBookmarks, "A bookmark comes only with a newer resourceVersion, and the server asks etcd for none: by default it gets one in ten minutes. The test waits for some."},
	{"library/TestWatchList", withoutWatchList, "The server has watches that begin with all objects only if its administrator enables them. The library lists instead."},
}

const intoEtcd = "The test writes objects into etcd past the kube-apiserver; kine takes only the kube-apiserver's requests."

// otherAnswers is the note of tests that compare the agent's answers with the server's own.
const otherAnswers = "The agent answers as a kube-apiserver 1.36, whichever server it follows. The test compares with the answers of " +
	"the server, and other versions differ: in watches that begin with all objects, columns of tables, texts of errors, " +
	"subresources, and `creationTimestamp: null` in templates."

func answersDiffer(s controlplane.Server) bool { return !isOneOf(s, "1.36") }

func withoutBookmarks(s controlplane.Server) bool { return !s.Kine && isOneOf(s, "1.29", "1.30") }

// withoutWatchList: the feature gate WatchList is off by default.
func withoutWatchList(s controlplane.Server) bool { return isOneOf(s, "1.29", "1.30", "1.31", "1.33") }

func onKine(s controlplane.Server) bool { return s.Kine }

// isOneOf reports whether a server is of one of these minor versions, on etcd or on kine.
func isOneOf(s controlplane.Server, minors ...string) bool {
	minor, _, _ := strings.Cut(s.String(), "-")
	return slices.Contains(minors, minor)
}

// excepted returns the note that says why a server can't have a test; empty for none.
func excepted(test string, server controlplane.Server) (note string) {
	for _, e := range exceptions {
		if e.test == test && e.on(server) {
			return e.note
		}
	}
	return ""
}

// testsOf returns the names of a server's tests, by folder.
func testsOf(server controlplane.Server, short bool) map[string][]string {
	byFolder := make(map[string][]string)
	for _, s := range scenarios {
		for _, t := range s.tests {
			if short && !s.short || excepted(t, server) != "" {
				continue
			}
			folder, name, _ := strings.Cut(t, "/")
			byFolder[folder] = append(byFolder[folder], name)
		}
	}
	return byFolder
}
