# `make help` lists all targets.
.DEFAULT_GOAL := help
.PHONY: help run test test-cluster replay bench prove mutants convince check lint types layers migrations docs lock format wheel clients client-types release

VENV := .venv
BIN := $(VENV)/bin
# One more than the two cores of CI, because many tests wait for a server.
JOBS ?= 3
# Files go to the workers in the order of tests/conftest.py, the longest first.
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
# The tests that are checked before anything is handed in.
CHECKED := "not slow or check"
PIP := $(BIN)/python -m pip --disable-pip-version-check install --progress-bar off --require-hashes --no-deps
# Shows the progress of pip on one line, which disappears at the end; pip reports failures on standard error. Without a terminal it shows nothing.
SHOW_PROGRESS = awk -v total="$$(grep -c '^[a-zA-Z0-9].*==' $(1))" -v shown="$$(test -t 2 && echo 1)" ' \
	/^(Collecting|Requirement already satisfied)/ { n++; if (shown) printf "\r\033[K  %d of %d: %s", n, total, $$1 == "Collecting" ? $$2 : $$4; fflush() } \
	/^Installing collected/ { if (shown) printf "\r\033[K  unpacking %d packages", n; fflush() } \
	END { if (shown) printf "\r\033[K" }'
# Written by npm when an installation is whole.
NODE_MODULES := clients/typescript/node_modules/.package-lock.json
# Installs a file of requirements; the file .failed marks a failure, which the pipe would hide.
INSTALL = ( $(PIP) -r $(1) || touch $(VENV)/.failed ) | $(SHOW_PROGRESS); ! rm $(VENV)/.failed 2>/dev/null
# The first of these that is Python 3.11 or newer.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z_-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.installed  ## Start everything: calls on 127.0.0.1:$PORT (8000), pages on the next port; Ctrl-C stops it
	@exec $(BIN)/python manage.py serve

test: $(VENV)/.installed-dev  ## Run the tests on a separate PostgreSQL: all but those of `make check` and `make prove`, see docs/reference/tests.md
	$(PYTEST) -m "not slow" $(ARGS)

test-cluster: $(VENV)/.installed-dev  ## Run the tests that a Citus cluster can run: CITUS=FOLDER that deploy/citus/build.sh made, or the cluster's URL
	@test -n "$(CITUS)" || { echo "CITUS must name a cluster: docs/how-to/operations/cluster.md, How do I test it on a cluster?" >&2; exit 1; }
	$(BIN)/python -m tests.prove --part distributed $(ARGS)

replay: $(VENV)/.installed-dev  ## Replay a recorded trace as spends over HTTP, then audit and invoice: TRACE=FILE ARGS="--speed 10"
	@exec $(BIN)/python -m tests.benchmarks.replay $(TRACE) $(ARGS)

bench: $(VENV)/.installed-dev  ## Measure ratios on a separate PostgreSQL; ROWS=service,http measures only these
	@exec $(BIN)/python -m tests.benchmarks $(if $(ROWS),--rows $(ROWS))

prove: $(VENV)/.installed-dev  ## Run the long tests, all parts or one: PART=races ARGS="--times 20 --loops 2"; docs/reference/tests.md
	@$(BIN)/python -m tests.prove --jobs $(JOBS) $(if $(PART),--part $(PART)) $(ARGS)

mutants: $(VENV)/.installed-dev  ## Put small faults into copies of the product, and print which of them no test notices: docs/reference/mutants.md
	@$(BIN)/python -m tests.mutation --markers $(CHECKED) $(ARGS)

convince: $(VENV)/.installed-dev  ## Show why balances and invoices are right, to somebody who believes nothing; RECORD=COMMIT keeps it: docs/explanation/convince.md
	@$(BIN)/python -m tests.convince$(if $(RECORD),.record $(RECORD))

check: $(VENV)/.installed-dev  ## Run what CI runs: the static checks, the tests of `make test`, and the quickest of the long ones
	@$(MAKE) --no-print-directory -j2 lint types layers migrations docs
	$(PYTEST) -m $(CHECKED) $(ARGS)

