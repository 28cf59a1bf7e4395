package harness

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// Result is the result of a program that has ended.
type Result struct {
	Stdout []byte
	Stderr string
	Code   int
}

// RunToEnd runs a program to its end.
func RunToEnd(t *testing.T, cmd *exec.Cmd) Result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatalf("%q: %v", cmd.Args, err)
	}
	return Result{stdout.Bytes(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// Output runs a program, which must succeed, and returns its standard output alone: the standard error may
// have anything, such as the names of modules that go downloads.
func Output(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	r := RunToEnd(t, cmd)
	require.Zero(t, r.Code, "%q:\n%s%s", cmd.Args, r.Stdout, r.Stderr)
	return r.Stdout
}

// Get returns the answer to a GET.
func Get(t *testing.T, client *http.Client, url string) (code int, body []byte) {
	t.Helper()
	resp, err := client.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, body
}

// Metrics reads the metrics that an agent serves at an address.
func Metrics(t *testing.T, address string) map[string]*dto.MetricFamily {
	t.Helper()
	code, text := Get(t, http.DefaultClient, "http://"+address+"/metrics")
	require.Equal(t, http.StatusOK, code, "%s", text)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	require.NoError(t, err)
	return families
}
