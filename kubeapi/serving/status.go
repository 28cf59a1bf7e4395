package serving

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/kubeapi/internal/status"
)

// sendUnauthorized answers as a kube-apiserver does to a request whose caller is not known.
func sendUnauthorized(w http.ResponseWriter) {
	s := status.Of(status.Error(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"))
	s.Details = nil
	status.Send(w, s, false)
}

// sendTooMany asks the client to repeat its request in a second.
func sendTooMany(w http.ResponseWriter, err error) {
	status.Send(w, status.Of(status.TooMany(err.Error())), false)
}
