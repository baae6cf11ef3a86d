"""What a server echoes of a key or of a header is in no message: in no spelling, and not as far as a cut leaves of it."""

from __future__ import annotations

import base64
import html
import json
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest
from chat_judge import rows_of, transcripts
from openai_server import Answer, completion, serve

from rrm.engines.hidden import QUOTED, Hidden
from rrm.engines.openai import OpenAIEngine
from rrm.engines.server_options import ServerOptions
from rrm.judge.agent_rrm import AgentRRM
from rrm.scoring.run import score_file

KEY = "sk-live-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJ/+="
TOKEN = "SECRETSECRETSECRETTOKEN123"
SPELLINGS: list[Callable[[str], str]] = [
    str,
    lambda s: urllib.parse.quote(s, safe=""),
    lambda s: urllib.parse.quote(urllib.parse.quote(s, safe="")).lower(),
    lambda s: json.dumps(s).replace("/", "\\/"),
    lambda s: "".join(f"\\u{ord(c):04X}" for c in s),
    lambda s: html.escape(s).replace("/", "&#x2F;"),
    lambda s: base64.b64encode(s.encode()).decode(),
    lambda s: base64.urlsafe_b64encode(f":{s}".encode()).decode(),
    lambda s: base64.b64encode(f"ab{s}cd".encode()).decode(),
    lambda s: s.encode().hex(),
]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("before", [0, QUOTED - 45, QUOTED - 9])
def test_no_spelling_of_a_secret_is_quoted_whole_or_cut(spelling: Callable[[str], str], before: int) -> None:
    for secret in (KEY, TOKEN):
        said = spelling(secret)
        told = Hidden([secret]).quote("x" * before + " " + said + " is wrong")
        core = said.strip('"')
        assert "***" in told and len(told) <= QUOTED + 3
        assert not any(core[i : i + 8] in told for i in range(2, len(core) - 12)), told


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("bad key sk-live-0123", "bad key ***"),
        ("bad key sk-live-0123...", "bad key ***..."),
        ("bad key sk-li", "bad key sk-li"),
        ('{"error": "bad key sk-live-0123456789abcdefghijklmno"}', '{"error": "bad key ***"}'),
        ("keys begin with sk-live- here", "keys begin with sk-live- here"),
        (f"sk-livsk-liv{KEY}", "sk-livsk-liv***"),
    ],
)
def test_a_beginning_that_the_server_cut_itself_is_hidden(text: str, left: str) -> None:
    assert Hidden([KEY]).quote(text) == left


def echoes(n: int, body: dict[str, object]) -> Answer:
    return [
        Answer(404, b"x" * 255 + KEY.encode()),
        Answer(200, b"y" * 285 + TOKEN.encode()),
        Answer(200, json.dumps({"error": {"message": "z" * 290 + KEY, "code": 404}}).encode()),
        completion("<score>0.5</score>"),
    ][n]


def test_rows_hold_no_part_of_a_key(tmp_path: Path) -> None:
    with serve(echoes) as server:
        options = ServerOptions(headers={"X-Token": TOKEN})
        engine = OpenAIEngine(server.url, "m", KEY, concurrency=1, max_retries=0, options=options)
        score_file(AgentRRM(engine, model="m"), transcripts(4), tmp_path / "out.jsonl", mode="score")
    rows = rows_of(tmp_path / "out.jsonl")
    assert [row["status"] for row in rows] == ["judge_error"] * 3 + ["scored"]
    stored = (tmp_path / "out.jsonl").read_text()
    assert "sk-liv" not in stored and "SECRET" not in stored and all("***" in row["reason"] for row in rows[:3])
