# dtask. `make` alone lists the targets. Nothing here needs more than Go, make
# and the Go module proxy; the race detector also needs a C compiler.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
ARGS ?=
FUZZTIME ?= 20s
SEED ?=
SEEDS ?= 20000
HOURS ?= 24
MINUTES ?= 5
PART ?= 0/1

# Tools are pinned in modules of their own, so that none of them enters the
# product's module graph.
BUF  := go tool -modfile=tools/proto/go.mod buf
LINT := go tool -modfile=tools/lint/go.mod golangci-lint

# The suites of whole processes build the programs themselves. The go command can't
# know when their results are outdated, so they always run.

# The suites that start real processes spend their time outside the race detector;
# all other packages run under it.
RACE_PACKAGES = $$(go list ./... | grep -v '/test/')

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-22s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

BUILD := CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/dtask/dtask/internal/buildinfo.version=$(VERSION)"

.PHONY: build
build: ## build bin/dtaskd, bin/dtask-worker and bin/dtaskctl
	$(BUILD) -o bin/ ./cmd/dtaskd ./cmd/dtask-worker ./cmd/dtaskctl

IMAGE := build/image

.PHONY: image-files
image-files: ## put the files of the container image into IMAGE (build/image): one program with three names
	rm -rf $(IMAGE)
	mkdir -p $(IMAGE)/root $(IMAGE)/empty
	$(BUILD) -o $(IMAGE)/root/dtask ./cmd/dtask
	for name in dtaskd dtask-worker dtaskctl; do ln -s dtask $(IMAGE)/root/$$name; done

.PHONY: image
image: image-files ## build the container image dtask:VERSION and dtask:latest with docker
	docker build -q -t dtask:$(VERSION) -t dtask:latest -f deploy/docker/Dockerfile $(IMAGE)

.PHONY: release
release: ## build the archives of VERSION with checksums and a bill of materials in build/release
	go run ./tools/release -version $(VERSION) -date $$(git log -1 --format=%ct) -out build/release

.PHONY: release-test
release-test: ## build a release twice, in two directories and without a cache, and compare
	DTASK_RELEASE=full go test -count=1 -v -timeout 30m -run '^TestTwoBuilds' $(ARGS) ./test/packaging

.PHONY: generate
generate: ## regenerate the code under proto/, docs/cli.md and docs/metrics.md
	$(BUF) generate
	REWRITE=1 go test -count=1 -run TestTheReference ./cli
	REWRITE=1 go test -count=1 -run TestTheListOfMetrics ./test/alerts

.PHONY: zones
zones: ## write the embedded time zones again, from those of the Go toolchain
	go run ./tools/zones internal/zoneinfo/zones.gz

.PHONY: fmt
fmt: ## format Go and proto sources
	$(LINT) fmt
	$(BUF) format -w

.PHONY: clean
clean: ## remove bin/ and build/
	rm -rf bin build

.PHONY: demo
demo: build ## run the main job on 3 coordinators and 3 workers, and kill the leader halfway
	go run ./test/demo $(ARGS)

.PHONY: demo-secure
demo-secure: build ## set up a secured cluster on machines of its own, cut off the leader's while a job runs, and replace it by another one; needs root
	go test -count=1 -v -timeout 5m -run '^TestALostMachineIsReplacedWhileAJobRuns$$' $(ARGS) ./test/deploy

.PHONY: bench
bench: build ## measure speed, latency and memory on this machine
	go run ./test/bench -json build/bench.json $(ARGS)

.PHONY: bench-docs
bench-docs: ## put the figures of the last make bench, or of FROM=file.json, into docs/performance.md
	go run ./test/bench -from $(or $(FROM),build/bench.json) -into docs/performance.md

.PHONY: sizing
sizing: build ## measure what each program needs, for 3, 50 and 500 machines, and put it into docs/tuning.md
	go run ./test/bench -only sizing -json build/sizing.json $(ARGS)
	go run ./test/bench -from build/sizing.json -into docs/tuning.md

