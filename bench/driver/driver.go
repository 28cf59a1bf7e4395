package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/snapcache/snapcache/bench/result"
	"github.com/snapcache/snapcache/test/controlplane"
)

// Driver runs one plan.
type Driver struct {
	plan     Plan
	scratch  string // directory, emptied before each stage
	log      func(format string, args ...any)
	binaries binaries
}

type binaries struct{ agent, peer, floor, before string }

// Options configure a run.
type Options struct {
	// Dir keeps complete stages, so that an interrupted run continues after them, and holds the
	// peers' data meanwhile.
	Dir string
	// Before is the snapcache program of an earlier revision, which is compared too; empty for none.
	Before string
	Log    func(format string, args ...any)
}

// Run runs a plan to its end and returns the results. Stages that an earlier run of the same plan
// and revision in the same directory has completed are not run again, until Forget.
func Run(ctx context.Context, plan Plan, o Options) (*result.Run, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("folder of the run: %w", err)
	}
	d := &Driver{plan: plan, scratch: filepath.Join(dir, "scratch"), log: o.Log}
	run := &result.Run{Started: time.Now()}
	if err := describe(ctx, run); err != nil {
		return nil, err
	}
	kept := keptIn(dir, plan, run)
	if err := os.MkdirAll(kept, 0o755); err != nil { //nolint:gosec // nothing secret
		return nil, fmt.Errorf("folder of the run: %w", err)
	}
	if err := d.build(ctx, dir); err != nil {
		return nil, err
	}
	d.binaries.before = o.Before
	for i, st := range plan.Stages {
		path := filepath.Join(kept, st.Name+".json")
		var done result.Stage
		switch err := result.Read(path, &done); {
		case err == nil:
			d.log("stage %d of %d, %s: measured before, in %s", i+1, len(plan.Stages), st.Name, path)
		case errors.Is(err, os.ErrNotExist):
			d.log("stage %d of %d: %s", i+1, len(plan.Stages), st.Name)
			if done, err = d.stage(ctx, st); err != nil {
				return nil, fmt.Errorf("stage %s: %w", st.Name, err)
			}
			if err := result.Write(path, done); err != nil {
				return nil, err
			}
		default:
			return nil, err
		}
		run.Stages = append(run.Stages, done)
	}
	run.Ended = time.Now()
	return run, nil
}

// Forget removes the kept stages of a run, once its results are written elsewhere.
func Forget(plan Plan, o Options, run *result.Run) error {
	if err := os.RemoveAll(keptIn(o.Dir, plan, run)); err != nil {
		return fmt.Errorf("folder of the run: %w", err)
	}
	return nil
}

// keptIn returns the directory of the complete stages. It does not distinguish uncommitted changes.
func keptIn(dir string, plan Plan, run *result.Run) string {
	return filepath.Join(dir, plan.Name+"-"+run.Versions["snapcache"])
}

// stage runs all rounds of a stage on its own control plane.
func (d *Driver) stage(ctx context.Context, st Stage) (_ result.Stage, err error) {
	if err := os.RemoveAll(d.scratch); err != nil {
		return result.Stage{}, fmt.Errorf("scratch folder: %w", err)
	}
	if err := os.MkdirAll(d.scratch, 0o700); err != nil {
		return result.Stage{}, fmt.Errorf("scratch folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.scratch)) }()
	if st.Generated > 0 {
		return d.generatedStage(ctx, st)
	}
	s, err := startServer(ctx, d.scratch, st, d.log)
	if err != nil {
		return result.Stage{}, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	done := result.Stage{Name: st.Name, Objects: s.objects(), IdleCPU: s.idle, Resources: map[string]int{}}
	for name, keys := range s.keys {
		done.Resources[name] = len(keys)
	}
	if done.JSONBytes, err = s.jsonBytes(ctx); err != nil {
		return done, err
	}
	if st.API != nil {
		if done.API, err = d.api(ctx, s, *st.API); err != nil {
			return done, err
		}
	}
	if st.Return != nil {
		if done.Returns, err = d.comeBack(ctx, s, *st.Return); err != nil {
			return done, err
		}
	}
	if st.Restart != nil {
		if err := os.MkdirAll(filepath.Join(d.scratch, "restart"), 0o700); err != nil {
			return done, fmt.Errorf("scratch folder: %w", err)
		}
		if done.Restarts, err = d.restarts(ctx, s, *st.Restart); err != nil {
			return done, err
		}
	}
	if st.Live > 0 {
		if done.Live, err = s.live(ctx, st.Live); err != nil {
			return done, err
		}
	}
	for i, r := range st.Rounds {
		turns, err := d.round(ctx, s, i, r)
		if err != nil {
			return done, err
		}
		done.Turns = append(done.Turns, turns...)
	}
	for i, f := range st.Streams {
		streams, err := d.stream(ctx, s, i, f)
		if err != nil {
			return done, err
		}
		done.Streams = append(done.Streams, streams...)
	}
	for _, f := range st.Fleets {
		fleets, err := d.fleet(ctx, s, f)
		done.Fleets = append(done.Fleets, fleets...)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// build builds the programs as they are released: without cgo and without the race detector.
func (d *Driver) build(ctx context.Context, dir string) error {
	root, err := controlplane.Root()
	if err != nil {
		return err
	}
	d.binaries = binaries{agent: filepath.Join(dir, "snapcache"), peer: filepath.Join(dir, "peer"), floor: filepath.Join(dir, "floor")}
	for _, b := range []struct{ out, module, pkg string }{
		{d.binaries.agent, root, "./cmd/snapcache"},
		{d.binaries.peer, filepath.Join(root, "bench"), "./cmd/peer"},
		{d.binaries.floor, filepath.Join(root, "bench"), "./cmd/floor"},
	} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", b.out, b.pkg)
		cmd.Dir = b.module
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", b.pkg, err, out)
		}
	}
	return nil
}
