package peer

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

// Content is what a cache has of a resource.
type Content struct {
	Objects int `json:"objects"`
	// Digest is of the keys and resourceVersions, in order.
	Digest string `json:"digest"`
}

// ContentOf returns the content that consists of resourceVersions by key.
func ContentOf(versions map[string]string) Content {
	lines := make([]string, 0, len(versions))
	for key, rv := range versions {
		lines = append(lines, key+"@"+rv+"\n")
	}
	slices.Sort(lines)
	h := sha256.New()
	for _, line := range lines {
		h.Write([]byte(line))
	}
	return Content{len(versions), hex.EncodeToString(h.Sum(nil)[:8])}
}
