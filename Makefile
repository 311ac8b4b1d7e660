# The only thing needed beforehand is Python 3.11 or newer (and git and make to get here).
# `make book` needs no torch: nothing is executed.  `make test` installs the full environment.

PYTHON ?= python3
# `make test BROWSER=required`: without Chromium the browser's tests fail instead of skipping.
BROWSER ?=
# `make test SANDBOX=required`: without bubblewrap the grader's tests fail instead of skipping.
SANDBOX ?=
export BROWSER SANDBOX
# Where `make dist` puts the distributions, each into a folder of its own.
DIST ?= dist

BIN := .venv/bin
# Two stamps, one environment: what building the book takes, and everything.
LIGHT := .venv/.light
FULL := .venv/.full
SITE := _build/html
# One process of tests more than there are cores, as one or another waits, with one thread each; a
# notebook is one process's.
SIDE_BY_SIDE := -n $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# axe-core and textlint, for the tests of accessibility and of the texts; without npm these skip,
# unless BROWSER=required.
FROM_NPM := tests/browser/node_modules/.package-lock.json

.DEFAULT_GOAL := help
.PHONY: help book serve lab address pictures notebooks exercises collect grade report bench cases pythons wild trainers peers mutants types javascript prose style dist test gpu-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.venv/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, not " + sys.version.split()[0] + ": make PYTHON=python3.12 …")'
	$(PYTHON) -m venv .venv

$(LIGHT): .venv/pyvenv.cfg requirements.txt
	$(BIN)/python -m pip install --quiet -c requirements.txt jupyter-book tinycss2
	@touch $@

$(FULL): .venv/pyvenv.cfg requirements.txt pyproject.toml gradtrace/pyproject.toml
	$(BIN)/python -m pip install --quiet -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps -e gradtrace -e .
	@touch $(LIGHT) $@

book: $(LIGHT) ## build the site
	$(BIN)/jupyter-book build . --toc book/_toc.yml -n -W --keep-going -q
	@echo "The site: $(CURDIR)/$(SITE)/index.html"

serve: book ## look at the site in a browser
	$(BIN)/python -m http.server --directory $(SITE) --bind 127.0.0.1 8000

lab: $(FULL) ## work in JupyterLab
	$(BIN)/jupyter lab

address: $(LIGHT) ## rewrite what is derived from the repository's address (URL=… sets it)
	PYTHONPATH=src $(BIN)/python -m backward_twice.address $(if $(filter undefined,$(origin URL)),,"$(URL)")

pictures: book $(FULL) ## draw the pictures of README and social card
	$(BIN)/python book/pictures.py

notebooks: $(FULL) ## execute notebooks and solutions and store their outputs
	$(BIN)/python -m backward_twice.execute

exercises: $(FULL) ## generate exercises/ from solutions/
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m backward_twice.exercises

# Names of folders go through the environment as they are: they may hold spaces, quotes and dollars.
collect: override export FROM := $(value FROM)
collect: override export SUBMISSIONS := $(value SUBMISSIONS)
collect: override export ROSTER := $(value ROSTER)
collect: $(FULL) ## sort a platform's download (FROM=zip or folder EXERCISE=name SUBMISSIONS=folder ROSTER=csv)
	@test -n "$$FROM" -a -n "$(EXERCISE)" -a -n "$$SUBMISSIONS" || { echo "make collect FROM=download.zip EXERCISE=name SUBMISSIONS=folder"; exit 2; }
	$(BIN)/python -m backward_twice.grading.collect "$$FROM" $(EXERCISE) --into "$$SUBMISSIONS" $${ROSTER:+--roster "$$ROSTER"}

grade: override export ROSTER := $(value ROSTER)
grade: override export SUBMISSIONS := $(value SUBMISSIONS)
grade: override export OUT := $(value OUT)
grade: $(FULL) ## grade submissions (SUBMISSIONS=folder OUT=folder ROSTER=csv; GRADING="--workers 4 …")
	@test -n "$$SUBMISSIONS" -a -n "$$OUT" || { echo "make grade SUBMISSIONS=folder OUT=folder"; exit 2; }
	$(BIN)/python -m backward_twice.grading "$$SUBMISSIONS" --out "$$OUT" $${ROSTER:+--roster "$$ROSTER"} $(GRADING)

