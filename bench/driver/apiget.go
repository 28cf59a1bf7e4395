package driver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapcache/snapcache/kubeapi/serving"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
)

// atOnce is how many single objects are read at once, if not one after another.
const atOnce = 16

// gets are the kinds of reads of single objects.
var gets = []struct {
	name, query string
	atOnce      int
	share       int  // of API.Gets: one of so many
	socket      bool // on a unix socket, with HTTP/1.1
}{
	{"get, resourceVersion=0", "?resourceVersion=0", 1, 1, false},
	{"16 gets at once, resourceVersion=0", "?resourceVersion=0", atOnce, 1, false},
	{"get, most recent", "", 1, 4, false}, // each waits for the kube-apiserver
	{"get on the socket, resourceVersion=0", "?resourceVersion=0", 1, 1, true},
	{"16 gets at once on the socket, resourceVersion=0", "?resourceVersion=0", atOnce, 1, true},
}

// Gets returns the names of the kinds of reads of single objects.
func Gets() (names []string) {
	for _, g := range gets {
		names = append(names, g.name)
	}
	return names
}

// apiGets measures reads of single objects: of each side, and of a server whose handler does nothing
// else than write such an object. Reads on the agent's socket have such a server too.
func (d *Driver) apiGets(ctx context.Context, s *server, sides []*apiSide, plan API, f *figures) error {
	keys := s.keys[s.resources[0].Name]
	agent := sides[0]
	for _, sides := range [][]*apiSide{sides, {agent.onSocket(apiSocket(d.apiDir()))}} {
		floor, stop, err := d.startFloor(ctx, agent, podPath(keys[0]), sides[0].socket)
		if err != nil {
			return err
		}
		for range plan.Rounds {
			if err = readOne(ctx, floor, sides, keys, plan.Gets, f); err != nil {
				break
			}
		}
		if err := errors.Join(err, stop()); err != nil {
			return err
		}
	}
	return nil
}

// readOne reads single objects of floor, then of each side.
func readOne(ctx context.Context, floor *apiSide, sides []*apiSide, keys []string, n int, f *figures) error {
	least, err := floor.gets(ctx, keys, n, f)
	if err != nil {
		return fmt.Errorf("gets of %s: %w", floor.name, err)
	}
	for _, x := range sides {
		cpu, err := x.gets(ctx, keys, n, f)
		if err != nil {
			return fmt.Errorf("gets of %s: %w", x.name, err)
		}
		for _, what := range Gets() {
			if _, ok := cpu[what]; ok {
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

// onSocket returns the same server at its unix socket.
func (x *apiSide) onSocket(path string) *apiSide {
	on := *x
	on.socket, on.config = true, &rest.Config{Host: "http://socket"}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	on.http = &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: atOnce, DisableCompression: true}}
	return &on
}

// startFloor starts a server whose answer to each request is the object that x has at a path: on a socket,
// or with TLS.
func (d *Driver) startFloor(ctx context.Context, x *apiSide, path string, socket bool) (_ *apiSide, stop func() error, err error) {
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
	if socket {
		cmd.Args = append(cmd.Args, "-socket", apiSocket(dir))
	}
	cmd.Env = []string{"GOGC=50"} // as the agent's, see gcPercent of cmd/snapcache
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
	x = &apiSide{name: Floor, pid: p.pid()}
	if socket {
		return x.onSocket(apiSocket(dir)), stop, nil
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

// gets reads single pods. A tenth as many before opens the connections, and lets the server end the
// work that the lists have left. It returns the CPU of each kind of read.
func (x *apiSide) gets(ctx context.Context, keys []string, n int, f *figures) (map[string]float64, error) {
	each := map[string]float64{}
	for _, g := range gets {
		if g.socket != x.socket {
			continue
		}
		read := func(n int) error {
			var group errgroup.Group
			group.SetLimit(g.atOnce)
			for k := range n {
				path := podPath(keys[k*7919%len(keys)])
				group.Go(func() error {
					answer, err := x.get(ctx, path+g.query, "application/json")
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
		n := max(1, n/g.share)
		if err := read(max(1, n/10)); err != nil {
			return nil, err
		}
		began := time.Now()
		cpu, err := x.cpu(func() error { return read(n) })
		if err != nil {
			return nil, err
		}
		each[g.name] = cpu / float64(n)
		f.add(g.name+": time", x.name, "s", time.Since(began).Seconds()/float64(n))
		f.add(g.name+": CPU", x.name, "s", each[g.name])
	}
	return each, nil
}
