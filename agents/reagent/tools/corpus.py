"""A corpus on disk: passages and their index, built once, mapped into memory, shared by all episodes.

A corpus folder holds `corpus.json` (its description), `passages.jsonl` with `offsets.npy`, `bm25/` (bm25s, its arrays as .npy) and
optionally `dense.npy`; nothing is pickled. Words: Unicode letters and digits in lower case after compatibility folding; without English
stop words (bm25s's list); Snowball's English stemmer. Chinese, Japanese and Korean: single characters and pairs of neighbours. BM25 as
Lucene has it, by default with k1 1.5 and b 0.75."""

import functools
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from reagent.tools.dense import DenseSettings, write_dense
from reagent.tools.passages import Embed, Passage, Passages, read_passages, searched
from rrm.data.extras import needs
from rrm.errors import ConfigError, ReadError

log = logging.getLogger(__name__)
VERSION = 2
CJK, BIGRAMS = "cjk", "bigrams"
"""Under `words` in `corpus.json`, only where passages hold such text and are cut as here."""
_WORD = re.compile(r"\w+")
_CJK_RUN = re.compile(
    "([\u3005-\u3007\u3040-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
_ENDS_BYTES = 1 << 20


@dataclass(frozen=True)
class Tokenizer:
    """Cuts a text into words; an index and its queries must agree."""

    language: str = "english"
    """Language of the stemmer (Snowball) and the stop words (bm25s); empty for neither."""
    bigrams: bool = True
    """Off: a run of Chinese, Japanese or Korean is one word, as in indexes made before they were cut."""

    def splitter(self, *, query: bool = False) -> Callable[[str], list[str]]:
        """The function that splits; safe from several threads. Raises ConfigError: an unknown language.
        `query`: of a run of two or more characters only the pairs: single ones are indexed for queries of one."""
        stem, left_out = (_stemmer(self.language), _stop_words(self.language)) if self.language else (list, frozenset())

        def split(text: str) -> list[str]:
            words = _WORD.findall(_folded(text))
            if self.bigrams:
                words = [piece for word in words for piece in _cut(word, query)]
            return stem([word for word in words if word not in left_out])

        return split


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).lower()


def _cut(word: str, query: bool) -> Iterator[str]:
    """A word's parts: other scripts uncut, a run of Chinese, Japanese or Korean as characters and pairs."""
    for i, piece in enumerate(_CJK_RUN.split(word)):
        if i % 2 == 0:
            if piece:
                yield piece
            continue
        if not query or len(piece) == 1:
            yield from piece
        yield from map("".join, pairwise(piece))


