"""One-hop open-domain questions of Search-R1 (arXiv 2503.09516): NQ, TriviaQA, PopQA.

Reads FlashRAG's JSON lines (`id`, `question`, `golden_answers`), and Search-R1's parquet, whose `data_source` names the set. Any of the
golden answers is right."""

from collections.abc import Mapping
from typing import ClassVar

from reagent.env.task import Task
from reagent.tasks import wikitext
from reagent.tasks.base import TaskLimits
from reagent.tasks.source_rows import SourceRow

FLASHRAG = "hf:RUC-NLPIR/FlashRAG_datasets"


class OpenQA(wikitext.MultiHop):
    metric: ClassVar[str] = "exact match; F1; best over golden answers"
    source: ClassVar[str] = "{train,test}.jsonl of FlashRAG_datasets"
    licence: ClassVar[str] = "CC BY-SA 4.0"
    limits: ClassVar[TaskLimits] = TaskLimits(turns=4, new_tokens=256, episode_tokens=4096)

    @classmethod
    def task_of(cls, row: SourceRow) -> Task | None:
        """A question; its id begins with its set's name where the file has one: sets share numbers."""
        answer, *aliases = row.texts("golden_answers") or [None]
        set_name = row.get("data_source")
        id = f"{set_name}-{row.text('id')}" if set_name else row.text("id")
        return cls.make(row.text("question"), answer, id=id, set=set_name, aliases=aliases)


class NQ(OpenQA):
    """Natural Questions (Kwiatkowski et al. 2019), those with short answers."""

    name: ClassVar[str] = "nq"
    title: ClassVar[str] = "Natural Questions"
    hub: ClassVar[Mapping[str, str]] = {"train": f"{FLASHRAG}#nq:train", "heldout": f"{FLASHRAG}#nq:test"}


class TriviaQA(OpenQA):
    """TriviaQA (Joshi et al. 2017)."""

    name: ClassVar[str] = "triviaqa"
    title: ClassVar[str] = "TriviaQA"
    hub: ClassVar[Mapping[str, str]] = {"train": f"{FLASHRAG}#triviaqa:train", "heldout": f"{FLASHRAG}#triviaqa:test"}


class PopQA(OpenQA):
    """PopQA (Mallen et al. 2023): questions about entities, popular and rare. It has no training set."""

    name: ClassVar[str] = "popqa"
    title: ClassVar[str] = "PopQA"
    hub: ClassVar[Mapping[str, str]] = {"heldout": f"{FLASHRAG}#popqa:test"}
