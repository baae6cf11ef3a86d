"""How long a server's context is, wherever it says so; and a prompt that a server cuts in silence is no judgement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from chat_judge import rows_of
from openai_server import Answer, Server, answering, completion, serve

from rrm.data.trajectory import Message, Trajectory
from rrm.engines.contexts import least_tokens
from rrm.engines.openai import OpenAIEngine
from rrm.judge.agent_rrm import AgentRRM
from rrm.scoring.run import score_file


@contextmanager
def tells(paths: dict[str, Any]) -> Iterator[OpenAIEngine]:
    """An engine of a server that answers these paths, and 404 to all others."""

    with answering({path.split()[1]: (200, said) for path, said in paths.items()}) as (url, _):
        yield OpenAIEngine(f"{url}/v1", "m")


def listed(**said: Any) -> dict[str, Any]:
    return {"GET /v1/models": {"object": "list", "data": [{"id": "m", **said}]}}


OLLAMA = {"model_info": {"general.architecture": "qwen2", "qwen2.context_length": 32768}}
OLLAMA_SET = {**OLLAMA, "parameters": "temperature 1\nnum_ctx    16384"}
LM_STUDIO = {"data": [{"id": "m", "max_context_length": 32768, "loaded_context_length": 8192}]}


def props(tokens: Any) -> dict[str, Any]:
    return {"GET /props": {"default_generation_settings": {"n_ctx": tokens}}}


@pytest.mark.parametrize(
    ("paths", "tokens"),
    [
        (listed(max_model_len=16384), 16384),
        (listed(context_length=131072), 131072),
        (listed(max_context_length=65536), 65536),
        (listed(meta={"n_ctx": 2048}), 2048),
        (listed() | props(6144), 6144),
        (props(6144), 6144),
        ({**listed(owned_by="library"), "POST /api/show": OLLAMA_SET}, 16384),
        ({**listed(owned_by="library"), "POST /api/show": OLLAMA}, 4096),
        ({"POST /api/show": {"model_info": {"bert.context_length": 512}}}, 512),
        ({**listed(), "GET /api/v0/models": LM_STUDIO}, 8192),
        (listed(), None),
        ({}, None),
        (listed() | props("many"), None),
    ],
)
def test_a_server_s_context_is_read_wherever_it_says_it(paths: dict[str, Any], tokens: int | None) -> None:
    with tells(paths) as engine:
        assert engine.context_tokens() == tokens


CLERK = "The clerk looked at the shelf, found nothing of use there, and went on to the next room of the archive. "


def long_run(id: str = "long", said: str = "", times: int = 300) -> Trajectory:
    said = said or CLERK
    messages = [Message(role="user", content="Find the map."), Message(role="assistant", content=said * times)]
    return Trajectory(id=id, task="Find the map.", messages=messages)


@contextmanager
def counting(per_token: float, most: int = 10**9) -> Iterator[tuple[AgentRRM, Server]]:
    """A judge on a server with so many characters a token, that reads so many tokens at most and says nothing of it."""

    def answer(n: int, body: dict[str, Any]) -> Answer:
        sent = round(sum(len(m["content"]) for m in body["messages"]) / per_token)
        return completion("<score>0.9</score>", usage={"prompt_tokens": min(sent, most), "completion_tokens": 4})

    with serve(answer) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m", concurrency=1), model="m")
        judge.settings = judge.settings.model_copy(update={"transcript_tokens": 20_000})
        yield judge, server


def test_a_prompt_that_a_server_cuts_is_too_long_and_never_read(tmp_path: Path) -> None:
    short = long_run("short", "Here.", 1)
    with counting(4, 4096) as (judge, server):
        summary = score_file(judge, [long_run(), short], tmp_path / "out.jsonl", mode="score")
    cut, whole = rows_of(tmp_path / "out.jsonl")
    assert (cut["status"], cut["score"], cut["coverage"]) == ("too_long", None, 0.0)
    assert "it read 4,096 tokens of the prompt" in cut["reason"] and "--context" in cut["reason"]
    assert cut["usage"]["prompt_tokens"] == 2 * 4096 and summary.statuses == {"scored": 1, "too_long": 1}
    assert (whole["status"], whole["coverage"]) == ("scored", 1.0)
    assert [body["max_tokens"] for body in server.requests[:2]] == [512, 1] and len(server.requests) == 3


def test_a_cut_prompt_of_a_dense_log_is_found_by_what_the_server_counts(tmp_path: Path) -> None:
    with counting(1.9, 8192) as (judge, server):
        score_file(judge, [long_run(), long_run("other", times=250)], tmp_path / "out.jsonl", mode="score")
    assert [row["status"] for row in rows_of(tmp_path / "out.jsonl")] == ["too_long"] * 2
    assert len(server.requests) == 3  # what it cuts at is known by then


@pytest.mark.parametrize(
    ("lengths", "context", "statuses"),
    [
        ((300, 290, 280), None, ["scored", "too_long", "too_long"]),  # of one count; nothing shows of the first alone
        ((100, 300), None, ["scored", "too_long"]),  # a shorter log has 1.9 characters a token, the second 4
        ((300,), 7777, ["too_long"]),  # the server says that this is its context
    ],
)
def test_a_cut_at_no_round_context_is_found_by_its_signs(
    tmp_path: Path, lengths: tuple[int, ...], context: int | None, statuses: list[str]
) -> None:
    runs = [long_run(f"r{times}", times=times) for times in lengths]
    with counting(1.9, 7777) as (judge, _):
        if context:
            judge.engine._context = context  # pyright: ignore[reportAttributeAccessIssue]
        score_file(judge, runs, tmp_path / "out.jsonl", mode="score")
    assert [row["status"] for row in rows_of(tmp_path / "out.jsonl")] == statuses


@pytest.mark.parametrize(
    "said", ["Name: " + "_" * 60 + "\n", "A" * 60, "transportation infrastructure implementation "]
)
def test_a_whole_prompt_of_few_tokens_is_never_discarded(said: str, tmp_path: Path) -> None:
    with counting(10) as (judge, _):
        score_file(judge, [long_run(said=said)], tmp_path / "out.jsonl", mode="score")
    (row,) = rows_of(tmp_path / "out.jsonl")
    assert (row["status"], row["coverage"], row["usage"]["requests"]) == ("scored", 1.0, 1)


def test_a_whole_prompt_of_a_round_count_is_tried_and_scored(tmp_path: Path) -> None:
    """Whoever took each count of 4,096 for a cut would discard it; the longer prompt is counted as longer."""
    run = long_run(times=150)
    with counting(1.0) as (judge, server):
        score_file(judge, [run], tmp_path / "first.jsonl", mode="score")
        sent = sum(len(m["content"]) for m in server.requests[0]["messages"])
    with counting(sent / 4096) as (judge, server):
        score_file(judge, [run], tmp_path / "out.jsonl", mode="score")
    (row,) = rows_of(tmp_path / "out.jsonl")
    assert (row["status"], row["usage"]["requests"]) == ("scored", 2)


@pytest.mark.parametrize(
    ("text", "fewest", "most"),
    [
        (" " * 200_000 + "end", 0, 20),
        ("=" * 200_000 + "\n" * 9000, 0, 20),
        (("Name: " + "_" * 60 + "\n") * 200, 0, 60),
        ("data:image/png;base64," + "A" * 12_000, 0, 20),
        ("international responsibilities " * 2000, 0, 200),
        ("".join(f"{n * n:x} " for n in range(6000)), 8000, 11_000),
    ],
)
def test_a_text_has_at_least_so_many_tokens(text: str, fewest: int, most: int) -> None:
    assert fewest <= least_tokens([{"role": "user", "content": text}]) <= most


def test_parts_count_by_their_texts() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    words = " ".join(f"{n * n:x}" for n in range(5000))
    assert least_tokens([{"role": "user", "content": [picture, {"type": "text", "text": "find it"}]}]) < 10
    parts = least_tokens([{"role": "user", "content": [picture, {"type": "text", "text": words}]}])
    assert parts == least_tokens([{"role": "user", "content": words}]) > 1500
