PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CLUSTER ?= embedded

# Thousands of short processes import the same modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup compiled simulate run test quick watch assets test-apiserver test-node test-cgroup2 lint docs image-check release base advisories licences recording budgets bench protos conformance clean

# Where the binaries of a real control plane are; those that are missing are built once.
WITH_ASSETS = assets="$$($(BIN)/python -m tests.apiserver)" && KUBEBUILDER_ASSETS="$$assets"

setup: $(VENV)/.ready

# What is never imported needs no bytecode, and the rest gets it when it is. One lock file serves every target; the stamp is renewed when the lock or the package's metadata changes.
$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("headroom needs Python 3.11 or newer, and %s is %s; try: make run PYTHON=python3.11" % (sys.executable, sys.version.split()[0]))'
	@echo "setting up $(VENV) from requirements.lock" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Workers that begin at once would each compile all that they import. A test that cannot be collected fails them, too.
compiled: $(VENV)/.compiled
$(VENV)/.compiled: $(VENV)/.ready
	@echo "compiling the tests" >&2
	@$(BIN)/python -m pytest tests --collect-only -qq -n0 >/dev/null || true
	@touch $@

run: setup
	@$(if $(filter node,$(CLUSTER)),$(BIN)/python -m tests.node up $(NODE),$(if $(filter apiserver,$(CLUSTER)),$(WITH_ASSETS)) $(BIN)/headroom up --cluster $(CLUSTER)) $(ARGS)

# Images and a release take minutes to make and are checked by their own target. Helm, which checks the chart, is built
# once where it is missing and Go is there; what is not checked without a program stands at the end.
test: compiled
	@$(BIN)/python -m tests.apiserver helm
	@$(BIN)/python -m pytest $(if $(filter tests/%,$(ARGS)),,tests $(addprefix --ignore=tests/image/test_,image.py release.py workflow.py)) $(ARGS)

# What the uncommitted changes, and the commits that main lacks, touch by import.
quick: setup
	@$(BIN)/python -m tests.support.quick

watch: setup
	@$(BIN)/watchfiles --filter python '$(BIN)/python -m tests.support.quick' agent deploy manager shared tests

# The share of the suite's time that each file has, as the last runs measured it.
budgets: setup
	@$(BIN)/python -m tests.support.budgets write

assets: setup
	@$(BIN)/python -m tests.apiserver

# On a real kube-apiserver with etcd; KUBERNETES=1.35 asks for that minor. Not what no API server has a part in, unless
# with ARGS=--thorough.
test-apiserver: compiled
	@$(WITH_ASSETS) $(BIN)/python -m pytest --cluster apiserver \
		$(if $(filter tests/%,$(ARGS)),,tests/integration tests/e2e tests/chart tests/parity) $(ARGS)

# On a real kubelet with containerd, as root on Debian; what is missing is fetched or built once. NODE=uml is a node on
# cgroup v2 in a kernel of its own, and NODE=uml-systemd one with systemd.
test-node: setup
	@$(BIN)/python -m tests.node build $(NODE)
	@$(BIN)/python -m pytest --cluster node $(if $(NODE),--node $(NODE)) -o faulthandler_timeout=300 $(if $(filter tests/%,$(ARGS)),,tests/node) $(ARGS)

# The tests of real cgroups on cgroup v2, whatever this machine has, in an emulated one.
test-cgroup2: setup
	@$(BIN)/python -m tests.cgroup2 $(ARGS)

# A whole cluster on a virtual clock, with faults from new seeds: SEEDS of them, HOURS each.
simulate: setup
	@$(BIN)/python -m tests.simulation.search --seeds $(or $(SEEDS),4) --hours $(or $(HOURS),1) $(ARGS)

image-check: setup
	@$(BIN)/python -m pytest tests/image $(ARGS)

# Images, chart and command line of the commit that is checked out, pushed to REGISTRY, and signed with cosign's private KEY
# if there is one; ARGS="--base PYTHON@sha256:..." pins the base. crane has to be installed, and cosign with a KEY.
release: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m deploy.image.release --version "$(VERSION)" --registry "$(REGISTRY)" $(if $(KEY),--key "$(KEY)") $(ARGS)

# The digest of the base image in deploy/Dockerfile, or TAG's, by crane.
base: setup
	@$(BIN)/python -m deploy.image.base $(TAG)

# What deploy/image/advisories.json knows of vulnerabilities of locked packages, from OSV or the zip archive SOURCE.
advisories: setup
	@$(BIN)/python -m deploy.image.advisories renew $(SOURCE)

# What this version writes and answers, for the tests of the next ones.
recording: setup
	@$(BIN)/python -m tests.skew

# The licences of what the images add to their base.
licences: setup
	@$(BIN)/python -m deploy.image.licences

lint: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# The site, with warnings as errors and every link checked; index: dist/docs/index.html.
docs: setup
	@$(BIN)/properdocs build --quiet --strict

bench: setup
	@$(if $(filter apiserver,$(CLUSTER)),$(WITH_ASSETS)) $(BIN)/python -m tests.bench --cluster $(CLUSTER) $(if $(OUT),--out $(OUT)) $(ARGS)

# The generator is no dependency: it runs in an environment of its own. A test compares its output with the .proto files.
PROTOS := manager/autoscaler/cloudprovider/externalgrpc
protos:
	@$(PYTHON) -m venv build/protos && build/protos/bin/python -m pip install --quiet grpcio-tools
	@build/protos/bin/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. $(PROTOS)/*.proto

conformance: setup
	@$(BIN)/python -m tests.conformance $(CASES) $(if $(GROUPS),--groups $(GROUPS))

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
