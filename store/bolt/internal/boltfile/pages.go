package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// pages reads a file page by page, before bbolt follows anything in it, and finds the faults that bbolt
// can't survive: a reference to a page that does not exist or has the wrong type, a page with two
// references (two branches that refer to each other are an endless recursion, and a stack overflow
// ends the process), and an element that reaches beyond its page. bbolt's own check does not help:
// it follows these references too, in a goroutine of its own.
type pages struct {
	file   io.ReaderAt
	high   uint64          // one past the highest page in use
	used   map[uint64]bool // pages that are referred to
	free   map[uint64]bool
	depth  int // of the page that is being checked
	report func(collection, reason string)
}

// A file may come from anywhere, so its pages are checked within little memory, however many bytes they
// claim to have.
const (
	// maxDepth limits the depth of the tree. A branch has two pages at least, so a tree that bbolt made is
	// never so deep, and bbolt and this check need stack for each level.
	maxDepth = 64

	// maxNameBytes limits the name of a bucket; it is bbolt's own limit for keys.
	maxNameBytes = 32 << 10
)

// page is a page with its overflow pages, or a page within the value of another.
type page struct {
	head     []byte // the first bytes: header, elements if they were read, and perhaps more
	size     uint64
	contents io.ReaderAt
}

func (p *page) flags() uint16 { return binary.NativeEndian.Uint16(p.head[8:]) }
func (p *page) count() int    { return int(binary.NativeEndian.Uint16(p.head[10:])) }

// bytes returns the bytes from start to end.
func (p *page) bytes(start, end uint64) ([]byte, error) {
	if end <= uint64(len(p.head)) {
		return p.head[start:end], nil
	}
	b := make([]byte, end-start)
	_, err := p.contents.ReadAt(b, int64(start)) //nolint:gosec // within the page
	return b, err
}

// elements reads the elements. It reports whether they fit into the page.
func (p *page) elements() (ok bool, err error) {
	end := uint64(pageHead + p.count()*PageElement) //nolint:gosec // at most 1 MiB
	if end > uint64(len(p.head)) && end <= p.size {
		p.head, err = p.bytes(0, end)
	}
	return err == nil && end <= p.size, err
}

// The layout of bbolt's pages, which are in the byte order of the machine.
const (
	pageHead    = 16 // id (8), flags (2), count of elements (2), number of overflow pages (4)
	PageElement = 16 // branch: offset, key length (4 each), page (8); leaf: flags, offset, key and value length (4 each)

	pageBranch   = 0x01
	pageLeaf     = 0x02
	pageFreelist = 0x10

	leafBucket = 0x01 // flag of a leaf element whose value is a bucket
	bucketHead = 16   // page of the root (8), 0 for a page within the value; sequence (8)

	metaRoot     = metaStart + 16
	metaFreelist = metaStart + 32
)

// CheckPages reads the file at path page by page. It calls report for each problem of the
// structure, with the collection of the page if known, and note for findings that are normal after
// a crash. It returns the bytes in free pages, and an error if the file can't be read.
func CheckPages(path string, report func(collection, reason string), note func(reason string)) (free int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // only read from
	p := pages{file: f, used: map[uint64]bool{}, free: map[uint64]bool{}, report: report}
	meta, invalid, err := readMeta(f)
	for _, page := range invalid {
		note(fmt.Sprintf("page %d, one of the two meta pages, is not valid: the newest commit may be lost", page))
	}
	if err == nil && meta == nil {
		err = errors.New("no meta page is valid")
	}
	if err == nil {
		p.high, err = pagesInUse(f, meta)
	}
	if err == nil {
		err = p.freelist(binary.NativeEndian.Uint64(meta[metaFreelist:]))
	}
	if err == nil {
		err = p.tree(binary.NativeEndian.Uint64(meta[metaRoot:]), nil)
	}
	return int64(len(p.free)) * PageSize, err
}

