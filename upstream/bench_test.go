package upstream

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/snapcache/snapcache/object"
)

var prunes = []struct {
	name  string
	prune object.Prune
}{{"all", object.Prune{}}, {"pruned", object.NewPrune(object.ManagedFields)}}

func BenchmarkList(b *testing.B) {
	body := bigList(500)
	for _, p := range prunes {
		b.Run(p.name, func(b *testing.B) {
			l := &lister{
				s:    &Source{opts: SourceOptions{Resource: pods}, dec: decoding{pods, p.prune}},
				opts: ListOptions{Progress: func(_, _ int64) {}},
				each: func(*object.Object) error { return nil },
			}
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.read(strings.NewReader(body), "", func(string) {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("parser", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := parsePage(strings.NewReader(body), func(string) {}, func([]byte) error { return nil }, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("gzip", func(b *testing.B) {
		var packed bytes.Buffer
		zw, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
		_, _ = io.WriteString(zw, body)
		_ = zw.Close()
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			zr := &unpackedBody{packed: io.NopCloser(bytes.NewReader(packed.Bytes())), open: newGzip}
			if _, err := parsePage(zr, func(string) {}, func([]byte) error { return nil }, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkWatch(b *testing.B) {
	var stream strings.Builder
	const events = 500
	for i := range events {
		stream.WriteString(`{"type":"MODIFIED","object":` + bigPod(i, true) + "}\n")
	}
	body := stream.String()
	for _, p := range prunes {
		b.Run(p.name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				d := reading(strings.NewReader(body), p.prune)
				for range events {
					if e, err := d.next(); err != nil {
						b.Fatal(err)
					} else if _, ok := e.Object.(*object.Object); !ok {
						b.Fatalf("%T", e.Object)
					}
				}
			}
		})
	}
}

// BenchmarkListHTTP lists over a real connection.
func BenchmarkListHTTP(b *testing.B) {
	body := bigList(500)
	c := serve(b, gzipped(body)) // compresses it once
	s := podSource(c)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.List(context.Background(), ListOptions{}, func(*object.Object) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
