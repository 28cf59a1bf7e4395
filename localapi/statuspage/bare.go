package statuspage

import "github.com/snapcache/snapcache/localapi"

// seeStatus replaces text that is not public.
const seeStatus = "snapcache status shows why"

// bare returns the part of a status that the metrics contain too. It copies field by field, so a
// new field of the status stays hidden until it is added here.
func bare(s *localapi.Status) *localapi.Status {
	b := &localapi.Status{
		Store: localapi.StoreStatus{
			Type: s.Store.Type, FileBytes: s.Store.FileBytes,
			EncryptionKey: s.Store.EncryptionKey, EncryptionDue: s.Store.EncryptionDue,
			Quarantined: s.Store.Quarantined, Problem: masked(s.Store.Problem), ReadProblem: masked(s.Store.ReadProblem),
		},
	}
	if a := s.Agent; a != nil {
		b.Agent = &localapi.AgentStatus{Version: a.Version, Started: a.Started, Connected: a.Connected}
	}
	if x := s.Snapshots; x != nil {
		b.Snapshots = &localapi.SnapshotStatus{Bytes: x.Bytes, Newest: x.Newest, Made: x.Made, Failed: x.Failed, Problem: masked(x.Problem)}
	}
	for _, c := range s.Collections {
		bareOne := localapi.Collection{
			ID: c.ID, Synced: c.Synced, Objects: c.Objects, Bytes: c.Bytes,
			Phase: c.Phase, CaughtUp: c.CaughtUp, Proven: c.Proven, AgeSeconds: c.AgeSeconds,
			Checkpoint: localapi.Checkpoint{AgeUnknown: c.AgeUnknown},
			Updates: localapi.Updates{
				Untrusted: c.Untrusted, ListReason: c.ListReason, LastList: c.LastList,
				Lists: c.Lists, Relists: c.Relists, Resumes: c.Resumes, Events: c.Events, EventsByMinute: c.EventsByMinute,
				ListRead: c.ListRead, ListRemaining: c.ListRemaining,
			},
			Problem: masked(c.Problem), ProblemKind: c.ProblemKind,
			CorruptRecords: c.CorruptRecords, Corrupt: c.Corrupt, ForbiddenSeconds: c.ForbiddenSeconds, Purged: c.Purged,
		}
		if bareOne.Problem != "" && c.ProblemKind != "" {
			bareOne.Problem = c.ProblemKind + "; " + seeStatus
		}
		if v := c.Verification; v != nil {
			seen := *v
			seen.Collection, seen.Problem = "", masked(v.Problem)
			bareOne.Verification = &seen
		}
		b.Collections = append(b.Collections, bareOne)
	}
	return b
}

func masked(problem string) string {
	if problem == "" {
		return ""
	}
	return seeStatus
}
