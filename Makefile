# make demo and make test work on a fresh machine that has Python 3.11+ and a package registry.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Tests mostly wait for processes and browsers, so that more of them than processors can run in parallel.
JOBS ?= 5
SLOW = slow or corpus or browser or netns or exhaustive
# Tests start thousands of processes. With this variable, each would compile all of its modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: docs links pictures demo radio quick test exhaustive simulate simulate-forever torture coverage check lint format changelog release clean

# What running needs, without tools for development.
$(VENV)/.runs: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "dropflow needs Python 3.11 or newer; try: make PYTHON=python3.12 ...")'
	@echo "Setting up $(VENV): about 160 MB, a minute or two"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[examples]'
	@touch $@

$(VENV)/.installed: pyproject.toml | $(VENV)/.runs
	@echo "Installing the tools that tests and checks need: about 400 MB more"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(VENV)/.runs  ## translate and run a small radio-imaging pipeline, and show where its picture is
	$(BIN)/dropflow run examples/imaging.graph --keep demo-output --overwrite
	@cat demo-output/files/catalogue.txt
	@echo "Look at the picture: $(CURDIR)/demo-output/files/sky.png"

$(VENV)/.radio: pyproject.toml | $(VENV)/.runs
	@echo "Installing DP3, casacore and PyBDSF: about 500 MB"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[radio]'
	@touch $@

radio: $(VENV)/.radio  ## flag, calibrate and image a simulated radio observation with DP3 and WSClean; docs/tutorial/radio.md
	@examples/radio/bring_tools.sh
	$(BIN)/dropflow run examples/radio/radio.graph --keep radio-output --overwrite
	@cat radio-output/files/report.txt
	@echo "The sources: $(CURDIR)/radio-output/files/catalogue.csv"
	@echo "Look at the picture: $(CURDIR)/radio-output/files/sky.png"

quick: $(VENV)/.installed  ## most tests, in less than a minute on two processors: no browser, no clusters, nothing installed on the system
	$(BIN)/python -m pytest -q -n logical --maxprocesses 8 --dist worksteal -m "not ($(SLOW))" --hypothesis-profile=quick

test: $(VENV)/.installed  ## all tests but the exhaustive ones; installs a browser and network tools if it can
	@tests/bring_tools.sh
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not exhaustive" --hypothesis-profile=test --reruns 1

exhaustive: coverage  ## tests that take minutes of processor time, all examples of all properties, and 10,000 simulated clusters: for the night
	$(BIN)/python -m pip install -q kubernetes-validate runcrate  # over 100 MB, for two tests
	$(BIN)/python -m venv $(VENV)/validator  # of its own, because it needs an older rich than import-linter
	$(VENV)/validator/bin/pip install -q roc-validator
	$(BIN)/python tests/bring_helm.py  # for the first one
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m exhaustive
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not (browser or netns or exhaustive)"
	$(BIN)/python -m tests.managers.simulation.loss_sweep --seeds 10000

simulate: $(VENV)/.installed  ## lose nodes of simulated clusters; SEEDS=1000 trials (or forever), from seed FIRST on
	$(BIN)/python -m tests.managers.simulation.loss_sweep --seeds $(or $(SEEDS),100) $(if $(FIRST),--first $(FIRST))

simulate-forever: $(VENV)/.installed  ## the same until one fails, or until it is interrupted
	$(BIN)/python -m tests.managers.simulation.loss_sweep --seeds forever

torture: $(VENV)/.installed  ## kill processes of runs and clusters at random moments, KILLS=1000 times; takes an hour or two
	$(BIN)/python -m tests.e2e.torture --kills $(or $(KILLS),1000) $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(ONLY),--only $(ONLY))

coverage: $(VENV)/.installed  ## a floor for the coverage of each package by the tests of 'quick', with more examples
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -q -n $(JOBS) --dist worksteal -m "not ($(SLOW))" --hypothesis-profile=test
	$(BIN)/python -m coverage combine -q
	$(BIN)/python tests/coverage_floors.py

lint: $(VENV)/.installed
	@! git grep -nE '^(<{7}|>{7}) ' -- .  # what a merge left
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --disable-error-code no-any-return --disable-error-code untyped-decorator benchmarks/*.py
	$(BIN)/lint-imports
	$(BIN)/oxlint dropflow managers  # their JavaScript
	$(BIN)/codespell README.md CONTRIBUTING.md docs dropflow translator managers palettes tests examples benchmarks
	$(BIN)/interrogate --quiet tests
	$(BIN)/zizmor --quiet --offline .github

check: lint test  ## lint, types, layers, tests

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

changelog: $(VENV)/.installed  ## print what the next release changes; with VERSION=1.2.3, write it to CHANGELOG.md
	$(BIN)/towncrier build $(if $(VERSION),--yes --version $(VERSION),--draft --version next)

docs: $(VENV)/.installed  ## build the documentation site; every warning is an error, such as a link that leads nowhere
	$(BIN)/sphinx-build -q -W --keep-going -j auto -c docs . build/site
	@echo "Look at it: $(CURDIR)/build/site/index.html"

links: $(VENV)/.installed  ## ask the hosts of other sites for each page that the documentation links to; needs a network
	$(BIN)/sphinx-build -q -b linkcheck -j auto -c docs . build/links

release: $(VENV)/.installed  ## build what is published into dist/, the same bytes for the same commit, and check it
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/python -m pytest -q tests/e2e/test_wheel.py
	@git describe --exact-match --tags --match "v$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' dropflow/version.py)" || echo "This commit has no tag of that version: not to be published."

pictures: $(VENV)/.installed  ## take the pictures of pages in the documents from a real run in Chromium
	@tests/bring_tools.sh
	$(BIN)/python docs/take_screenshots.py
	$(BIN)/python docs/execute_notebook.py

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-output radio-output