// read returns a page with its overflow pages, nil if the page is not usable. Each page is read
// once.
func (p *pages) read(id uint64, in place) (*page, error) {
	if id < 2 || id >= p.high {
		in.report(p, "page %d: there is none, pages go from 2 to %d", id, p.high-1)
		return nil, nil
	}
	b := make([]byte, PageSize)
	at := int64(id) * PageSize //nolint:gosec // pagesInUse has verified that the file has so many pages
	if _, err := p.file.ReadAt(b, at); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	more := uint64(binary.NativeEndian.Uint32(b[12:]))
	if self := binary.NativeEndian.Uint64(b); self != id {
		in.report(p, "page %d: its header is that of page %d", id, self)
		return nil, nil
	}
	if id+more >= p.high {
		in.report(p, "page %d: it goes on to page %d, the last one is %d", id, id+more, p.high-1)
		return nil, nil
	}
	for i := id; i <= id+more; i++ {
		if p.used[i] {
			in.report(p, "page %d: it is in use in two places", i)
			return nil, nil
		}
		if p.free[i] {
			in.report(p, "page %d: it is in use and on the list of free pages", i)
		}
		p.used[i] = true
	}
	size := (1 + more) * PageSize
	return &page{head: b, size: size, contents: io.NewSectionReader(p.file, at, int64(size))}, nil //nolint:gosec // as above
}

// freelist reads the list of free pages.
func (p *pages) freelist(id uint64) error {
	var in place
	b, err := p.read(id, in)
	if err != nil || b == nil {
		return err
	}
	if flags := b.flags(); flags != pageFreelist {
		in.report(p, "page %d: it is not a list of free pages, its type is %#x", id, flags)
		return nil
	}
	count, start := uint64(b.count()), uint64(pageHead) //nolint:gosec // 16 bits
	if count == 0xFFFF {                                // the count does not fit; it is in the first element
		first, err := b.bytes(start, start+8)
		if err != nil {
			return fmt.Errorf("read page %d: %w", id, err)
		}
		count, start = binary.NativeEndian.Uint64(first), start+8
	}
	if count > (b.size-start)/8 || count > p.high {
		in.report(p, "page %d: a list of %d free pages does not fit", id, count)
		return nil
	}
	ids, err := b.bytes(start, start+8*count)
	if err != nil {
		return fmt.Errorf("read page %d: %w", id, err)
	}
	for i := range count {
		switch free := binary.NativeEndian.Uint64(ids[i*8:]); {
		case free < 2 || free >= p.high:
			in.report(p, "page %d: page %d is on the list of free pages, pages go from 2 to %d", id, free, p.high-1)
		case p.free[free]:
			in.report(p, "page %d: it is on the list of free pages twice", free)
		default:
			p.free[free] = true
		}
	}
	return nil
}

// tree checks the tree of pages of one bucket, and the buckets in it.
func (p *pages) tree(id uint64, in place) error {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > maxDepth {
		in.report(p, "page %d: it is more than %d pages below the root", id, maxDepth)
		return nil
	}
	b, err := p.read(id, in)
	if err != nil || b == nil {
		return err
	}
	switch flags := b.flags(); flags {
	case pageLeaf:
		return p.leaf(b, id, in)
	case pageBranch:
	default:
		in.report(p, "page %d: it is of no known type: %#x", id, flags)
		return nil
	}
	count := b.count()
	if ok, err := b.elements(); err != nil {
		return fmt.Errorf("read page %d: %w", id, err)
	} else if !ok || count == 0 {
		in.report(p, "page %d: a branch of %d pages", id, count)
		return nil
	}
	for i := range count {
		at := pageHead + i*PageElement
		if uint64(at)+uint32At(b.head, at)+uint32At(b.head, at+4) > b.size { //nolint:gosec // at most 1 MiB
			in.report(p, "page %d: element %d reaches out of it", id, i)
			continue
		}
		if err := p.tree(binary.NativeEndian.Uint64(b.head[at+8:]), in); err != nil {
			return err
		}
	}
	return nil
}

// leaf checks the elements of a leaf page: a page of the file, or one within a value of page id.
func (p *pages) leaf(b *page, id uint64, in place) error {
	count := b.count()
	if ok, err := b.elements(); err != nil {
		return fmt.Errorf("read page %d: %w", id, err)
	} else if !ok {
		in.report(p, "page %d: a leaf of %d elements does not fit", id, count)
		return nil
	}
	for i := range count {
		at := pageHead + i*PageElement
		start := uint64(at) + uint32At(b.head, at+4) //nolint:gosec // at most 1 MiB
		value := start + uint32At(b.head, at+8)
		end := value + uint32At(b.head, at+12)
		if end > b.size {
			in.report(p, "page %d: element %d reaches out of it", id, i)
			continue
		}
		if uint32At(b.head, at)&leafBucket == 0 {
			continue
		}
		if value-start > maxNameBytes || end-value > PageSize {
			in.report(p, "page %d: a bucket with a name of %d bytes and a value of %d", id, value-start, end-value)
			continue
		}
		name, err := b.bytes(start, end)
		if err != nil {
			return fmt.Errorf("read page %d: %w", id, err)
		}
		if err := p.bucket(name[value-start:], id, in.with(name[:value-start])); err != nil {
			return err
		}
	}
	return nil
}