.PHONY: test
test: ## run all tests
	go test -timeout 9m $(ARGS) $$(go list ./... | grep -v -e /test/e2e -e /test/chaos -e /test/deploy -e /test/upgrade)
	go test -timeout 40m -count=1 $(ARGS) ./test/e2e/... ./test/chaos/...

.PHONY: race
race: ## run the tests under the race detector, except the suites of whole processes
	GORACE=halt_on_error=1 go test -race -timeout 15m $(ARGS) $(RACE_PACKAGES)

.PHONY: lint
lint: ## lint Go and proto sources, and the English of comments, messages and docs
	go run ./tools/vocabulary
	$(LINT) run
	$(BUF) lint

.PHONY: quick
quick: ## the inner loop: vet, lint and unit tests of what differs from BASE (upstream)
	tools/quick

.PHONY: check
check: ## everything that a change must pass, cheapest first
	go build ./...
	go vet ./...
	go test ./internal/archtest
	go mod tidy -diff
	go mod verify
	tools/generated-is-current
	$(MAKE) lint
	go test -timeout 9m -shuffle=on ./...
	$(MAKE) race

.PHONY: calendar
calendar: ## compare schedules with a naive walk: all expressions around every transition of every zone, or from the transition number FROM on, to continue a run (about 1 hour); with QUICK=1, a twentieth of the expressions (8 minutes)
	go test -count=1 -v -timeout 0 -run ReferenceModel $(ARGS) ./internal/calendar $(if $(QUICK),-calendar.every,-calendar.whole) $(if $(FROM),-calendar.from=$(FROM))

.PHONY: croniter
croniter: ## compare schedules with those of the Python package croniter, which it installs into build/
	python3 -m venv build/croniter
	build/croniter/bin/pip install --quiet croniter==6.0.0
	DTASK_CRONITER=$(CURDIR)/build/croniter/bin/python go test -count=1 -v -run Croniter $(ARGS) ./internal/calendar

.PHONY: explain
explain: ## compare the decisions of the scheduler with a naive one, and the changes of explain with a fork, in 100,000 random states each, and its estimates with 400 loads
	go test -count=1 -v -timeout 0 -run 'TestChangesAreSound|TestAWaitingTask|TestStartsAreInTheRange' $(ARGS) ./scheduler -change.states=100000 -estimate.loads=400
	go test -count=1 -v -timeout 0 -run '^TestEveryDecisionMatchesTheReferenceModel$$' $(ARGS) ./scheduler -rapid.checks=3500

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (20s)
	FUZZTIME=$(FUZZTIME) tools/fuzz

# The proof suites. Each run is added to the record; without SEED, the next simulation
# continues where the record ends.
RECORD := $(CURDIR)/test/record/runs.jsonl

# What runs a suite so that each run that fails has a line in the record.
RUN = DTASK_RECORD=$(RECORD) go run ./test/record/run

# STORE=bolt or wal is the log store of all coordinators of a suite.
ifdef STORE
export DTASK_LOG_STORE := $(STORE)
endif

# TLS=1 gives all clusters of a suite TLS, tokens and keys, and TLS=0 none.
ifdef TLS
export DTASK_TEST_TLS := $(TLS)
endif

SIMULATE = go test -count=1 -v -timeout 0 -run 'TestNothingAcknowledgedIsLostWhateverHappens$$' ./coordinator/sequencer -sim.runs=$(SEEDS)

.PHONY: simulate
simulate: ## simulate SEEDS (20000) more histories, from SEED if set, and add them to the record
	$(RUN) -suite simulate $(SIMULATE) $(if $(SEED),-sim.seed=$(SEED)) $(ARGS)

# Whole clusters in virtual time, one for each seed.
CLUSTER = go test -count=1 -v -timeout 0 -run 'TestAClusterLosesNothing$$' ./test/simulation -cluster.hours=$(HOURS)

.PHONY: simulate-cluster
simulate-cluster: ## simulate HOURS (24) more of whole clusters, from SEED if set, and add them to the record
	$(RUN) -suite cluster $(CLUSTER) $(if $(SEED),-cluster.seed=$(SEED)) $(ARGS)

