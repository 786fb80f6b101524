# Node 24 comes as a pinned dependency and stands first in PATH: the machine's own Node only runs npm.
SHELL := /bin/sh
export PATH := $(CURDIR)/node_modules/.bin:$(PATH)
# Spares every start but the first a third of its time and memory: types need not be stripped again.
export NODE_COMPILE_CACHE := $(CURDIR)/node_modules/.cache/node
INSTALLED := node_modules/.package-lock.json

.PHONY: help start dev test coverage demo certs agent mcp connect env admin-secret ca-export check-config verify-audit schemas lint build release bench clean
.DEFAULT_GOAL := help

help: ## what there is to make
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 22

$(INSTALLED): package.json package-lock.json
	npm ci
	@touch $@

start: $(INSTALLED) ## start the gateway on https://localhost:9443 (data in ./data)
	@exec node proxy/main.ts

dev: $(INSTALLED) ## the same, started anew whenever a source changes: make dev [ARGS=--inspect]
	@exec node --watch --watch-preserve-output $(ARGS) proxy/main.ts

test: $(INSTALLED) ## run the tests: all, or make test T="test/plugins test/certs/chain.test.ts"
	tap $(T)

coverage: $(INSTALLED) ## what the tests reach, child processes included: make coverage [T=test/plugins]
	tap --no-disable-coverage --allow-incomplete-coverage --coverage-report=text --coverage-report=lcov --no-browser $(T)

demo: $(INSTALLED) ## show the main job with a mock provider: no key and no account needed
	@exec node scripts/sallyport.ts demo $(ARGS)

certs: $(INSTALLED) ## make the organisation's CA and the server certificate
	@node scripts/sallyport.ts certs

agent: $(INSTALLED) ## enroll an agent: make agent NAME=my-agent CAPS=llm.chat
	@node scripts/sallyport.ts agent "$(NAME)" --caps "$(CAPS)"

mcp: $(INSTALLED) ## MCP servers behind the gateway: make mcp ARGS="add files https://…", ARGS=--help
	@node scripts/sallyport.ts mcp $(ARGS)

connect: $(INSTALLED) ## the sidecar of an agent: make connect IDENTITY=agents/my-agent [PORT=8787]
	@exec node scripts/sallyport.ts connect --identity "$(IDENTITY)" --port "$(or $(PORT),8787)"

env: $(INSTALLED) ## print what to tell the common clients: make env IDENTITY=agents/my-agent
	@node scripts/sallyport.ts env --identity "$(IDENTITY)"

admin-secret: $(INSTALLED) ## set a new operator secret and print it once
	@node scripts/sallyport.ts admin-secret

ca-export: $(INSTALLED) ## print the CA certificate that clients trust the gateway by
	@node scripts/sallyport.ts ca-export

check-config: $(INSTALLED) ## check the operators' files in plugins/config
	@node scripts/sallyport.ts check-config

verify-audit: $(INSTALLED) ## verify the audit chain offline: make verify-audit [FILE=data/sallyport.db]
	@node scripts/sallyport.ts verify-audit "$(or $(FILE),data/sallyport.db)"

# A test compares each of them with what this writes.
schemas: $(INSTALLED) ## write the documents that are made from the code (docs/schema)
	node scripts/write-schemas.ts

lint: $(INSTALLED) ## format, lint and types
	biome check .
	oxlint --type-aware --deny-warnings
	tsc

build: $(INSTALLED) ## compile the package into dist (npm pack takes it from there)
	npm run build

release: $(INSTALLED) ## check, pack and tag the committed tree; publishes nothing: make release [DRY=1]
	@node scripts/release.ts $(if $(DRY),--dry)

bench: $(INSTALLED) ## measure (see docs/performance.md)
	node scripts/bench.ts

clean: ## remove what npm installed; the data directory stays
	rm -rf node_modules .tap dist
