package openapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/internal/files"
)

// root is the path of the index; the documents' paths are below it.
const root = "/openapi/v3"

// maxIndex limits the server's index, in bytes. An entry takes about 300.
const maxIndex = 16 << 20

// Mirror is a directory of OpenAPI v3 documents. It is safe for concurrent use.
type Mirror struct {
	dir string

	refreshing sync.Mutex // held by Refresh

	mu     sync.RWMutex
	hashes map[string]string // of the documents, by path below root, such as "apis/apps/v1"
}

// index is the document at root.
type index struct {
	Paths map[string]reference `json:"paths"`
}

type reference struct {
	ServerRelativeURL string `json:"serverRelativeURL"`
}

// Open opens the mirror in dir, which it creates if it is missing. It reads all documents there, to
// leave out the bad ones, and removes files that a crash has left.
func Open(dir string) (*Mirror, error) {
	m := &Mirror{dir: dir, hashes: map[string]string{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open OpenAPI documents: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open OpenAPI documents: %w", err)
	}
	for _, file := range files {
		if strings.HasSuffix(file.Name(), temporary) {
			if err := os.Remove(filepath.Join(dir, file.Name())); err != nil {
				return nil, fmt.Errorf("open OpenAPI documents: %w", err)
			}
			continue
		}
		if path, ok := pathOf(file.Name()); ok {
			if f, d, err := open(filepath.Join(dir, file.Name()), path); err == nil {
				_ = f.Close()
				m.hashes[path] = d.hash
			}
		}
	}
	return m, nil
}

// Refresh makes the mirror one of the given versions of groups. It downloads the documents whose hash
// has changed and removes the documents of other versions. get returns the body at a path of the server, with
// the query.
//
// A document that can't be downloaded, or that the server does not have, stays as it was; the error
// names it.
func (m *Mirror) Refresh(ctx context.Context, get func(ctx context.Context, path string) (io.ReadCloser, error), groupVersions []schema.GroupVersion) error {
	m.refreshing.Lock()
	defer m.refreshing.Unlock()
	server, err := fetchIndex(ctx, get)
	if err != nil {
		return fmt.Errorf("refresh OpenAPI documents: %w", err)
	}
	wanted := map[string]bool{}
	for _, gv := range groupVersions {
		if gv.Group == "" {
			wanted["api/"+gv.Version] = true
		} else {
			wanted["apis/"+gv.String()] = true
		}
	}
	var errs []error
	for path := range wanted {
		if err := m.update(ctx, get, path, server.Paths[path].ServerRelativeURL); err != nil {
			errs = append(errs, fmt.Errorf("refresh OpenAPI document %s: %w", path, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(append(errs, m.removeOthers(wanted), files.SyncDir(m.dir))...)
}

func fetchIndex(ctx context.Context, get func(context.Context, string) (io.ReadCloser, error)) (server index, err error) {
	body, err := get(ctx, root)
	if err != nil {
		return index{}, err
	}
	defer body.Close()
	raw, err := io.ReadAll(io.LimitReader(body, maxIndex+1))
	switch {
	case err != nil:
		return index{}, fmt.Errorf("read the index: %w", err)
	case len(raw) > maxIndex:
		return index{}, fmt.Errorf("the index is over the limit of %d MiB", maxIndex>>20)
	}
	if err := json.Unmarshal(raw, &server); err != nil || server.Paths == nil {
		return index{}, errors.New("the server's answer is no index of OpenAPI v3, which Kubernetes has from 1.24")
	}
	return server, nil
}

// update downloads the document at path from relativeURL, unless it is there.
func (m *Mirror) update(ctx context.Context, get func(context.Context, string) (io.ReadCloser, error), path, relativeURL string) error {
	if relativeURL == "" {
		return errors.New("the server does not have it")
	}
	u, err := url.Parse(relativeURL)
	if err != nil {
		return err
	}
	hash := u.Query().Get("hash")
	if !validHash(hash) {
		return fmt.Errorf("the server's index has no hash of it, or one that can't be used: %q", relativeURL)
	}
	m.mu.RLock()
	known := m.hashes[path]
	m.mu.RUnlock()
	if known == hash {
		return nil
	}
	body, err := get(ctx, relativeURL)
	if err != nil {
		return err
	}
	defer body.Close()
	file := filepath.Join(m.dir, fileName(path))
	tmp := file + temporary
	if err := files.Create(tmp, func(f *os.File) error { return write(f, path, hash, body) }); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := files.Replace(tmp, file); err != nil {
		return err
	}
	m.hashes[path] = hash
	return nil
}

// removeOthers removes the documents that are not wanted, among them bad ones.
func (m *Mirror) removeOthers(wanted map[string]bool) error {
	files, err := os.ReadDir(m.dir)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, file := range files {
		if path, ok := pathOf(file.Name()); ok && !wanted[path] {
			delete(m.hashes, path)
			errs = append(errs, os.Remove(filepath.Join(m.dir, file.Name())))
		}
	}
	return errors.Join(errs...)
}

// open opens a document for reading. It returns an error if the document is not there, or bad; then
// the next refresh fetches it.
func (m *Mirror) open(path string) (*os.File, document, error) {
	m.mu.RLock()
	hash, ok := m.hashes[path]
	m.mu.RUnlock()
	if !ok {
		return nil, document{}, os.ErrNotExist
	}
	f, d, err := open(filepath.Join(m.dir, fileName(path)), path)
	if err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.hashes[path] == hash { // and not another one by now
			delete(m.hashes, path)
		}
	}
	return f, d, err
}

// index returns the index of the documents that are there.
func (m *Mirror) index() index {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := index{Paths: make(map[string]reference, len(m.hashes))}
	for path, hash := range m.hashes {
		out.Paths[path] = reference{relativeURL(path, hash)}
	}
	return out
}
