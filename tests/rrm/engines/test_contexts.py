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


@pytest.mark.parametrize(
    ("paths", "tokens"),
    [
        (listed(max_model_len=16384), 16384),
        (listed(context_length=131072), 131072),
        (listed(max_context_length=65536), 65536),
        (listed(meta={"n_ctx": 2048}), 2048),
        ({**listed(), "GET /props": {"default_generation_settings": {"n_ctx": 6144}}}, 6144),
        ({"GET /props": {"default_generation_settings": {"n_ctx": 6144}}}, 6144),
        (
            {
                **listed(owned_by="library"),
                "POST /api/show": {**OLLAMA, "parameters": "temperature 1\nnum_ctx    16384"},
            },
            16384,
        ),
        ({**listed(owned_by="library"), "POST /api/show": OLLAMA}, 4096),
        ({"POST /api/show": {"model_info": {"bert.context_length": 512}}}, 512),
        (
            {
                **listed(),
                "GET /api/v0/models": {
                    "data": [{"id": "m", "max_context_length": 32768, "loaded_context_length": 8192}]
                },
            },
            8192,
        ),
        (listed(), None),
        ({}, None),
        ({**listed(), "GET /props": {"default_generation_settings": {"n_ctx": "many"}}}, None),
    ],
)
def test_a_server_s_context_is_read_wherever_it_says_it(paths: dict[str, Any], tokens: int | None) -> None:
    """All but `max_model_len` and `meta` were None, and read in windows of 8,192 tokens that Ollama cuts to 4,096."""
    with tells(paths) as engine:
        assert engine.context_tokens() == tokens


def long_run(id: str = "long", said: str = "", times: int = 300) -> Trajectory:
    said = (
        said
        or "The clerk looked at the shelf, found nothing of use there, and went on to the next room of the archive. "
    )
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
    """`scored`, with coverage 1.0, of a server that read 4,096 tokens of 7,900."""
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
    """`scored`, with coverage 1.0: 8,192 tokens of 16,000 are more than a token for each four characters."""
    with counting(1.9, 8192) as (judge, server):
        score_file(judge, [long_run(), long_run("other", times=250)], tmp_path / "out.jsonl", mode="score")
    assert [row["status"] for row in rows_of(tmp_path / "out.jsonl")] == ["too_long"] * 2
    assert len(server.requests) == 3  # what it cuts at is known by then


def test_two_prompts_of_one_count_are_tried_where_no_context_is_round(tmp_path: Path) -> None:
    """Both `scored`, with coverage 1.0. The first one is: nothing shows of it alone."""
    runs = [long_run(), long_run("other", times=290), long_run("third", times=280)]
    with counting(1.9, 7777) as (judge, _):
        score_file(judge, runs, tmp_path / "out.jsonl", mode="score")
    assert [row["status"] for row in rows_of(tmp_path / "out.jsonl")] == ["scored", "too_long", "too_long"]


def test_a_prompt_of_more_characters_a_token_than_its_run_has_is_tried(tmp_path: Path) -> None:
    """`scored`, with coverage 1.0, where a shorter log of the run has 1.9 characters a token, and this one 4."""
    with counting(1.9, 7777) as (judge, _):
        score_file(judge, [long_run("short", times=100), long_run()], tmp_path / "out.jsonl", mode="score")
    assert [row["status"] for row in rows_of(tmp_path / "out.jsonl")] == ["scored", "too_long"]


def test_the_context_that_a_server_tells_is_a_sign_of_a_cut(tmp_path: Path) -> None:
    """`scored`, with coverage 1.0, at 7,777 tokens of a server that says that these are its context."""
    with counting(1.9, 7777) as (judge, _):
        assert isinstance(judge.engine, OpenAIEngine)
        judge.engine._context = 7777
        score_file(judge, [long_run()], tmp_path / "out.jsonl", mode="score")
    assert [row["status"] for row in rows_of(tmp_path / "out.jsonl")] == ["too_long"]


@pytest.mark.parametrize(
    "said", ["Name: " + "_" * 60 + "\n", "A" * 60, "transportation infrastructure implementation "]
)
def test_a_whole_prompt_of_few_tokens_is_never_discarded(said: str, tmp_path: Path) -> None:
    """`too_long`, of replies that were paid: lines to fill in, base64 of zeros and long words have 8 to 12 characters a token."""
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
    """Runs of word characters and long words that come again counted as 3,350, 3,005 and 15,500 tokens at least."""
    assert fewest <= least_tokens([{"role": "user", "content": text}]) <= most


def test_parts_count_by_their_texts() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    words = " ".join(f"{n * n:x}" for n in range(5000))
    assert least_tokens([{"role": "user", "content": [picture, {"type": "text", "text": "find it"}]}]) < 10
    parts = least_tokens([{"role": "user", "content": [picture, {"type": "text", "text": words}]}])
    assert parts == least_tokens([{"role": "user", "content": words}]) > 1500