.PHONY: simulate-cluster-smoke
simulate-cluster-smoke: HOURS = 20
simulate-cluster-smoke: ## simulate the first HOURS (20) of whole clusters in storms, without a record
	$(CLUSTER) -timeout 60m -cluster.seed=$(or $(SEED),1) -cluster.kind=storms -cluster.losses=3000 $(ARGS)

.PHONY: simulate-smoke
simulate-smoke: ## simulate the first SEEDS (20000) histories, without a record
	$(SIMULATE) -timeout 30m -sim.seed=$(or $(SEED),1) $(ARGS)

.PHONY: chaos
chaos: ## break a real cluster in every way for MINUTES (5), from SEED if set
	DTASK_CHAOS_SEED=$(SEED) DTASK_CHAOS_MINUTES=$(MINUTES) $(RUN) -suite chaos go test -count=1 -v -timeout 0 -run '^TestNemesis$$' $(ARGS) ./test/chaos

.PHONY: rotation
rotation: ## replace 20 certificates and the CA under 21,000 tasks per second, with 200 connections of workers
	DTASK_ROTATION=long go test -count=1 -v -timeout 20m -run '^TestCertificatesAndTheCAAreReplacedUnderLoad$$' $(ARGS) ./test/e2e

.PHONY: chaos-smoke
chaos-smoke: ## the chaos of each CI run: 60 leaders killed, 30 kinds of faults
	DTASK_CHAOS=smoke DTASK_CHAOS_SEED=$(SEED) go test -count=1 -v -timeout 60m -run '^(TestSmoke|TestHealthyWorkers.*|TestALeaderCutOff.*)$$' $(ARGS) ./test/chaos

.PHONY: chaos-kills
chaos-kills: ## kill one leader after another, as fast as is fair, for MINUTES (5)
	DTASK_CHAOS=kills DTASK_CHAOS_SEED=$(SEED) DTASK_CHAOS_MINUTES=$(MINUTES) $(RUN) -suite chaos go test -count=1 -v -timeout 0 -run '^TestKills$$' $(ARGS) ./test/chaos

.PHONY: chaos-commands
chaos-commands: ## kill supervisors, workers and leaders under short commands, for MINUTES (5), from SEED if set
	DTASK_CHAOS=commands DTASK_CHAOS_SEED=$(SEED) DTASK_CHAOS_MINUTES=$(MINUTES) go test -count=1 -v -timeout 0 -run '^TestNoKillBreaksACommand$$' $(ARGS) ./test/chaos

.PHONY: chaos-old-copies
chaos-old-copies: ## bring back old copies of data directories, together with other faults, for MINUTES (5), from SEED if set
	DTASK_CHAOS=old-copies DTASK_CHAOS_SEED=$(SEED) DTASK_CHAOS_MINUTES=$(MINUTES) go test -count=1 -v -timeout 0 -run '^(TestOldCopies|TestTheLossOfEveryDisk.*)$$' $(ARGS) ./test/chaos

.PHONY: chaos-saturated
chaos-saturated: ## saturate the processors for MINUTES (5): no healthy leader or worker is replaced
	DTASK_CHAOS=saturated DTASK_CHAOS_MINUTES=$(MINUTES) go test -count=1 -v -timeout 0 -run '^TestNothingHealthyIsReplaced$$' $(ARGS) ./test/chaos

.PHONY: chaos-limits
chaos-limits: ## hand limits of 1 from task to task at least 10,000 times in MINUTES (5) of partitions, stopped workers and killed leaders, from SEED if set
	DTASK_CHAOS=limits DTASK_CHAOS_SEED=$(SEED) DTASK_CHAOS_MINUTES=$(MINUTES) $(RUN) -suite chaos go test -count=1 -v -timeout 0 -run '^TestALimitIsNeverHeldTwice$$' $(ARGS) ./test/chaos

.PHONY: workflows
workflows: ## run 167 workflows of 64,321 commands, and kill 37 leaders meanwhile
	DTASK_WORKFLOWS=all go test -count=1 -v -timeout 60m -run '^TestWorkflows' $(ARGS) ./test/e2e

