"""The questions and passages of `smollm2_qa`: which supporting passages a question has, and which part of the study it belongs to.

HotpotQA names the supporting passages of its questions. The 2Wiki questions at hand come without, so they are found as a person
would: the question names the title of a passage, that passage names the title of another one, and the other one holds the answer.
2Wiki questions of which no such chain of one or two passages exists are left out, and so are those whose answer stands in the
question or is yes or no: nearly all of these compare two films by their directors, which takes four passages, and an episode
has two searches. Whether a chain is the right one is not known; of 25 that were read one was wrong (two people of one name).

A question's part is drawn by the hash of its words, whatever file it stands in. MuSiQue is never trained on.
"""

from __future__ import annotations

import gzip
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from reagent.env.task import Task, read_tasks, write_tasks
from reagent.tasks.base import OWN
from reagent.tasks.hotpotqa import HotpotQA
from reagent.tasks.musique import MuSiQue
from reagent.tasks.reading import GivenPassage, SourceRow, distinct, read_rows, write_passages
from rrm.data.questions import question_hash
from rrm.data.seeds import derive_seed

Part = Literal["warm", "train", "held_out"]
NAME = "smollm2_qa"
SHARES: dict[Part, float] = {"warm": 0.34, "train": 0.20, "held_out": 0.46}
HELD_OUT = 500
"""So many held-out questions there must be."""
B = 0.4
"""BM25's length normalisation: with the usual 0.75 a title finds short passages that name it before its own. A title's own passage comes
first for 72 rather than 56 in 100 of 2Wiki's (71, 68 of HotpotQA's), and is what every method searches in."""
_WORD = re.compile(r"\w+")
_IN_PARENTHESES = re.compile(r"\s*\([^()]*\)\s*$")
_COMMON = 20
"""A title that more questions than these name is a common phrase ("Place of birth"), not what they are about."""
_LONGEST = 12
Words = tuple[str, ...]


# ---- words and mentions ------------------------------------------------------------------------------------------------


def words(text: str) -> Words:
    """Letters and digits, case and Unicode form ignored."""
    return tuple(_fold(found.group()) for found in _WORD.finditer(text))


def _fold(word: str) -> str:
    return unicodedata.normalize("NFKC", word).casefold()


def plain_title(title: str) -> str:
    """Without what tells it from others of its name, `Kadal (1968 film)`."""
    return _IN_PARENTHESES.sub("", title) or title


def mention(text: str, title: str) -> str | None:
    """The title as the text writes it, whole or without its parentheses; None where it does not."""
    found = list(_WORD.finditer(text))
    said = [_fold(word.group()) for word in found]
    for wanted in dict.fromkeys((words(title), words(plain_title(title)))):
        n = len(wanted)
        for i in range(len(said) - n + 1 if n else 0):
            if tuple(said[i : i + n]) == wanted:
                span = text[found[i].start() : found[i + n - 1].end()]
                closing = "(" in span and ")" not in span and text[found[i + n - 1].end() :].startswith(")")
                return f"{span})" if closing else span
    return None


def holds(text: str, answer: str) -> bool:
    """Whether the answer's words stand in the text, one after another."""
    said, wanted = words(text), words(answer)
    n = len(wanted)
    return n > 0 and any(said[i : i + n] == wanted for i in range(len(said) - n + 1))


# ---- chains of 2Wiki ---------------------------------------------------------------------------------------------------


class Titles:
    """Passages by their titles without parentheses."""

    def __init__(self, passages: Iterable[GivenPassage]) -> None:
        self.by_words: dict[Words, list[GivenPassage]] = defaultdict(list)
        for passage in passages:
            self.by_words[words(plain_title(passage.title))].append(passage)

    def named(self, text: str) -> list[Words]:
        """Titles that the text names, in its order, none within a longer one."""
        said = words(text)
        spans: list[tuple[int, int]] = []
        for i in range(len(said)):
            longest = min(_LONGEST, len(said) - i)
            n = next((n for n in range(longest, 0, -1) if said[i : i + n] in self.by_words), 0)
            if n and not any(i + n <= end for _, end in spans):
                spans.append((i, i + n))
        return list(dict.fromkeys(said[i:j] for i, j in spans))

    def chain(self, question: str, answer: str, common: Iterable[Words] = ()) -> list[str] | None:
        """Titles of the one or two passages that lead from the question to the answer; None where none do.

        Args:
            common: titles that are phrases.
        """
        left_out = set(common)
        first = [p for title in self.named(question) if title not in left_out for p in self.by_words[title]]
        for passage in first:
            if holds(passage.text, answer):
                return [passage.title]
        for passage in first:
            for title in self.named(passage.text):
                for other in self.by_words[title]:
                    if title not in left_out and other.title != passage.title and holds(other.text, answer):
                        return [passage.title, other.title]
        return None


