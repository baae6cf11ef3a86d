"""2WikiMultihopQA (Ho et al. 2020, arXiv 2011.01060): two to four hops over Wikipedia and Wikidata.

Reads the published JSON, in HotpotQA's form, and parquet copies, where context and facts may be JSON in a text. Exact match and F1 are
those of `2wikimultihop_evaluate_v1.1.py`, the best over the answer and, with `aliases` (the release's `id_aliases.json`), the aliases and
demonyms of the answer's entity."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from reagent.env.graders import Grader, exact_match, f1_closed
from reagent.env.task import Task
from reagent.tasks import wikitext
from reagent.tasks.source_rows import GivenPassage, SourceRow, read_rows

_WRITTEN = ("context", "supporting_facts", "evidences")


class WikiMultihop(wikitext.MultiHop):
    name: ClassVar[str] = "2wiki"
    title: ClassVar[str] = "2WikiMultihopQA"
    metric: ClassVar[str] = "exact match; F1; best over aliases"
    source: ClassVar[str] = "{train,dev}.json of data_ids_april7.zip, github.com/Alab-NII/2wikimultihop"
    licence: ClassVar[str] = "Apache-2.0"
    metrics: ClassVar[Mapping[str, Grader]] = {"exact_match": exact_match, "f1": f1_closed}
    read_options: ClassVar[tuple[str, ...]] = ("aliases",)

    @classmethod
    def read(cls, path: str | Path, aliases: str | Path | None = None) -> list[Task]:
        """See `Benchmark.read`. `aliases`: the release's `id_aliases.json`."""
        aliases_of = {} if aliases is None else read_aliases(aliases)
        return cls.read_with(path, lambda row: cls.task_of(row, aliases_of))

    @classmethod
    def task_of(cls, row: SourceRow, aliases: Mapping[str, list[str]] | None = None) -> Task | None:
        row = _opened(row)
        answer = row.text("answer") if row.get("answer") is not None else None
        others = (aliases or {}).get(str(row.get("answer_id")), [])
        evidences = row.get("evidences")
        return cls.make(
            row.text("question"),
            answer,
            id=row.get("_id", "id"),
            type=row.get("type"),
            hops=len(evidences) if isinstance(evidences, list) and evidences else None,
            supporting=wikitext.supporting(row),
            aliases=[other for other in others if other != answer],
        )

    @classmethod
    def passages(cls, row: SourceRow) -> list[GivenPassage]:
        return wikitext.context(_opened(row))


def _opened(row: SourceRow) -> SourceRow:
    data: dict[str, Any] = dict(row.data)
    for name in _WRITTEN:
        if isinstance(data.get(name), str):
            try:
                data[name] = json.loads(data[name])
            except (ValueError, RecursionError) as error:
                raise row.error(f"{name!r} is a text that is not JSON: {error}") from error
    return SourceRow(data, row.path, row.line)


def read_aliases(path: str | Path) -> dict[str, list[str]]:
    """Wikidata id → the entity's aliases and demonyms, each once. Raises ReadError."""
    return {
        row.text("Q_id"): list(dict.fromkeys([*row.texts("aliases"), *row.texts("demonyms")]))
        for row in read_rows(path)
    }