class _NoJax:
    """A finder of modules that finds no JAX for the thread that made it."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "jax" and threading.get_ident() == self.thread:
            raise ImportError("no JAX for a search")


def _bm25s() -> Any:
    """Import bm25s without JAX, unless the program has imported JAX itself.
    bm25s would start JAX to pick the best scores (here numpy does), and JAX on a GPU takes three quarters of its memory."""
    finder = _NoJax()
    sys.meta_path.insert(0, finder)
    try:
        import bm25s
        from bm25s import stopwords as stopwords
    finally:
        sys.meta_path.remove(finder)
    return bm25s


def _stop_words(language: str) -> frozenset[str]:
    stopwords = _bm25s().stopwords
    words = getattr(stopwords, f"STOPWORDS_{'EN' if language == 'english' else language.upper()}", None)
    if words is None:
        raise ConfigError(f"no stop words of {language!r} in bm25s; '' takes neither stop words nor stemmer")
    return frozenset(words)


def _stemmer(language: str) -> Callable[[list[str]], list[str]]:
    import Stemmer

    try:
        stemmer, lock = Stemmer.Stemmer(language), threading.Lock()
    except KeyError as error:
        raise ConfigError(f"no stemmer for {language!r}; there are {', '.join(Stemmer.algorithms())}") from error

    def stem(words: list[str]) -> list[str]:
        with lock:  # it keeps a cache
            return stemmer.stemWords(words)

    return stem


# ---- building -----------------------------------------------------------------------------------------------------------


def build_corpus(
    passages: str | Path,
    folder: str | Path,
    *,
    words: Tokenizer | None = None,
    k1: float = 1.5,
    b: float = 0.75,
    dense: DenseSettings | None = None,
    embed: Embed | None = None,
) -> dict[str, Any]:
    """Build a corpus folder, as a whole or not at all. Returns the content of `corpus.json`.

    BM25 needs all passages' words at once (2.6 GB a million passages of 70 words; measured on 98,000).

    Args:
        dense: also an index of embeddings.
        embed: makes them instead of the model that `dense` names.

    Raises:
        ReadError: a line that is no passage, or two passages of one id.
        ConfigError: the folder is there already.
    """
    needs("tools", "a corpus", "bm25s", "Stemmer")
    folder, words = Path(folder), words or Tokenizer()
    if folder.exists():
        raise ConfigError(f"{folder} exists already; name a new folder, or remove it")
    # a name of its own: another build of the same corpus may be under way
    draft = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}.part")
    draft.mkdir(parents=True)
    try:
        count, digest = _write_passages(read_passages(passages), draft, str(passages))
        cut = words.bigrams and any(_CJK_RUN.search(_folded(searched(passage))) for passage in Passages(draft))
        description = {"language": words.language} | ({CJK: BIGRAMS} if cut else {})
        meta: dict[str, Any] = {"version": VERSION, "passages": count, "sha256": digest, "words": description}
        meta["bm25"] = {"k1": k1, "b": b, "vocabulary": _write_bm25(draft, words, k1, b, str(passages))}
        if dense is not None:
            meta["dense"] = write_dense(draft, Passages(draft), dense, embed)
        meta["parts"] = _digests(draft)
        (draft / "corpus.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="ascii")
        try:
            draft.rename(folder)
        except OSError as error:
            if not folder.exists():
                raise
            raise ConfigError(f"{folder} was made by another build meanwhile; that one stays") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return meta


def _digests(folder: Path) -> dict[str, list[Any]]:
    """Path in the folder → [bytes, SHA-256 of the first and the last MiB and the length]."""
    digests: dict[str, list[Any]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "corpus.json":
            digests[path.relative_to(folder).as_posix()] = [path.stat().st_size, _digest(path)]
    return digests


def _digest(path: Path) -> str:
    size, digest = path.stat().st_size, hashlib.sha256()
    with open(path, "rb") as file:
        digest.update(file.read(_ENDS_BYTES))
        file.seek(max(size - _ENDS_BYTES, 0))
        digest.update(file.read(_ENDS_BYTES))
    digest.update(str(size).encode())
    return digest.hexdigest()


def _check_parts(folder: Path, parts: Any) -> None:
    """Raises ConfigError: a file that the build has written is absent, or another build's."""
    if not isinstance(parts, dict) or "passages.jsonl" not in parts:
        raise ConfigError(f"{folder}: corpus.json does not say what belongs to it; build the corpus anew")
    for name, (size, digest) in parts.items():
        path = folder / name
        if not path.is_file():
            raise ConfigError(f"{folder}: {name} is absent; build the corpus anew")
        if path.stat().st_size != size or _digest(path) != digest:
            raise ConfigError(f"{folder}: {name} is not what this corpus was built with; build the corpus anew")


def _write_passages(passages: Iterable[Passage], folder: Path, source: str) -> tuple[int, str]:
    offsets, ids, digest = [0], set(), hashlib.sha256()
    with open(folder / "passages.jsonl", "wb") as out:
        for passage in passages:
            if passage.id in ids:
                raise ReadError(source, None, f"two passages have the id {passage.id!r}")
            ids.add(passage.id)
            line = json.dumps(asdict(passage)).encode("ascii") + b"\n"
            digest.update(line)
            out.write(line)
            offsets.append(offsets[-1] + len(line))
    if not ids:
        raise ReadError(source, None, "it holds no passages")
    np.save(folder / "offsets.npy", np.asarray(offsets, dtype=np.int64))
    return len(ids), digest.hexdigest()