lint: $(VENV)/.installed-dev  ## Check for mistakes and formatting with ruff
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.installed-dev  ## Check the types with mypy
	$(BIN)/mypy

layers: $(VENV)/.installed-dev  ## Check which modules import which
	$(BIN)/lint-imports
	PYTHONPATH=clients/python/src $(BIN)/lint-imports --config clients/python/pyproject.toml

migrations: $(VENV)/.installed-dev  ## Check that no migration is missing, and run Django's own checks
	$(BIN)/python -W "ignore:Got an error checking a consistent migration history:RuntimeWarning" manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py check --fail-level WARNING

docs: $(VENV)/.installed-docs  ## Build the docs as a site into dist/docs, served at /docs/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

client-types: $(VENV)/.installed-dev $(NODE_MODULES)  ## Generate the clients' code from the OpenAPI document; needs node 20 and npm
	$(BIN)/python manage.py spectacular --format openapi-json --file clients/openapi.json
	$(BIN)/python clients/python/generate.py clients/openapi.json
	PYTHONPATH=clients/python/src $(BIN)/python -m clients.typescript.generate clients/openapi.json clients/types.json
	cd clients/typescript && npx --no-install openapi-typescript ../types.json --default-non-nullable=false --output src/generated/schema.ts

wheel: $(VENV)/.installed-dev  ## Build the wheel of `ledger` and `billing` into dist/, and install it in an empty environment
	$(BIN)/uv build --quiet --wheel --out-dir dist
	$(BIN)/python -m pytest -m slow tests/embedding/test_wheel.py $(ARGS)

clients: client-types  ## Build the clients into clients/dist: a wheel, its sources, a package of npm
	$(BIN)/uv build --quiet --out-dir clients/dist clients/python
	rm -rf clients/typescript/dist
	cd clients/typescript && npm pack --silent --pack-destination ../dist

release: $(VENV)/.installed-dev $(NODE_MODULES)  ## Build all files of a release of this commit into dist/release, byte for byte the same each time: docs/how-to/operations/release.md
	@$(BIN)/python -m deploy.release.build

format: $(VENV)/.installed-dev  ## Mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

lock: $(VENV)/.installed-dev  ## Pin requirements*.in with hashes into requirements*.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
		requirements.in -o requirements.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
		requirements-tracing.in -o requirements-tracing.txt -c requirements.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
		requirements-dev.in -o requirements-dev.txt -c requirements-tracing.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
		requirements-docs.in -o requirements-docs.txt -c requirements-dev.txt
	cd clients/python && $(CURDIR)/$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-emit-find-links --extra litellm pyproject.toml -o requirements-litellm.txt
	cd tests/clients/generators && $(CURDIR)/$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links requirements.in -o requirements.txt
	cd tests/embedding/outside && $(CURDIR)/$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links requirements.in -o requirements.txt
	cd tests/clients/gateway && $(CURDIR)/$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links requirements.in -o requirements.txt

# A stamp is written when an installation is whole, so that an interrupted one is done again.

$(VENV)/.installed: requirements.txt
	@$(MAKE) --no-print-directory $(VENV)/bin/pip
	@echo "Installing requirements.txt ..."
	@$(call INSTALL,requirements.txt)
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt requirements.txt
	@$(MAKE) --no-print-directory $(VENV)/bin/pip
	@echo "Installing requirements-dev.txt ..."
	@$(call INSTALL,requirements-dev.txt)
	@touch $@ $(VENV)/.installed $(VENV)/.installed-docs

$(VENV)/.installed-docs: requirements-docs.txt
	@$(MAKE) --no-print-directory $(VENV)/bin/pip
	@echo "Installing requirements-docs.txt ..."
	@$(call INSTALL,requirements-docs.txt)
	@touch $@ $(VENV)/.installed

$(NODE_MODULES): clients/typescript/package-lock.json
	cd clients/typescript && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

$(VENV)/bin/pip:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and none was found." >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
