package objects

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// epoch is when the oldest object was created.
var epoch = time.Date(2026, time.January, 12, 6, 0, 0, 0, time.UTC)

// source is a stream of random values that depend only on the arguments of newSource.
type source struct{ *rand.Rand }

func newSource(kind, namespace string, i int, seed int64) source {
	h := fnv.New64a()
	fmt.Fprint(h, kind, "/", namespace, "/", i)
	return source{rand.New(rand.NewPCG(uint64(seed), h.Sum64()))}
}

// text returns n characters of the alphabet of generated names' suffixes.
func (s source) text(n int) string { return s.pick(n, "bcdfghjklmnpqrstvwxz2456789") }

func (s source) hex(n int) string { return s.pick(n, "0123456789abcdef") }

func (s source) pick(n int, alphabet string) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[s.IntN(len(alphabet))]
	}
	return string(b)
}

func (s source) uid() types.UID {
	return types.UID(fmt.Sprintf("%s-%s-4%s-%s%s-%s", s.hex(8), s.hex(4), s.hex(3), s.pick(1, "89ab"), s.hex(3), s.hex(12)))
}

func (s source) ip(first, second int) string {
	return fmt.Sprintf("%d.%d.%d.%d", first, second, s.IntN(256), 1+s.IntN(254))
}

func (s source) from(words ...string) string { return words[s.IntN(len(words))] }

// bytes returns n bytes that do not compress, as in keys, certificates and signatures.
func (s source) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(s.Uint32())
	}
	return b
}

// at returns the time that is a number of seconds after [epoch].
func at(seconds int) metav1.Time {
	return metav1.NewTime(epoch.Add(time.Duration(seconds) * time.Second))
}

// born returns when object number i was created, in seconds after [epoch].
func born(i int) int { return i * 7 % (200 * 24 * 3600) }

// Namespace returns the name of shop number i.
func Namespace(i int) string { return fmt.Sprintf("shop-%04d", i) }

// NodeName returns the name of node number i, which has 24 pods of [Pod].
func NodeName(i int) string { return fmt.Sprintf("edge-%05d.shops.example.com", i) }