report: override export OUT := $(value OUT)
report: $(FULL) ## a page on a graded class: what was solved, and by whom (OUT=folder)
	@test -n "$$OUT" || { echo "make report OUT=folder"; exit 2; }
	$(BIN)/python -m backward_twice.grading.class_report "$$OUT"

bench: book $(FULL) ## measure what snapshot, player and watch cost
	$(BIN)/python gradtrace/benchmarks/snapshot.py
	$(BIN)/python gradtrace/benchmarks/player.py
	$(BIN)/python gradtrace/benchmarks/trace.py
	$(BIN)/python gradtrace/benchmarks/watch.py

cases: $(FULL) ## score diagnosis on real failures (CASES="name … --strict")
	$(BIN)/python gradtrace/cases/score.py $(CASES)

# Every Python that gradtrace promises to run on and that is here: on the path, or among pyenv's.
# Each has an environment of its own with the newest PyTorch that fits.
SUPPORTED := $(shell sed -n 's/.*Python :: \(3\.[0-9]*\)".*/\1/p' gradtrace/pyproject.toml)
interpreter = $(shell python$(1) -c 'import sys; print(sys.executable)' 2>/dev/null \
	|| ls "$$HOME"/.pyenv/versions/$(1).*/bin/python 2>/dev/null | tail -n 1)
PYTHONS ?= $(foreach version,$(SUPPORTED),$(if $(call interpreter,$(version)),$(version)))

.venv-3.%/.ready: gradtrace/pyproject.toml
	test -x $(@D)/bin/python || $(or $(call interpreter,3.$*),$(error Python 3.$* is not here)) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet -e "gradtrace[test]" pytest-xdist
	@touch $@

pythons: export OMP_NUM_THREADS ?= 1
pythons: $(PYTHONS:%=.venv-%/.ready) ## run gradtrace's tests on every supported Python (PYTHONS="3.12 3.13")
	@failed=; for version in $(PYTHONS); do \
		echo "Python $$version, torch $$(.venv-$$version/bin/python -c 'import torch; print(torch.__version__)')"; \
		.venv-$$version/bin/pytest -q $(SIDE_BY_SIDE) --dist worksteal --doctest-modules gradtrace \
			--ignore=gradtrace/benchmarks || failed="$$failed $$version"; \
	done; test -z "$$failed" || { echo "gradtrace's tests fail on Python$$failed"; exit 1; }

# Other people's libraries have an environment of their own, with the one torch.
WILD := .venv-wild/bin/python
WILD_READY := .venv-wild/.ready

$(WILD_READY): requirements.txt gradtrace/pyproject.toml
	test -x $(WILD) || $(PYTHON) -m venv .venv-wild
	grep '^torch==' requirements.txt >.venv-wild/constraint.txt
	$(WILD) -m pip install --quiet -c .venv-wild/constraint.txt -e gradtrace
	@touch $@

wild: $(WILD_READY) ## run other libraries' quick starts plain and watched (DRIVERS="name …" ROUNDS=3)
	$(WILD) gradtrace/wild/run.py --install --constraint .venv-wild/constraint.txt \
		$(if $(ROUNDS),--rounds $(ROUNDS)) $(DRIVERS)

# Other people's tests have an environment of their own, too.
PEERS := .venv-peers/bin/python
PEERS_READY := .venv-peers/.ready

$(PEERS_READY): requirements.txt gradtrace/pyproject.toml
	test -x $(PEERS) || $(PYTHON) -m venv .venv-peers
	grep '^torch==' requirements.txt >.venv-peers/constraint.txt
	$(PEERS) -m pip install --quiet -c .venv-peers/constraint.txt -e gradtrace numpy pytest pytest-reportlog unearth
	@touch $@

peers: $(PEERS_READY) ## run PyTorch's and other libraries' tests plain and watched (PYTORCH=checkout HIGHER=checkout SUITES="name …" ONLY=text)
	$(PEERS) gradtrace/peers/compare.py --install --constraint .venv-peers/constraint.txt \
		$(if $(PYTORCH),--checkout "pytorch=$(PYTORCH)") $(if $(HIGHER),--checkout "higher=$(HIGHER)") \
		$(if $(ONLY),--only "$(ONLY)") $(SUITES)

