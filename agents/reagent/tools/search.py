"""`search` over a corpus of one's own: BM25, or embeddings."""

import functools
from collections.abc import Sequence

import numpy as np

from reagent.env.tool import Tool, shorten, tool
from reagent.tools.corpus import Corpus, best, open_corpus
from reagent.tools.dense import DenseSettings, MeanPooling, unit
from reagent.tools.passages import Embed, Passage
from rrm.errors import ConfigError


@functools.lru_cache(maxsize=2)
def _model(settings: DenseSettings) -> MeanPooling:
    return MeanPooling(settings)


def find(corpus: Corpus, query: str, k: int, embed: Embed | None = None) -> list[Passage]:
    """The `k` best passages, the best first; with BM25 only such as share a word with the query.
    `embed`: of unit vectors; None ranks by BM25."""
    if embed is None:
        return [corpus.passages[i] for i in best(corpus.bm25_scores(query), k, above=0.0)]
    vector = unit(embed([corpus.meta["dense"]["query_prefix"] + query]))[0]
    return [corpus.passages[i] for i in best(np.asarray(corpus.vectors @ vector), k)]


def listed(passages: Sequence[Passage], max_chars: int) -> str:
    """Titles and texts, numbered, in equal shares of `max_chars`: short passages leave room to long ones."""
    parts: list[str] = []
    left = max_chars
    for number, passage in enumerate(passages):
        share = (left - 2 * (len(passages) - number - 1)) // (len(passages) - number)
        entry = shorten(f"[{number + 1}] {passage.title}\n{passage.text}", max(share, 0))[0]
        parts.append(entry)
        left -= len(entry) + 2
    return "\n\n".join(parts)


def search_tools(
    corpus: str,
    ranking: str = "bm25",
    k: int = 3,
    max_chars: int = 4000,
    embed: Embed | None = None,
    timeout_s: float = 30.0,
    max_concurrency: int = 8,
) -> list[Tool]:
    """Make the tool `search`, over a corpus. Raises ConfigError: no corpus, or one without embeddings.

    Args:
        corpus: folder made by `reagent corpus`.
        ranking: `bm25` or `dense`.
        k: passages a query.
        max_chars: of all passages of a query.
        embed: embeds queries instead of the model the corpus names.
        timeout_s: of a query.
        max_concurrency: queries at once.
    """
    if ranking not in ("bm25", "dense"):
        raise ConfigError(f"tools.search: ranking is bm25 or dense, not {ranking!r}")
    if k < 1 or max_chars < 40 * k:
        raise ConfigError(
            f"tools.search: k must be at least 1 and max_chars at least 40 for each, got {k}, {max_chars}"
        )
    opened = open_corpus(corpus)
    if ranking == "dense":
        dimensions = opened.vectors.shape[1]  # says what is missing, before any model is loaded
        settings = DenseSettings(**{key: value for key, value in opened.meta["dense"].items() if key != "dimensions"})
        embed = embed or _model(settings)
        if (shape := embed(["size"]).shape) != (1, dimensions):
            raise ConfigError(f"tools.search: embed gives {shape} for one text; the corpus has {dimensions} dimensions")
    elif embed is not None:
        raise ConfigError("tools.search: embed is for ranking=dense")

    @tool(timeout_s=timeout_s, max_concurrency=max_concurrency, max_result_chars=max_chars)
    def search(query: str) -> str:
        """Search a collection of passages.

        Args:
            query: What to look for.
        """
        return listed(find(opened, query, k, embed), max_chars)

    return [search]
