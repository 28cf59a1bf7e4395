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
		if got := MayWrite(root, "snapcache", dir); got != want {
			t.Errorf("%s: got %v", dir, got)
		}
	}
	root["etc/systemd/system/snapcache@.service.d/all.conf"] = file("[Service]\nReadWritePaths=/each\n")
	root["etc/systemd/system/snapcache@east.service.d/disk.conf"] = file("[Service]\nReadWritePaths=/east\n")
	for dir, want := range map[string]bool{
		"/var/lib/snapcache/east": true, "/run/snapcache/east": true, "/each": true, "/east": true,
		"/var/lib/snapcache": false, "/var/lib/snapcache/west": false, "/data/cache": false,
	} {
		if got := MayWrite(root, "snapcache@east", dir); got != want {
			t.Errorf("snapcache@east: %s: got %v", dir, got)
		}
	}
	free := fstest.MapFS{"run/systemd/system/snapcache.service.d/free.conf": file("[Service]\nProtectSystem=full\n")}
	if !MayWrite(free, "snapcache", "/data") {
		t.Error("a drop-in that lifts the protection is not seen")
	}
}
