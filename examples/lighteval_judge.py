"""lighteval: the judge as a metric of samples. Needs `pip install 'agent-rrm[lighteval,local]'`.

    python examples/lighteval_judge.py

In a custom task it is `metrics=[agent_rrm()]` of its `LightevalTaskConfig`. The last line is JSON: the scores and their mean.
"""

from __future__ import annotations

import json
import sys

try:
    from lighteval.metrics import apply_metric
    from lighteval.models.model_output import ModelResponse
    from lighteval.tasks.requests import Doc

    from rrm.integrations.lighteval_metric import agent_rrm
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'agent-rrm[lighteval,local]'")


def main() -> None:
    """Two samples, as lighteval's pipeline hands them to its metrics."""
    metric = agent_rrm("lab")
    docs = [Doc(query=f"What is {n} * 7?", choices=[str(7 * n)], gold_index=0) for n in (6, 8)]
    responses = [ModelResponse(text=["Final Answer: 42"]) for _ in docs]
    scores = [row["agent_rrm"] for row in apply_metric(responses, docs, [metric])]
    print(json.dumps({"scores": scores, "mean": metric.get_corpus_aggregations()["agent_rrm"](scores)}))


if __name__ == "__main__":
    main()