.PHONY: chaos-measure
chaos-measure: ## measure the time without completions after losses, and print a table
	DTASK_CHAOS=measure go test -count=1 -v -timeout 60m -run '^(TestMeasure.*|TestHealthyWorkers.*|TestALeaderCutOff.*)$$' $(ARGS) ./test/chaos

.PHONY: soak
soak: ## run mixed work for MINUTES (30), and check that nothing grows
	DTASK_CHAOS=soak DTASK_CHAOS_MINUTES=$(if $(filter file,$(origin MINUTES)),30,$(MINUTES)) $(RUN) -suite soak go test -count=1 -v -timeout 0 -run '^TestSoak$$' $(ARGS) ./test/chaos

.PHONY: powercuts
powercuts: ## cut the power of a real cluster N (20) times, from SEED if set, with its log in STORE and every second cluster with TLS, and add that to the record; needs root
	DTASK_POWERCUTS=$(or $(N),20) DTASK_CHAOS_SEED=$(SEED) $(RUN) -suite powercut go test -count=1 -v -timeout 60m -run TestPowerCuts $(ARGS) ./test/chaos/faultfs/scenario

.PHONY: bitflips
bitflips: ## flip N (50) bits of a real cluster, one at a time, from SEED if set, with its log in STORE and every second cluster with TLS, and add that to the record; needs root
	DTASK_BITFLIPS=$(or $(N),50) DTASK_CHAOS_SEED=$(SEED) $(RUN) -suite bitflip go test -count=1 -v -timeout 60m -run TestBitFlips $(ARGS) ./test/chaos/faultfs/scenario

.PHONY: upgrade
upgrade: ## upgrade a cluster from BASE (the commit in test/upgrade/base, or in base-tls with TLS=1) to this one, back and forth, RUNS (1) times, under RATE (200, or 80% of the ceiling) tasks per second; with MIXED=10m, also inject faults into a cluster of both; a longer time than GAP (10s) without a completion fails
	DTASK_UPGRADE_BASE=$(BASE) DTASK_UPGRADE_RATE=$(RATE) DTASK_UPGRADE_RUNS=$(RUNS) DTASK_UPGRADE_GAP=$(GAP) DTASK_UPGRADE_MIXED=$(MIXED) DTASK_UPGRADE_SEED=$(SEED) \
		go test -count=1 -v -timeout 2h $(ARGS) ./test/upgrade

.PHONY: deploy-test
deploy-test: ## set up a secured cluster on machines of its own, as documented, and test what it sends, stores and refuses; needs root
	go test -count=1 -v -timeout 10m $(ARGS) ./test/deploy

.PHONY: revocation
revocation: ## end 2,400 open calls of tokens and workers that are revoked or expire, within 0.2 s (99th percentile) and 1 s (each), under RATE (1000) tasks per second; needs root and a quiet machine
	DTASK_REVOCATION=full DTASK_REVOCATION_RATE=$(RATE) go test -count=1 -v -timeout 20m -run '^TestOpenCallsEnd' $(ARGS) ./test/deploy

.PHONY: hostile
hostile: ## attack a cluster with malformed calls, floods and 10,000 connections that say little, while a well-behaved client's calls take less than 1 s (99th percentile); needs a quiet machine and 21,000 open files
	DTASK_HOSTILE=full go test -count=1 -v -timeout 10m -run '^(TestHostileClients|TestClientsThatSendSlowly)' $(ARGS) ./coordinator

.PHONY: units
units: ## check the systemd units with systemd-analyze
	go test -count=1 -v -run 'TestSystemd|TestTheUnits' $(ARGS) ./test/packaging

.PHONY: units-run
units-run: ## let systemd start, restart and stop the units, in namespaces of its own; needs root and systemd
	DTASK_SYSTEMD=1 go test -count=1 -v -run '^TestTheUnitsRunThePrograms$$' $(ARGS) ./test/packaging

.PHONY: image-test
image-test: ## build the image, and run the commands of docs/deploy.md in containers; needs docker and docker compose
	DTASK_IMAGE=1 go test -count=1 -v -timeout 10m -run '^(TestTheDocumentedContainers|TestAContainerWith)' $(ARGS) ./test/packaging

