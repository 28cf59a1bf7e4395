package status

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSend checks the bytes and headers of an answer in both forms.
func TestSend(t *testing.T) {
	for _, tc := range []struct {
		name, retry, body string
		err               error
		indent            bool
	}{
		{
			"error", "", `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"none","reason":"NotFound","details":{},"code":404}` + "\n",
			Error(http.StatusNotFound, metav1.StatusReasonNotFound, "none"), false,
		},
		{
			"wrapped", "1", `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"many","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}` + "\n",
			fmt.Errorf("here: %w", TooMany("many")), false,
		},
		{
			"of no Status", "", `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Internal error occurred: x","reason":"InternalError","code":500}` + "\n",
			errors.New("x"), false,
		},
		{
			"for people", "", "{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {},\n  \"status\": \"Failure\",\n  \"message\": \"none\",\n  \"details\": {},\n  \"code\": 404\n}",
			Error(http.StatusNotFound, "", "none"), true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			Send(w, Of(tc.err), tc.indent)
			require.Equal(t, tc.body, w.Body.String())
			require.Equal(t, int(Of(tc.err).Code), w.Code)
			require.Equal(t, tc.retry, w.Header().Get("Retry-After"))
			require.Equal(t, "application/json", w.Header().Get("Content-Type"))
			require.Equal(t, "no-cache, private", w.Header().Get("Cache-Control"))
			require.Equal(t, strconv.Itoa(len(tc.body)), w.Header().Get("Content-Length"))
		})
	}
}
