# Targets for people and for .ci/run. `make help` lists them.

VENV ?= .venv
# Two workers with one TensorFlow thread each keep two cores busy.
TEST_WORKERS ?= 2
PYTEST_FLAGS ?=
# `make smoke` installs the wheel with plain pip, and on the lock files of these versions; `make test` uses the newest.
SMOKE ?= pip 3.11 3.12
GREEN ?= smoke android
SAMPLES = java kotlin

BIN := $(VENV)/bin
LOCKED := $(VENV)/.locked
INSTALLED := $(VENV)/.installed
SOURCES := runtime modeling export benchmarks

# If PYTHON (a version or a path) differs from the environment's version, the environment is created again. Without it,
# an environment keeps its Python, and a new one gets the newest version with a lock file.
version_of = $(shell $(1) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2> /dev/null)
ifdef PYTHON
ifneq ($(call version_of,$(BIN)/python),$(call version_of,$$(tools/find_python.sh $(PYTHON) 2> /dev/null)))
.PHONY: $(LOCKED)
endif
else
PYTHON = $(wildcard $(BIN)/python)
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test test-nightly test-nightly-failed green smoke require-maven android-test android-library android arm64-check bazel-test lint fmt bench docs lock clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1@\2/p' $(MAKEFILE_LIST) | column -t -s @ 2>/dev/null || \
	sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1: \2/p' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## compress a real network on film reviews in about five minutes
	$(BIN)/pocketbert quickstart --output runs/quickstart

venv: $(INSTALLED) ## install the pinned packages and this one into .venv

