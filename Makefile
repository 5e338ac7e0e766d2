# These targets need only Python 3.11 or newer and make. They install nothing outside this folder, except test-browser,
# which installs Debian's chromium if it runs as root and no browser is found.
PYTHON ?= python3
WORKERS ?= auto
ARGS ?=
FAST := tests/laws tests/golden tests/cli tests/test_architecture.py tests/test_names.py

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CONSTRAINTS := constraints.txt
HF := .venv-hf
HF_READY := $(HF)/.ready
HF_CONSTRAINTS := constraints/hf.txt
LM_EVAL := .venv-lm-eval
LM_EVAL_READY := $(LM_EVAL)/.ready
LM_EVAL_CONSTRAINTS := constraints/lm-eval.txt
PARITY := .venv-parity
PARITY_READY := $(PARITY)/.ready
LM_EVAL_SOURCE := constraints/lm-eval-source.txt
FROM_SOURCE := rouge-score,sqlitedict,word2number# the only packages that are built from source: they have no wheels
CPU_CONSTRAINTS := constraints/torch-cpu.txt
CUDA_CONSTRAINTS := constraints/cuda.txt
HARBOR := .venv-harbor
HARBOR_READY := $(HARBOR)/.ready
HARBOR_CONSTRAINTS := constraints/harbor.txt
EXPORTS := .venv-exports
EXPORTS_READY := $(EXPORTS)/.ready
EXPORTS_CONSTRAINTS := constraints/exports.txt
STORES := .venv-stores
STORES_READY := $(STORES)/.ready
STORES_CONSTRAINTS := constraints/stores.txt
RAY := .venv-ray
RAY_READY := $(RAY)/.ready
RAY_CONSTRAINTS := constraints/ray.txt
DOCKER_PARTS := .docker-parts
BROWSER := .venv-browser
BROWSER_READY := $(BROWSER)/.ready
BROWSER_CONSTRAINTS := constraints/browser.txt
SITE := .venv-site
SITE_READY := $(SITE)/.ready
SITE_CONSTRAINTS := constraints/site.txt
SPELLED := src docs scripts bench examples README.md CHANGELOG.md CONTRIBUTING.md Makefile mkdocs.yml .ci# tests misspell names on purpose
OTHERS ?= 3.11 3.12 3.13# interpreters that must give the same digest, if they are installed
NOT_SET_UP := 75# exit code of a recipe whose tools could not be installed: no test has failed

PIP := -m pip --disable-pip-version-check -qq# errors only
# Only wheels whose hashes are in the file, including the build backend; nothing is resolved and no build downloads more.
HASHED := $(PIP) install --require-hashes --no-deps --only-binary=:all: -r
# The same for a few named source archives: built with the installed packages, never taken from pip's cache of builds.
BUILT := $(PIP) install --require-hashes --no-deps --only-binary=:all: --no-binary=$(FROM_SOURCE) --no-build-isolation --no-cache-dir -r
OURS := $(PIP) install --no-deps --no-build-isolation -e .
BOUND ?= 300# time limit for one install in seconds; a busy machine or a slow network may need more
BOUNDED := $(if $(shell command -v timeout),timeout $(BOUND))
GIVE_UP := { echo "installation failed, or took longer than $(BOUND) seconds; make BOUND=1200 raises the limit" >&2; exit $(NOT_SET_UP); }
# torch: the build for the CPU (2.13.0+cpu) if pip finds it; the standard build needs CUDA's libraries on Linux.
PLAIN := { test $$? -ne 124 && echo "pip finds no CPU-only torch with the pinned hash: installing the standard build"; }# 124: timeout
WANTS_CUDA := import sys; from importlib.metadata import version; sys.exit(sys.platform != "linux" or "+" in version("torch"))
OLD := import sys; sys.exit(sys.version_info < (3, 11))
# A pyenv shim is on the path even if its interpreter is not selected, so run the interpreter to find out.
FIND := find() { for python in "python$$1" "$$HOME/.pyenv/versions/$$1".*/bin/python; do \
	  if "$$python" -c '' >/dev/null 2>&1; then echo "$$python"; return; fi; done; }

