package objects

import (
	"fmt"
	"strings"
)

// app is one application that runs in every shop. Its pods have the same fields, as if they came from
// one template, and differ only in values.
type app struct {
	name    string
	tier    string
	port    int32
	env     []string // names of its variables
	sidecar bool     // a proxy beside it
	migrate bool     // an init container before it
}

var apps = []app{
	{name: "checkout", tier: "frontend", port: 8080, sidecar: true, env: []string{"CART_URL", "PAYMENT_URL", "PAYMENT_TIMEOUT_MS", "RECEIPT_TEMPLATE", "LOYALTY_URL", "TAX_RULES_REVISION"}},
	{name: "cart", tier: "backend", port: 8081, env: []string{"REDIS_ADDR", "REDIS_POOL_SIZE", "SESSION_TTL", "PRICING_URL", "INVENTORY_URL", "ABANDONED_AFTER"}},
	{name: "catalog", tier: "backend", port: 8082, migrate: true, env: []string{"DATABASE_DSN", "DATABASE_MAX_CONNS", "SEARCH_URL", "IMAGE_CDN", "SYNC_INTERVAL", "LANGUAGES", "ASSORTMENT"}},
	{name: "payments", tier: "backend", port: 8443, sidecar: true, env: []string{"TERMINAL_ADDR", "ACQUIRER_URL", "ACQUIRER_MERCHANT", "OFFLINE_LIMIT_CENTS", "OFFLINE_QUEUE_DIR", "RETRY_SCHEDULE", "HSM_SLOT"}},
	{name: "inventory", tier: "backend", port: 8083, migrate: true, env: []string{"DATABASE_DSN", "DATABASE_MAX_CONNS", "MQTT_BROKER", "MQTT_TOPIC", "SCAN_DEBOUNCE_MS", "WAREHOUSE_URL"}},
	{name: "pricing", tier: "backend", port: 8084, env: []string{"RULES_URL", "RULES_REVISION", "CACHE_BYTES", "PROMOTIONS_URL", "ROUNDING", "ESL_GATEWAY", "ESL_BATCH"}},
	{name: "search", tier: "backend", port: 9200, env: []string{"INDEX_DIR", "INDEX_SHARDS", "HEAP_BYTES", "SYNONYMS_REVISION", "REFRESH_INTERVAL", "SLOW_QUERY_MS", "LANGUAGES"}},
	{name: "kiosk-ui", tier: "frontend", port: 3000, env: []string{"API_URL", "THEME", "IDLE_TIMEOUT", "PRINTER", "SCREEN_ROTATION", "FEATURE_FLAGS"}},
	{name: "label-printer", tier: "device", port: 9100, sidecar: true, env: []string{"DEVICE", "DPI", "SPOOL_DIR", "TEMPLATE_REVISION", "PAPER", "RETRIES", "PRINT_SERVER"}},
	{name: "camera-counter", tier: "device", port: 8554, env: []string{"RTSP_URL", "MODEL", "MODEL_REVISION", "MQTT_BROKER", "MQTT_TOPIC", "RETENTION"}},
	{name: "cold-chain", tier: "device", port: 8085, env: []string{"MODBUS_ADDR", "SENSORS", "ALARM_ABOVE_CELSIUS", "SAMPLE_INTERVAL", "ALERT_URL", "CALIBRATION"}},
	{name: "telemetry", tier: "platform", port: 4317, migrate: true, env: []string{"UPSTREAM", "SPOOL_DIR", "SPOOL_MAX_BYTES", "BATCH_SIZE", "COMPRESSION", "SCRAPE_INTERVAL"}},
}

// commonEnv are the variables that every application has.
var commonEnv = []string{"SHOP_ID", "REGION", "LOG_LEVEL", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_RESOURCE_ATTRIBUTES"}

// appOf returns the application of object number i. It mixes the bits of i: the numbers of one
// namespace are a fixed step apart, and would otherwise get only a few applications.
func appOf(i int) app { return apps[uint32(i)*2654435761>>16%uint32(len(apps))] }

// image returns an image of the application with a random version tag.
func (a app) image(s source) string {
	return fmt.Sprintf("images.example.com/shop/%s:2.%d.%d-%s", a.name, 10+s.IntN(9), s.IntN(20), s.hex(7))
}

// replicaSet returns the name of the application's replica set in a namespace, the hash in that name,
// and the source of its other values.
func (a app) replicaSet(namespace string, seed int64) (name, hash string, s source) {
	s = newSource("replicaset", namespace+"/"+a.name, 0, seed)
	hash = s.text(10)
	return a.name + "-" + hash, hash, s
}

// value returns a plausible value of an environment variable.
func value(name, namespace string, s source) string {
	switch {
	case strings.HasSuffix(name, "_URL") || name == "UPSTREAM" || name == "IMAGE_CDN":
		return fmt.Sprintf("https://%s.%s.svc.cluster.local:%d/v%d", strings.ToLower(strings.SplitN(name, "_", 2)[0]), namespace, 8000+s.IntN(1000), 1+s.IntN(3))
	case strings.HasSuffix(name, "_DSN"):
		return fmt.Sprintf("postgres://shop:$(DATABASE_PASSWORD)@postgres.%s.svc:5432/%s_%s?sslmode=verify-full", namespace, strings.ReplaceAll(namespace, "-", "_"), s.hex(4))
	case strings.HasSuffix(name, "_ADDR") || strings.HasSuffix(name, "_BROKER"):
		return fmt.Sprintf("%s:%d", s.ip(10, 40), 1024+s.IntN(9000))
	case strings.HasSuffix(name, "_REVISION"):
		return "sha256:" + s.hex(24)
	case name == "SHOP_ID":
		return strings.TrimPrefix(namespace, "shop-") + "-" + s.hex(6)
	case name == "REGION":
		return s.from("eu-north-1", "eu-central-2", "eu-west-3", "us-east-1")
	case name == "LOG_LEVEL":
		return s.from("info", "info", "info", "debug", "warn")
	case name == "OTEL_EXPORTER_OTLP_ENDPOINT":
		return "http://" + s.ip(10, 40) + ":4317"
	case name == "OTEL_RESOURCE_ATTRIBUTES":
		return "service.instance.id=" + string(s.uid()) + ",deployment.environment=production"
	default:
		return fmt.Sprintf("%s-%d", s.hex(4+s.IntN(8)), s.IntN(100000))
	}
}
