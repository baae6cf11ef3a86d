# Two commands do all their own set-up: `make quickstart` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
RRM := $(BIN)/rrm
REAGENT := $(BIN)/reagent
Q := quickstart
# questions of their own, sampled as in training
ROLL := environment.eval_tasks=300 'environment.eval={hops: [1, 2, 3, 4], seed: 1}' eval.temperature=0.7
TRAIN := max_updates=12 eval.every=4 environment.eval_tasks=100

.PHONY: quickstart test lint accept-1 accept-2 accept-3 clean

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

quickstart: .venv/ready  ## roll out, annotate, train the judge, train the agent without and with it, look at both
	rm -rf $(Q) && mkdir -p $(Q)
	@echo "== 1/7  the lab's agent answers questions"
	$(REAGENT) eval $(ROLL) -o $(Q)/rollouts.json --transcripts $(Q)/rollouts.jsonl
	@echo "== 2/7  its runs are labelled: the lab judge's own judgements, where they agree with the outcome"
	$(RRM) annotate $(Q)/rollouts.jsonl -o $(Q)/rollouts.annotations.jsonl --annotator self --model lab --samples 2
	@echo "== 3/7  the judge goes on learning from them"
	$(RRM) train --config quickstart
	@echo "== 4/7  it judges transcripts of worlds and wordings it never saw, and is measured"
	$(REAGENT) lab transcripts -o $(Q)/heldout.jsonl --n 200 --seed 1000 --heldout --annotations $(Q)/heldout.annotations.jsonl
	$(RRM) score $(Q)/heldout.jsonl --model $(Q)/judge -o $(Q)/heldout.scored.jsonl --html $(Q)/heldout.html
	$(RRM) eval $(Q)/heldout.jsonl --feedback $(Q)/heldout.scored.jsonl --annotations $(Q)/heldout.annotations.jsonl \
	  -o $(Q)/metrics.json --plot $(Q)/reliability.png
	@echo "== 5/7  the agent is trained twice from the same start: feedback.mode=none, and feedback.mode=u with this judge"
	$(REAGENT) train $(TRAIN) feedback.mode=none output_dir=$(Q)/none > $(Q)/none.log 2>&1 & none=$$!; \
	$(REAGENT) train $(TRAIN) feedback.mode=u feedback.judge=$(Q)/judge rollout.tasks_per_update=8 output_dir=$(Q)/u; u=$$?; \
	wait $$none || { cat $(Q)/none.log; exit 1; }; exit $$u
	@echo "== 6/7  before and after, on held-out questions"
	for p in none u; do $(REAGENT) eval --policy $(Q)/$$p/policy -o $(Q)/$$p.json --transcripts $(Q)/$$p.jsonl || exit 1; done
	$(REAGENT) eval -o $(Q)/base.json --transcripts $(Q)/base.jsonl
	for p in base none u; do $(RRM) score $(Q)/$$p.jsonl --model $(Q)/judge -o $(Q)/$$p.scored.jsonl || exit 1; done
	$(REAGENT) report $(Q)/none $(Q)/u --judge $(Q)/metrics.json --reliability $(Q)/reliability.png \
	  --policy "before=$(Q)/base.jsonl,$(Q)/base.scored.jsonl" --policy "none=$(Q)/none.jsonl,$(Q)/none.scored.jsonl" \
	  --policy "u=$(Q)/u.jsonl,$(Q)/u.scored.jsonl" -o $(Q)/report.html
	@echo "== 7/7  a real agent's runs, judged by the default judge"
	$(RRM) score examples/transcripts -o $(Q)/examples.scored.jsonl --html $(Q)/examples.html
	@echo "Look at $(Q)/report.html, $(Q)/heldout.html and $(Q)/examples.html. Next:"
	@echo "  $(RRM) score YOUR_LOGS/ -o scored.jsonl --html report.html"
	@echo "  $(RRM) train --config smollm2 data.trajectories='[YOUR.jsonl]'"
	@echo "  $(REAGENT) train --config lab feedback.mode=u algorithm=grpo output_dir=runs/u"

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