ifneq ($(filter-out false 0,$(CI)),)
export NO_COLOR := 1
unexport FORCE_COLOR
endif
ifneq ($(filter output-sync,$(.FEATURES)),)
MAKEFLAGS += --output-sync=target
endif
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test test-fast check check-format check-lint check-types check-imports check-spelling check-docs format docs bench \
	bench-scale bench-statistics bench-view bench-watch bench-lm-eval bench-gpu bench-lm-eval-loading parity-lm-eval test-interpreters test-hf test-harbor \
	test-exports test-docker test-stores test-ray bench-ray test-browser site constraints clean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r name what; do \
	  printf '%-29s %s\n' "  $$name" "$$what"; done

venv: $(READY) ## create a private .venv with pinned versions; the command is .venv/bin/calipers
	@echo "ready: $(BIN)/calipers"

$(READY): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c '$(OLD)' 2>/dev/null || { found=$$($(PYTHON) --version 2>/dev/null) || found="not installed"; \
	  echo "calipers needs Python 3.11 or newer, and $(PYTHON) is $$found: try make PYTHON=python3.12" >&2; exit 1; }
	@echo "installing into $(VENV)"
	@$(BIN)/python -c '$(OLD)' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python $(HASHED) $(CONSTRAINTS)
	@$(BIN)/python $(OURS)
	@touch $@

demo: $(READY) ## show an offline tour
	@$(BIN)/calipers demo

test: $(READY) ## run the tests; ARGS='tests/metrics -k pass' runs some of them
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(ARGS)

test-fast: $(READY) ## run the tests that usually fail first, in a minute on two cores: laws, golden numbers, commands
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(FAST) $(ARGS)

check: check-format check-lint check-spelling check-types check-imports check-docs test ## run everything that a change must pass: format, lint, spelling, types, imports, docs, tests

check-format: $(READY)
	@$(BIN)/ruff format --quiet --check --output-format concise . || { echo "run make format to fix this" >&2; exit 1; }

check-lint: $(READY)
	@$(BIN)/ruff check --quiet --output-format concise .

check-spelling: $(READY)
	@$(BIN)/codespell $(SPELLED)

check-types: $(READY)
	@$(BIN)/python -m mypy --no-error-summary

check-imports: $(READY)
	@out=$$($(BIN)/lint-imports --no-logo 2>&1) || { echo "$$out"; exit 1; }

check-docs: $(READY)
	@$(BIN)/python scripts/docs.py --check

format: $(READY) ## format the code
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .

docs: $(READY) ## regenerate the generated parts of the docs
	@$(BIN)/python scripts/docs.py

site: $(SITE_READY) ## build the documentation as a static site with search in build/site, and check every link
	@PYTHONPATH=. $(SITE)/bin/python scripts/site.py

$(SITE_READY): $(SITE_CONSTRAINTS)
	@echo "installing the site builder into $(SITE)"
	@{ $(SITE)/bin/python -c '$(OLD)' 2>/dev/null || $(PYTHON) -m venv --clear $(SITE); } && \
	echo '*' > $(SITE)/.gitignore && \
	$(BOUNDED) $(SITE)/bin/python $(HASHED) $(SITE_CONSTRAINTS) || $(GIVE_UP)
	@touch $@

bench: $(READY) ## measure speed and memory, and write docs/benchmarks.md
	@$(FIND); CALIPERS_BENCH_PYTHON312=$${CALIPERS_BENCH_PYTHON312:-$$(find 3.12)} $(BIN)/python bench/run.py --write

bench-scale: $(READY) ## measure scores of 10^4 to 10^8 rollouts, and 10^9 in partials; ARGS="--largest 1e7" for less
	@$(BIN)/python bench/scale_run.py $(or $(ARGS),--rows 1e9 --write)

