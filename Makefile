# Two commands do all their own set-up: `make quickstart` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
RRM := $(BIN)/rrm
Q := quickstart

.PHONY: quickstart test lint accept-1 accept-2 accept-3 clean

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

quickstart: .venv/ready  ## train a small judge, judge held-out transcripts, judge real ones with the default judge
	rm -rf $(Q) && mkdir -p $(Q)
	@echo "== 1/4  train a small judge from scratch on generated transcripts"
	$(RRM) train --config quickstart output_dir=$(Q)/judge
	@echo "== 2/4  judge transcripts of worlds it never saw"
	$(RRM) lab -o $(Q)/heldout.jsonl --n 200 --seed 1000 --annotations $(Q)/heldout.annotations.jsonl
	$(RRM) score $(Q)/heldout.jsonl --model $(Q)/judge -o $(Q)/heldout.scored.jsonl --html $(Q)/heldout.html
	@echo "== 3/4  measure it"
	$(RRM) eval $(Q)/heldout.jsonl --feedback $(Q)/heldout.scored.jsonl --annotations $(Q)/heldout.annotations.jsonl \
	  -o $(Q)/metrics.json --plot $(Q)/reliability.png
	@echo "== 4/4  judge a real agent's runs with the default judge"
	$(RRM) score examples/transcripts -o $(Q)/examples.scored.jsonl --html $(Q)/examples.html
	@echo "Look at $(Q)/examples.html and $(Q)/heldout.html. Next:"
	@echo "  $(RRM) score YOUR_LOGS/ -o scored.jsonl --html report.html"
	@echo "  $(RRM) train --config smollm2 data.trajectories='[YOUR.jsonl]'"
	@echo "  $(RRM) eval LABELLED.jsonl -o metrics.json"

test: .venv/ready  ## the whole suite
	$(BIN)/python -m pytest

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

accept-1: .venv/ready  ## every bar of the judge: what, measured, wanted, pass or fail
	$(BIN)/python -m benchmarks.accept_1

accept-2: .venv/ready  ## every bar of the agent side
	$(BIN)/python -m benchmarks.accept_2

accept-3: .venv/ready  ## every bar of the feedback modes
	$(BIN)/python -m benchmarks.accept_3

clean:
	rm -rf $(Q) runs .pytest_cache .ruff_cache
