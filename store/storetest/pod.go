package storetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"
)

// PodRV returns the resourceVersion of object number i in a version.
func PodRV(i, version int) string { return strconv.Itoa(1_000_000 + 1_000_000*version + i) }

// source is a stream of values that depends only on its seed.
type source struct{ *rand.Rand }

func newSource(kind string, i int) source {
	return source{rand.New(rand.NewPCG(uint64(len(kind)), uint64(i)))}
}

func (s source) pick(n int, alphabet string) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[s.IntN(len(alphabet))]
	}
	return string(b)
}

func (s source) hex(n int) string  { return s.pick(n, "0123456789abcdef") }
func (s source) text(n int) string { return s.pick(n, "bcdfghjklmnpqrstvwxz2456789") }
func (s source) uid() string {
	return s.hex(8) + "-" + s.hex(4) + "-4" + s.hex(3) + "-9" + s.hex(3) + "-" + s.hex(12)
}
func (s source) ip(a, b int) string {
	return fmt.Sprintf("%d.%d.%d.%d", a, b, s.IntN(256), 1+s.IntN(254))
}

func stamp(seconds int) string {
	return time.Date(2026, time.January, 12, 6, 0, seconds, 0, time.UTC).Format(time.RFC3339)
}

// Lease returns object number i of many small ones, about 400 bytes, in a version.
func Lease(i, version int) []byte {
	s := newSource("lease", i)
	return fmt.Appendf(nil, `{"kind":"Lease","apiVersion":"v1","metadata":{"name":"edge-%06d","namespace":"shop-%04d","uid":"%s",`+
		`"resourceVersion":"%s","creationTimestamp":"%s","labels":{"example.com/tier":"t%d","example.com/site":"%s"}},`+
		`"spec":{"holderIdentity":"edge-%06d_%s","leaseDurationSeconds":40,"leaseTransitions":%d,"renewTime":"%s"}}`,
		i, i%500, s.uid(), PodRV(i, version), stamp(i*7), i%7, s.hex(12), i, s.uid(), s.IntN(30), stamp(8_000_000+version*10+i%10))
}

type fields = map[string]any

// app is an application that runs in every shop: its pods come from one template
// and differ in their values.
type app struct {
	name string
	port int
	env  []string
}

var apps = []app{
	{"checkout", 8080, []string{"CART_URL", "PAYMENT_URL", "PAYMENT_TIMEOUT_MS", "RECEIPT_TEMPLATE", "LOYALTY_URL", "TAX_RULES_REVISION"}},
	{"cart", 8081, []string{"REDIS_ADDR", "REDIS_POOL_SIZE", "SESSION_TTL", "PRICING_URL", "INVENTORY_URL", "ABANDONED_AFTER"}},
	{"catalog", 8082, []string{"DATABASE_DSN", "DATABASE_MAX_CONNS", "SEARCH_URL", "IMAGE_URL", "SYNC_INTERVAL", "LANGUAGES", "ASSORTMENT"}},
	{"payments", 8443, []string{"TERMINAL_ADDR", "ACQUIRER_URL", "ACQUIRER_MERCHANT", "OFFLINE_LIMIT_CENTS", "OFFLINE_QUEUE_DIR", "HSM_SLOT"}},
	{"inventory", 8083, []string{"DATABASE_DSN", "DATABASE_MAX_CONNS", "MQTT_ADDR", "MQTT_TOPIC", "SCAN_DEBOUNCE_MS", "WAREHOUSE_URL"}},
	{"pricing", 8084, []string{"RULES_URL", "RULES_REVISION", "CACHE_BYTES", "PROMOTIONS_URL", "ROUNDING", "ESL_ADDR", "ESL_BATCH"}},
	{"search", 9200, []string{"INDEX_DIR", "INDEX_SHARDS", "HEAP_BYTES", "SYNONYMS_REVISION", "REFRESH_INTERVAL", "SLOW_QUERY_MS"}},
	{"kiosk-ui", 3000, []string{"API_URL", "THEME", "IDLE_TIMEOUT", "PRINTER", "SCREEN_ROTATION", "FEATURE_FLAGS"}},
	{"label-printer", 9100, []string{"DEVICE", "DPI", "SPOOL_DIR", "TEMPLATE_REVISION", "PAPER", "RETRIES", "PRINT_ADDR"}},
	{"camera-counter", 8554, []string{"RTSP_URL", "MODEL", "MODEL_REVISION", "MQTT_ADDR", "MQTT_TOPIC", "RETENTION"}},
	{"cold-chain", 8085, []string{"MODBUS_ADDR", "SENSORS", "ALARM_ABOVE_CELSIUS", "SAMPLE_INTERVAL", "ALERT_URL", "CALIBRATION"}},
	{"telemetry", 4317, []string{"UPSTREAM_URL", "SPOOL_DIR", "SPOOL_MAX_BYTES", "BATCH_SIZE", "COMPRESSION", "SCRAPE_INTERVAL"}},
}

