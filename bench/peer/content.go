package peer

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

// Content is a cache's content of one resource.
type Content struct {
	Objects int `json:"objects"`
	// Digest covers the keys and resourceVersions, in order.
	Digest string `json:"digest"`
}

// ContentOf returns the content for resourceVersions by key.
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
