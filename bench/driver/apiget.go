package driver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapcache/snapcache/kubeapi/serving"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
)

// Gets are the kinds of reads of single objects.
var Gets = []string{"get, resourceVersion=0", "16 gets at once, resourceVersion=0", "get, most recent"}

// apiGets measures reads of single objects: of each side, and of a server whose handler does nothing
// else than write such an object.
func (d *Driver) apiGets(ctx context.Context, s *server, sides []*apiSide, plan API, f *figures) (err error) {
	keys := s.keys[s.resources[0].Name]
	floor, stop, err := d.startFloor(ctx, sides[0], podPath(keys[0]))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	sides = append([]*apiSide{floor}, sides...)
	var least map[string]float64
	for range plan.Rounds {
		for _, x := range sides {
			cpu, err := x.gets(ctx, keys, plan.Gets, f)
			if err != nil {
				return fmt.Errorf("gets of %s: %w", x.name, err)
			}
			if x == floor {
				least = cpu
				continue
			}
			for _, what := range Gets {
				f.add(what+": CPU above net/http's", x.name, "s", cpu[what]-least[what])
			}
		}
	}
	return nil
}

func podPath(key string) string {
	namespace, name, _ := strings.Cut(key, "/")
	return "/api/v1/namespaces/" + namespace + "/pods/" + name
}

// startFloor starts a server whose answer to each request is the object that x has at a path.
func (d *Driver) startFloor(ctx context.Context, x *apiSide, path string) (_ *apiSide, stop func() error, err error) {
	dir, err := os.MkdirTemp(d.scratch, "floor")
	if err != nil {
		return nil, nil, err
	}
	answer, err := x.get(ctx, path, "application/json")
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, nil, err
	}
	file := filepath.Join(dir, "body")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(d.binaries.floor, "-body", file, "-dir", dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	r, out := io.Pipe()
	cmd.Stdout = out
	p, err := start(cmd, Floor, dir)
	if err != nil {
		return nil, nil, err
	}
	go func() {
		<-p.done
		out.Close()
	}()
	stop = func() error { return errors.Join(in.Close(), p.end()) }
	address, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		return nil, nil, errors.Join(p.failed(err), p.kill())
	}
	ca, _, err := serving.Read(dir)
	if err == nil {
		x, err = newSide(Floor, p.pid(), 0, &rest.Config{Host: "https://" + strings.TrimSpace(address), TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	}
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return x, stop, nil
}

// gets reads single pods. A tenth as many before opens the connection, and lets the server end what the
// lists have left. It returns the CPU of each kind of read.
func (x *apiSide) gets(ctx context.Context, keys []string, n int, f *figures) (map[string]float64, error) {
	each := map[string]float64{}
	for i, q := range []struct {
		query  string
		atOnce int
	}{{"?resourceVersion=0", 1}, {"?resourceVersion=0", 16}, {"", 1}} {
		read := func(n int) error {
			var group errgroup.Group
			group.SetLimit(q.atOnce)
			for k := range n {
				path := podPath(keys[k*7919%len(keys)])
				group.Go(func() error {
					answer, err := x.get(ctx, path+q.query, "application/json")
					if err != nil {
						return err
					}
					_, err = io.Copy(io.Discard, answer.Body)
					answer.Body.Close()
					return err
				})
			}
			return group.Wait()
		}
		if err := read(max(1, n/10)); err != nil {
			return nil, err
		}
		began := time.Now()
		cpu, err := x.cpu(func() error { return read(n) })
		if err != nil {
			return nil, err
		}
		each[Gets[i]] = cpu / float64(n)
		f.add(Gets[i]+": time", x.name, "s", time.Since(began).Seconds()/float64(n))
		f.add(Gets[i]+": CPU", x.name, "s", each[Gets[i]])
	}
	return each, nil
}
