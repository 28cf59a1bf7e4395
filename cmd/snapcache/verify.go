package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/localapi"
)

const verifyDescription = `Makes the running agent compare the cache with the server: key, UID and
resourceVersion of every object, which costs the server pages of metadata and no
objects. Differences that may be caused by a change in progress are checked again and
not counted.

   snapcache verify                    all synced collections
   snapcache verify pods secrets       some of them
   snapcache verify --repair           and fetch again what differs
   snapcache verify -o json            for programs

--repair fetches each object that differs, or removes it if the server does not have
it, the same way as a change. If more than 100 differ, the collection is listed instead.
The agent itself compares once a week (verify.interval), without repairs; status shows
the time and the result.

A collection that was never synced is reported, and the others are compared. If one of
those that are named was never synced, none is compared.

Exits with 6 if objects differ and were not repaired, otherwise with 1 if a collection
could not be compared, for example because the agent is offline, otherwise with 3 if a
collection was never synced.`

func verifyCommand() *cli.Command {
	return &cli.Command{
		Name:        "verify",
		Usage:       "compare the cache with the server",
		UsageText:   "snapcache verify [RESOURCE...] [--repair] [-o table|json]",
		Description: verifyDescription,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "repair", Usage: "fetch again what differs"},
			newOutputFlag("verify"),
			configFileFlag(), socketPathFlag(),
		},
		Action: verify,
	}
}

func verify(c *cli.Context) error {
	look, err := newLookup(c)
	if err != nil {
		return err
	}
	ctx, progress, done := newProgress(c.Context)
	defer done()
	status, err := askAgent(ctx, look)
	if err != nil {
		return err
	}
	chosen, err := chooseCollections(status.Collections, c.Args().Slice())
	if err != nil {
		return err
	}
	if _, missing := synced(chosen); len(missing) > 0 && c.Args().Present() {
		return notSynced(missing)
	}
	results, err := askVerify(ctx, look.socket, chosen, c.Bool("repair"), progress)
	if err != nil {
		return err
	}
	err = output(c, c.App.Writer, results, func() error { return writeVerifications(c, results) })
	return errors.Join(err, drift(results), notSynced(unsynced(chosen, results)))
}

// unsynced returns the collections that could not be compared because they were never synced.
func unsynced(chosen []localapi.Collection, results []localapi.Verification) []localapi.Collection {
	return slices.DeleteFunc(slices.Clone(chosen), func(c localapi.Collection) bool {
		return !slices.ContainsFunc(results, func(v localapi.Verification) bool { return v.Unsynced && v.Collection == c.ID })
	})
}

func chooseCollections(all []localapi.Collection, names []string) ([]localapi.Collection, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []localapi.Collection
	for _, name := range names {
		found, err := selectCollections(all, name)
		if err != nil {
			return nil, err
		}
		for _, x := range found {
			if !slices.Contains(ids(chosen), x.ID) {
				chosen = append(chosen, x)
			}
		}
	}
	return chosen, nil
}

func askVerify(ctx context.Context, socket string, chosen []localapi.Collection, repair bool, progress *progressLine) ([]localapi.Verification, error) {
	q := localapi.VerifyQuery{Collections: ids(chosen), Repair: repair}
	show := func(p localapi.VerifyProgress) {
		progress.printf("verifying %s: %s of about %s", p.Collection, humanCount(p.Done), plural(p.Total, "object", "objects"))
	}
	results := []localapi.Verification{}
	err := localapi.NewClient(socket).Verify(ctx, q, show, func(v localapi.Verification) error {
		results = append(results, v)
		return nil
	})
	return results, err
}

func writeVerifications(c *cli.Context, results []localapi.Verification) error {
	t := newTable(c.App.Writer, "COLLECTION", ">OBJECTS", ">MISSING", ">EXTRA", ">STALE", ">REPAIRED", ">TOOK", "RESULT")
	for _, v := range results {
		took := time.Duration(v.Seconds * float64(time.Second)).Round(10 * time.Millisecond)
		t.row(v.Collection, humanCount(v.Objects), humanCount(v.Missing), humanCount(v.Extra), humanCount(v.Stale),
			humanCount(v.Repaired), took.String(), v.Result())
	}
	return t.flush()
}

// drift returns an error for differences, and for failed comparisons of synced collections.
func drift(results []localapi.Verification) error {
	var errs []error
	left := int64(0)
	for _, v := range results {
		left += v.Left()
		if v.Problem != "" && !v.Unsynced {
			errs = append(errs, withCode(exitFailure, fmt.Errorf("%s %s: %s", v.Collection, localapi.NotCompared, v.Problem)))
		}
	}
	if left > 0 {
		errs = append([]error{withCode(exitDrift, fmt.Errorf("the cache differs from the server in %s: %s", plural(left, "object", "objects"), localapi.RepairFixes))}, errs...)
	}
	return errors.Join(errs...)
}
