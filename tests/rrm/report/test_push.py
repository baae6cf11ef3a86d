"""Data sets for others: rows come back as they were, nothing of this machine goes, keys stop it, and the card claims what is known."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from fake_hub import Hub, serve_hub
from published_runs import JUDGE, TOKEN, messages
from typer.testing import CliRunner

from rrm.cli import push_cmd
from rrm.data.annotation import Annotation, Finding, own_annotations
from rrm.data.feedback import Feedback
from rrm.data.trajectory import Trajectory
from rrm.engines.hf.hub import HubError
from rrm.readers import read
from rrm.report import dataset
from rrm.report.dataset import COLUMNS, shown_model, write_rows
from rrm.train import given_labels

APP = typer.Typer(pretty_exceptions_enable=False)


APP.command("push")(push_cmd.command)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Two runs in a folder that nobody else should hear of."""
    path = tmp_path / "home" / "ann" / "runs.jsonl"
    path.parent.mkdir(parents=True)
    lines = [
        {
            "id": "one",
            "messages": messages("90 cm"),
            "outcome": 1,
            "tools": [{"type": "function", "function": {"name": "look"}}],
        },
        {"id": "two", "messages": messages("80 cm"), "outcome": 0.5, "note": {"deep": ["x"]}},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def push(*words: Any) -> Any:
    return CliRunner().invoke(APP, [str(word) for word in words])


def labelled(folder: Path, *runs: Trajectory) -> Path:
    path = folder / "labels.jsonl"
    findings = [Finding(step=1, verdict="good", p_good=0.9, text="looks")]
    labels = [
        Annotation(trajectory_id=t.own_id, digest=t.digest, score=0.7, critique="[step 1] good: looks", findings=findings,
                   annotator="openai:http://10.1.2.3:8000/v1#gpt", kind="llm", weight=0.5) for t in runs
    ]  # fmt: skip
    path.write_text("".join(label.to_json() + "\n" for label in labels))
    return path


def scored(folder: Path, *runs: Trajectory) -> Path:
    path = folder / "scored.jsonl"
    made = [
        Feedback(id=t.id, status="scored", score=0.8, critique="Fine.", reason="http://10.1.2.3", judge=JUDGE)
        for t in runs[:1]
    ]
    made += [Feedback(id=t.id, status="judge_error", reason="http://10.1.2.3 said 500", judge=JUDGE) for t in runs[1:]]
    rows = [{**f.model_dump(), "source": {"digest": t.digest}} for f, t in zip(made, runs, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_come_back_with_labels_and_judgements(rows: Path, tmp_path: Path) -> None:
    runs = list(read(rows))
    out = tmp_path / "set"
    words = ("--annotations", labelled(tmp_path, *runs), "--scores", scored(tmp_path, *runs))
    result = push(rows, "--to", "org/doors", "--license", "CC-BY-4.0", *words, "--dry-run", out)
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout.splitlines()[-1])
    assert summary == {
        **{
            "command": "push",
            "to": "org/doors",
            "private": True,
            "license": "cc-by-4.0",
            "rows": 2,
            "labels": 2,
            "judged": 2,
        },
        **{"found": {}, "redacted": False, "files": ["README.md", "data/train-00000.parquet"]},
        **{"folder": str(out), "pushed": None},
    }
    assert sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()) == summary["files"]
    back = list(read(out / "data"))
    assert [t.digest for t in back] == [t.digest for t in runs]
    for was, now in zip(runs, back, strict=True):
        assert [m.model_dump(exclude_none=True) for m in now.messages] == [
            m.model_dump(exclude_none=True) for m in was.messages
        ]
        assert (now.id, now.task, now.question_id, now.outcome, now.tools) == (
            was.id, was.task, was.question_id, was.outcome, was.tools,
        )  # fmt: skip
        assert now.source and (now.source.file, now.source.format) == ("runs.jsonl", "openai")
    assert back[1].meta["note"] == {"deep": ["x"]} and "note" not in back[0].meta
    counts = Counter[str]()
    one, two = given_labels.annotate(back, counts=counts)
    assert (one.score, one.critique, one.weight, one.annotator, one.kind) == (
        0.7,
        "[step 1] good: looks",
        0.5,
        "gpt",
        "llm",
    )
    assert one.findings == [Finding(step=1, verdict="good", p_good=0.9, text="looks")] and two.digest == runs[1].digest
    assert back[0].meta["feedback"]["score"] == 0.8 and back[1].meta["feedback"]["status"] == "judge_error"
    assert "score" not in back[1].meta["feedback"]


def test_nothing_of_this_machine_goes(rows: Path, tmp_path: Path) -> None:
    runs, out = list(read(rows)), tmp_path / "set"
    words = ("--annotations", labelled(tmp_path, *runs), "--scores", scored(tmp_path, *runs))
    assert push(rows, "--to", "org/doors", *words, "--license", "mit", "--dry-run", out).exit_code == 0
    said = "".join(t.to_json() for t in read(out / "data")).replace(str(out), "") + (out / "README.md").read_text()
    assert "10.1.2.3" not in said and "ann" not in said.replace("annot", "") and str(tmp_path) not in said
    assert [shown_model(n) for n in ("/home/ann/judge", "org/judge", "openai:http://h#m", "C:\\x\\judge", "openai:http://h")] == [
        "judge", "org/judge", "m", "judge", "a served model",
    ]  # fmt: skip


def test_the_card_says_what_is_known(rows: Path, tmp_path: Path) -> None:
    runs, out = list(read(rows)), tmp_path / "set"
    words = ("--annotations", labelled(tmp_path, runs[0]), "--scores", scored(tmp_path, *runs))
    assert push(rows, "--to", "org/doors", "--license", "mit", *words, "--dry-run", out).exit_code == 0
    card = (out / "README.md").read_text()
    front = yaml.safe_load(card.split("---\n")[1])
    assert front["license"] == "mit" and front["size_categories"] == ["n<1K"]
    assert front["configs"] == [
        {"config_name": "default", "data_files": [{"split": "train", "path": "data/train-*.parquet"}]}
    ]
    assert "2 transcripts of agents (4 steps, 1 questions)" in card and "read from: `openai` 2" in card
    assert "success 1, partial 1, failure 0, unknown 0" in card
    assert "| gpt | llm | 1 | 1 | 0 | 1 | 1 |" in card and "| m-7b | ab12 | 2 | full | – | 2 |" in card
    assert "judge_error 1" in card and "none found" in card and "`mit`, as said by who published it." in card
    assert all(f"| `{name}` |" in card for name in COLUMNS)
    bare = tmp_path / "bare"
    assert push(rows, "--to", "org/doors", "--license", "mit", "--dry-run", bare, "--no-meta").exit_code == 0
    card = (bare / "README.md").read_text()
    assert "`meta`" not in card
    assert "note" not in next(t for t in read(bare / "data") if t.id == "two").meta


def test_a_relative_score_is_published_as_one(rows: Path, tmp_path: Path) -> None:
    """Rows of `rrm rank` went out as what the judge thinks of each run."""
    import pyarrow.parquet as pq

    runs, out = list(read(rows)), tmp_path / "set"
    lines = [json.loads(line) for line in scored(tmp_path, *runs).read_text().splitlines()]
    lines[0]["rank"] = {"position": 2, "n_compared": 3, "n_batches": 1, "group": "g"}
    (tmp_path / "ranked.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ("--scores", tmp_path / "ranked.jsonl", "--license", "mit", "--dry-run", out)
    assert push(rows, "--to", "org/doors", *words).exit_code == 0
    table = pq.read_table(out / "data" / "train-00000.parquet")
    assert table["rank"].to_pylist() == [2, None] and table["score"].to_pylist() == [0.8, None]
    assert (
        " 1 have a `rank`: attempts at one question were compared, and their scores are relative"
        in (out / "README.md").read_text()
    )
    back = list(read(out / "data"))
    assert [t.digest for t in back] == [t.digest for t in runs] and back[0].meta["feedback"]["rank"]["position"] == 2
    assert (
        push(
            rows,
            "--to",
            "org/doors",
            "--scores",
            scored(tmp_path, *runs),
            "--license",
            "mit",
            "--dry-run",
            tmp_path / "b",
        ).exit_code
        == 0
    )
    assert "have a `rank`" not in (tmp_path / "b" / "README.md").read_text()


def test_many_rows_make_several_files(rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "ROWS_IN_FILE", 4)
    monkeypatch.setattr(dataset, "ROWS_AT_ONCE", 2)
    run = next(read(rows))
    runs = [run.model_copy(update={"id": f"r{k}"}) for k in range(9)]
    contents = write_rows(tmp_path, runs)
    assert contents.files == [f"data/train-0000{k}.parquet" for k in range(3)] and contents.rows == 9
    assert [t.id for t in read(tmp_path / "data")] == [f"r{k}" for k in range(9)]


# ---- keys and passwords (and in test_secrets.py) ----


def test_a_key_stops_a_push_and_redacting_keeps_labels_with_their_runs(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "set"
    source.write_text(json.dumps({"id": "r", "messages": messages(f"export HF_TOKEN={TOKEN} \ud800")}) + "\n")
    (run,) = read(source)
    labels = labelled(tmp_path, run)
    for extra, nothing in (((), "pushed"), (("--dry-run", out), "written")):
        result = push(source, "--to", "org/x", "--license", "mit", "--annotations", labels, *extra)
        assert result.exit_code != 0 and f"nothing was {nothing}: 1 × Hugging Face token" in str(result.exception)
        assert f"\n  {source}:1 row 'r'.messages[3].content (Hugging Face token)\n" in str(result.exception)
        assert TOKEN not in str(result.exception) + result.output and not out.exists()
    result = push(source, "--to", "org/x", "--annotations", labels, "--redact", "--license", "mit", "--dry-run", out)
    assert json.loads(result.stdout.splitlines()[-1])["found"] == {"Hugging Face token": 1}
    (back,) = read(out / "data")
    assert back.messages[3].text() == "export HF_TOKEN=[removed] ?" and back.digest != run.digest
    (label,), _ = own_annotations(back)
    assert label.digest == back.digest and label.score == 0.7
    assert "replaced by `[removed]`" in (out / "README.md").read_text()


def test_a_dry_run_names_the_places_of_keys_and_how_many_more(tmp_path: Path) -> None:
    """It exited 0 and told no place: the push was the first to refuse them."""
    source, out = tmp_path / "in.jsonl", tmp_path / "set"
    runs = [{"id": f"r{k}", "messages": messages("90 cm"), "api_key": f"pass-{k}-word"} for k in range(30)]
    source.write_text("".join(json.dumps(run) + "\n" for run in runs))
    given = (source, "--to", "org/x", "--license", "mit", "--dry-run", out)
    said = str(push(*given).exception)
    assert f"{source}:1 row 'r0'.meta.api_key (field api_key)" in said and f"{source}:20 row 'r19'" in said
    assert "and 10 more" in said and "r20" not in said and "-word" not in said and not out.exists()
    assert push(*given, "--keep-found").exit_code == 0 and out.exists()


def test_a_label_that_its_run_carries_goes_once(rows: Path, tmp_path: Path) -> None:
    runs, once, twice = list(read(rows)), tmp_path / "once", tmp_path / "twice"
    assert (
        push(
            rows, "--to", "org/x", "--annotations", labelled(tmp_path, *runs), "--license", "mit", "--dry-run", once
        ).exit_code
        == 0
    )
    back = list(read(once / "data"))
    (tmp_path / "again.jsonl").write_text("".join(a.to_json() + "\n" for a in given_labels.annotate(back)))
    words = ("--to", "org/x", "--annotations", tmp_path / "again.jsonl", "--license", "mit", "--dry-run", twice)
    assert push(once / "data", *words).exit_code == 0
    assert [len(t.meta["annotations"]) for t in read(twice / "data")] == [1, 1]


# ---- refusals ----


def test_a_licence_that_the_hub_may_not_know_is_said_by_a_dry_run(
    rows: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for n, name in enumerate(("apache2.0", "foo", "Openrail++", "unknown")):
        assert push(rows, "--to", "org/x", "--license", name, "--dry-run", tmp_path / f"set{n}").exit_code == 0
    said = [r.getMessage() for r in caplog.records if "--license" in r.getMessage()]
    assert len(said) == 2 and "--license apache2.0 is none" in said[0] and "(nearest: apache-2.0)" in said[0]
    assert "--license foo is none" in said[1] and "nearest" not in said[1]


def test_what_is_missing_or_wrong_is_said_before_anything_is_read(rows: Path, tmp_path: Path) -> None:
    def why(*words: Any) -> str:
        return str(push(rows, *words).exception)

    assert "say under which licence" in why("--to", "org/x")
    assert "say under which licence" in why("--to", "org/x", "--dry-run", tmp_path / "set")
    assert "give the hub's identifier" in why("--to", "org/x", "--license", "My Licence!")
    assert "--to 'x': write owner/name" in why("--to", "x", "--license", "mit")
    assert "--to 'a//b'" in why("--to", "a//b", "--license", "mit")
    assert "choose one" in why(
        "--to", "org/x", "--redact", "--keep-found", "--license", "mit", "--dry-run", tmp_path / "set"
    )
    assert "exists: --dry-run writes a new folder" in why("--to", "org/x", "--license", "mit", "--dry-run", tmp_path)
    other = labelled(tmp_path, Trajectory.model_validate({"id": "x", "messages": messages("z")}))
    said = why("--to", "org/x", "--license", "mit", "--dry-run", tmp_path / "set", "--annotations", other)
    assert "nothing was pushed: 1 of 1 annotations belong to no transcript" in said
    rows.write_text(rows.read_text() + "{cut\n")
    assert "runs.jsonl:3: not JSON" in why("--to", "org/x", "--license", "mit", "--dry-run", tmp_path / "set")
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(("column", "value"), [("messages", "{"), ("meta", "[]"), ("messages", "3"), ("tools", "x")])
def test_a_broken_column_is_an_error_of_its_row(tmp_path: Path, column: str, value: str) -> None:
    row = {"schema_version": 1, "id": "r", "messages": "[]", "meta": "{}", column: value}
    path, errors = tmp_path / "rows.jsonl", list[Any]()
    path.write_text(json.dumps(row) + "\n")
    assert list(read(path, on_error=errors.append)) == [] and len(errors) == 1 and column in errors[0].reason


# ---- the hub ----


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    with serve_hub(monkeypatch, "datasets/org/doors") as found:
        yield found


def test_a_set_is_pushed_private_with_the_hubs_own_token(hub: type[Hub], rows: Path, tmp_path: Path) -> None:
    result = push(rows, "--to", "org/doors", "--license", "mit")
    assert result.exit_code == 0, (result.output, result.exception)
    assert json.loads(result.stdout.splitlines()[-1])["pushed"].endswith("/datasets/org/doors/commit/abc")
    (made,) = (body for path, body in hub.asked if path.endswith("create"))
    assert made["type"] == "dataset" and hub.keys == {"Bearer hf_test"}
    assert made.get("visibility") == "private" or made["private"] is True  # huggingface_hub 2 and 1
    assert set(hub.files) == {"README.md", "data/train-00000.parquet"} and "hf_test" not in result.output
    again = tmp_path / "again.parquet"
    again.write_bytes(hub.files["data/train-00000.parquet"])
    assert [t.digest for t in read(again)] == [t.digest for t in read(rows)]
    assert b"license: mit" in hub.files["README.md"]


def test_a_private_push_never_lands_in_a_public_set(hub: type[Hub], rows: Path) -> None:
    hub.private = False
    result = push(rows, "--to", "org/doors", "--license", "mit")
    assert isinstance(result.exception, HubError) and "is public on the hub: say --public" in str(result.exception)
    assert hub.files == {}
    assert push(rows, "--to", "org/doors", "--license", "mit", "--public").exit_code == 0 and len(hub.files) == 2


def test_a_public_push_into_a_private_set_is_refused(hub: type[Hub], rows: Path) -> None:
    result = push(rows, "--to", "org/doors", "--license", "mit", "--public")
    assert isinstance(result.exception, HubError) and "is private on the hub" in str(result.exception)
    assert hub.files == {}
