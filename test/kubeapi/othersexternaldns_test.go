package kubeapi

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// headless has the pods of TestOthers behind a Service without an address of its own, for which external-dns has
// informers of all Services, EndpointSlices, pods and nodes.
const headless = `{apiVersion: v1, kind: Service, spec: {clusterIP: None, selector: {app: web}},
 metadata: {name: web, annotations: {external-dns.alpha.kubernetes.io/hostname: web.example.com}}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web, labels: {kubernetes.io/service-name: web}}, addressType: IPv4,
 endpoints: [{addresses: [10.3.0.1], targetRef: {kind: Pod, name: web-0}}, {addresses: [10.3.0.2], targetRef: {kind: Pod, name: web-1}}]}`

var recordMade = regexp.MustCompile(`msg="(CREATE: .*)"`)

// records returns the DNS records that external-dns makes of a cluster.
func (o *othersRun) records(t *testing.T, kubeconfig string) []string {
	t.Helper()
	log := o.run(t, kubeconfig, nil, "sh", "-c", `exec external-dns --kubeconfig="$KUBECONFIG" --once --source=service `+
		`--provider=inmemory --inmemory-zone=example.com --registry=noop --metrics-address=127.0.0.1:0 2>&1`)
	var records []string
	for _, m := range recordMade.FindAllStringSubmatch(log, -1) {
		records = append(records, m[1])
	}
	require.NotEmpty(t, records, log)
	slices.Sort(records)
	return records
}
