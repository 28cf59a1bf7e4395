package kubeapi

import "net/http"

// discovery answers requests for documents about what is served.
func (s *Server) discovery(w http.ResponseWriter, r *http.Request) { noSuchPage(w) }
