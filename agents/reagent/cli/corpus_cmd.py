"""`reagent corpus`."""

from pathlib import Path
from typing import Annotated

import typer

from rrm.cli import finish
from rrm.cli.paths import check_folder


def command(
    passages: Annotated[
        Path, typer.Argument(metavar="PASSAGES", help="JSONL, or a JSON array, of {id?, title?, text}; may be gzipped")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="the folder to make")],
    language: Annotated[str, typer.Option(help="whose stemmer and stop words; '' for neither")] = "english",
    k1: Annotated[float, typer.Option(min=0.0, help="BM25: how soon a repeated word stops counting")] = 1.5,
    b: Annotated[float, typer.Option(min=0.0, max=1.0, help="BM25: how much a passage's length counts")] = 0.75,
    dense: Annotated[
        str | None, typer.Option(metavar="MODEL", help="also embed the passages with this model (mean pooling)")
    ] = None,
    query_prefix: Annotated[str, typer.Option(help="what the model expects before a query")] = "",
    passage_prefix: Annotated[str, typer.Option(help="what the model expects before a passage")] = "",
) -> None:
    """Index passages for the tool `search`."""
    from reagent.tools.corpus import Tokenizer, build_corpus
    from reagent.tools.dense import DenseSettings

    check_folder(output.absolute().parent)
    settings = DenseSettings(dense, query_prefix, passage_prefix) if dense else None
    meta = build_corpus(passages, output, words=Tokenizer(language), k1=k1, b=b, dense=settings)
    finish({"output": str(output), **meta})