bench-statistics: $(READY) ## simulate every interval, test and verdict; write docs/statistics.md; ARGS="--only margins" for a part
	@$(BIN)/python bench/simulations/run.py --write $(ARGS)

bench-watch: $(READY) ## measure calipers watch on a folder of steps; write docs/watching.md; ARGS="--files 1000" for more
	@$(BIN)/python bench/watch_run.py --write $(ARGS)

bench-lm-eval: $(HF_READY) $(LM_EVAL_READY) ## run one checkpoint and the same tasks in lm-eval and Calipers; every answer must agree
	@HF_HUB_OFFLINE=1 $(HF)/bin/python bench/harness/run.py --theirs $(LM_EVAL)/bin/python $(or $(ARGS),--write)

bench-view: $(READY) ## measure the viewer on a million rollouts of 4 KB: time, memory; writes docs/viewing.md
	@$(VENV)/bin/python bench/view_run.py $(or $(ARGS),--write)

bench-gpu: $(if $(GPU_PYTHON),,$(HF_READY) $(LM_EVAL_READY)) ## the same on an accelerator, with a model of 1.1 billion weights; GPU_PYTHON=... names an interpreter with torch and lm-eval
	@HF_HUB_OFFLINE=1 $(or $(GPU_PYTHON),$(HF)/bin/python) bench/gpu_run.py --theirs $(or $(GPU_PYTHON),$(LM_EVAL)/bin/python) $(or $(ARGS),--exact --write)

$(LM_EVAL_READY): $(LM_EVAL_CONSTRAINTS) $(LM_EVAL_SOURCE) $(CPU_CONSTRAINTS) $(CUDA_CONSTRAINTS)
	@echo "installing lm-evaluation-harness into $(LM_EVAL)"
	@{ $(LM_EVAL)/bin/python -c '$(OLD)' 2>/dev/null || $(PYTHON) -m venv --clear $(LM_EVAL); } && \
	echo '*' > $(LM_EVAL)/.gitignore && \
	{ $(BOUNDED) $(LM_EVAL)/bin/python $(HASHED) $(CPU_CONSTRAINTS) 2>/dev/null || $(PLAIN); } && \
	$(BOUNDED) $(LM_EVAL)/bin/python $(HASHED) $(LM_EVAL_CONSTRAINTS) && \
	$(BOUNDED) $(LM_EVAL)/bin/python $(BUILT) $(LM_EVAL_SOURCE) && \
	if $(LM_EVAL)/bin/python -c '$(WANTS_CUDA)'; then $(BOUNDED) $(LM_EVAL)/bin/python $(HASHED) $(CUDA_CONSTRAINTS); fi && \
	$(LM_EVAL)/bin/python -m pip check || $(GIVE_UP)
	@touch $@

parity-lm-eval: $(PARITY_READY) ## compare 60 of lm-eval's tasks in both systems, in 4 minutes; ARGS=all: as many as fit in an hour
	@$(if $(shell command -v timeout),timeout -k 5 3600) $(PARITY)/bin/python bench/parity_run.py $(ARGS)
	$(if $(ARGS),,@$(PARITY)/bin/python -m pytest -q tests/systems/lm_eval/tasks/test_class_tasks.py)

bench-lm-eval-loading: $(PARITY_READY) ## measure the time to the first request, in lm-eval and Calipers
	@$(if $(shell command -v timeout),timeout -k 5 3600) $(PARITY)/bin/python bench/harness/loading.py $(ARGS)