# `venv --clear` if the environment has another Python.
$(LOCKED): $(wildcard requirements/*.lock)
	@python=$$(tools/find_python.sh $(PYTHON)) || exit 2; \
	version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	case $$($(BIN)/python --version 2>&1) in "Python $$version."*) ;; *) $$python -m venv --clear $(VENV) ;; esac && \
	echo "installing requirements/$$version.lock into $(VENV)" && \
	$(BIN)/python -m pip install --quiet --require-hashes --progress-bar off -r requirements/$$version.lock
	@touch $@

$(INSTALLED): $(LOCKED) pyproject.toml
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

ONE_THREAD = env TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 OMP_NUM_THREADS=1
test: $(INSTALLED) ## run the default tests
	$(ONE_THREAD) $(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal --durations 15 $(PYTEST_FLAGS)

NIGHTLY = $(BIN)/pytest -m "not slow and not device and not java and not android and not arm64" --durations 15 \
  --junit-xml=out/nightly.xml $(PYTEST_FLAGS)
# Its record is committed: .ci/run fails after a red run.
test-nightly: $(INSTALLED) ## run the default and the nightly tests, and record the result in .ci/nightly.json
	mkdir -p out && rm -f out/nightly.xml
	-$(ONE_THREAD) $(NIGHTLY) -n $(TEST_WORKERS) --dist worksteal
	$(BIN)/python tools/ci_record.py nightly out/nightly.xml
	$(BIN)/python tools/ci_record.py check-nightly

# Tests that measure time can fail beside others, and a mended test needs no other one.
test-nightly-failed: $(INSTALLED) ## run the failed tests of the last test-nightly again, alone, and add them to its record
	mkdir -p out && rm -f out/nightly.xml
	-python3 tools/ci_record.py failed-nightly | $(ONE_THREAD) xargs -r -d '\n' $(NIGHTLY)
	$(BIN)/python tools/ci_record.py again-nightly out/nightly.xml
	$(BIN)/python tools/ci_record.py check-nightly

# .ci/run runs these, too, but in a clone of its own: run this before the last commit of a change, and commit .ci.
green: $(addprefix green-,$(GREEN)) ## run smoke and android if their files changed, and record it in .ci; GREEN=smoke for one

# Two lines, since make -n runs those with $(MAKE), and must not record anything.
green-%:
	@python3 tools/ci_record.py unchanged $* 2> /dev/null || $(MAKE) --no-print-directory $*
	-@python3 tools/ci_record.py green $*

smoke: $(INSTALLED) ## build both wheels and use them in fresh environments, with several Python versions
	TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python tools/wheel_check.py $(SMOKE)

require-maven:
	@command -v mvn > /dev/null && command -v javac > /dev/null || { \
	  echo "Java needs a JDK 17 and Maven; Debian has openjdk-17-jdk-headless and maven." >&2; exit 2; }

android-test: require-maven $(INSTALLED) ## test the Android app's Java core, and compare it with Python
	mvn --quiet --batch-mode --file android_app/pom.xml package
	$(BIN)/python tools/java_test_artifacts.py core host
	TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 OMP_NUM_THREADS=1 \
	  $(BIN)/pytest -m "java and not nightly" --durations 5 $(PYTEST_FLAGS) tests/android tests/conformance

# Maven copies what it takes from out/maven; an earlier copy would be used again.
android-library: require-maven $(INSTALLED) ## write the Java core into the Maven repository out/maven, and build the samples from it
	mvn --quiet --batch-mode --file android_app/pom.xml -P library -pl core -DskipTests deploy
	cp -R android_app/missing-poms/. out/maven
	for sample in $(SAMPLES); do \
	  mvn --quiet --batch-mode --file android_app/samples/$$sample/pom.xml -DreResolve=false \
	    -DmanualInclude=org.pocketbert:pocketbert-core dependency:purge-local-repository package || exit 1; \
	done
	$(BIN)/python tools/java_test_artifacts.py $(addprefix samples/,$(SAMPLES))

# Robolectric runs the app's screens; the core's tests have already run.
android: android-test android-library ## test the Android app on a JVM, build and check the APK; BUNDLES="DIR…" adds bundles, RUNTIME=aar the GPU
	$(BIN)/python tools/apk_artifacts.py --require
	mvn --quiet --batch-mode --file android_app/pom.xml -P app -pl core,app \
	  -Dtest='org.pocketbert.app.*Test' -Dsurefire.failIfNoSpecifiedTests=false package
	$(BIN)/python tools/java_test_artifacts.py app
	$(BIN)/pytest -m android --durations 5 $(PYTEST_FLAGS) tests/android
	$(BIN)/python tools/build_apk.py $(addprefix --runtime ,$(RUNTIME)) $(addprefix --bundle ,$(BUNDLES))

arm64-check: $(INSTALLED) ## check outputs and instruction counts on ARM64 kernels under QEMU; BUNDLES="DIR…" adds yours
	$(BIN)/python tools/arm64_check.py $(BUNDLES)
	$(BIN)/pytest -m arm64 $(PYTEST_FLAGS) tests/android

bazel-test: $(INSTALLED) ## run a part of the tests with Bazel, without network; needs Debian's Bazel and one make android-test
	@command -v bazel > /dev/null && test -d /usr/share/bazel/rules/java -a -d /usr/share/bazel/rules/proto || { \
	  echo "bazel-test needs Bazel; Debian has bazel-bootstrap bazel-rules-java bazel-rules-proto." >&2; exit 2; }
	PATH="$(abspath $(BIN)):$$PATH" bazel test --jobs=$(TEST_WORKERS) //...

lint: $(INSTALLED) ## check format, style, types, imports between packages, and prose
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(SOURCES) tools
	PYTHONPATH=benchmarks $(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python tools/prose_lint.py

fmt: $(INSTALLED) ## format the code
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .

bench: $(INSTALLED) ## compare with other libraries (STUDIES="NAME…" for some); writes benchmarks/studies/results
	PYTHONPATH=benchmarks $(BIN)/python -m studies $(STUDIES)

docs: $(INSTALLED) ## build the guide and the API pages into site/
	$(BIN)/mkdocs build --strict

# Newer Pythons start from the pins of 3.11, so versions differ only if necessary. At the end, fresh installations test
# the update.
lock: $(INSTALLED) ## resolve the lock files again and install each into a fresh environment
	for version in 3.11 3.12 3.13; do \
	  test $$version = 3.11 || cp requirements/3.11.lock requirements/$$version.lock; \
	  $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header -c requirements/constraints.txt \
	    --python-version $$version --extra dev --extra peers --extra beam pyproject.toml \
	    -o requirements/$$version.lock || exit 1; \
	done
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header \
	  --python-version 3.11 export/pocketbert_export/tflite/tflite_2_16.in -o export/pocketbert_export/tflite/tflite_2_16.lock
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header \
	  --python-version 3.11 export/pocketbert_export/clients/mediapipe.in -o export/pocketbert_export/clients/mediapipe.lock
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header \
	  --python-version 3.11 tests/pocketbert_export/clients/task_library.in -o tests/pocketbert_export/clients/task_library.lock
	$(MAKE) --no-print-directory smoke SMOKE="3.11 3.12 3.13"

clean: ## remove the outputs of all targets, including the environment
	rm -rf $(VENV) out site runs android_app/out android_app/*/target android_app/samples/*/target .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info
	find $(SOURCES) tests docs -name __pycache__ -type d -prune -exec rm -rf {} +
