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

// writable are the directories that snapcache.service may write to without a drop-in.
var writable = []string{"/var/lib/snapcache", "/run/snapcache"}

// MayWrite reports whether snapcache.service may write to a directory: it is below one of its own, or a
// drop-in names it. root is the machine's root directory.
func MayWrite(root fs.FS, dir string) bool {
	granted := writable
	for _, of := range []string{"etc", "run", "usr/lib"} {
		files, _ := fs.Glob(root, of+"/systemd/system/snapcache.service.d/*.conf") // the pattern is valid
		for _, name := range files {
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

// DropIn returns the steps that let snapcache.service write to a directory.
func DropIn(dir string) string {
	return fmt.Sprintf("snapcache.service may not write to %s: run \"systemctl edit snapcache\", add the two lines \"[Service]\" and "+
		"\"ReadWritePaths=%s\", and restart it; the user snapcache has to own the directory", dir, dir)
}

// ReadOnlyHint returns the next step if err is due to a read-only directory, and the unit may be the
// reason. It is empty for any other error, outside of a service, and below the service's own directories.
func ReadOnlyHint(err error, dir string) string {
	if !errors.Is(err, syscall.EROFS) || os.Getenv("NOTIFY_SOCKET") == "" || MayWrite(os.DirFS("/"), dir) {
		return ""
	}
	return DropIn(dir)
}