.PHONY: manifests
manifests: ## check the manifests for Kubernetes against the types of its API
	cd test/manifests && go vet . && go test -count=1 $(ARGS) .

.PHONY: tls-scan
tls-scan: build/sslyze/bin/sslyze ## scan both ports of a secured coordinator with sslyze; needs root, Python and PyPI
	DTASK_SSLYZE=$(CURDIR)/$< go test -count=1 -v -timeout 10m -run '^TestAScanner' $(ARGS) ./test/deploy

build/sslyze/bin/sslyze:
	python3 -m venv build/sslyze
	build/sslyze/bin/pip install -q sslyze==6.3.1

.PHONY: fairness
fairness: ## shares of queues while leaders are killed, and urgent tasks and small jobs behind a million others (3 minutes)
	DTASK_FAIRNESS=1 go test -count=1 -v -timeout 20m -run '^(TestQueuesHoldTheirShares|TestAnUrgentTaskOfAnotherOwner|TestASmallJobOfAnotherOwner)' $(ARGS) ./test/e2e

.PHONY: ticks
ticks: ## kill KILLS (300) leaders within 50 ms of a tick, half of them with its fire unacknowledged: one job per tick, and none late; one half with TLS (10 minutes)
	DTASK_SCHEDULE_KILLS=$(or $(KILLS),300) $(RUN) -suite ticks go test -count=1 -v -timeout 0 -run '^TestEachTickStartsOneJob' $(ARGS) ./test/e2e

.PHONY: plans
plans: ## compare planned makespans with real runs: 6 shapes of jobs on 3 fleets, within 5 % (4 minutes)
	DTASK_PLANS=1 go test -count=1 -v -timeout 30m -run '^TestAPlannedMakespanIsThatOfARealRun' $(ARGS) ./test/e2e

.PHONY: alerts
alerts: ## let each alert fire in its fault, on a real Prometheus, and none in SOAK (2m) of load; PARALLEL (4) at once
	prometheus=$$(tools/prometheus); DTASK_ALERTS=1 DTASK_PROMETHEUS=$$prometheus DTASK_ALERTS_SOAK=$(SOAK) go test -count=1 -v -timeout 0 -parallel $(or $(PARALLEL),4) $(ARGS) ./test/alerts

.PHONY: runbooks
runbooks: ## run the commands of the runbook of each alert in docs/operations.md in its fault; PARALLEL (4) at once
	DTASK_RUNBOOKS=1 go test -count=1 -v -timeout 30m -parallel $(or $(PARALLEL),4) -run Runbook $(ARGS) ./test/alerts

.PHONY: mutants
mutants: ## plant known bugs and check that the tests find them (PART=0/3 for a third)
	DTASK_MUTANTS=$(PART) $(RUN) -suite mutants go test -tags mutant -count=1 -v -timeout 60m -run TestCheckersCatch ./test/mutants

.PHONY: jitter
jitter: ## run the tests of PKG SEEDS (5) times, from SEED (1), and sleep SLEEP (100ms) up to TIMES (6) at one line in ONE_IN (30) of PKG and WITH, or at SITE=file:line only; RUN=regex picks tests
	@go run ./tools/jitter -pkg '$(PKG)' -with '$(WITH)' -site '$(SITE)' -run '$(if $(filter file,$(origin RUN)),,$(RUN))' \
		-seed $(or $(SEED),1) -seeds $(if $(filter file,$(origin SEEDS)),5,$(SEEDS)) \
		-one-in $(or $(ONE_IN),30) -sleep $(or $(SLEEP),100ms) -times $(or $(TIMES),6)

.PHONY: record
record: ## print the totals of the proof suites, for all time and for the present core, and what that lacks
	@go run ./test/record/totals $(RECORD)

.PHONY: record-missing
record-missing: ## run all that the present core lacks in the record, one suite after another; needs root, and hours
	@go run ./test/record/totals -missing $(RECORD) | while read -r command; do echo "$$command"; $$command </dev/null || exit; done