# Everything that lm-evaluation-harness needs, except torch and what needs torch; Calipers' own pins last, as the two overlap.
NO_TORCH := /^[A-Za-z]/ { skip = $$0 ~ /^(torch|transformers|accelerate|peft|tokenizers|safetensors)==/ } !skip
$(PARITY_READY): pyproject.toml $(CONSTRAINTS) $(LM_EVAL_CONSTRAINTS) $(LM_EVAL_SOURCE)
	@echo "installing lm-evaluation-harness, without torch, into $(PARITY)"
	@{ $(PARITY)/bin/python -c '$(OLD)' 2>/dev/null || $(PYTHON) -m venv --clear $(PARITY); } && \
	echo '*' > $(PARITY)/.gitignore && \
	awk '$(NO_TORCH)' $(LM_EVAL_CONSTRAINTS) > $(PARITY)/requirements.txt && \
	$(BOUNDED) $(PARITY)/bin/python $(HASHED) $(PARITY)/requirements.txt && \
	$(BOUNDED) $(PARITY)/bin/python $(BUILT) $(LM_EVAL_SOURCE) && \
	$(BOUNDED) $(PARITY)/bin/python $(HASHED) $(CONSTRAINTS) && \
	$(PARITY)/bin/python $(OURS) || $(GIVE_UP)
	@touch $@

test-interpreters: $(READY) ## check that every other installed Python gives the same digest
	@$(FIND); own=$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	want=$$($(BIN)/python scripts/digest.py) || exit 1; echo "python $$own: $$want"; \
	for version in $(OTHERS); do \
	  test "$$version" != "$$own" || continue; \
	  python=$$(find "$$version"); test -n "$$python" || { echo "python $$version: not installed"; continue; }; \
	  home=$(VENV)-$$version; \
	  { "$$home/bin/python" -c '' 2>/dev/null || "$$python" -m venv --clear "$$home"; } && \
	  echo '*' > "$$home/.gitignore" && \
	  $(BOUNDED) "$$home/bin/python" $(HASHED) $(CONSTRAINTS) && \
	  $(BOUNDED) "$$home/bin/python" $(OURS) || $(GIVE_UP); \
	  got=$$("$$home/bin/python" scripts/digest.py) || exit 1; echo "python $$version: $$got"; \
	  test "$$got" = "$$want" || { echo "python $$version gives another digest than python $$own" >&2; exit 1; }; \
	done

test-hf: $(HF_READY) ## test hf/ models, with torch and transformers in a separate environment
	@HF_HUB_OFFLINE=1 $(HF)/bin/python -m pytest -q $(or $(ARGS),tests/hf)

$(HF_READY): pyproject.toml $(CONSTRAINTS) $(HF_CONSTRAINTS) $(CPU_CONSTRAINTS) $(CUDA_CONSTRAINTS)
	@echo "installing torch and transformers into $(HF)"
	@{ $(HF)/bin/python -c '$(OLD)' 2>/dev/null || $(PYTHON) -m venv --clear $(HF); } && \
	echo '*' > $(HF)/.gitignore && \
	$(BOUNDED) $(HF)/bin/python $(HASHED) $(CONSTRAINTS) && \
	{ $(BOUNDED) $(HF)/bin/python $(HASHED) $(CPU_CONSTRAINTS) 2>/dev/null || $(PLAIN); } && \
	$(BOUNDED) $(HF)/bin/python $(HASHED) $(HF_CONSTRAINTS) && \
	if $(HF)/bin/python -c '$(WANTS_CUDA)'; then $(BOUNDED) $(HF)/bin/python $(HASHED) $(CUDA_CONSTRAINTS); fi && \
	$(HF)/bin/python $(OURS) && \
	$(HF)/bin/python -m pip check || $(GIVE_UP)
	@touch $@

test-harbor: $(READY) $(HARBOR_READY) ## test with the real Harbor, in a separate environment, without a container engine
	@CALIPERS_HARBOR=$(abspath $(HARBOR))/bin/harbor $(BIN)/python -m pytest -q $(or $(ARGS),tests/harbor)

test-exports: $(EXPORTS_READY) ## test exports with the libraries that read them: MLflow, W&B, Trackio, inspect and others
	@HF_HUB_OFFLINE=1 $(EXPORTS)/bin/python -m pytest -q $(or $(ARGS),tests/exports)

