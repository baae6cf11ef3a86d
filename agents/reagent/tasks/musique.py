"""MuSiQue (Trivedi et al. 2022, arXiv 2108.00573): two to four hops, none of which can be skipped.

Reads the published JSONL (Answerable or Full), without unanswerable questions, like the official answer metric; exact match and F1 are the
best over the answer and its aliases."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from reagent.env.task import Task
from reagent.tasks import wikitext
from reagent.tasks.source_rows import GivenPassage, SourceRow

_HOPS = re.compile(r"([234])hop")


class MuSiQue(wikitext.MultiHop):
    name: ClassVar[str] = "musique"
    title: ClassVar[str] = "MuSiQue"
    metric: ClassVar[str] = "exact match; F1; best over aliases"
    source: ClassVar[str] = "musique_ans_v1.0_{train,dev}.jsonl, github.com/StonyBrookNLP/musique"
    licence: ClassVar[str] = "CC BY 4.0"
    hub: ClassVar[Mapping[str, str]] = {
        "train": "hf:dgslibisey/MuSiQue:train",
        "heldout": "hf:dgslibisey/MuSiQue:validation",
    }

    @classmethod
    def task_of(cls, row: SourceRow) -> Task | None:
        if row.get("answerable") is False:
            return None
        id, paragraphs = row.text("id"), _paragraphs(row)
        hops = _HOPS.match(id)
        answer = row.text("answer") if row.get("answer") is not None else None
        return cls.make(
            row.text("question"),
            answer,
            id=id,
            hops=int(hops[1]) if hops else None,
            supporting=[str(p.get("title")) for p in paragraphs if p.get("is_supporting")],
            aliases=row.texts("answer_aliases"),
        )

    @classmethod
    def passages(cls, row: SourceRow) -> list[GivenPassage]:
        return [GivenPassage(str(p["title"]), str(p["paragraph_text"])) for p in _paragraphs(row)]


def _paragraphs(row: SourceRow) -> list[dict[str, Any]]:
    paragraphs = row.get("paragraphs") or []
    if not isinstance(paragraphs, list) or not all(
        isinstance(p, dict) and {"title", "paragraph_text"} <= p.keys() for p in paragraphs
    ):
        raise row.error("'paragraphs' must be a list of objects with title and paragraph_text")
    return paragraphs