func (s source) value(name, namespace string) string {
	switch {
	case strings.HasSuffix(name, "_URL"):
		return fmt.Sprintf("https://%s.%s.svc.cluster.local:%d/v%d", strings.ToLower(strings.TrimSuffix(name, "_URL")), namespace, 8000+s.IntN(1000), 1+s.IntN(3))
	case strings.HasSuffix(name, "_DSN"):
		return fmt.Sprintf("postgres://shop:$(DATABASE_PASSWORD)@postgres.%s.svc:5432/shop_%s?sslmode=verify-full", namespace, s.hex(4))
	case strings.HasSuffix(name, "_ADDR"):
		return fmt.Sprintf("%s:%d", s.ip(10, 40), 1024+s.IntN(9000))
	case strings.HasSuffix(name, "_REVISION"):
		return "sha256:" + s.hex(24)
	case name == "OTEL_RESOURCE_ATTRIBUTES":
		return "service.instance.id=" + s.uid() + ",deployment.environment=production"
	default:
		return fmt.Sprintf("%s-%d", s.hex(4+s.IntN(8)), s.IntN(100_000))
	}
}

// Pod returns the JSON of pod number i in a version, as a server sends it: about 11 KB, half of it
// managedFields. A kubelet has reported it running. It has the same fields as the pods
// of test/controlplane/objects. The result depends only on the arguments.
func Pod(i, version int) []byte {
	a, namespace := apps[uint32(i)*2654435761>>16%uint32(len(apps))], fmt.Sprintf("shop-%04d", i%40)
	s := newSource("pod", i)
	owner := newSource("owner", i%40*100+a.port%97)
	set := a.name + "-" + owner.text(10)
	token := "kube-api-access-" + s.text(5)
	created := i * 7
	ready := created + 12 + s.IntN(40) + version*300
	host, ip := s.ip(192, 168), s.ip(10, 64)

	containers := []any{a.container(s, namespace, token)}
	if a.port%3 == 0 {
		containers = append(containers, proxy(s, a, namespace, token))
	}
	var statuses []any
	for _, c := range containers {
		c := c.(fields)
		statuses = append(statuses, fields{"name": c["name"], "ready": true, "started": true, "restartCount": s.IntN(3) + version - 1, "image": c["image"],
			"imageID": fmt.Sprintf("images.example.com/shop/%s@sha256:%s", c["name"], s.hex(64)), "containerID": "containerd://" + s.hex(64),
			"lastState": fields{}, "state": fields{"running": fields{"startedAt": stamp(ready - 3)}}})
	}
	var conditions []any
	for n, kind := range []string{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		at := []int{created + 4, created + 6, ready, ready, created}[n]
		conditions = append(conditions, fields{"type": kind, "status": "True", "observedGeneration": 1, "lastProbeTime": nil, "lastTransitionTime": stamp(at)})
	}
	meta := fields{
		"name": set + "-" + s.text(5) + strconv.FormatInt(int64(i), 36), "generateName": set + "-", "namespace": namespace, "uid": s.uid(),
		"resourceVersion": PodRV(i, version), "generation": 1, "creationTimestamp": stamp(created),
		"labels": fields{"app.kubernetes.io/name": a.name, "app.kubernetes.io/instance": a.name + "-" + namespace, "app.kubernetes.io/part-of": "shop",
			"app.kubernetes.io/managed-by": "fleet", "example.com/tier": fmt.Sprintf("tier-%d", a.port%3), "pod-template-hash": set[len(a.name)+1:]},
		"annotations": fields{"example.com/config-checksum": owner.hex(64), "example.com/rollout": fmt.Sprintf("%s/%d", owner.text(8), owner.IntN(400)),
			"prometheus.io/port": strconv.Itoa(a.port), "prometheus.io/scrape": "true"},
		"ownerReferences": []any{fields{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": owner.uid(), "controller": true, "blockOwnerDeletion": true}},
	}
	spec := podSpec(a, s, token, containers)
	spec["nodeName"] = fmt.Sprintf("edge-%05d.shops.example.com", i/24)
	status := fields{"phase": "Running", "observedGeneration": 1, "hostIP": host, "hostIPs": []any{fields{"ip": host}}, "podIP": ip,
		"podIPs": []any{fields{"ip": ip}}, "startTime": stamp(created + 1), "qosClass": "Burstable", "conditions": conditions, "containerStatuses": statuses}
	meta["managedFields"] = managedFields(a, meta, spec, status, stamp(created), stamp(ready))
	raw, err := json.Marshal(fields{"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": spec, "status": status})
	if err != nil {
		panic(err) // maps of plain values
	}
	return raw
}

func podSpec(a app, s source, token string, containers []any) fields {
	var tolerations []any
	for _, key := range []string{"example.com/edge", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} {
		tolerations = append(tolerations, fields{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 86400})
	}
	return fields{
		"containers": containers, "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
		"serviceAccountName": a.name, "serviceAccount": a.name, "securityContext": fields{"runAsNonRoot": true, "fsGroup": 10_000 + s.IntN(5000)},
		"imagePullSecrets": []any{fields{"name": "image-pull"}}, "schedulerName": "default-scheduler", "tolerations": tolerations,
		"priority": 0, "preemptionPolicy": "PreemptLowerPriority", "enableServiceLinks": true,
		"volumes": []any{
			fields{"name": "config", "configMap": fields{"name": a.name + "-config", "defaultMode": 420}},
			fields{"name": "data", "hostPath": fields{"path": "/var/lib/shop/" + a.name, "type": "DirectoryOrCreate"}},
			fields{"name": token, "projected": fields{"defaultMode": 420, "sources": []any{
				fields{"serviceAccountToken": fields{"expirationSeconds": 3607, "path": "token"}},
				fields{"configMap": fields{"name": "kube-root-ca.crt", "items": []any{fields{"key": "ca.crt", "path": "ca.crt"}}}},
				fields{"downwardAPI": fields{"items": []any{fields{"path": "namespace", "fieldRef": fields{"apiVersion": "v1", "fieldPath": "metadata.namespace"}}}}},
			}}},
		},
	}
}

func container(name, image string, env []any, s source, token, path string) fields {
	probe := func(path string) fields {
		return fields{"httpGet": fields{"path": path, "port": "http", "scheme": "HTTP"}, "timeoutSeconds": 2, "periodSeconds": 5 + s.IntN(20), "successThreshold": 1, "failureThreshold": 3}
	}
	return fields{
		"name": name, "image": image, "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
		"securityContext": fields{"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": fields{"drop": []any{"ALL"}}},
		"env":             env, "livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz"),
		"resources": fields{"limits": fields{"cpu": fmt.Sprintf("%dm", 200+50*s.IntN(20)), "memory": fmt.Sprintf("%dMi", 128+32*s.IntN(20))},
			"requests": fields{"cpu": fmt.Sprintf("%dm", 20+10*s.IntN(10)), "memory": fmt.Sprintf("%dMi", 64+16*s.IntN(4))}},
		"volumeMounts": []any{
			fields{"name": token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true},
			fields{"name": path, "mountPath": "/etc/shop", "readOnly": true}, fields{"name": "data", "mountPath": "/var/lib/shop"},
		},
	}
}

func (a app) container(s source, namespace, token string) fields {
	var env []any
	for _, name := range append([]string{"SHOP_ID", "REGION", "LOG_LEVEL", "OTEL_EXPORTER_ADDR", "OTEL_RESOURCE_ATTRIBUTES"}, a.env...) {
		env = append(env, fields{"name": name, "value": s.value(name, namespace)})
	}
	for _, of := range [][2]string{{"POD_NAME", "metadata.name"}, {"NODE_NAME", "spec.nodeName"}} {
		env = append(env, fields{"name": of[0], "valueFrom": fields{"fieldRef": fields{"apiVersion": "v1", "fieldPath": of[1]}}})
	}
	env = append(env, fields{"name": "DATABASE_PASSWORD", "valueFrom": fields{"secretKeyRef": fields{"name": a.name + "-credentials", "key": "password"}}})
	c := container(a.name, fmt.Sprintf("images.example.com/shop/%s:2.%d.%d-%s", a.name, 10+s.IntN(9), s.IntN(20), s.hex(7)), env, s, token, "config")
	c["args"] = []any{fmt.Sprintf("--listen=:%d", a.port), "--config=/etc/shop/config.yaml", "--instance=" + s.hex(12)}
	c["ports"] = []any{fields{"name": "http", "containerPort": a.port, "protocol": "TCP"}}
	return c
}

func proxy(s source, a app, namespace, token string) fields {
	var env []any
	for _, name := range []string{"UPLINK_URL", "UPLINK_BUDGET_BYTES"} {
		env = append(env, fields{"name": name, "value": s.value(name, namespace)})
	}
	c := container("link-proxy", fmt.Sprintf("images.example.com/platform/link-proxy:1.%d.%d", 20+s.IntN(6), s.IntN(12)), env, s, token, "config")
	c["args"] = []any{fmt.Sprintf("--upstream=127.0.0.1:%d", a.port), "--identity=" + namespace + "/" + a.name, "--session=" + s.hex(16)}
	c["ports"] = []any{fields{"name": "link", "containerPort": 15001, "protocol": "TCP"}}
	return c
}

// fieldSets has the fieldsV1 of each application's pods: computing them takes longer than the rest
// of a pod. Values that are keys in them are left out.
var fieldSets sync.Map

func managedFields(a app, meta, spec, status fields, created, reported string) []any {
	cached, ok := fieldSets.Load(a.name)
	if !ok {
		some := maps.Clone(meta)
		for _, name := range []string{"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"} {
			delete(some, name)
		}
		var sets [2]json.RawMessage
		for i, owned := range []fields{{"metadata": some, "spec": spec}, {"status": status}} {
			sets[i], _ = json.Marshal(fieldSet("", owned)) // maps of plain values
		}
		cached, _ = fieldSets.LoadOrStore(a.name, sets)
	}
	sets := cached.([2]json.RawMessage)
	return []any{
		fields{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": created, "fieldsType": "FieldsV1", "fieldsV1": sets[0]},
		fields{"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": reported, "fieldsType": "FieldsV1", "fieldsV1": sets[1], "subresource": "status"},
	}
}

// listKeys are the lists whose elements have owners of their own.
var listKeys = map[string]string{
	"conditions": "type", "containers": "name", "env": "name", "hostIPs": "ip", "imagePullSecrets": "name", "ownerReferences": "uid",
	"podIPs": "ip", "ports": "containerPort", "volumeMounts": "mountPath", "volumes": "name",
}

func fieldSet(field string, v any) fields {
	set := fields{}
	switch v := v.(type) {
	case fields:
		for name, child := range v {
			set["f:"+name] = fieldSet(name, child)
		}
	case []any:
		by, ok := listKeys[field]
		if !ok {
			return set
		}
		for _, item := range v {
			key, _ := json.Marshal(fields{by: item.(fields)[by]}) // a map of plain values
			set["k:"+string(key)] = fieldSet("", item)
		}
	}
	if len(set) > 0 {
		set["."] = fields{}
	}
	return set
}
