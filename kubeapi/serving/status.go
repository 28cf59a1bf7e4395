package serving

import (
	"math"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/kubeapi/internal/status"
)

// sendUnauthorized answers as a kube-apiserver does to a request whose caller is not known.
func sendUnauthorized(w http.ResponseWriter) {
	status.Send(w, status.Of(status.Bare(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")), false)
}

// sendTooMany asks the client to repeat its request after a time, at least a second.
func sendTooMany(w http.ResponseWriter, err error, after time.Duration) {
	s := status.Of(status.TooMany(err.Error()))
	s.Details.RetryAfterSeconds = max(1, int32(math.Ceil(after.Seconds())))
	status.Send(w, s, false)
}