def with_chains(rows: Sequence[Mapping[str, Any]], passages: Sequence[GivenPassage]) -> list[Task]:
    """The 2Wiki questions that have a chain, as tasks.

    Args:
        rows: `{question, answer}`.
    """
    titles = Titles(passages)
    count = Counter(title for row in rows for title in titles.named(row["question"]))
    common = {title for title, n in count.items() if n > _COMMON}
    found = []
    for row in rows:
        question, answer = row["question"].strip(), row["answer"]
        if words(answer) in (("yes",), ("no",)) or holds(question, answer):
            continue
        chain = titles.chain(question, answer, common)
        if chain is not None:
            found.append(task_of(question, answer, "2wiki", chain))
    return found


# ---- tasks and parts ---------------------------------------------------------------------------------------------------


def task_of(question: str, answer: str, source: str, supporting: Sequence[str], **meta: Any) -> Task:
    """A task of this study."""
    known = question_hash(question)
    about = {OWN: NAME, "source": source, "supporting": list(supporting), **meta}
    return Task(f"{source}-{known}", question, answer, question_id=known, meta=about)


def part_of(task: Task) -> Part:
    """Drawn by the question's hash."""
    drawn = derive_seed(NAME, task.question_id) / 2**63
    for part, share in SHARES.items():
        if drawn < share:
            return part
        drawn -= share
    return "held_out"


def parts_of(tasks: Iterable[Task]) -> dict[Part, list[Task]]:
    """Each question once (the first of a hash), in an order that its hash gives."""
    once = {task.question_id: task for task in reversed(list(tasks))}
    found: dict[Part, list[Task]] = {part: [] for part in SHARES}
    for task in sorted(once.values(), key=lambda task: derive_seed(NAME, "order", task.question_id)):
        found[part_of(task)].append(task)
    return found


def read(data: Path) -> tuple[list[Task], list[Task], list[GivenPassage]]:
    """(HotpotQA's and 2Wiki's questions, MuSiQue's, the passages of all three) of the folder with the data sets."""
    hotpot = [data / "hotpotqa" / f"{name}.json.gz" for name in ("train_500_distractor", "hipporag_hotpotqa_train_100")]
    musique = data / "musique" / "hipporag_musique_train_100.json.gz"
    wiki = [
        GivenPassage(r.text("title"), " ".join(r.text("text").split()))
        for r in read_rows(data / "2wiki" / "corpus_6119.json.gz")
    ]
    with gzip.open(data / "2wiki" / "dev_questions_touching_corpus.json.gz", "rt", encoding="utf-8") as file:
        questions = json.load(file)
    tasks = [_ours(task, "hotpotqa") for path in hotpot for task in HotpotQA.read(path)]
    tasks += with_chains(questions, wiki)
    evaluated = [_ours(task, "musique") for task in MuSiQue.read(musique)]
    passages = [*_passages(HotpotQA.passages, hotpot), *wiki, *_passages(MuSiQue.passages, [musique])]
    return tasks, evaluated, list(distinct(passages))


def _passages(of: Any, paths: Iterable[Path]) -> Iterator[GivenPassage]:
    return (
        passage for path in paths for row in read_rows(path) for passage in of(SourceRow(row.data, row.path, row.line))
    )


def _ours(task: Task, source: str) -> Task:
    kept = {key: task.meta[key] for key in ("type", "level", "hops", "aliases") if key in task.meta}
    made = task_of(task.question, task.answer or "", source, task.meta["supporting"], **kept)
    return replace(made, id=f"{source}-{task.id}")


def prepare(data: Path, work: Path) -> dict[str, int]:
    """Write the tasks of each part, MuSiQue's, and the corpus, unless they are there; returns how many of each.

    Raises:
        SystemExit: fewer held-out questions than the study promises.
    """
    from reagent.tools.corpus import build_corpus

    if not (work / "counts.json").is_file():
        tasks, evaluated, passages = read(data)
        parts = parts_of(tasks)
        if len(parts["held_out"]) < HELD_OUT:
            raise SystemExit(f"only {len(parts['held_out'])} held-out questions in {data}, {HELD_OUT} are wanted")
        work.mkdir(parents=True, exist_ok=True)
        counts = {part: write_tasks(work / f"{part}.jsonl", found) for part, found in parts.items()}
        counts["musique"] = write_tasks(work / "musique.jsonl", evaluated)
        counts["passages"] = write_passages(work / "passages.jsonl", passages)
        if not (work / "corpus").is_dir():
            build_corpus(work / "passages.jsonl", work / "corpus", b=B)
        (work / "counts.json").write_text(json.dumps(counts) + "\n")
    return json.loads((work / "counts.json").read_text())


def tasks_in(work: Path, part: Part) -> list[Task]:
    """Of a part that `prepare` wrote."""
    return read_tasks(work / f"{part}.jsonl")
