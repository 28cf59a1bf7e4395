package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
)

func TestVerifyExitCode(t *testing.T) {
	same := localapi.Verification{Collection: "same"}
	differs := localapi.Verification{Collection: "differs", Missing: 1}
	healed := localapi.Verification{Collection: "healed", Missing: 1, Repaired: 1}
	failed := localapi.Verification{Collection: "failed", Problem: "offline"}
	never := localapi.Verification{Collection: "never", Unsynced: true, Problem: "never synced"}
	for _, test := range []struct {
		name    string
		results []localapi.Verification
		code    int
	}{
		{"the same", []localapi.Verification{same, healed}, exitOK},
		{"drift before all", []localapi.Verification{never, failed, differs, same}, exitDrift},
		{"not compared before never synced", []localapi.Verification{never, failed, same}, exitFailure},
		{"never synced beside the same", []localapi.Verification{never, same}, exitNotSynced},
		{"nothing was ever synced", []localapi.Verification{never}, exitNotSynced},
	} {
		t.Run(test.name, func(t *testing.T) {
			var chosen []localapi.Collection
			for _, v := range test.results {
				chosen = append(chosen, localapi.Collection{ID: v.Collection})
			}
			err := errors.Join(drift(test.results), notSynced(unsynced(chosen, test.results)))
			require.Equal(t, test.code, exitCode(err), "%v", err)
			for _, v := range test.results {
				if v.Problem != "" {
					require.ErrorContains(t, err, v.Collection, "each that was not compared is named")
				}
			}
		})
	}
}
