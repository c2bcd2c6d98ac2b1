# The same targets for people and for .ci/run. `make help` lists them.

VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3.11)
# Two workers with one TensorFlow thread each keep two cores busy; more would wait for one another.
TEST_WORKERS ?= 2
PYTEST_FLAGS ?=

BIN := $(VENV)/bin
LOCKED := $(VENV)/.locked
INSTALLED := $(VENV)/.installed
SOURCES := modeling export benchmarks

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test wheel-check android-test android arm64-check bazel-test lint fmt bench docs lock clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1@\2/p' $(MAKEFILE_LIST) | column -t -s @ 2>/dev/null || \
	sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1: \2/p' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## from nothing to a report on a real network, in about ten minutes
	$(BIN)/pocketbert quickstart --output runs/quickstart

venv: $(INSTALLED) ## install the pinned packages and this one into .venv

$(LOCKED): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || { \
	  echo "PocketBERT needs Python 3.11; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)." \
	       "Say where it is: make $(or $(MAKECMDGOALS),venv) PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --progress-bar off -r requirements.lock
	@touch $@

$(INSTALLED): $(LOCKED) pyproject.toml
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

test: $(INSTALLED) ## the default test suite
	TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 OMP_NUM_THREADS=1 \
	  $(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal --durations 15 $(PYTEST_FLAGS)

wheel-check: $(INSTALLED) ## build the wheel, install it with plain pip into an empty environment, and use it there
	TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python tools/wheel_check.py

android-test: $(INSTALLED) ## the Android app's Java core: its own tests, then against Python
	@command -v mvn > /dev/null && command -v javac > /dev/null || { \
	  echo "android-test needs a JDK 17 and Maven; Debian has openjdk-17-jdk-headless and maven." >&2; exit 2; }
	mvn --quiet --batch-mode --file android_app/pom.xml package
	$(BIN)/python tools/java_test_artifacts.py core host
	TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 OMP_NUM_THREADS=1 \
	  $(BIN)/pytest -m java --durations 5 $(PYTEST_FLAGS) tests/android

# Robolectric runs the app's screens; the core's tests have run by then.
android: android-test ## the Android app: its tests on a JVM, then an APK that is checked; BUNDLES="DIR…" go inside, RUNTIME=aar has the GPU
	$(BIN)/python tools/apk_artifacts.py --require
	mvn --quiet --batch-mode --file android_app/pom.xml -P app -pl core,app \
	  -Dtest='org.pocketbert.app.*Test' -Dsurefire.failIfNoSpecifiedTests=false package
	$(BIN)/python tools/java_test_artifacts.py app
	$(BIN)/pytest -m android --durations 5 $(PYTEST_FLAGS) tests/android
	$(BIN)/python tools/build_apk.py $(addprefix --runtime ,$(RUNTIME)) $(addprefix --bundle ,$(BUNDLES))

arm64-check: $(INSTALLED) ## every recipe on ARM64's kernels under QEMU: its answers, and instructions; BUNDLES="DIR…" are asked too
	$(BIN)/python tools/arm64_check.py $(BUNDLES)
	$(BIN)/pytest -m arm64 $(PYTEST_FLAGS) tests/android

bazel-test: $(INSTALLED) ## a part of the tests by Bazel, without a network; needs Debian's Bazel and one make android-test
	@command -v bazel > /dev/null && test -d /usr/share/bazel/rules/java -a -d /usr/share/bazel/rules/proto || { \
	  echo "bazel-test needs Bazel; Debian has bazel-bootstrap bazel-rules-java bazel-rules-proto." >&2; exit 2; }
	PATH="$(abspath $(BIN)):$$PATH" bazel test --jobs=$(TEST_WORKERS) //...

lint: $(INSTALLED) ## formatting, style, types and the one-way rule between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(SOURCES) tools
	$(BIN)/lint-imports --no-cache --no-logo

fmt: $(INSTALLED) ## put the code into the one format
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .

bench: $(INSTALLED) ## measure beside other libraries, all or STUDIES="NAME…"; writes benchmarks/studies/results
	PYTHONPATH=benchmarks $(BIN)/python -m studies $(STUDIES)

docs: $(INSTALLED) ## build the guide and the API pages into site/
	$(BIN)/mkdocs build --strict

# An update is only as good as an installation from nothing, so that is what ends it.
lock: $(INSTALLED) ## resolve requirements.lock again and install it into a fresh environment
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header -c constraints.txt \
	  --python-version 3.11 --extra dev --extra peers --extra beam pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header \
	  --python-version 3.11 export/pocketbert_export/tflite_2_16.in -o export/pocketbert_export/tflite_2_16.lock
	rm -rf out/lock-check
	$(MAKE) --no-print-directory venv VENV=out/lock-check
	out/lock-check/bin/python -m pip check
	out/lock-check/bin/pocketbert --help > /dev/null
	rm -rf out/lock-check

clean: ## remove what the other targets made, the environment too
	rm -rf $(VENV) out site runs android_app/out android_app/*/target .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info
	find $(SOURCES) tests docs -name __pycache__ -type d -prune -exec rm -rf {} +
