# dtask. `make` alone lists the targets. Nothing here needs more than Go, make
# and the Go module proxy; the race detector also needs a C compiler.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
ARGS ?=
FUZZTIME ?= 20s
SEED ?=
MINUTES ?= 5

# Tools are pinned in modules of their own, so that none of them enters the
# product's module graph.
BUF  := go tool -modfile=tools/proto/go.mod buf
LINT := go tool -modfile=tools/lint/go.mod golangci-lint

# The suites of whole processes build the programs themselves: the go command
# cannot know when their results are out of date, so they are always run.

# The suites that start real processes spend their time outside the race
# detector's sight; all other packages run under it.
RACE_PACKAGES = $$(go list ./... | grep -v '/test/')

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## build bin/dtaskd, bin/dtask-worker and bin/dtaskctl
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/ ./cmd/dtaskd ./cmd/dtask-worker ./cmd/dtaskctl

.PHONY: generate
generate: ## regenerate the code under proto/ from its .proto files
	$(BUF) generate

.PHONY: fmt
fmt: ## format Go and proto sources
	$(LINT) fmt
	$(BUF) format -w

.PHONY: clean
clean: ## remove bin/ and build/
	rm -rf bin build

.PHONY: demo
demo: build ## run the main job on 3 coordinators and 3 workers, and kill the leader half way
	go run ./test/demo $(ARGS)

.PHONY: bench
bench: build ## measure throughput, latency and memory on this machine
	go run ./test/bench $(ARGS)

.PHONY: test
test: ## run all tests
	go test -timeout 9m $(ARGS) $$(go list ./... | grep -v -e /test/e2e -e /test/chaos)
	go test -timeout 9m -count=1 $(ARGS) ./test/e2e/... ./test/chaos/...

.PHONY: race
race: ## run the tests under the race detector, but for the suites of whole processes
	GORACE=halt_on_error=1 go test -race -timeout 15m $(ARGS) $(RACE_PACKAGES)

.PHONY: lint
lint: ## lint Go and proto sources
	$(LINT) run
	$(BUF) lint

.PHONY: check
check: ## all that a change must pass, cheapest first
	go build ./...
	go vet ./...
	go test ./internal/archtest
	go mod tidy -diff
	go mod verify
	tools/generated-is-current
	$(MAKE) lint
	go test -timeout 9m -shuffle=on ./...
	$(MAKE) race

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (20s)
	FUZZTIME=$(FUZZTIME) tools/fuzz

.PHONY: chaos
chaos: build ## break a real cluster for MINUTES (5), from SEED if given
	DTASK_CHAOS_SEED=$(SEED) DTASK_CHAOS_MINUTES=$(MINUTES) go test -count=1 -v -timeout $$(( $(MINUTES) + 15 ))m $(ARGS) ./test/chaos/...
