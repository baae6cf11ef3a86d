"""What a cell's attempts are made from is known again by its content: a finished cell is not shown for other inputs under the same names."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from multihop import row
from table_setup import SMALL, judge

from benchmarks.agents.cells import Judges
from benchmarks.agents.inputs import Inputs
from benchmarks.agents.run import Settings, plan_cells, run_table
from rrm.data.output import differences
from rrm.engines.hf.hub import commit_of
from rrm.errors import RRMError

sys.path.append(str(Path(__file__).parents[1] / "rrm"))  # fake_hub

Made = dict[str, dict[str, Any]]


def made_by(settings: Settings) -> Made:
    """What decides each method's attempts."""
    cells, _ = plan_cells(settings, Judges(None, None, {}))
    return {cell.entry.label: cell.made_by for cell in cells}


def changes(settings: Settings, change: Callable[[], object]) -> dict[str, list[str]]:
    """What the methods' cells are refused for after a change; those that are kept have nothing."""
    before = made_by(settings)
    change()
    return {label: [said.split(" was ")[0] for said in differences(before[label], made)] for label, made in made_by(settings).items()}  # fmt: skip


def test_another_file_of_aliases_is_noticed(settings: Settings, tmp_path: Path) -> None:
    aliases = tmp_path / "id_aliases.json"
    aliases.write_text(json.dumps([{"Q_id": "Q1", "aliases": ["one"], "demonyms": []}]))
    asked = replace(
        settings, tasks=["2wiki"], paths={"2wiki": settings.paths["hotpotqa"]}, methods=["direct"],
        overrides=[*SMALL, f"environment.eval={{aliases: {aliases}}}"],
    )  # fmt: skip
    assert changes(asked, aliases.touch) == {"direct": []}
    assert changes(asked, lambda: aliases.write_text(aliases.read_text().replace("one", "two"))) == {
        "direct": ["aliases_sha256"]
    }


def test_another_folder_of_files_is_noticed(settings: Settings, tmp_path: Path) -> None:
    """By the methods that read it; a copy of it is the same."""
    files = tmp_path / "files"
    (files / "sub").mkdir(parents=True)
    (files / "a.txt").write_text("17 towns")
    (files / "sub" / "b.txt").write_text("x")
    questions = tmp_path / "gaia.jsonl"
    questions.write_text('{"task_id": "a", "Question": "?", "Level": 1, "Final answer": "17", "file_name": "a.txt"}\n')
    asked = replace(
        settings, tasks=["gaia"], paths={"gaia": str(questions)}, options={"gaia": {"files": str(files)}},
        methods=["direct", "tool_call"],
    )  # fmt: skip

    def copied() -> None:
        shutil.copytree(files, tmp_path / "copy")
        shutil.rmtree(files)
        (tmp_path / "copy").rename(files)
        os.utime(files / "a.txt", (0, 0))

    assert changes(asked, copied) == {"direct": [], "tool_call": []}
    for change in (
        lambda: (files / "a.txt").write_text("18 towns"),
        lambda: (files / "a.txt").rename(files / "c.txt"),
        lambda: (files / "sub" / "b.txt").unlink(),
    ):
        assert changes(asked, change) == {"direct": [], "tool_call": ["files_sha256"]}
    elsewhere = replace(asked, options={"gaia": {"tool_options": {"read_file": {"root": str(files)}}}})
    assert changes(elsewhere, lambda: (files / "d.txt").write_text("new"))["tool_call"] == ["read_file_sha256"]


class Loaded(list[dict[str, Any]]):
    """Rows as `datasets` streams them."""

    features = None


def test_a_set_that_moved_on_the_hub_is_noticed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows come from the commit that stands in the record; where the hub cannot be asked, what was played is still shown."""
    datasets = pytest.importorskip("datasets", reason="the extra hub is not installed")
    from fake_hub import serve_hub

    asked: list[str] = []

    def load(name: str, config: str | None, *, split: str, revision: str, streaming: bool) -> Loaded:
        asked.append(f"{name}@{revision}#{config}:{split}")
        return Loaded(row(i) for i in range(4))

    monkeypatch.setattr(datasets, "load_dataset", load)
    path = "hf:org/towns#distractor:validation"
    table = replace(settings, methods=["direct"], judge=None, paths={"hotpotqa": path}, corpora={})
    with serve_hub(monkeypatch, "datasets/org/towns") as hub:
        hub.sha = "a" * 40
        assert run_table(table)["failed"] == [] and set(asked) == {f"org/towns@{'a' * 40}#distractor:validation"}
        assert run_table(table)["kept"] == 1
        hub.sha = "b" * 40
        with pytest.raises(RRMError, match=r"questions_revision was 'aaaa.* and is 'bbbb"):
            run_table(table)
        pinned = f"hf:org/towns@{'a' * 40}#distractor:validation"
        assert Inputs().pinned(pinned) == pinned
    assert run_table(table)["kept"] == 1


def test_a_judge_whose_commit_is_not_known_judges_nothing_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = ["a" * 40, None, "b" * 40]
    monkeypatch.setattr("benchmarks.agents.cells.commit_of", lambda name: commits[0])
    asked, loaded = replace(settings, methods=["direct", "reagent_c"], judge="org/judge"), {"org/judge": judge()}
    assert run_table(asked, loaded)["played"] == 2
    commits.pop(0)
    assert run_table(asked, loaded)["kept"] == 2
    commits.pop(0)
    with pytest.raises(RRMError, match=r"critic_hash was 'aaaa.* and is 'bbbb"):
        run_table(asked, loaded)
    assert run_table(replace(asked, methods=["direct"]), loaded)["played"] == 1


def test_which_commit_a_name_means(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a policy, a judge and a set; without the hub its cache says which weights are loaded."""
    from fake_hub import serve_hub
    from huggingface_hub import constants

    refs = tmp_path / "hub" / "models--org--model" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("kept")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    asked = replace(settings, policy="org/model", methods=["direct"])
    with serve_hub(monkeypatch, "org/model") as hub:
        assert made_by(asked)["direct"]["policy_revision"] == "abc"
        assert commit_of("org/model", revision="v1") == "abc" and hub.asked[-1][0].endswith("/revision/v1")
        assert Judges("org/judge", None, {}).hash_of("org/judge") == "abc"
        before = len(hub.asked)
        assert commit_of("org/model", revision="0" * 40) == "0" * 40 and len(hub.asked) == before
    assert made_by(asked)["direct"]["policy_revision"] == "kept"
    assert commit_of("org/model", revision="v1") is None and commit_of("org/model", kind="dataset") is None
    assert Judges("j", None, {}).hash_of("openai:http://localhost/v1#model") is None
