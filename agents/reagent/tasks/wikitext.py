"""Shared by multi-hop question sets over Wikipedia: instructions, and HotpotQA's form of a row."""

from typing import ClassVar

from reagent.tasks.base import Benchmark, TaskLimits
from reagent.tasks.source_rows import GivenPassage, SourceRow, titled


class MultiHop(Benchmark):
    metric: ClassVar[str] = "exact match; F1"
    wants: ClassVar[tuple[str, ...]] = ("search",)
    limits: ClassVar[TaskLimits] = TaskLimits(turns=8, new_tokens=256, episode_tokens=4096)
    work: ClassVar[str] = (
        "Answer the question from what you look up. Search for one fact at a time, and build the next search on what the last one found."
    )
    form: ClassVar[str] = (
        "The answer is a name, a date, a number or a few words, as short as it can be and not a sentence; where the question can be "
        "answered by yes or no, it is yes or no."
    )


def supporting(row: SourceRow) -> list[str] | None:
    """Distinct titles of the paragraphs that the answer rests on; None in a file without them."""
    facts = row.get("supporting_facts")
    return None if facts is None else list(dict.fromkeys(title for title, _ in titled(row, facts, "supporting_facts")))


def context(row: SourceRow) -> list[GivenPassage]:
    """The row's paragraphs, sentences joined; none in a file without them."""
    pairs = row.get("context")
    if pairs is None:
        return []
    passages = []
    for title, sentences in titled(row, pairs, "context"):
        if not isinstance(sentences, list) or not all(isinstance(s, str) for s in sentences):
            raise row.error(f"the paragraph {title!r} must be a list of sentences")
        passages.append(GivenPassage(title, " ".join(" ".join(sentences).split())))
    return passages
