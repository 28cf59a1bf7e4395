package serving

import (
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sendUnauthorized answers as a kube-apiserver does to a request whose caller is not known.
func sendUnauthorized(w http.ResponseWriter) {
	sendStatus(w, &metav1.Status{Code: http.StatusUnauthorized, Reason: metav1.StatusReasonUnauthorized, Message: "Unauthorized"})
}

// sendTooMany asks the client to repeat its request in a second.
func sendTooMany(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "1")
	sendStatus(w, &metav1.Status{
		Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: err.Error(),
		Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
	})
}

func sendStatus(w http.ResponseWriter, s *metav1.Status) {
	s.TypeMeta, s.Status = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, metav1.StatusFailure
	body, err := json.Marshal(s)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(int(s.Code))
	_, _ = w.Write(append(body, '\n')) // if it fails, the client is gone
}