def _write_bm25(folder: Path, words: Tokenizer, k1: float, b: float, source: str) -> int:
    bm25s, split = _bm25s(), words.splitter()
    index = bm25s.BM25(k1=k1, b=b, method="lucene", backend="numpy", auto_compile=False)
    passages = Passages(folder)
    vocabulary: dict[str, int] = {}
    # numbers that the vocabulary holds, not words: one object each, however often a word occurs
    rows = [[vocabulary.setdefault(w, len(vocabulary)) for w in split(searched(passage))] for passage in passages]
    if not vocabulary:
        raise ReadError(source, None, "its passages hold no words")
    with _quiet():
        index.index((rows, vocabulary), show_progress=False)
        index.save(folder / "bm25", show_progress=False)
    return len(index.vocab_dict)


# ---- reading ------------------------------------------------------------------------------------------------------------


class Corpus:
    """An opened corpus folder; `open_corpus` opens it once a process."""

    def __init__(self, folder: Path) -> None:
        needs("tools", "searching a corpus", "bm25s", "Stemmer")
        bm25s = _bm25s()
        try:
            self.meta = json.loads((folder / "corpus.json").read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{folder} is no corpus: `reagent corpus PASSAGES -o {folder}` makes one ({error})"
            ) from error
        if self.meta.get("version") != VERSION:
            raise ConfigError(f"{folder} has version {self.meta.get('version')} and {VERSION} is read: build it anew")
        _check_parts(folder, self.meta.get("parts"))
        self.folder = folder
        self.passages = Passages(folder)
        how = {"backend": "numpy", "auto_compile": False}
        with _quiet():
            self.bm25 = bm25s.BM25.load(folder / "bm25", mmap=True, show_progress=False, override_params=how)
        words = self._words()
        self.split = words.splitter()
        self._split_query = words.splitter(query=True)

    def _words(self) -> Tokenizer:
        """The index's tokenizer, so that queries are cut alike. Raises ConfigError: an unknown one."""
        description = dict(self.meta["words"])
        cut = description.pop(CJK, None)
        if cut not in (None, BIGRAMS) or description.keys() != {"language"}:
            raise ConfigError(
                f"{self.folder}: its words were made in a way not known here ({self.meta['words']}); build the corpus anew"
            )
        words = Tokenizer(description["language"])
        if cut is None and _CJK_RUN.search("\n".join(self.bm25.vocab_dict)):
            log.warning(
                "%s was built when a run of Chinese, Japanese or Korean was one word, and is searched so: build it anew to find parts of it",
                self.folder,
            )
            return replace(words, bigrams=False)
        return words

    def bm25_scores(self, query: str) -> np.ndarray:
        """BM25 of every passage, (passages,); 0 where no word of the query occurs."""
        ids = self.bm25.get_tokens_ids(self._split_query(query))
        return self.bm25.get_scores_from_ids(ids) if ids else np.zeros(len(self.passages), dtype=np.float32)

    @functools.cached_property
    def vectors(self) -> np.ndarray:
        """Unit vectors of the passages, (passages, dimensions), mapped. Raises ConfigError: there are none."""
        if "dense" not in self.meta:
            raise ConfigError(f"{self.folder} has no embeddings: build it with `reagent corpus … --dense MODEL`")
        return np.load(self.folder / "dense.npy", mmap_mode="r")


@functools.lru_cache(maxsize=8)
def _opened_corpus(folder: str) -> Corpus:
    return Corpus(Path(folder))


def open_corpus(folder: str | Path) -> Corpus:
    return _opened_corpus(os.path.realpath(folder))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence bm25s, which sets its logger to debug."""
    logger = logging.getLogger("bm25s")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def best(scores: np.ndarray, k: int, above: float = -np.inf) -> list[int]:
    """Indices of the `k` highest scores above a bound, the highest first, of equal ones the first."""
    k = min(k, len(scores))
    if k < 1:
        return []
    bound = np.partition(scores, -k)[-k]
    indices = np.flatnonzero((scores >= bound) & (scores > above))
    return [int(i) for i in indices[np.lexsort((indices, -scores[indices]))][:k]]
