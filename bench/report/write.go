package report

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/snapcache/snapcache/bench/result"
)

// Write writes the charts, the raw figures, fleets.md and side-by-side.md to a directory; of a run of
// the Kubernetes API alone only api.md and its figures, of a fleet that comes back fleet.md and its
// figures, of a restarted server return.md and its figures, and of the library at 100,000 objects library.md, its chart and its
// figures. The pages come last, so that they are never newer than their content. Their links expect the
// directory to be docs/bench.
func Write(run *result.Run, dir string) error {
	if st := apiStage(run); st != nil {
		if err := writePage(run, dir, "api", API(run, st)); err != nil || len(st.Turns) == 0 {
			return err
		}
	}
	for i := range run.Stages {
		if len(run.Stages[i].Live) > 0 {
			return writeLibrary(run, dir)
		}
	}
	if st := returnStage(run); st != nil {
		return writePage(run, dir, "fleet", Return(run, st))
	}
	if len(run.Stages) > 0 && len(run.Stages[0].Restarts) > 0 {
		return writePage(run, dir, "return", Restart(run))
	}
	charts, err := Charts(run)
	if err != nil {
		return err
	}
	const folder = "side-by-side"
	if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil { //nolint:gosec // documentation
		return fmt.Errorf("write the report: %w", err)
	}
	var names []string
	for _, c := range charts {
		name := folder + "/" + c.Name
		if err := result.WriteFile(filepath.Join(dir, name), c.SVG); err != nil {
			return err
		}
		names = append(names, name)
	}
	if err := result.Write(filepath.Join(dir, "side-by-side.json"), run); err != nil {
		return err
	}
	if err := result.WriteFile(filepath.Join(dir, "fleets.md"), []byte(Fleets(run))); err != nil {
		return err
	}
	return result.WriteFile(filepath.Join(dir, "side-by-side.md"), []byte(Markdown(run, names)))
}

// writePage writes a page and the figures of its run.
func writePage(run *result.Run, dir, name, page string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // documentation
		return fmt.Errorf("write the report: %w", err)
	}
	if err := result.Write(filepath.Join(dir, name+".json"), run); err != nil {
		return err
	}
	return result.WriteFile(filepath.Join(dir, name+".md"), []byte(page))
}
