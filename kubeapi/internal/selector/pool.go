package selector

import (
	"crypto/sha256"
	"fmt"
	"runtime"
	"sync"
	"weak"
)

// Limits of the selectors of a request. A kube-apiserver limits only the header, to 1 MiB. Parsed, a
// selector takes up to thirty times its length.
const (
	MaxBytes = 16 << 10 // of each selector

	// MaxTerms limits the requirements of both, and the values that these name.
	MaxTerms = 1000
)

// TooLong returns the error of a selector that is longer than MaxBytes; nil for others.
func TooLong(labels, fields string) error {
	for _, s := range []struct{ name, text string }{{"labelSelector", labels}, {"fieldSelector", fields}} {
		if len(s.text) > MaxBytes {
			return fmt.Errorf("%s of %d bytes: at most %d are allowed here", s.name, len(s.text), MaxBytes)
		}
	}
	return nil
}

// Pool parses the selectors of requests. Requests that hold equal ones share them. It is safe for concurrent
// use.
type Pool struct {
	fields Fields

	mu   sync.Mutex
	held map[digest]weak.Pointer[Selector]
}

// digest has the hashes of the texts of a label selector and of a field selector.
type digest struct{ labels, fields [sha256.Size]byte }

// NewPool returns a pool of selectors of a resource with these fields.
func NewPool(f Fields) *Pool { return &Pool{fields: f, held: map[digest]weak.Pointer[Selector]{}} }

// Parse reads the selectors of a request as [Fields.Parse] does. A selector over a limit is an error.
func (p *Pool) Parse(labels, fields string) (Selector, error) {
	if labels == "" && fields == "" {
		return Selector{}, nil
	}
	if err := TooLong(labels, fields); err != nil {
		return Selector{}, err
	}
	id := idOf(labels, fields)
	if s := p.find(id); s != nil {
		return *s, nil
	}
	s, err := p.fields.Parse(labels, fields)
	if err != nil {
		return Selector{}, err
	}
	if n := s.terms(); n > MaxTerms {
		return Selector{}, fmt.Errorf("labelSelector and fieldSelector with %d requirements and values: at most %d are allowed here", n, MaxTerms)
	}
	return p.share(id, &s), nil
}

func idOf(labels, fields string) digest {
	return digest{sha256.Sum256([]byte(labels)), sha256.Sum256([]byte(fields))}
}

func (p *Pool) find(id digest) *Selector {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[id].Value()
}

// share returns the selector that requests with its texts hold. It is forgotten with the last of them.
func (p *Pool) share(id digest, s *Selector) Selector {
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.held[id].Value(); other != nil {
		return *other
	}
	s.shared = s
	p.held[id] = weak.Make(s)
	runtime.AddCleanup(s, p.forget, id)
	return *s
}

func (p *Pool) forget(id digest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[id].Value() == nil { // else there is another one
		delete(p.held, id)
	}
}

// terms returns how many requirements and values there are.
func (s Selector) terms() (n int) {
	if s.labels != nil {
		all, _ := s.labels.Requirements()
		for _, r := range all {
			n += 1 + len(r.ValuesUnsorted())
		}
	}
	if s.fields != nil {
		n += 2 * len(s.fields.Requirements())
	}
	return n
}

// Bytes returns about how much the selector takes.
func (s Selector) Bytes() int { return 64 * s.terms() }
