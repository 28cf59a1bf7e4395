package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
)

// Documents are independent.
func TestYAMLDocuments(t *testing.T) {
	var out bytes.Buffer
	p, err := newPrinter("yaml", &out)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, p.Add([]byte(`{"metadata":{"name":"a"}}`)))
	}
	require.NoError(t, p.End())
	require.Equal(t, "metadata:\n  name: a\n---\nmetadata:\n  name: a\n", out.String())
}

// A List without its end is not valid.
func TestPrinterUnfinishedList(t *testing.T) {
	o, err := object.Parse([]byte(`{"metadata":{"name":"a"}}`))
	require.NoError(t, err)
	var out bytes.Buffer
	p, err := newPrinter("json", &out)
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, p.Add(o.JSON()))
		require.False(t, json.Valid(out.Bytes()))
	}
	require.NoError(t, p.End())
	var list struct{ Items []json.RawMessage }
	require.NoError(t, json.Unmarshal(out.Bytes(), &list))
	require.Len(t, list.Items, 3)
}

func TestPrinterNDJSONLineBreaks(t *testing.T) {
	o, err := object.Parse([]byte("{\n  \"metadata\": {\r\n\"name\": \"a\"}}"))
	require.NoError(t, err)
	var out bytes.Buffer
	p, err := newPrinter("ndjson", &out)
	require.NoError(t, err)
	require.NoError(t, p.Add(o.JSON()))
	require.Equal(t, `{"metadata":{"name":"a"}}`+"\n", out.String())
}

// An object is printed as it is, with white space alone changed.
func TestPrinterJSONIndent(t *testing.T) {
	for _, raw := range []string{
		`{}`, `{"a":[],"b":{}}`, `{"metadata":{"name":"a"},"list":[1,[2,{"c":null}]]}`,
		`{"a":1e400,"b":-0,"c":12345678901234567890.10}`,
		`{"a":"<&>\u003c\u2028\ud83d\ude00 \u00e9é"}`, "{\"a\":\"\xff\",\"b\":\"\\ud800\"}",
		`{"a":1,"a":2}`, "{ \"a\" :\t[ 1 ,\r\n 2 ] }",
	} {
		var want, got bytes.Buffer
		want.WriteString("\n        ")
		require.NoError(t, json.Indent(&want, []byte(raw), "        ", "    "))
		require.NoError(t, writeItem(&got, []byte(raw)))
		require.Equal(t, want.String(), got.String())
	}
}
