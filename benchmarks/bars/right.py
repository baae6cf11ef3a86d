"""What was silently wrong: chat judges over real HTTP, agents' logs and faults, hostile input, failing machines."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.bars.bar import Bar
from benchmarks.record import ROOT

MORE = ROOT / "tests" / "rrm" / "judge" / "judge_replies_more.json"
CASES = ROOT.parent / "shared" / "cases" / "judge_replies.json"


def bars(run: bool = True) -> Iterator[Bar]:
    """Replies that are read or typed as they should be, of both files; damages of a checkpoint that are seen."""
    from rrm.engines.base import Reply
    from rrm.judge.chat import read_reply

    def right(text: str, wanted: object) -> bool:
        found = read_reply(Reply(text, "eos"))
        return (found.raw_score if found.status == "scored" else found.status) == wanted

    cases: list[tuple[str, object]] = [(text, wanted) for text, wanted in json.loads(MORE.read_text("utf-8"))]
    yield _counted("chat judges: further replies read or typed", cases, [right(*case) for case in cases])
    what = "chat judges: replies of shared/cases read or typed"
    if CASES.is_file():
        told = json.loads(CASES.read_text("utf-8"))
        given = [*map(tuple, told["readable"]), *((text, "unparsable") for text in told["not_readable"])]
        yield _counted(what, given, [right(*case) for case in given])
    else:
        yield Bar(what, "no ../shared/cases", "all", None)
    yield _damages()


def _counted(what: str, cases: Sequence[tuple[str, object]], right: list[bool]) -> Bar:
    wrong = [text for (text, _), ok in zip(cases, right, strict=True) if not ok]
    first = f"; the first that is not: {wrong[0][:80]!r}" if wrong else ""
    return Bar(what, f"{sum(right)} of {len(cases)}{first}", "all", not wrong)


def _damages() -> Bar:
    """Each file of a checkpoint damaged in each way: how often it is told from the older one, which is whole."""
    from rrm.train.checkpoints import damage, seal

    harms: dict[str, Callable[[Path], object]] = {
        "removed": Path.unlink,
        "emptied": lambda path: path.write_bytes(b""),
        "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
        "longer": lambda path: path.write_bytes(path.read_bytes() + b"0"),
        "a bit flipped": lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]),
    }
    names = (
        "model.safetensors",
        "optimizer.pt",
        "scheduler.pt",
        "rng_state.pth",
        "trainer_state.json",
        "manifest.json",
    )
    cases = [
        (f"{name} {how}", (name, harm))
        for name in names
        for how, harm in harms.items()
        if (name, how) != ("manifest.json", "longer")
    ]
    right = []
    for _, (name, harm) in cases:
        with tempfile.TemporaryDirectory() as place:
            older, newer = Path(place, "checkpoint-20"), Path(place, "checkpoint-40")
            for folder in (older, newer):
                folder.mkdir()
                for file in names[:-1]:
                    (folder / file).write_text(f"{folder.name} {file}")
                seal(folder)
            harm(newer / name)
            right.append(damage(newer) is not None and damage(older) is None)
    return _counted("machines: damages of a checkpoint that are told from a whole one", cases, right)
