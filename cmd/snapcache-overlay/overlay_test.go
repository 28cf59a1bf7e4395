package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRaised: modules whose version differs from the program's are named with both versions, also if go.mod
// replaces them, but neither what only snapcache uses nor client-go, which is a copy.
func TestRaised(t *testing.T) {
	before := map[string]*module{
		"a.example/same":     {Path: "a.example/same", Version: "v1.0.0"},
		"a.example/risen":    {Path: "a.example/risen", Version: "v1.0.0"},
		"a.example/replaced": {Path: "a.example/replaced", Version: "v1.0.0", Replace: &module{Version: "v1.1.0"}},
		clientGo:             {Path: clientGo, Version: "v0.36.0"},
	}
	built := []pkg{
		{ImportPath: "fmt"},
		{Module: &module{Path: "a.example/same", Version: "v1.0.0", Replace: &module{Version: "v1.0.0"}}},
		{Module: &module{Path: "a.example/risen", Version: "v1.2.0"}},
		{ImportPath: "a.example/risen/more", Module: &module{Path: "a.example/risen", Version: "v1.2.0"}},
		{Module: &module{Path: "a.example/replaced", Version: "v1.3.0"}},
		{Module: &module{Path: "a.example/of-snapcache", Version: "v9.0.0"}},
		{Module: &module{Path: clientGo, Version: "v0.36.0", Replace: &module{Path: "/copy"}}},
	}
	require.Equal(t, []string{"a.example/replaced (v1.3.0, not v1.1.0)", "a.example/risen (v1.2.0, not v1.0.0)"}, raised(before, built))
}
