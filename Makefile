# `make help` lists the commands. All of them make .venv on the first run and then leave it alone,
# until pyproject.toml changes. Names of targets are relative, so the folder's own path may hold
# spaces.

# The first of these that runs and is 3.11 to 3.13; or give your own: make train PYTHON=/path/to/it
SUITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	"$$p" -c '$(SUITS)' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
PY := .venv/bin/python
# Empty if .venv has a Python that runs: it may point to one that is gone.
BROKEN := $(shell $(PY) -c '' >/dev/null 2>&1 || echo broken)
PIP_FLAGS := --disable-pip-version-check
NOTEBOOKS := $(wildcard notebooks/*.ipynb)

.DEFAULT_GOAL := help
.PHONY: help train test lab notebooks book serve browser lint setup clean hashes broken

help:  ## list the commands
	@sed -n 's/^\([a-z]*\):[^#]*## /\1|/p' Makefile | awk -F'|' '{printf "  make %-10s %s\n", $$1, $$2}'

train: setup browser  ## train the small model on this machine, then write a report
	$(PY) -m vclib train --profile laptop

test: setup browser  ## everything that CI runs: lint, types, tests, the stored notebooks
	@$(MAKE) --no-print-directory lint
	$(PY) -m pytest
	$(PY) -m pytest --nbval --nbval-sanitize-with tests/notebooks/sanitize.cfg \
		--nbval-cell-timeout 900 --timeout 900 notebooks

lab: setup browser  ## open the course in JupyterLab
	$(PY) -m jupyterlab --notebook-dir=. --LabApp.news_url=None $$([ "$$(id -u)" = 0 ] && echo --allow-root) \
		notebooks/00_start_here.ipynb

notebooks: setup browser  ## execute every notebook again and store the outputs
	$(PY) tools/run_notebooks.py $(NOTEBOOKS)

book: setup  ## the course as a site, in docs/book/site
	@$(PY) -c 'import furo, latex2mathml, myst_nb' 2>/dev/null || \
		$(PY) -m pip install $(PIP_FLAGS) -e '.[book]'
	$(PY) -m sphinx -W --keep-going --quiet -c docs/book notebooks docs/book/site
	@echo docs/book/site/index.html

serve: setup browser  ## the environment as a server on this machine
	$(PY) -m vclib serve

lint: setup  ## style and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

hashes: setup  ## write data/SHA256SUMS again after a file in data/ has changed
	$(PY) tools/data_hashes.py --write

browser: setup  ## get a browser, if this machine has none that works
	@$(PY) tools/get_browser.py

setup: .venv/installed  ## make .venv and install what pyproject.toml names

.venv/installed: pyproject.toml $(BROKEN)
	@sh tools/make_venv.sh '$(PYTHON)'
	$(PY) -m pip install $(PIP_FLAGS) -e '.[server,notebooks,dev]'
	@touch .venv/installed

clean:  ## remove caches; .venv and outputs stay
	rm -rf build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
