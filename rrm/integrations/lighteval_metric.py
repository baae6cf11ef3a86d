"""lighteval: the judge as a metric of samples.

    LightevalTaskConfig(..., metrics=[agent_rrm(judge="default")])          # in a custom task

A batch of samples is judged at once. Needs the extra `lighteval`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rrm.data.feedback import Mode
from rrm.data.own_entries import OURS
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import MissingExtra
from rrm.integrations.loading import asker
from rrm.judge.cached_judge import BatchJudge, JudgeQueue, by_content
from rrm.readers.chat_text import reply_turns
from rrm.readers.messages import chat_messages
from rrm.readers.verl import reply_messages

try:
    from lighteval.metrics.metrics_sample import SampleLevelComputation  # pyright: ignore[reportMissingImports]
    from lighteval.metrics.utils.metric_utils import SampleLevelMetric  # pyright: ignore[reportMissingImports]
    from lighteval.models.model_output import ModelResponse  # pyright: ignore[reportMissingImports]
    from lighteval.tasks.requests import Doc, SamplingMethod  # pyright: ignore[reportMissingImports]
except ImportError as missing:
    raise MissingExtra("the metric needs lighteval: pip install 'agent-rrm[lighteval]'") from missing


class JudgeScores(SampleLevelComputation):
    """The judge's score of each sample: the query, and what the model wrote, turns and tool calls read out of its text.

    Of several generations the mean of their scores. NaN where every judgement failed.
    """

    def __init__(self, asking: JudgeQueue) -> None:
        self._asking = asking

    def compute(self, responses: list[ModelResponse], docs: list[Doc], **_: Any) -> list[float]:
        """A score a sample, in order."""
        rows = [
            [as_trajectory(doc, text) for text in response.text] for response, doc in zip(responses, docs, strict=True)
        ]
        said = iter(self._asking.ask([row for some in rows for row in some]))
        return [mean([next(said).score for _ in some]) for some in rows]


def agent_rrm(
    judge: str | BatchJudge | None = None,
    *,
    mode: Mode = "score",
    samples: int = 1,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    name: str = OURS,
) -> SampleLevelMetric:
    """The metric. Failed judgements are NaN in the details, and the corpus's mean is over the others.

    Args:
        judge: as `AgentRRM.from_pretrained` takes it (None: the judge that ships with the package), or one that is loaded.
        samples: replies of the judge whose scores are averaged.
        options: further arguments of `AgentRRM.from_pretrained`.
        name: of the metric.
    """
    return SampleLevelMetric(
        metric_name=name,
        higher_is_better=True,
        category=SamplingMethod.GENERATIVE,
        sample_level_fn=JudgeScores(asker(judge, mode=mode, samples=samples, seed=seed, options=options)),
        corpus_level_fn=mean,
        batched_compute=True,
    )


def as_trajectory(doc: Doc, text: str) -> Trajectory:
    """A sample's query and a generation as a transcript that is named by its content."""
    before = [{"role": "system", "content": doc.instruction}] if doc.instruction else []
    said = [*before, {"role": "user", "content": doc.query}, *reply_messages(reply_turns(text), 0)]
    messages = [Message(**m) for m in chat_messages(said)]
    golds = doc.get_golds() if doc.choices else []
    meta = {"reference": golds[0] if len(golds) == 1 else golds} if golds else {}
    return by_content(Trajectory(id="", task=doc.query, messages=messages, meta=meta))


def mean(scores: Sequence[float | None]) -> float:
    """Of those that are; NaN of none."""
    known = [s for s in scores if s is not None and not math.isnan(s)]
    return sum(known) / len(known) if known else math.nan
