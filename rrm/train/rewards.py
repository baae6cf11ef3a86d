"""Rewards of stage 2: pure functions of one reply and its row's label.

    part       range    well-formed reply                                             malformed reply
    agreement  [0, 1]   1 − (s − y)², s the score as written, y the target                 0
    format     [0, 1]   1                                                                  0
    anchor     [0, 1]   share of the step verdicts that are right (see `anchoring`)        0
    leak       [−1, 0]  −1 where trace or critique name an answer nobody in the run did   −1

Never None, which TRL would leave out of the group. The score is the sampled one, so that its tokens get the credit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rrm.data.annotation import Finding
from rrm.data.feedback import Mode, written_findings
from rrm.data.localisation import step_verdicts
from rrm.data.text import leaks

Part = Literal["agreement", "format", "anchor", "leak"]
PARTS: tuple[Part, ...] = ("agreement", "format", "anchor", "leak")
# of a malformed reply
MINIMUM: dict[Part, float] = {"agreement": 0.0, "format": 0.0, "anchor": 0.0, "leak": -1.0}

_TEXT = r"((?:(?!</?(?:think|critique|score)>).)+)"
_SCORE = r"<score>(0\.\d|1\.0)</score>"
_FORMS: dict[Mode, re.Pattern[str]] = {
    "full": re.compile(rf"<think>{_TEXT}</think>\s*<critique>{_TEXT}</critique>\s*{_SCORE}\s*", re.DOTALL),
    "critique": re.compile(rf"()<critique>{_TEXT}</critique>\s*{_SCORE}\s*", re.DOTALL),
}
_ANCHOR = re.compile(r"\[step (\d+)\]")


@dataclass(frozen=True)
class ParsedReply:
    # `trace` is empty in `critique` mode
    trace: str
    critique: str
    score: float


@dataclass(frozen=True)
class Label:
    target: float  # score in [0, 1]
    n_steps: int
    findings: Sequence[Finding] = ()  # of the annotation
    references: Sequence[str] = ()  # texts that count as the answer
    transcript: str = ""  # all the judge could read (`rrm.data.text.transcript_text`)


def read_reply(text: str, mode: Mode, *, ended: bool = True) -> ParsedReply | None:
    """Parse a reply (with opening tag, without special tokens) of exactly its mode's form, else None.

    The form: each block once, in order, none empty, a score on the grid 0.0, 0.1 … 1.0, nothing around them. `ended`: not cut off.
    """
    match = _FORMS[mode].fullmatch(text) if ended else None
    if match is None:
        return None
    trace, critique = match[1].strip(), match[2].strip()
    if not critique or (mode == "full" and not trace):
        return None
    return ParsedReply(trace, critique, float(match[3]))


def agreement(score: float, target: float) -> float:
    """1 − (s − y)² in [0, 1]: a proper score, highest in expectation at s = E[y]."""
    return 1.0 - (score - target) ** 2


def anchoring(critique: str, n_steps: int, findings: Sequence[Finding]) -> float:
    """Accuracy of a critique's `[step k] good|bad: text` lines, in [0, 1].

    A step is soundly anchored by exactly one line with a verdict and a text. Faults: anchors to no step, further lines on a step.

        with findings:  labelled steps soundly anchored with the label's verdict / (labelled steps + faults)
        without:        soundly anchored steps / anchors, 0 where there are none

    Several findings on a step count by majority, ties as bad.
    """
    lines = written_findings(critique, n_steps)
    per_step = Counter(line.step for line in lines)
    sound = {
        line.step: line.verdict
        for line in lines
        if per_step[line.step] == 1 and line.text and line.verdict != "unclear"
    }
    anchors = [int(k) for k in _ANCHOR.findall(critique)]
    labels = {k: v for k, v in enumerate(step_verdicts(findings, n_steps), 1) if v is not None}
    if not labels:
        return len(sound) / len(anchors) if anchors else 0.0
    nowhere = sum(not 1 <= k <= n_steps for k in anchors)
    repeats = len(lines) - len(per_step)
    right = sum(sound.get(k) == verdict for k, verdict in labels.items())
    return right / (len(labels) + nowhere + repeats)


def leakage(reply: ParsedReply, references: Sequence[str], transcript: str) -> float:
    """−1 where the reply names a reference answer although the transcript does not, else 0."""
    return -1.0 if leaks(f"{reply.trace}\n{reply.critique}", references, transcript) else 0.0


def rewards(reply: ParsedReply | None, label: Label) -> dict[Part, float]:
    if reply is None:
        return dict(MINIMUM)
    return {
        "agreement": agreement(reply.score, label.target),
        "format": 1.0,
        "anchor": anchoring(reply.critique, label.n_steps, label.findings),
        "leak": leakage(reply, label.references, label.transcript),
    }
