"""`rrm annotate --annotator planted`: the copies and labels that it writes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from succeeded_runs import question, support

from rrm.cli.annotate_cmd import command
from rrm.data.annotation import match, read_annotations
from rrm.data.mistakes import MISTAKE_KINDS
from rrm.data.trajectory import Trajectory, read_canonical, write_jsonl
from rrm.errors import ConfigError, RRMError
from rrm.prompt.canonical import canonical_step

CHANGES = ("--changes-state", "refund_order, send_email")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve runs that succeeded and two that did not, whose values are their own."""
    failed = [support(90).model_copy(update={"outcome": 0.0}), question(91).model_copy(update={"outcome": None})]
    write_jsonl(tmp_path / "in.jsonl", [*map(support, range(6)), *map(question, range(6)), *failed])
    return tmp_path


@pytest.fixture
def planted(invoke, folder: Path) -> Callable[..., dict[str, Any]]:
    """Runs the command on the folder's runs; gives its last line."""
    words = [
        folder / "in.jsonl",
        "-o",
        folder / "labels.jsonl",
        "--runs-output",
        folder / "planted.jsonl",
        "--annotator",
        "planted",
    ]
    return lambda *options: invoke(command, *words, *options)[1]


def test_copies_and_labels_belong_together_and_are_true(planted, folder: Path) -> None:
    said = planted(*CHANGES, "--per-run", 3)
    copies, labels = list(read_canonical(folder / "planted.jsonl")), read_annotations(folder / "labels.jsonl")
    assert (said["transcripts"], said["succeeded"], said["annotations"]) == (14, 12, len(labels)) and len(labels) >= 24
    assert len(copies) == len(labels) == sum(said["kinds"].values()) and said["kinds_left_out"] == []
    originals = {t.id: t for t in (*map(support, range(6)), *map(question, range(6)))}
    for copy, label in zip(copies, labels, strict=True):
        about = copy.meta["planted"]
        own = originals[about["of"]]
        assert (label.trajectory_id, label.digest, label.annotator, label.kind, label.score) == (
            copy.id,
            copy.digest,
            "planted",
            "rules",
            None,
        )
        assert label.findings and label.critique == f"[step {about['step']}] bad: {label.findings[-1].text}"
        *good, bad = label.findings
        assert [f.step for f in good] == list(range(1, len(good) + 1)) and {f.verdict for f in good} <= {"good"}
        assert (bad.step, bad.verdict) == (about["step"], "bad") == (len(copy.steps), "bad") and about[
            "kind"
        ] in MISTAKE_KINDS
        assert [canonical_step(s).action_text for s in copy.steps[: len(good)]] == [
            canonical_step(s).action_text for s in own.steps[: len(good)]
        ]
        assert copy.outcome is None and copy.question_id and copy.digest != own.digest
    assert [len(found) for found in match(copies, labels).by_id.values()] == [1] * len(copies)


def test_nothing_of_a_run_that_failed_is_used(planted, folder: Path) -> None:
    planted(*CHANGES, "--per-run", 12)
    text = (folder / "planted.jsonl").read_text()
    assert not any(value in text for value in ("A-4900", "B-7810", "R-1530", "130.140", "2634"))


def test_a_seed_gives_the_same_files_and_a_killed_run_goes_on(planted, folder: Path) -> None:
    planted(*CHANGES)
    whole = {name: (folder / name).read_bytes() for name in ("labels.jsonl", "planted.jsonl")}
    first, *_ = whole["labels.jsonl"].splitlines(keepends=True)
    (folder / "labels.jsonl").write_bytes(first)
    (folder / "planted.jsonl").write_bytes(b"".join(whole["planted.jsonl"].splitlines(keepends=True)[:2]))
    said = planted(*CHANGES)
    assert (said["resumed"], said["annotations"]) == (1, len(whole["labels.jsonl"].splitlines()) - 1)
    assert {name: (folder / name).read_bytes() for name in whole} == whole
    planted(*CHANGES, "--seed", 1, "--overwrite")
    assert (folder / "planted.jsonl").read_bytes() != whole["planted.jsonl"]
    with pytest.raises(RRMError, match="seed was 1 and is 0"):
        planted(*CHANGES)


def test_other_runs_are_another_making(planted, folder: Path) -> None:
    planted()
    write_jsonl(folder / "in.jsonl", map(support, range(3)))
    with pytest.raises(RRMError, match="runs was"):
        planted()


def test_kinds_that_need_tools_that_change_something_are_left_out_and_said(
    planted, caplog: pytest.LogCaptureFixture
) -> None:
    said = planted("--per-run", 12)
    assert said["kinds_left_out"] == ["unsupported_claim", "needless_side_effect"]
    assert not set(said["kinds_left_out"]) & set(said["kinds"])
    assert "unsupported_claim, needless_side_effect are left out: --changes-state" in caplog.text


def test_kinds_may_be_chosen(planted, folder: Path) -> None:
    assert set(planted("--kinds", "repeat,gave_up_early")["kinds"]) == {"repeat", "gave_up_early"}


def test_a_step_that_a_rule_proves_wrong_is_not_called_good(planted, folder: Path) -> None:
    run = support(1)
    again = [m.model_copy() for m in run.messages[2:4]]
    write_jsonl(
        folder / "in.jsonl", [run.model_copy(update={"messages": [*run.messages[:4], *again, *run.messages[4:]]})]
    )
    planted("--kinds", "gave_up_early,misread_result,wrong_answer,malformed_call", "--per-run", 4)
    for label in read_annotations(folder / "labels.jsonl"):
        verdicts = {f.step: f.verdict for f in label.findings or ()}
        assert verdicts.get(2) in (None, "bad")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--kinds", "repeated"), r"no kind of mistake 'repeated'; did you mean repeat\?"),
        (("--kinds", "xyz"), r"no kind of mistake 'xyz'.* The kinds are irrelevant_call, "),
        (("--kinds", "unsupported_claim"), "unsupported_claim needs --changes-state"),
        (("--changes-state", "refund_ordr"), r"refund_ordr: no run that succeeded calls or offers it; did you mean refund_order\?"),
        (("--model", "lab"), "asks no model: leave out --model"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(planted, folder: Path, options: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        planted(*options)
    assert not (folder / "planted.jsonl").exists()


def test_runs_without_success_are_refused(planted, folder: Path) -> None:
    rows: list[Trajectory] = [
        support(0).model_copy(update={"outcome": 0.9}),
        support(1).model_copy(update={"outcome": None}),
    ]
    write_jsonl(folder / "in.jsonl", rows)
    with pytest.raises(
        RRMError, match=r"none of 2 runs has an outcome of 0\.99 or more, 1 of them without an outcome.*--outcome FIELD"
    ):
        planted()


def test_the_two_files_are_two_and_needed(folder: Path, invoke) -> None:
    options = (folder / "in.jsonl", "-o", folder / "labels.jsonl", "--annotator")
    with pytest.raises(ConfigError, match="needs --runs-output"):
        invoke(command, *options, "planted")
    with pytest.raises(ConfigError, match="are one file"):
        invoke(command, *options, "planted", "--runs-output", folder / "labels.jsonl")
    with pytest.raises(ConfigError, match="--runs-output: for --annotator planted alone"):
        invoke(command, *options, "rules", "--runs-output", folder / "x.jsonl")