$(EXPORTS_READY): pyproject.toml $(EXPORTS_CONSTRAINTS)
	@$(FIND); python=$$(find 3.12); test -n "$$python" || python=$$(find 3.13); \
	test -n "$$python" || { echo "Every Eval Ever needs Python 3.12 or newer, and none is installed"; exit $(NOT_SET_UP); }; \
	echo "installing the libraries that read exports into $(EXPORTS)"; \
	{ $(EXPORTS)/bin/python -c '' 2>/dev/null || "$$python" -m venv --clear $(EXPORTS); } && \
	echo '*' > $(EXPORTS)/.gitignore && \
	$(BOUNDED) $(EXPORTS)/bin/python $(HASHED) $(EXPORTS_CONSTRAINTS) && \
	$(EXPORTS)/bin/python $(OURS) && \
	$(EXPORTS)/bin/python -m pip check || $(GIVE_UP)
	@touch $@

test-stores: $(STORES_READY) ## test object stores with fsspec and a real S3 server on the loopback
	@$(STORES)/bin/python -m pytest -q $(or $(ARGS),tests/object_stores tests/stores)

$(STORES_READY): pyproject.toml $(STORES_CONSTRAINTS)
	@echo "installing the libraries of object stores into $(STORES)"
	@{ $(STORES)/bin/python -c '$(OLD)' 2>/dev/null || $(PYTHON) -m venv --clear $(STORES); } && \
	echo '*' > $(STORES)/.gitignore && \
	$(BOUNDED) $(STORES)/bin/python $(HASHED) $(STORES_CONSTRAINTS) && \
	$(STORES)/bin/python $(OURS) || $(GIVE_UP)
	@touch $@

test-ray: $(RAY_READY) ## test --engine ray on a real cluster of several node processes, which tests end
	@$(RAY)/bin/python -m pytest -q -p no:xdist $(or $(ARGS),tests/on_ray)

bench-ray: $(RAY_READY) ## measure --engine ray against one process, side by side; writes docs/scale.md
	@$(RAY)/bin/python -m bench.ray_run $(or $(ARGS),--write)

$(RAY_READY): pyproject.toml $(CONSTRAINTS) $(RAY_CONSTRAINTS)
	@echo "installing Ray into $(RAY)"
	@{ $(RAY)/bin/python -c '$(OLD)' 2>/dev/null || $(PYTHON) -m venv --clear $(RAY); } && \
	echo '*' > $(RAY)/.gitignore && \
	$(BOUNDED) $(RAY)/bin/python $(HASHED) $(CONSTRAINTS) && \
	$(BOUNDED) $(RAY)/bin/python $(HASHED) $(RAY_CONSTRAINTS) && \
	$(RAY)/bin/python $(OURS) || $(GIVE_UP)
	@touch $@

# Trials mostly wait for containers to start and stop, so use more workers than cores.
test-docker: $(READY) $(HARBOR_READY) ## test with the real Harbor and a private Docker engine; needs root, may install Debian packages
	@CALIPERS_HARBOR=$(abspath $(HARBOR))/bin/harbor $(if $(shell command -v timeout),timeout -k 60 900) \
	  $(BIN)/python scripts/docker_engine.py --parts $(DOCKER_PARTS) -- $(BIN)/python -m pytest -q -n 4 $(or $(ARGS),tests/docker)

$(HARBOR_READY): $(HARBOR_CONSTRAINTS)
	@$(FIND); python=$$(find 3.12); test -n "$$python" || python=$$(find 3.13); \
	test -n "$$python" || { echo "Harbor needs Python 3.12 or newer, and none is installed"; exit $(NOT_SET_UP); }; \
	echo "installing Harbor into $(HARBOR)"; \
	{ $(HARBOR)/bin/python -c '' 2>/dev/null || "$$python" -m venv --clear $(HARBOR); } && \
	echo '*' > $(HARBOR)/.gitignore && \
	$(BOUNDED) $(HARBOR)/bin/python $(HASHED) $(HARBOR_CONSTRAINTS) || $(GIVE_UP)
	@touch $@

