"""lighteval: the judge as a metric of samples.

    pip install lighteval 'agent-rrm[local]'
    python examples/lighteval_metric.py

In a custom task: `LightevalTaskConfig(..., metrics=[agent_rrm(judge)])`. lighteval 0.13 wants an older latex2sympy2 than math-verify,
the extra `tasks`: give it an environment of its own. The last line is JSON: the scores.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import Any

try:
    from lighteval.metrics.metrics_sample import SampleLevelComputation
    from lighteval.metrics.utils.metric_utils import SampleLevelMetric
    from lighteval.models.model_output import ModelResponse
    from lighteval.tasks.requests import Doc, SamplingMethod
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install lighteval 'agent-rrm[local]'")

from rrm import AgentRRM, Trajectory
from rrm.readers.chat_text import reply_turns, turn_messages


def mean(scores: Sequence[float]) -> float:
    """Of those that are no NaN, which stands for a failed judgement."""
    known = [score for score in scores if not math.isnan(score)]
    return sum(known) / len(known) if known else math.nan


class JudgeScores(SampleLevelComputation):
    """A sample's score, of several generations their mean; turns and tool calls are read out of a generation's text."""

    def __init__(self, judge: AgentRRM) -> None:
        self.judge = judge

    def compute(self, responses: list[ModelResponse], docs: list[Doc], **_: Any) -> list[float]:
        runs = []
        for response, doc in zip(responses, docs, strict=True):
            for text in response.text:
                messages = [{"role": "user", "content": doc.query}, *turn_messages(reply_turns(text))]
                runs.append(Trajectory(id=str(len(runs)), task=doc.query, messages=messages))  # pyright: ignore
        scores = [math.nan if f.score is None else f.score for f in self.judge.judge(runs, mode="score")]
        return [mean([scores.pop(0) for _ in response.text]) for response in responses]


def agent_rrm(judge: AgentRRM) -> SampleLevelMetric:
    """The metric."""
    how = {"category": SamplingMethod.GENERATIVE, "higher_is_better": True, "batched_compute": True}
    return SampleLevelMetric(metric_name="agent_rrm", sample_level_fn=JudgeScores(judge), corpus_level_fn=mean, **how)


if __name__ == "__main__":
    samples = [Doc(query=f"What is {n} * 7?", choices=[str(7 * n)], gold_index=0) for n in (6, 8)]
    metric = agent_rrm(AgentRRM.from_pretrained("lab"))
    found = metric.sample_level_fn.compute([ModelResponse(text=["Final Answer: 42"]) for _ in samples], samples)
    print(json.dumps({"scores": found, "mean": metric.corpus_level_fn(found)}))