# The tool that changes the code to see whether a test notices has an environment of its own, too.
.venv-mutants/.ready: requirements.txt gradtrace/pyproject.toml
	test -x .venv-mutants/bin/python || $(PYTHON) -m venv .venv-mutants
	grep '^torch==' requirements.txt >.venv-mutants/constraint.txt
	.venv-mutants/bin/python -m pip install --quiet -c .venv-mutants/constraint.txt -e "gradtrace[test]" mutmut==3.8.1
	@touch $@

mutants: export OMP_NUM_THREADS ?= 1
mutants: .venv-mutants/.ready ## list the changes of gradtrace's code that no test notices (MUTANTS="gradtrace.repair.judge*")
	cd gradtrace && ../.venv-mutants/bin/mutmut run $(MUTANTS)
	cd gradtrace && ../.venv-mutants/bin/mutmut results

$(FROM_NPM): tests/browser/package-lock.json
	@command -v npm >/dev/null || echo "npm is missing: the site's accessibility and the texts' words will not be tested"
	@! command -v npm >/dev/null || npm ci --prefix tests/browser --loglevel error --no-audit --no-fund --fetch-retries 1 || \
		echo "npm could not install its tools, for the reason above: the site's accessibility and the texts' words will not be tested"

TRAINERS := $(wildcard book/trainers/*.py)

trainers: $(WILD_READY) ## run the trainers' programs of the site and store what they print
	$(WILD) -m pip install --quiet -c .venv-wild/constraint.txt lightning transformers peft accelerate
	for program in $(TRAINERS); do \
		CUDA_VISIBLE_DEVICES= HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(WILD) $$program 2>/dev/null >$${program%.py}.txt || exit 1; \
	done

types: $(FULL) ## check the types of gradtrace
	cd gradtrace && ../$(BIN)/mypy

JAVASCRIPT := gradtrace/node_modules/.package-lock.json

$(JAVASCRIPT): gradtrace/package-lock.json
	@command -v npm >/dev/null || echo "npm is missing: the player's JavaScript will not be checked"
	@! command -v npm >/dev/null || npm ci --prefix gradtrace --loglevel error --no-audit --no-fund --fetch-retries 1 || \
		echo "npm could not install its tools, for the reason above: the player's JavaScript will not be checked"

javascript: $(JAVASCRIPT) ## check format, rules and types of the player's JavaScript (where npm is)
	@test ! -e $(JAVASCRIPT) || npm run --prefix gradtrace --silent check

prose: $(FULL) $(FROM_NPM) ## check the words of every text (TEXTS="file …")
	@test ! -e $(FROM_NPM) || $(BIN)/python tests/prose/lint.py $(TEXTS)

style: $(FULL) ## check style, format and imports of the code
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-cache

# Tools for a release have an environment of their own.
.venv-dist/.ready: requirements-dist.txt
	test -x .venv-dist/bin/python || $(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet -r requirements-dist.txt
	@touch $@

dist: .venv-dist/.ready ## build both distributions and check them (DIST=folder)
	rm -rf "$(DIST)"
	.venv-dist/bin/python -m build --no-isolation --outdir "$(DIST)/gradtrace" gradtrace
	.venv-dist/bin/python -m build --no-isolation --outdir "$(DIST)/backward-twice" .
	.venv-dist/bin/twine check --strict "$(DIST)"/*/*
	.venv-dist/bin/check-wheel-contents "$(DIST)"/*/*.whl

test: export OMP_NUM_THREADS ?= 1
test: $(FULL) $(FROM_NPM) ## prove everything: style, imports, types, site, tests, every stored output
	$(MAKE) style javascript
	$(MAKE) -j 2 types book
	$(BIN)/pytest $(SIDE_BY_SIDE) --dist worksteal --doctest-modules gradtrace tests src book/_ext/styles.py
	PYTHONPATH=tests $(BIN)/pytest --nbval --nbval-cell-timeout=120 -p warm_kernels $(SIDE_BY_SIDE) \
		--dist loadscope --nbval-sanitize-with=tests/nbval.cfg notebooks solutions

gpu-check: $(FULL) ## on a machine with CUDA: run what needs a GPU, store what was seen
	$(BIN)/pytest tests/gpu --record book/gpu.yml

clean: ## remove what was built, but not the environment
	rm -rf _build .pytest_cache .ruff_cache gradtrace/.mypy_cache gradtrace/.pytest_cache
