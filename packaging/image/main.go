// Command image makes a container image of snapcache for several platforms, from the programs and nothing
// else, and writes it as the tar file of an OCI layout. It needs no container daemon and no registry.
//
//	image snapcache-image.tar linux/amd64=PROGRAM linux/arm/v7=PROGRAM...
//
// $VERSION and $REVISION are in the labels. All times are $SOURCE_DATE_EPOCH, so that the same programs
// give the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	user  = 65532 // and group; the image has no /etc/passwd
	state = "/var/lib/snapcache"
	run   = "/run/snapcache"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: image FILE PLATFORM=PROGRAM...")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// write writes the image of the programs to a tar file.
func write(out string, programs []string) error {
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("$SOURCE_DATE_EPOCH: %w", err)
	}
	created := v1.Time{Time: time.Unix(epoch, 0).UTC()}
	const source, prefix = "https://github.com/snapcache/snapcache", "org.opencontainers.image."
	version := os.Getenv("VERSION")
	labels := map[string]string{
		prefix + "title": "snapcache", prefix + "description": "durable Kubernetes watch cache for the edge", prefix + "url": source, prefix + "source": source,
		prefix + "version": version, prefix + "revision": os.Getenv("REVISION"), prefix + "created": created.Format(time.RFC3339),
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, program := range programs {
		name, path, _ := strings.Cut(program, "=")
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return err
		}
		image, err := newImage(path, platform, labels, created)
		if err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	index = mutate.Annotations(index, labels).(v1.ImageIndex)
	dir, err := os.MkdirTemp("", "snapcache-image-")
	if err != nil {
		return err
	}
	// The layout has one entry, the index of the platforms: tools that copy images accept no more.
	at, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = at.AppendIndex(index, layout.WithAnnotations(map[string]string{prefix + "ref.name": version}))
	}
	if err == nil {
		err = writeTar(out, os.DirFS(dir), created.Time)
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// newImage returns the image of one program.
func newImage(program string, platform *v1.Platform, labels map[string]string, created v1.Time) (v1.Image, error) {
	root, err := rootFS(program, created.Time)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(root)), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression))
	if err != nil {
		return nil, err
	}
	image, err := mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant, Created: created, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/snapcache"}, Cmd: []string{"run"}, User: fmt.Sprintf("%d:%d", user, user), Labels: labels,
			Env: []string{"PATH=/", "STATE_DIRECTORY=" + state, "RUNTIME_DIRECTORY=" + run}, Volumes: map[string]struct{}{state: {}},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "packaging/image"}})
}

// rootFS returns the tar file of a root file system: the program, and the directories that it writes to.
func rootFS(program string, created time.Time) ([]byte, error) {
	data, err := os.ReadFile(program)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Name: "etc/", Mode: 0o755}, {Name: "etc/snapcache/", Mode: 0o755}, {Name: "run/", Mode: 0o755}, {Name: run[1:] + "/", Mode: 0o700, Uid: user, Gid: user},
		{Name: "tmp/", Mode: 0o1777}, {Name: "var/", Mode: 0o755}, {Name: "var/lib/", Mode: 0o755}, {Name: state[1:] + "/", Mode: 0o700, Uid: user, Gid: user},
		{Name: "snapcache", Mode: 0o755, Size: int64(len(data))},
	} {
		h.ModTime = created
		err = errors.Join(err, w.WriteHeader(&h))
	}
	_, writeErr := w.Write(data)
	err = errors.Join(err, writeErr, w.Close())
	return b.Bytes(), err
}

// writeTar writes the files of a directory to a tar file, in the order of their names.
func writeTar(out string, dir fs.FS, created time.Time) error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := fs.WalkDir(dir, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(dir, path)
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: path, Mode: 0o644, Size: int64(len(data)), ModTime: created}))
		_, writeErr := w.Write(data)
		return errors.Join(err, writeErr)
	})
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	return os.WriteFile(out, b.Bytes(), 0o644)
}
