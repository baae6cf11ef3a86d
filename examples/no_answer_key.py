"""Train an agent on questions that nobody answered: a judge's scores are all it is paid by, held-out answers only measure it.

    python examples/no_answer_key.py max_updates=12 output_dir=runs/r
    python examples/no_answer_key.py feedback.judge=runs/judge        # a judge of your own (examples/train_judge.py)

In the lab, which knows its answers, `environment.label_share=0` hides those of every training task. Guards watch whether the judge is
being gamed: its score rises and success on held-out questions does not (docs/judge-only.md).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

try:
    from reagent.train.config import load_agent_config
    from reagent.train.run import train
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'agent-rrm[agents]'")

SETTINGS = (
    "feedback.mode=r",  # reward: the environment's, which is unknown here, and the judge's
    "feedback.score_weight=1",
    "feedback.judge=lab",
    "environment.label_share=0",
    "eval.every=4",  # before the first update, too: what the guards compare with
)


def main(overrides: Sequence[str]) -> dict[str, Any]:
    return train(load_agent_config("lab", [*SETTINGS, *overrides]))


if __name__ == "__main__":
    summary = main(sys.argv[1:])
    told = ("policy", "learned_reward", "held_out_success", "guards", "warnings")
    print(json.dumps({name: summary[name] for name in told}, indent=1))
