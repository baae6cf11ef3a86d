"""HotpotQA (Yang et al. 2018, arXiv 1809.09600): questions over two paragraphs of Wikipedia.

Reads the published JSON (distractor or fullwiki) and its parquet copies. Exact match and F1 are those of `hotpot_evaluate_v1.py`, but for
references of which its normalisation leaves nothing (`reagent.env.graders`). Supporting facts are in the meta and not graded."""

from collections.abc import Mapping
from typing import ClassVar

from reagent.env.graders import Grader, exact_match, f1_closed
from reagent.env.task import Task
from reagent.tasks import wikitext
from reagent.tasks.base import TaskLimits
from reagent.tasks.source_rows import GivenPassage, SourceRow


class HotpotQA(wikitext.MultiHop):
    name: ClassVar[str] = "hotpotqa"
    title: ClassVar[str] = "HotpotQA"
    source: ClassVar[str] = "hotpot_{train_v1.1,dev_distractor_v1,dev_fullwiki_v1}.json of hotpotqa.github.io"
    licence: ClassVar[str] = "CC BY-SA 4.0"
    hub: ClassVar[Mapping[str, str]] = {
        "train": "hf:hotpotqa/hotpot_qa#distractor:train",
        "heldout": "hf:hotpotqa/hotpot_qa#distractor:validation",
    }
    limits: ClassVar[TaskLimits] = TaskLimits(turns=6, new_tokens=256, episode_tokens=4096)
    metrics: ClassVar[Mapping[str, Grader]] = {"exact_match": exact_match, "f1": f1_closed}

    @classmethod
    def task_of(cls, row: SourceRow) -> Task | None:
        answer = row.text("answer") if row.get("answer") is not None else None
        return cls.make(
            row.text("question"),
            answer,
            id=row.get("_id", "id"),
            level=row.get("level"),
            type=row.get("type"),
            supporting=wikitext.supporting(row),
        )

    @classmethod
    def passages(cls, row: SourceRow) -> list[GivenPassage]:
        return wikitext.context(row)
