.DEFAULT_GOAL := help
.PHONY: help run test check faults simulate bench docs clean java jars programs screenshots bench-upkeep

PYTHON := .venv/bin/python
READY := .venv/.ready

help:
	@echo "make run     the demo: generated events into a Delta table, no service needed"
	@echo "make test    every test, against a real Kafka broker and a real S3 server"
	@echo "make check   ruff and mypy"
	@echo "make faults  crashes at random for half an hour, and the ledger after each (SEED, MINUTES, REPORT, ONLY)"
	@echo "make simulate  random pipelines, events and kills beside a model, without Spark (SEED, MINUTES, SOURCE, MUTANTS=1)"
	@echo "make bench   throughput, freshness, growth, start, watching, compaction, upserts, stores, files (PARTS, SCALE): an hour in full"
	@echo "make bench-upkeep   a table of many small commits with upkeep and without"
	@echo "make docs    the documentation as a site in site/, its reference from the code"
	@echo "make clean   remove everything that make has made"

run: java $(READY)
	@.venv/bin/lakefeed demo

test: java $(READY) jars programs
	@$(PYTHON) -m pytest -n auto --dist loadfile --no-loadscope-reorder $(TESTS)

# Random faults from a seed, for a while: make faults SEED=7 MINUTES=5 REPORT=report.md
faults: java $(READY) jars programs
	@PYTHONPATH=tests $(PYTHON) -m faults.laboratory $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) \
	  $(if $(REPORT),--report $(REPORT)) $(if $(ONLY),--only $(ONLY))

# Random lives of random pipelines beside their model: make simulate SEED=7 MINUTES=5. With MUTANTS=1 the product
# gets one defect after the other, and each must be found.
simulate: $(READY)
	@PYTHONPATH=tests $(PYTHON) -m simulation.$(if $(MUTANTS),mutants,simulate) $(if $(SEED),--seed $(SEED)) \
	  $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SOURCE),--source $(SOURCE))

check: $(READY)
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy

bench: java $(READY) jars
	@$(PYTHON) bench/run.py $(PARTS) $(if $(SCALE),--scale $(SCALE))

bench-upkeep: java $(READY)
	@$(PYTHON) bench/upkeep.py

docs: $(READY)
	@$(PYTHON) docs/generate.py
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build
	@echo "built site/index.html; to search in it, serve it: $(PYTHON) -m http.server -d site"

jars: java $(READY)
	@PYTHONPATH=tests $(PYTHON) -m support.jars
	@PYTHONPATH=tests $(PYTHON) -m support.postgres_programs

# Chromium, promtool and Postgres, unpacked from Debian's packages into the cache; emulators of clouds from npm and Go,
# Airflow and Dagster from pip.
programs: $(READY)
	@PYTHONPATH=tests $(PYTHON) -m support.debian
	@PYTHONPATH=tests $(PYTHON) -m support.programs

screenshots: java $(READY) jars programs
	@$(PYTHON) docs/screenshots.py

clean:
	rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .lakefeed lakefeed-demo build dist site

# Installs again whenever pyproject.toml changes. An interpreter counts only if it runs: a version manager leaves
# names on the PATH that do not.
$(READY): pyproject.toml
	@set -e; \
	for python in python3.11 python3 none; do "$$python" -c '' 2>/dev/null && break; done; \
	if [ "$$python" = none ]; then \
	  echo "Python 3.11 is needed and was not found: install it with 'apt-get install python3.11 python3.11-venv'." >&2; exit 1; \
	fi; \
	version=$$("$$python" -c 'import platform; print(platform.python_version())'); \
	if ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  echo "Python 3.11 or newer is needed and $$python is $$version: install it with 'apt-get install python3.11 python3.11-venv'." >&2; exit 1; \
	fi; \
	if ! [ -x .venv/bin/pip ]; then \
	  if ! "$$python" -c 'import ensurepip' 2>/dev/null; then \
	    echo "$$python cannot make a virtualenv: install what is missing with 'apt-get install python$${version%.*}-venv'." >&2; exit 1; \
	  fi; \
	  echo "Making a virtualenv in .venv with Python $$version ..."; \
	  "$$python" -m venv .venv; \
	fi; \
	echo "Installing Lakefeed and its test tools into .venv ... (Spark is 450 MB: some minutes the first time)"; \
	.venv/bin/pip install --quiet --disable-pip-version-check -e '.[dev]'; \
	touch $@

java:
	@java=$${JAVA_HOME:+$$JAVA_HOME/bin/}java; \
	if ! command -v "$$java" >/dev/null; then \
	  echo "Java 17 is needed and was not found$${JAVA_HOME:+ in JAVA_HOME, $$JAVA_HOME}: install it with" \
	    "'apt-get install openjdk-17-jre-headless', or set JAVA_HOME to where it is." >&2; exit 1; \
	fi; \
	found=$$("$$java" -version 2>&1 | sed -n 's/.*version "\([^"]*\)".*/\1/p' | head -n 1); \
	major=$${found%%[!0-9]*}; \
	if [ "$${major:-0}" -lt 17 ]; then \
	  echo "Java 17 or newer is needed and $$java is Java $${found:-of unknown version}: install it with" \
	    "'apt-get install openjdk-17-jre-headless', or set JAVA_HOME to where it is." >&2; exit 1; \
	fi