# Chromium, or a browser made from it, that starts; CALIPERS_BROWSER names another.
CHROMIUM := found() { for browser in "$$CALIPERS_BROWSER" chromium chromium-browser google-chrome; do \
	  if test -n "$$browser" && "$$browser" --version >/dev/null 2>&1; then command -v "$$browser"; return; fi; done; false; }
APT := apt-get install -y --no-install-recommends chromium

test-browser: $(BROWSER_READY) ## test the HTML report in a real Chromium; as root it may install the Debian package chromium
	@$(CHROMIUM); found >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "installing chromium" && \
	  DEBIAN_FRONTEND=noninteractive $(BOUNDED) sh -c '$(APT) || { apt-get update && $(APT); }' </dev/null >/dev/null 2>&1; }; \
	browser=$$(found) || { echo "no Chromium is installed, and it cannot be installed here" >&2; exit $(NOT_SET_UP); }; \
	CALIPERS_BROWSER=$$browser $(BROWSER)/bin/python -m pytest -q $(or $(ARGS),tests/browser)

$(BROWSER_READY): pyproject.toml $(CONSTRAINTS) $(BROWSER_CONSTRAINTS)
	@echo "installing Playwright and axe into $(BROWSER)"
	@{ $(BROWSER)/bin/python -c '$(OLD)' 2>/dev/null || $(PYTHON) -m venv --clear $(BROWSER); } && \
	echo '*' > $(BROWSER)/.gitignore && \
	$(BOUNDED) $(BROWSER)/bin/python $(HASHED) $(CONSTRAINTS) && \
	$(BOUNDED) $(BROWSER)/bin/python $(HASHED) $(BROWSER_CONSTRAINTS) && \
	$(BROWSER)/bin/python $(OURS) || $(GIVE_UP)
	@touch $@

constraints: ## pin the dependencies of pyproject.toml and rewrite every hash; UPGRADE=1 also takes newer versions
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && \
	echo "resolving the dependencies of pyproject.toml, $(if $(UPGRADE),at the newest versions,at the versions of $(CONSTRAINTS) where it has them)" && \
	sed -n 's/^\([A-Za-z][^ ]*==[^ ]*\).*/\1/p' $(if $(UPGRADE),/dev/null,$(CONSTRAINTS)) > "$$scratch/kept" && \
	$(PYTHON) -m venv "$$scratch" && \
	"$$scratch/bin/python" $(PIP) install -c "$$scratch/kept" hatchling editables -e '.[dev]' && \
	"$$scratch/bin/python" $(PIP) freeze --exclude-editable > "$$scratch/new" && \
	pins() { "$$scratch/bin/python" scripts/pins.py "$$@"; } && \
	pins $(CONSTRAINTS) --pins "$$scratch/new" && \
	pins $(HF_CONSTRAINTS) $(LM_EVAL_CONSTRAINTS) $(SITE_CONSTRAINTS) $(BROWSER_CONSTRAINTS) && \
	pins $(CPU_CONSTRAINTS) --linux --python 3.11 --if-there && \
	pins $(LM_EVAL_SOURCE) --source && \
	pins $(CUDA_CONSTRAINTS) $(RAY_CONSTRAINTS) --linux && \
	pins $(STORES_CONSTRAINTS) && \
	pins $(HARBOR_CONSTRAINTS) $(EXPORTS_CONSTRAINTS) --python 3.12 3.13

clean: ## remove everything that these targets created
	@rm -rf $(VENV) $(VENV)-3.* $(HF) $(HARBOR) $(EXPORTS) $(STORES) $(RAY) $(LM_EVAL) $(PARITY) $(SITE) $(BROWSER) $(DOCKER_PARTS) build dist demo .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
