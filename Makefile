# make help lists the targets.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
GO      ?= go
# The race detector needs a C compiler; the product itself never does.
RACE    := $(if $(shell command -v cc || command -v gcc),-race)
GOBUILD := CGO_ENABLED=0 $(GO) build -trimpath

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/snapcache
	$(GOBUILD) -ldflags '$(LDFLAGS)' -o bin/snapcache ./cmd/snapcache

OTHERS = darwin-arm64 windows-amd64.exe

.PHONY: cross
cross: ## build for every platform that is supported; OTHERS='': Linux alone
	@for p in amd64: arm64: arm:7; do \
		echo "linux/$${p%%:*}"; \
		GOOS=linux GOARCH=$${p%%:*} GOARM=$${p##*:} $(GOBUILD) -ldflags '$(LDFLAGS)' -o bin/snapcache-linux-$${p%%:*} ./cmd/snapcache || exit 1; \
	done
	@for p in $(OTHERS); do \
		echo "$$p, to read a file or a snapshot"; \
		arch=$${p#*-}; \
		GOOS=$${p%%-*} GOARCH=$${arch%.exe} $(GOBUILD) -ldflags '$(LDFLAGS)' -o bin/snapcache-$$p ./cmd/snapcache || exit 1; \
	done

.PHONY: dist
dist: ## make packages, archives for Linux, macOS and Windows, SBOMs and checksums in dist/; ARCHES='arm64 darwin-arm64': only these
	GO=$(GO) packaging/dist.sh $(ARCHES)

.PHONY: image
image: ## make the OCI image of all platforms, dist/snapcache-image.tar, without a container daemon
	GO=$(GO) packaging/image.sh $(ARCHES)

.PHONY: sign
sign: ## sign the checksums in dist/ with your SSH key, KEY=FILE
	packaging/sign.sh '$(KEY)'

.PHONY: demo
demo: build bin/controlplane ## show the main job on a real control plane; KEEP=1 leaves it running
	@bash demo/run.sh

.PHONY: test
test: ## run all tests; the first time builds a kube-apiserver (about 8 minutes)
	@[ -n "$(RACE)" ] || echo "no C compiler: testing without the race detector"
	$(GO) vet ./...
	$(GO) test $(RACE) -short -timeout 20m ./store/bolt ./... # the longest first, beside the others
	$(GO) test -short -timeout 10m ./informer -args -stored.json # the library's tests, with JSON in place of protobuf
	$(GO) test -timeout 20m ./store/... ./kubeapi/forward ./cmd/snapcache/internal/bundle # at full length, which the race detector would make too slow
	$(MAKE) controlplane
	cd test/controlplane && $(GO) test $(RACE) -count=1 ./...
	cd test/e2e && $(GO) test -count=1 -parallel 3 -timeout 40m ./... # the programs are processes of their own
	cd test/library && $(GO) test $(RACE) -count=1 -timeout 10m ./...
	cd test/kubeapi && $(GO) vet ./... && $(GO) test -count=1 -parallel 4 -timeout 30m ./... # they wait more than they work
	cd kubeapi/internal/clienttest && $(GO) test $(RACE) ./...
	cd test/monitoring && $(GO) test ./...
	cd bench && $(GO) vet ./... && $(GO) test -count=1 -timeout 30m ./... # it builds its programs, too

.PHONY: test-unit
test-unit: ## run the tests that need no control plane
	$(GO) test $(RACE) -short -timeout 20m ./store/bolt ./...

.PHONY: test-node
test-node: controlplane ## test the packages, and the service under systemd; as root, else a part is skipped
	cd test/node && $(GO) test -count=1 -timeout 30m ./...

.PHONY: test-cross test-cross-arm64 test-cross-armv7
test-cross: ## run all unit tests as arm64 and armv7 programs, under qemu-user
	$(MAKE) test-cross-arm64
	$(MAKE) test-cross-armv7
test-cross-arm64 test-cross-armv7: test-cross-%:
	GO='$(GO)' test/cross.sh $*

.PHONY: test-faults
test-faults: controlplane ## run the fault tests at full length (docs/reliability.md): some hours
	cd test/e2e && $(GO) test -run '^TestFault' -timeout 12h -v . -faults.full
	cd test/kubeapi && $(GO) test -run '^TestNode$$' -timeout 30m -v . -node.kills=200
	cd test/kubeapi && $(GO) test -run '^TestFleet$$' -timeout 80m -v . -fleet.for=1h -fleet.spokes=10
	cd test/kubeapi && $(GO) test -run '^TestHubRestart$$' -timeout 30m -v . -restart.objects=100000

.PHONY: test-servers
test-servers: controlplane ## run the tests that depend on the server against each version of the kube-apiserver since 1.29, and on kine, the datastore of k3s; writes docs/compatibility.md; two hours; SERVERS='1.31 kine' picks, SHORT=1 runs a few and writes no page, REST=1 those that have not passed yet
	cd test/controlplane && $(GO) run ./cmd/servers -servers '$(SERVERS)' $(if $(SHORT),-short) $(if $(REST),-rest)
	$(if $(SERVERS),,cd test/controlplane && $(GO) run ./cmd/servers -mutants)

.PHONY: test-programs
test-programs: controlplane ## run programs that others wrote with durable informers, on 100,000 objects in 128 MiB (docs/unmodified.md); as root; an hour and three quarters
	cd test/library && $(GO) test -count=1 -run '^TestPrograms$$' -timeout 3h -v . -programs.full

others := $(CURDIR)/.build/others
.PHONY: test-others
test-others: controlplane ## run an OpenTelemetry collector, external-dns, helm, k9s, stern, the JavaScript client and an MCP server at the agent's Kubernetes API; wants node, npm and tmux; half an hour
	cd test/node/helm && $(GO) build -o '$(others)/helm' helm.sh/helm/v4/cmd/helm
	cd test/kubeapi/testdata/collector && $(GO) build -o '$(others)/collector' .
	GOBIN='$(others)' $(GO) install sigs.k8s.io/external-dns@v0.21.0
	GOBIN='$(others)' $(GO) install github.com/derailed/k9s@v0.50.16
	GOBIN='$(others)' $(GO) install github.com/stern/stern@v1.33.1
	npm install --no-audit --no-fund --prefix '$(others)' @kubernetes/client-node@1.4.0 mcp-server-kubernetes@4.1.7
	cd test/kubeapi && $(GO) test -count=1 -run '^TestOthers$$' -timeout 30m -v . -others '$(others)'

.PHONY: test-daemonsets
test-daemonsets: controlplane ## restart the programs of NODES=50 nodes at once, at the kube-apiserver and at agents, and measure a node with one program (docs/kubernetes-api.md); wants a quiet machine; five minutes
	cd test/kubeapi && $(GO) test -count=1 -run '^Test(DaemonSets|SingleProgram)$$' -timeout 20m -v . -daemonsets.nodes $(or $(NODES),50)

.PHONY: test-client-go
test-client-go: controlplane ## run client-go's own tests of informers with the change of snapcache-overlay, and with our informers in use; VERSIONS='v0.33.3 v0.37.2' picks; a quarter of an hour
	cd test/library && $(GO) test -count=1 -run '^TestClientGoSuite$$' -timeout 1h -v . -clientgo.versions '$(or $(VERSIONS),v0.33.13 v0.34.13 v0.35.10 v0.36.6 v0.37.2)'

.PHONY: test-own-server
test-own-server: controlplane ## run the tests of test-servers on a server of yours, which they change, kill and restore: KUBECONFIG=FILE PROGRAM=FILE, see test/controlplane/testdata/server.sh; an hour; TESTS='e2e/TestServerRestart' picks
	@[ -n '$(KUBECONFIG)' ] && [ -n '$(PROGRAM)' ] || { echo 'give KUBECONFIG=FILE of a throw-away cluster, and PROGRAM=FILE that kills, starts, saves and restores its server'; exit 2; }
	cd test/controlplane && $(GO) run ./cmd/servers -own.kubeconfig '$(abspath $(KUBECONFIG))' -own.program '$(abspath $(PROGRAM))' -own.tests '$(TESTS)'

.PHONY: test-upgrade
test-upgrade: controlplane ## kill agents of this revision and of BEFORE=REVISION in turns, on one file: two minutes
	@[ -n '$(BEFORE)' ] || { echo 'give a revision: make test-upgrade BEFORE=HEAD~20'; exit 2; }
	$(build-before)
	cd test/e2e && $(GO) test -count=1 -run '^TestUpgrade$$' -timeout 30m -v . -upgrade.before '$(CURDIR)/.build/before/snapcache'

.PHONY: bench-store
bench-store: ## run the durable store's benchmarks (docs/performance.md): about 25 minutes
	$(GO) test -run '^$$' -bench '^Benchmark(Open|Fold)$$' -benchtime 9x -timeout 30m ./store/bolt
	$(GO) test -run '^$$' -bench '^Benchmark(Read|Apply|ViewBesideWrites|Encryption)$$' -benchtime 500ms -count 3 -timeout 30m ./store/bolt
	$(GO) test -run '^$$' -bench '^BenchmarkHour$$' -benchtime 1x -timeout 30m ./store/bolt

.PHONY: bench
bench: controlplane ## compare with client-go and controller-runtime, in ten minutes; writes docs/bench
	cd bench && $(GO) run ./cmd/bench -command 'make bench'

.PHONY: bench-library
bench-library: controlplane ## only the library's targets, in three minutes; writes .build/bench-library
	cd bench && $(GO) run ./cmd/bench -plan library -out ../.build/bench-library -command 'make bench-library'

.PHONY: bench-library-100000
bench-library-100000: controlplane ## the library beside informers in memory at 100,000 pods, and alone at a million, in three quarters of an hour; writes docs/bench/library.md
	cd bench && $(GO) run ./cmd/bench -plan library-100000 -command 'make bench-library-100000'

# build-before builds snapcache of the revision BEFORE as .build/before/snapcache.
define build-before
rm -rf .build/before && mkdir -p .build/before/src
git archive '$(BEFORE)' | tar -x -C .build/before/src
cd .build/before/src && $(GOBUILD) -buildvcs=false -ldflags '-s -w' -o ../snapcache ./cmd/snapcache
rm -rf .build/before/src
endef

.PHONY: bench-api
bench-api: controlplane ## only the Kubernetes API beside a kube-apiserver's, in a quarter of an hour; writes docs/bench/api.md; BEFORE=REVISION also compares the agent without clients with that revision's
	$(if $(BEFORE),$(build-before))
	cd bench && $(GO) run ./cmd/bench -plan api $(if $(BEFORE),-before $(CURDIR)/.build/before/snapcache) -command 'make bench-api$(if $(BEFORE), BEFORE=$(BEFORE))'

.PHONY: bench-fleet
bench-fleet: controlplane ## only the return of a fleet to hubs and to a kube-apiserver, in ten minutes; writes docs/bench/fleet.md; FLEET='-nodes 200' has fewer nodes
	cd bench && $(GO) run ./cmd/bench -plan fleet -command 'make bench-fleet' $(FLEET)

.PHONY: bench-return
bench-return: controlplane ## only the return of nodes after a restart of the kube-apiserver, in ten minutes; writes docs/bench/return.md
	cd bench && $(GO) run ./cmd/bench -plan return -command 'make bench-return'

.PHONY: bench-full
bench-full: controlplane ## the same with all peers at all sizes, more often: an hour and a quarter
	cd bench && $(GO) run ./cmd/bench -plan full -command 'make bench-full'

.PHONY: bench-compare
bench-compare: ## compare the micro-benchmarks with those of a revision, BASE=REVISION
	GO='$(GO)' BASE='$(BASE)' bench/compare.sh

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (10s; 4000x is so many inputs)
	@for f in $$(grep -rlE '^func Fuzz' --include=*_test.go . | grep -v '^./test/'); do \
		for t in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9]*).*/\1/p' $$f); do \
			echo "$$(dirname $$f) $$t"; \
			$(GO) test -run '^$$' -fuzz "^$$t\$$" -fuzztime $(or $(FUZZTIME),10s) -fuzzminimizetime 10x $$(dirname $$f) || exit 1; \
		done; \
	done

.PHONY: lint
lint: ## run the linters
	$(GO) vet ./...
	$(GO) tool -modfile=tools/go.mod golangci-lint run ./...

.PHONY: controlplane
controlplane: bin/controlplane ## build etcd, kube-apiserver, kubectl, CoreDNS, Prometheus, kubelet and kube-proxy for tests
	bin/controlplane build

.PHONY: bin/controlplane
bin/controlplane:
	cd test/controlplane && $(GO) build -o ../../bin/controlplane ./cmd/controlplane

.PHONY: clean
clean: ## remove what was built
	rm -rf bin .build dist
