package systemd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The directories that snapcache.service may write to without a drop-in. snapcache@NAME.service may write to
// the directory NAME in each.
const (
	stateDir   = "/var/lib/snapcache"
	runtimeDir = "/run/snapcache"
)

// MayWrite reports whether a unit, snapcache or snapcache@NAME, may write to a directory: it is below one of
// the unit's own, or a drop-in names it. root is the machine's root directory.
func MayWrite(root fs.FS, unit, dir string) bool {
	_, cluster, _ := strings.Cut(unit, "@")
	granted := []string{filepath.Join(stateDir, cluster), filepath.Join(runtimeDir, cluster)}
	for _, of := range []string{"etc", "run", "usr/lib"} {
		for _, name := range dropIns(root, of+"/systemd/system", unit) {
			text, _ := fs.ReadFile(root, name) // a drop-in that can't be read grants nothing
			for line := range strings.Lines(string(text)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				switch key {
				case "ReadWritePaths", "BindPaths":
					granted = append(granted, strings.Fields(value)...)
				case "ProtectSystem":
					if value != "strict" {
						return true
					}
				}
			}
		}
	}
	for _, g := range granted {
		source, _, _ := strings.Cut(strings.TrimLeft(g, "-+"), ":")
		if rel, err := filepath.Rel(source, dir); err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}

// dropIns returns the files in a directory that change a unit, or the template that it is of.
func dropIns(root fs.FS, dir, unit string) []string {
	changed := []string{unit}
	if template, _, ok := strings.Cut(unit, "@"); ok {
		changed = append(changed, template+"@")
	}
	var files []string
	for _, name := range changed {
		found, _ := fs.Glob(root, dir+"/"+name+".service.d/*.conf") // the name of a unit has nothing special in a pattern
		files = append(files, found...)
	}
	return files
}

// DropIn returns the steps that let a unit, snapcache or snapcache@NAME, write to a directory.
func DropIn(unit, dir string) string {
	return fmt.Sprintf("%s.service may not write to %s: run \"systemctl edit %s\", add the two lines \"[Service]\" and "+
		"\"ReadWritePaths=%s\", and restart it; the user snapcache has to own the directory", unit, dir, unit, dir)
}

// ReadOnlyHint returns the next step if err is due to a read-only directory, and the unit may be the
// reason. It is empty for any other error, outside of a service, and below the service's own directories.
func ReadOnlyHint(err error, dir string) string {
	if !errors.Is(err, syscall.EROFS) || os.Getenv("NOTIFY_SOCKET") == "" || MayWrite(os.DirFS("/"), ownUnit(), dir) {
		return ""
	}
	return DropIn(ownUnit(), dir)
}

// ownUnit returns the unit of this process, as its state directory names it.
func ownUnit() string {
	if dir, cluster := filepath.Split(os.Getenv("STATE_DIRECTORY")); filepath.Clean(dir) == stateDir {
		return "snapcache@" + cluster
	}
	return "snapcache"
}
