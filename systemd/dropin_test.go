package systemd

import (
	"testing"
	"testing/fstest"
)

func TestMayWrite(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	root := fstest.MapFS{
		"etc/systemd/system/snapcache.service.d/disk.conf":     file("[Service]\nReadWritePaths=-/data/cache /mnt/sd\n"),
		"usr/lib/systemd/system/snapcache.service.d/bind.conf": file("[Service]\n  BindPaths=/opt/x:/opt/y\n"),
		"etc/systemd/system/other.service.d/disk.conf":         file("[Service]\nReadWritePaths=/other\n"),
	}
	for dir, want := range map[string]bool{
		"/var/lib/snapcache": true, "/var/lib/snapcache/snapshots": true, "/run/snapcache": true,
		"/data/cache": true, "/mnt/sd/deep/er": true, "/opt/x": true,
		"/var/lib": false, "/var/lib/snapcache-2": false, "/data": false, "/data/cache2": false, "/other": false,
	} {
		if got := MayWrite(root, dir); got != want {
			t.Errorf("%s: got %v", dir, got)
		}
	}
	free := fstest.MapFS{"run/systemd/system/snapcache.service.d/free.conf": file("[Service]\nProtectSystem=full\n")}
	if !MayWrite(free, "/data") {
		t.Error("a drop-in that lifts the protection is not seen")
	}
}
