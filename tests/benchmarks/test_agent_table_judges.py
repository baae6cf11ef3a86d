"""The table's judges: another one judges again and plays nothing, the first one's rows stay, and what failed under one is not held against
the next."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from table_setup import judge, lines, mute

from benchmarks.agents.cells import Judges
from benchmarks.agents.methods import MethodSettings
from benchmarks.agents.run import Settings, plan_cells, run_table
from rrm.data.output import differences
from rrm.errors import RRMError


def test_attempts_played_without_a_judge_are_judged_later(settings: Settings) -> None:
    alone = replace(settings, methods=["direct"], judge=None)
    run_table(alone)
    folder = settings.output / "hotpotqa" / "direct"
    assert json.loads((folder / "metrics.json").read_text())["figures"]["judge"] is None
    assert not (folder / "scored.jsonl").exists() and not (settings.output / "report.html").exists()
    before = (folder / "attempts.jsonl").read_bytes()
    run_table(replace(settings, methods=["direct"]), {"j": judge()})
    assert (folder / "attempts.jsonl").read_bytes() == before and len(lines(folder / "scored.jsonl")) == 4


def test_another_judge_judges_again_and_nothing_is_played_again(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy need not be there any more; the first judge's rows stay, and are shown again when it is named."""
    policy = tmp_path / "policy"
    shutil.copytree(settings.policy, policy)
    asked, judges = replace(settings, policy=str(policy), methods=["direct"]), {"j": judge(), "k": judge(0.25, "other")}
    run_table(asked, judges)
    folder = settings.output / "hotpotqa" / "direct"
    attempts, first = (folder / "attempts.jsonl").read_bytes(), (folder / "scored.jsonl").read_bytes()
    before = json.loads((settings.output / "table.json").read_text())["rows"]

    def unloadable(*_: object) -> None:
        raise AssertionError("nothing is to be played")

    monkeypatch.setattr("benchmarks.agents.run.load_player", unloadable)
    summary = run_table(replace(asked, judge="k"), judges)
    assert (summary["played"], summary["failed"]) == (1, [])
    assert (folder / "attempts.jsonl").read_bytes() == attempts and (folder / "scored.jsonl").read_bytes() == first
    assert {row["score"] for row in lines(folder / "scored-2.jsonl")} == {0.25}
    made = json.loads((settings.output / "table.json").read_text())
    assert made["judge"] == "k" and made["rows"][0]["figures"]["judge"]["mean"]["value"] == 0.25
    assert '"score":[0.25,0.25,0.25,0.25]' in (settings.output / "report.html").read_text()
    calls = len(judges["j"].engine.calls)  # type: ignore[union-attr]
    run_table(asked, judges)
    [row], [old] = json.loads((settings.output / "table.json").read_text())["rows"], before
    assert row["figures"] == old["figures"] and len(judges["j"].engine.calls) == calls  # type: ignore[union-attr]
    assert not (folder / "scored-3.jsonl").exists()


def test_a_failure_under_another_judge_does_not_outlive_it(settings: Settings) -> None:
    """Figures that stand are shown again once they are what is asked for."""
    asked, judges = (
        replace(settings, methods=["best_of_n"], method=MethodSettings(samples=2)),
        {"j": judge(), "k": mute()},
    )
    run_table(asked, judges)
    refused = run_table(replace(asked, judge="k"), judges)  # nothing to choose by
    assert refused["failed"] == ["hotpotqa/best_of_n"] and refused["played"] == 0
    assert not (settings.output / "report.html").exists()
    summary = run_table(asked, judges)
    assert (summary["played"], summary["kept"], summary["failed"]) == (0, 1, [])
    [row] = json.loads((settings.output / "table.json").read_text())["rows"]
    assert "figures" in row and "failure" not in row


def test_cells_of_a_judge_that_was_trained_on_are_judged_again(settings: Settings, tmp_path: Path) -> None:
    """The name is a folder's: what lies in it may be another judge by now, who reads the other cells."""
    folder = tmp_path / "judge"
    shutil.copytree(settings.policy, folder)
    asked, loaded = replace(settings, methods=["direct"], judge=str(folder)), {str(folder): judge()}
    assert run_table(asked, loaded)["played"] == 1 and run_table(asked, loaded)["kept"] == 1
    critic = replace(settings, methods=["reagent_c"], judge=None, critic=str(folder))
    ([cell], _) = plan_cells(critic, Judges(None, str(folder), {}))
    before = cell.made_by
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"trained": "on"}))
    assert run_table(asked, loaded)["kept"] == 0
    ([now], _) = plan_cells(critic, Judges(None, str(folder), {}))
    (said,) = differences(before, now.made_by)
    assert said.startswith("critic_hash was")


def test_the_critic_that_was_the_judge_is_named_where_another_judge_is_asked(settings: Settings) -> None:
    """Its critiques decided the second attempts."""
    asked, judges = replace(settings, methods=["reagent_c"]), {"j": judge(), "k": judge(0.25, "other")}
    run_table(asked, judges)
    with pytest.raises(RRMError, match=r"feedback\.judge was 'j' and is 'k'; --critic j keeps its critiques"):
        run_table(replace(asked, judge="k"), judges)
    assert run_table(replace(asked, judge="k", critic="j"), judges)["failed"] == []
    assert len(lines(settings.output / "hotpotqa" / "reagent_c" / "scored-2.jsonl")) == 8
