#!/bin/sh
# The whole loop in the lab, beside it a real model's runs judged by the default judge, and at the end runs of the trained agent, good
# and bad ones, judged and worth looking at. `make quickstart` installs and runs it.
#   BIN=.venv/bin examples/quickstart.sh        (writes quickstart/, anew each time)
# Two cores have two things to do at a time, on one thread each (two threads beside another program wait for each other);
# what runs beside another command writes to a log, shown if it fails.
set -eu
BIN=${BIN:-.venv/bin}
Q=quickstart
rrm() { "$BIN/rrm" "$@"; }
reagent() { "$BIN/reagent" "$@"; }
beside() { "$@" > "$Q/$log.log" 2>&1 || { cat "$Q/$log.log" >&2; return 1; }; }   # one command, its output in $log
export OMP_NUM_THREADS=1
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT INT TERM

measure_judge() {
  reagent lab transcripts -o "$Q/heldout.jsonl" --n 200 --seed 1000 --heldout --annotations "$Q/heldout.annotations.jsonl"
  rrm score "$Q/heldout.jsonl" --model "$Q/judge" -o "$Q/heldout.scored.jsonl" --html "$Q/heldout.html"
  rrm eval "$Q/heldout.jsonl" --feedback "$Q/heldout.scored.jsonl" --annotations "$Q/heldout.annotations.jsonl" \
    -o "$Q/metrics.json" --plot "$Q/reliability.png"
}

train() {  # MODE OPTION...: from the same start, on one core
  mode=$1; shift
  reagent train max_updates=12 eval.every=6 environment.eval_tasks=100 "feedback.mode=$mode" "output_dir=$Q/$mode" "$@"
}

play() {  # NAME OPTION...: held-out questions, and what the judge says of the runs
  name=$1; shift
  reagent eval "$@" -o "$Q/$name.json" --transcripts "$Q/$name.jsonl"
  rrm score "$Q/$name.jsonl" --model "$Q/judge" -o "$Q/$name.scored.jsonl"
}

none_and_judge() { train none && measure_judge && play base; }

rm -rf "$Q" && mkdir -p "$Q"

echo "== 1/6  the lab's agent answers questions; beside it a real agent's runs are judged by the default judge"
log=examples; beside rrm score examples/transcripts -o "$Q/examples.scored.jsonl" --html "$Q/examples.html" & real=$!
# questions of their own, sampled as in training
reagent eval environment.eval_tasks=240 'environment.eval={hops: [1, 2, 3, 4], seed: 1}' eval.temperature=0.7 \
  -o "$Q/rollouts.json" --transcripts "$Q/rollouts.jsonl"
wait $real

echo "== 2/6  its runs are labelled: the lab judge's own judgements, where they agree with the outcome"
OMP_NUM_THREADS=2 "$BIN/rrm" annotate "$Q/rollouts.jsonl" -o "$Q/rollouts.annotations.jsonl" --annotator self --model lab --samples 2

echo "== 3/6  the judge goes on learning from them"
OMP_NUM_THREADS=2 "$BIN/rrm" train --config quickstart "output_dir=$Q/judge" \
  "data.trajectories=[$Q/rollouts.jsonl]" "data.annotations=[$Q/rollouts.annotations.jsonl]"

echo "== 4/6  the agent is trained twice from the same start: on its questions' answers (feedback.mode=none), and without one"
echo "        answer, on this judge's scores alone (feedback.mode=r, environment.label_share=0); beside it the judge is measured"
echo "        on transcripts of worlds and wordings it never saw"
log=none; beside none_and_judge & other=$!
train r "feedback.judge=$Q/judge" feedback.score_weight=1 environment.label_share=0
wait $other

echo "== 5/6  before and after, on held-out questions"
log=play_none; beside play none --policy "$Q/none/policy" & other=$!
play r --policy "$Q/r/policy"
wait $other

echo "== 6/6  the pages; and of the agent that learned from the judge a handful of runs, as many failures as successes, each beside"
echo "        the attempt before its training, judged by a judge that it did not learn from"
log=report; beside reagent report "$Q/none" "$Q/r" --judge "$Q/metrics.json" --reliability "$Q/reliability.png" \
  --policy "before=$Q/base.jsonl,$Q/base.scored.jsonl" --policy "none=$Q/none.jsonl,$Q/none.scored.jsonl" \
  --policy "r=$Q/r.jsonl,$Q/r.scored.jsonl" -o "$Q/report.html" & other=$!
"$BIN/python" examples/worth_seeing.py pick "$Q/r.jsonl" "$Q/r.scored.jsonl" "$Q/base.jsonl" -o "$Q/runs.jsonl"
rrm score "$Q/runs.jsonl" --model lab -o "$Q/runs.scored.jsonl" --html "$Q/runs.html"
wait $other
echo "Look at $Q/runs.html, where judge and outcome stand side by side:"
"$BIN/python" examples/worth_seeing.py look "$Q/runs.jsonl" "$Q/runs.scored.jsonl" "$Q/runs.html"
echo "and at $Q/report.html (the trainings), $Q/heldout.html (the judge) and $Q/examples.html (a real model's logs). Next:"
echo "  $BIN/rrm score YOUR_LOGS/ -o scored.jsonl --html report.html"
echo "  $BIN/rrm train --own YOUR.jsonl -o runs/own"
echo "  $BIN/reagent train --config lab feedback.mode=r environment.label_share=0 feedback.score_weight=1 algorithm=grpo output_dir=runs/r"
