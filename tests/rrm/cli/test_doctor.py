"""`rrm doctor`: what it finds, what it says of servers, and that it shows no key and needs no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from openai_server import answering
from typer.testing import CliRunner

from rrm.cli import doctor, doctor_cmd
from rrm.data.extras import EXTRAS
from rrm.errors import RRMError

KEY = "sk-secret-of-a-test"


def run(*words: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(doctor_cmd.command)
    result = CliRunner().invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("RRM_API_KEY", f"{KEY}-too")


def test_it_says_what_is_here() -> None:
    code, said = run("--json")
    found = json.loads(said)
    assert code == 0 and found["ok"] is True and KEY not in said
    assert found["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert set(found["extras"]) == set(EXTRAS)
    for name, extra in found["extras"].items():
        assert extra["installed"] or extra["install"] == f"pip install 'agent-rrm[{name}]'"
    assert found["machine"]["cores"] >= 1 and found["machine"]["memory"] > 2**28
    assert set(found["folders"]) == {"agent-rrm", "hub"}


def test_people_get_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "absent", lambda extra: ["torch"] if extra == "local" else [])
    code, said = run()
    assert code == 1 and "pip install 'agent-rrm[local]'" in said
    assert "does not run here (no torch); score with --model http://" in said
    first = " ".join(said.splitlines()[0].split())
    assert first.startswith("verdict nothing here can judge: the default judge does not run, and no server that")
    assert said.splitlines()[1].startswith("versions ")


def test_an_openai_compatible_server_says_its_models() -> None:
    models = {"data": [{"id": "qwen", "max_model_len": 4096}, {"id": "other\x1b[2J"}]}
    with answering({"/v1/models": (200, models)}) as (url, asked):
        found = doctor.server(url)
        code, said = run("--server", url, "--server", f"{url}/v1", "--server", f"openai:{url}/v1#qwen")
    assert found["models"] == {"qwen": 4096, "other\x1b[2J": None} and found["kind"] == "openai"
    assert code == 0 and "qwen (4,096 tokens)" in said and "\x1b" not in said and KEY not in said
    assert ("/v1/models", f"Bearer {KEY}") in asked
    assert not any(path == "/healthz" and key for path, key in asked)


def test_a_model_that_is_not_there_is_said() -> None:
    with answering({"/v1/models": (200, {"data": [{"id": "qwen"}]})}) as (url, _):
        code, said = run("--server", f"openai:{url}/v1#judge")
    assert code == 1 and "answers, but it has no model judge; it has qwen" in said


def test_rrm_serve_says_its_judge() -> None:
    pytest.importorskip("fastapi")
    replies = {
        "/healthz": (200, {"status": "ok", "workers": 1, "waiting": 0, "judging": 0}),
        "/v1/judge": (200, {"describe": {"model": "lab"}, "modes": ["score"]}),
    }
    with answering(replies) as (url, asked):
        code, said = run("--server", url)
    assert code == 0 and "rrm serve (ok): lab" in said
    assert asked == [("/healthz", None), ("/v1/judge", f"Bearer {KEY}-too")]


@pytest.mark.parametrize(
    ("replies", "why"),
    [
        ({"/v1/models": (401, {"error": f"wrong key {KEY}"})}, "it refuses the key in OPENAI_API_KEY (401"),
        ({"/v1/models": (200, b"<html>")}, "no JSON"),
        ({"/v1/models": (200, {"data": [3]})}, "not as a server of models"),
        ({"/v1/models": (200, b"[" * 100_000)}, "no JSON"),
        ({}, "neither as rrm serve nor as a server of models (404"),
    ],
)
def test_what_a_server_does_wrong_is_said(replies: dict[str, tuple[int, Any]], why: str) -> None:
    with answering(replies) as (url, _):
        code, said = run("--server", url)
    assert code == 1 and why in said and KEY not in said


def test_a_redirect_is_not_followed_with_a_key() -> None:
    with (
        answering({"/v1/models": (200, {"data": []})}) as (other, asked),
        answering({"/v1/models": (302, {})}, Location=f"{other}/v1/models") as (url, _),
    ):
        found = doctor.server(url)
    assert not found["reachable"] and "302" in found["error"] and asked == []


@pytest.mark.parametrize(
    "address",
    [
        "localhost:8000",
        "ftp://h",
        f"http://me:{KEY}@h:1",
        "http://",
        "http://127.0.0.1:1",
        "http://[::1",
        f"http://me:{KEY}@[::1",
        "openai:http://[::1#m",
        "http://127.0.0.1:port",
        "http://127.0.0.1:1/a ü",
        "http://127.0.0.1:1/ü",
        "http://h\u2100.test",
        "http://" + "a" * 70 + ".test",
        "http://127.0.0.1:1/\ud800",
    ],
)
def test_an_address_that_answers_nothing(address: str) -> None:
    code, said = run("--server", address)
    assert code == 1 and KEY not in said


def test_a_key_that_is_not_set_an_address_without_http_and_nobody_there_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RRM_API_KEY")
    health = {"status": "ok", "workers": 1, "waiting": 0, "judging": 0}
    with answering({"/healthz": (200, health), "/v1/judge": (401, {})}) as (url, _):
        code, said = run("--server", url)
    assert code == 1 and "it asks for a key (401" in said and "the environment has no RRM_API_KEY: set it" in said
    for address, why in (
        ("127.0.0.1:8000", "for want of http:// in front: write http://127.0.0.1:8000 for a judge of rrm serve"),
        ("openai:localhost:8000/v1#qwen", "openai:http://localhost:8000/v1#qwen for a chat model"),
        ("http://127.0.0.1:1", "nobody answers there (Connection refused): start the server"),
    ):
        assert why in doctor.server(address)["error"]


def test_the_verdict_comes_first_and_names_what_is_wrong() -> None:
    code, said = run("--server", "http://127.0.0.1:1")
    first = said.splitlines()[0]
    assert code == 1 and first.startswith("verdict ") and "BUT http://127.0.0.1:1: nobody answers there" in first


def test_without_the_default_judge_what_else_can_judge_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "absent", lambda extra: ["torch"] if extra == "local" else [])
    with answering({"/v1/models": (200, {"data": [{"id": "qwen"}]})}) as (url, _):
        assert doctor.examine([])["ok"] is False and doctor.examine([url])["ok"] is True
    for status, ok in (("scored", True), ("judge_error", False)):
        said = {"judge": "chat", "status": status, "score": 0.5, "load_s": 0.0, "judge_s": 0.1}
        monkeypatch.setattr(doctor, "measure", lambda model, said=said: said)
        found = doctor.examine([], measured=True, model="openai:http://h:1/v1#chat")
        assert found["ok"] is ok and ("ready: chat judges" in found["verdict"]) is ok


@pytest.mark.parametrize("inside", ["", "cache"])
def test_a_cache_that_cannot_be_written_is_a_fault(
    inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    monkeypatch.setenv("AGENT_RRM_CACHE", str(in_the_way / inside))
    code, said = run("--json")
    found = json.loads(said)
    assert code == 1 and found["ok"] is False and found["folders"]["agent-rrm"]["writable"] is False
    assert f"BUT the cache {in_the_way / inside} cannot be written" in found["verdict"]


def test_a_transcript_is_judged_by_the_judge_that_is_named() -> None:
    from reagent.lab.shipped import judge_folder

    measured = doctor.measure(str(judge_folder()))
    assert measured["status"] == "scored" and 0 <= measured["score"] <= 1 and measured["judge_s"] > 0
    assert "error" in doctor.measure("./nowhere")
    assert len(doctor.small_transcript().steps) == 4


def test_a_broken_torch_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Any:
        raise OSError("libcudart.so: cannot open")

    monkeypatch.setattr(doctor.importlib, "import_module", broken)
    assert doctor.devices() == {"error": "torch cannot be imported: OSError: libcudart.so: cannot open"}


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (RRMError("no namespaces"), "no namespaces"),
        (KeyError("HOME"), "its check failed: KeyError: 'HOME'"),
        (AttributeError("no such look"), "its check failed: AttributeError: no such look"),
    ],
)
def test_a_look_of_another_package_that_fails_says_why(
    error: Exception, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Point:
        name = "sandbox"

        def load(self) -> Any:
            def check() -> None:
                raise error

            return check

    monkeypatch.setattr(doctor, "entry_points", lambda group: [Point()])
    assert doctor.checks() == {"sandbox": {"available": False, "why": why}}
    code, said = run()
    assert code == 0 and any(line.split(maxsplit=1) == ["sandbox", why] for line in said.splitlines())


def test_it_needs_no_torch(tmp_path: Path) -> None:
    program = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "tokenizers", "peft", "trl", "safetensors", "accelerate"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
sys.argv = ["rrm", "doctor", "--json"]
from rrm.cli import main
main()
"""
    env = {**os.environ, "PYTHONPATH": str(Path(doctor.__file__).parents[2])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr  # nothing can judge
    found = json.loads(done.stdout)
    assert found["ok"] is False and (
        "no torch" in found["devices"]["error"]
        and found["default_judge"]["install"] == "pip install 'agent-rrm[local]'"
    )
