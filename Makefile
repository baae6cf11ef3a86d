# Two commands do all their own set-up: `make quickstart` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
.PHONY: quickstart test docs docs-check newcomer release-check lint bars test-vllm clean

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

quickstart: .venv/ready  ## roll out, annotate, train the judge, train the agent without and with it, look at both
	BIN=$(BIN) examples/quickstart.sh

test: .venv/ready  ## the whole suite, a core each: on one thread, for two beside another program wait for each other
	OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

test-vllm: .venv/ready  ## the engine `vllm` against vLLM itself on a CPU, in a virtual environment of its own
	BIN=$(BIN) PYTHON=$(PYTHON) tests/vllm.sh

docs: .venv-docs/ready  ## the site, into site/: a broken link or anchor fails
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

.venv-docs/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

docs-check: .venv/ready  ## every code block of README and docs, also those that take minutes; prints what is not run, and why
	$(BIN)/python tests/doc_blocks.py
	RRM_DOCS_HEAVY=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/test_docs.py

newcomer: .venv/ready  ## from nothing to a judged log, a trained judge and a trained agent, by the site's first pages: minutes
	$(BIN)/python -m benchmarks.newcomer

release-check: .venv/ready  ## sdist and wheel, installed and tried on each Python 3.11 to 3.13 of this machine; asks the package index
	$(BIN)/python tests/release_check.py

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

bars: .venv/ready  ## `make bars SET=judge`: every bar of a set: what, measured, wanted, result; without SET the sets there are
	$(BIN)/python -m benchmarks.bars $(SET)

clean:
	rm -rf quickstart runs .pytest_cache .ruff_cache