// bucket checks the value of a leaf element that is a bucket.
func (p *pages) bucket(value []byte, id uint64, in place) error {
	if len(value) < bucketHead {
		in.report(p, "page %d: a bucket is cut short", id)
		return nil
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return p.tree(root, in)
	}
	inline := value[bucketHead:]
	b := &page{head: inline, size: uint64(len(inline)), contents: bytes.NewReader(inline)}
	if len(inline) < pageHead || b.flags() != pageLeaf {
		in.report(p, "page %d: a small bucket is not usable", id)
		return nil
	}
	return p.leaf(b, id, in)
}

func uint32At(b []byte, at int) uint64 { return uint64(binary.NativeEndian.Uint32(b[at:])) }

// place is the path of the bucket that a page belongs to.
type place []string

func (in place) with(name []byte) place { return append(in[:len(in):len(in)], string(name)) }

func (in place) report(p *pages, reason string, args ...any) {
	collection := ""
	if len(in) > 1 && in[0] == string(format.BucketCollections) {
		collection = in[1]
	}
	p.report(collection, fmt.Sprintf(reason, args...))
}

// The parts of bbolt's meta page that this package reads, as offsets from the start of the page.
// Each of the first two pages is one; the valid one with the higher transaction counts.
const (
	metaStart    = 16
	metaPages    = metaStart + 40 // one past the highest page in use
	metaTxid     = metaStart + 48
	metaChecksum = metaStart + 56 // FNV-1a of the bytes from metaStart
	metaEnd      = metaStart + 64

	boltMagic = 0xED0CDAED
)

// readMeta returns the newest of bbolt's two meta pages that is valid, nil if none is, and which ones
// are not valid. It fails if a page can't be read.
func readMeta(file io.ReaderAt) (newest []byte, invalid []int64, err error) {
	for page := range int64(2) {
		b := make([]byte, metaEnd) // not valid if the file ends before it
		if _, err := file.ReadAt(b, page*PageSize); err != nil && !errors.Is(err, io.EOF) {
			return nil, nil, fmt.Errorf("read page %d: %w", page, err)
		}
		switch {
		case !validMeta(b):
			invalid = append(invalid, page)
		case newest == nil || binary.NativeEndian.Uint64(b[metaTxid:]) > binary.NativeEndian.Uint64(newest[metaTxid:]):
			newest = b
		}
	}
	return newest, invalid, nil
}

func validMeta(b []byte) bool {
	sum := fnv.New64a()
	_, _ = sum.Write(b[metaStart:metaChecksum]) // a hash never fails
	return binary.NativeEndian.Uint32(b[metaStart:]) == boltMagic && binary.NativeEndian.Uint64(b[metaChecksum:]) == sum.Sum64()
}

// checkNotTruncated returns an error for a file that ends before its last page in use. bbolt maps a
// file without that check, and a read past its end would end the process.
func checkNotTruncated(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer func() { _ = f.Close() }() // only read from
	meta, _, err := readMeta(f)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	if meta == nil {
		return nil // bbolt has its own error
	}
	_, err = pagesInUse(f, meta)
	return err
}

// pagesInUse returns one past the highest page in use according to meta. If the file ends before that
// page, the error is a *store.CorruptionError.
func pagesInUse(f *os.File, meta []byte) (high uint64, err error) {
	high = binary.NativeEndian.Uint64(meta[metaPages:])
	// Read the size after meta: another process may have the file open, and the file may grow meanwhile.
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("open database: %w", err)
	}
	if high > uint64(info.Size())/PageSize { //nolint:gosec // a size is not negative
		return 0, &store.CorruptionError{Path: f.Name(), Reason: fmt.Sprintf("the file is cut short: it has %d bytes, and %d pages of %d are in use", info.Size(), high, PageSize)}
	}
	return high, nil
}
