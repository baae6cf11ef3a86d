"""Read the answers to a blind sheet with its key: win rates, agreement of raters, favoured sides."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rrm.annotate.comparison_sheet import Key, KeyItem, checksum, sum_of_key
from rrm.errors import ReadError, RRMError
from rrm.evaluation.agreement import Unit, agreement
from rrm.evaluation.bootstrap import Ratio, own_interval, replicates, too_few
from rrm.readers.base import describe, printable

log = logging.getLogger(__name__)
T = TypeVar("T", bound=BaseModel)
Choice = Literal["left", "right", "tie"]
MOST_BYTES = 64 * 1024 * 1024


class RaterAnswers(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sheet: str
    rater: str = Field(min_length=1, max_length=64)
    answers: dict[str, Choice]
    checksum: str = ""


@dataclass(frozen=True)
class _Vote:
    rater: str
    number: str
    item: KeyItem
    choice: Choice

    @property
    def winner(self) -> str:
        if self.choice == "tie":
            return "tie"
        return "a" if self.choice == self.item.a else "b"


def sum_of_answers(answers: RaterAnswers) -> str:
    """Compute the `checksum` that answers should have; ValueError for a number that is none."""
    sorted_answers = sorted((int(number), choice) for number, choice in answers.answers.items())
    return checksum([answers.sheet, answers.rater, sorted_answers])


def read_key(path: Path) -> Key:
    """Read the key of a sheet; raises ReadError for one that was changed since it was written."""
    key = _read(path, Key, "the key of a sheet (OUT.key.json, as `rrm compare --sheet` writes it)")
    if key.version == 1:
        why = "is a key of an earlier version, which has no checksum: analyse that sheet with the version that made it"
        raise ReadError(str(path), None, why)
    if key.checksum != sum_of_key(key):
        raise ReadError(
            str(path),
            None,
            "was changed since `rrm compare --sheet` wrote it (its checksum says so), so nobody knows any more whose side was which: take it "
            "from a backup, or make a sheet anew",
        )
    return key


def read_answers(paths: Sequence[Path], key: Key) -> list[RaterAnswers]:
    """Read raters' files; of two by one rater that do not differ, one is passed over with a warning.
    Raises RRMError for answers to another sheet or item, with a wrong checksum, none at all, or two that differ by one rater."""
    by_rater = dict[str, tuple[Path, RaterAnswers]]()
    for path in paths:
        returned = _read(path, RaterAnswers, "a file of answers (a sheet's Save answers)")
        if returned.sheet != key.sheet:
            raise RRMError(
                f"{path} answers the sheet {printable(returned.sheet, 40)}, and the key is of {key.sheet}: give the key that was written beside that sheet"
            )
        if strange := sorted(set(returned.answers) - set(key.items)):
            raise RRMError(f"{path} answers {printable(strange[0], 40)!r}, which is not on the sheet: was it edited?")
        if returned.checksum != sum_of_answers(returned):
            problem = (
                "was changed since the sheet saved it (its checksum says so)"
                if returned.checksum
                else "has no checksum"
            )
            raise RRMError(
                f"{path} {problem}: ask {printable(returned.rater, 64)!r} to open the sheet and save the answers again"
            )
        name = " ".join(returned.rater.split())
        if name in by_rater and by_rater[name][1].answers == returned.answers:
            log.warning("%s holds the same answers by %r as %s: counted once", path, printable(name), by_rater[name][0])
            continue
        if name in by_rater:
            raise RRMError(
                f"{by_rater[name][0]} and {path} are both by {printable(name)!r}: leave one out, or give two people two names"
            )
        by_rater[name] = (path, returned.model_copy(update={"rater": name}))
    if not any(answers.answers for _, answers in by_rater.values()):
        raise RRMError("the files hold no answer")
    return [answers for _, answers in by_rater.values()]


def analyse(key: Key, returned: Sequence[RaterAnswers], *, resamples: int = 10_000, seed: int = 0) -> dict[str, Any]:
    """Compute the figures of a comparison, with intervals over questions.
    Returns `win_rate_a` (a tie is half a win), `left` (share of left among answers that are no ties), `a_wins`, `b_wins`, `ties`,
    `agreement` on a, b, tie, and `by_rater` and `by_category` with the same figures."""
    votes = [_Vote(answers.rater, n, key.items[n], c) for answers in returned for n, c in answers.answers.items()]
    how = {"resamples": resamples, "seed": seed}
    by_item = dict[str, dict[str, str]]()
    for vote in votes:
        by_item.setdefault(vote.number, {})[vote.rater] = vote.winner
    units = [Unit(key.items[n].question, winners) for n, winners in by_item.items()]
    categories = sorted({v.item.category for v in votes if v.item.category is not None})
    return {
        "a": key.a,
        "b": key.b,
        "items": len(key.items),
        "answered": len(by_item),
        "left_out": key.left_out,
        **_figures(votes, **how),
        "agreement": agreement(units, **how),
        "by_rater": {
            answers.rater: _figures([v for v in votes if v.rater == answers.rater], **how) for answers in returned
        },
        "by_category": {name: _figures([v for v in votes if v.item.category == name], **how) for name in categories},
    }


def _figures(votes: Sequence[_Vote], *, resamples: int, seed: int) -> dict[str, Any]:
    counts = Counter(vote.winner for vote in votes)
    places = {question: i for i, question in enumerate(dict.fromkeys(vote.item.question for vote in votes))}

    def ratio(worth: Callable[[_Vote], float], among: Callable[[_Vote], bool]) -> dict[str, float | None]:
        above, below = np.zeros(len(places)), np.zeros(len(places))
        for vote in votes:
            if among(vote):
                above[places[vote.item.question]] += worth(vote)
                below[places[vote.item.question]] += 1
        it = Ratio(above, below)
        if not below.any():
            return {"value": None, "low": None, "high": None}
        drawn = replicates({"it": it}, len(places), n=resamples, seed=seed)["it"]
        few = too_few(int(np.count_nonzero(below)), int(below.sum()))
        return own_interval(it, len(places), drawn).unless(few).to_dict()

    return {
        "answers": len(votes),
        "a_wins": counts["a"],
        "b_wins": counts["b"],
        "ties": counts["tie"],
        "win_rate_a": ratio(lambda v: {"a": 1.0, "tie": 0.5, "b": 0.0}[v.winner], lambda v: True),
        "left": ratio(lambda v: float(v.choice == "left"), lambda v: v.choice != "tie"),
    }


def _read(path: Path, model: type[T], description: str) -> T:
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ReadError(str(path), None, f"cannot be opened: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise ReadError(str(path), None, f"not {description}: over {MOST_BYTES:,} bytes")
    try:
        return model.model_validate(json.loads(data))
    except ValidationError as error:
        raise ReadError(str(path), None, f"not {description}: {describe(error)}") from error
    except (ValueError, RecursionError) as error:
        raise ReadError(str(path), None, f"not {description}: no JSON ({error})") from error
