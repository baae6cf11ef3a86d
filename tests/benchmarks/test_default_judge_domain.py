"""The study of what a judge of the mixture marks: whole sources left out, and a domain.json for a judge that has none."""

from __future__ import annotations

from pathlib import Path

from benchmarks.default_judge import domain as study
from rrm.data.trajectory import Message, Trajectory, write_jsonl
from rrm.judge.domain import features, fit_domain


def run(source: str, part: str, n: int) -> Trajectory:
    """Each source heads its lines in its own way."""
    said = "\n".join(f"{source[:4]} {k}: looked" for k in range(n % 5 + 1))
    messages = [Message(role="user", content="go"), Message(role="assistant", content=said)]
    return Trajectory(id=f"{source}-{part}-{n}", task="go", messages=messages, meta={"source": source, "part": part})


def test_sources_left_out_are_marked_and_those_at_home_are_not(tmp_path: Path) -> None:
    home = ("mint/math", "mint_more/mbpp", "agentdojo")
    parts = {"train": 40, "calibration": 40, "test": 30}
    rows = [run(source, part, n) for source in home for part, many in parts.items() for n in range(many)]
    write_jsonl(tmp_path / "transcripts.jsonl", rows)
    write_jsonl(tmp_path / "unseen.jsonl", [run("tau_bench", "unseen", n) for n in range(10)])
    read = study.read(tmp_path, 20, 0)
    assert {part: {source: len(found) for source, found in sources.items()} for part, sources in read.items()} == {
        "train": dict.fromkeys(sorted(home), 40),
        "calibration": dict.fromkeys(sorted(home), 20),
        "test": dict.fromkeys(sorted(home), 20),
        "unseen": {"tau_bench": 10},
    }
    domain = study.fit(read)
    assert [group.name for group in domain.groups] == sorted(home)
    found = study.measured(read, domain)
    assert found["home"] == {"share": 0.0, "rows": 60}
    assert found["unseen"] == {"tau_bench": {"share": 1.0, "rows": 10}}
    assert found["left_out"] == {"agentdojo": {"share": 1.0, "rows": 20}, "mint": {"share": 1.0, "rows": 40}}


def test_the_study_marks_as_the_judge_tells(tmp_path: Path) -> None:
    """A row at 1.00004 was outside in the study and not where it is told."""
    rows = [run("mint/math", part, n) for part in ("train", "calibration") for n in range(40)]
    write_jsonl(tmp_path / "transcripts.jsonl", rows)
    write_jsonl(tmp_path / "unseen.jsonl", [])
    domain, far = study.fit(study.read(tmp_path, 0, 0)), run("tau_bench", "test", 1)
    near = domain.model_copy(update={"threshold": domain.threshold * domain.distance(far) / 1.00004})
    assert study.marked(domain, [features(far)])["share"] == 1.0
    assert near.flag(far) == (False, 1.0) and study.marked(near, [features(far)])["share"] == 0.0


def test_the_study_groups_as_a_training_does(tmp_path: Path) -> None:
    """A source of five transcripts was a group of its own in the study, and joined the others in `rrm train`."""
    parts = {"train": {"mint/math": 40, "few": 5, "fewer": 3}, "calibration": {"mint/math": 40}}
    rows = [
        run(source, part, n) for part, sizes in parts.items() for source, many in sizes.items() for n in range(many)
    ]
    write_jsonl(tmp_path / "transcripts.jsonl", rows)
    write_jsonl(tmp_path / "unseen.jsonl", [])
    trained = fit_domain(*([t for t in rows if t.meta["part"] == part] for part in parts))
    groups = {group.name: group.rows for group in study.fit(study.read(tmp_path, 0, 0)).groups}
    assert groups == {group.name: group.rows for group in trained.groups} == {"": 8, "mint/math": 40}
