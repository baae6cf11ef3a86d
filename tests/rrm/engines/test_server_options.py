"""How a server is asked beside the messages: read strictly, sent as said, and secrets written nowhere."""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from typing import Any

import pytest
from openai_server import completion, failure, serve

from rrm.engines.base import SamplingParams
from rrm.engines.hidden import Hidden
from rrm.engines.openai import OpenAIEngine
from rrm.engines.server_options import ServerOptions, addresses_of, public, read_extra_body, read_headers, saved
from rrm.errors import ConfigError, EngineError

PARAMS = SamplingParams(max_new_tokens=16, temperature=0.7, seed=5, timeout_s=20)
ASK = [{"role": "user", "content": "q"}]


def test_headers_come_from_the_environment_and_are_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    headers = read_headers(["X-Team=eval", "X-Key=Bearer ${TOKEN}"], {"TOKEN": "tok-secret-1\n"})
    assert headers == {"X-Team": "eval", "X-Key": "Bearer tok-secret-1"}
    options = ServerOptions(headers=headers)
    with serve(lambda n, body: failure(400, "no such team for tok-secret-1 (Bearer tok-secret-1)")) as server:
        engine = OpenAIEngine(server.url, "m", options=options)
        with pytest.raises(EngineError) as caught:
            engine.complete(ASK, PARAMS)
    assert server.headers[0]["x-key"] == "Bearer tok-secret-1" and server.headers[0]["x-team"] == "eval"
    assert "tok-secret" not in f"{caught.value}{caplog.text}{options}{options.deciding}" and "***" in str(caught.value)


def test_a_password_in_an_address_is_sent_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = base64.b64encode(b"me:p@ss-word").decode()
    with serve(lambda n, body: failure(400, f"no p@ss-word, no {token}: Basic it must be")) as server:
        address = f"http://me:p%40ss-word@{server.url.removeprefix('http://')}"
        with pytest.raises(EngineError, match=r"no \*\*\*, no \*\*\*: Basic it must be") as caught:
            OpenAIEngine(address, "m").complete(ASK, PARAMS)
        with pytest.raises(EngineError):  # a header is the later word, however it is written
            OpenAIEngine(address, "m", options=ServerOptions(headers={"authorization": "Mine x"})).complete(ASK, PARAMS)
    assert server.keys == [f"Basic {token}", "Mine x"]
    for secret in ("ss-word", token):
        assert secret not in str(caught.value) and secret not in said_by_us(caplog)


def test_a_query_in_an_address_is_sent_with_each_request_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    assert public("openai:http://a/v1?key=secret,http://me:pw@b/v1?x=1#m?7") == "openai:http://a/v1,http://b/v1#m?7"
    with serve(lambda n, body: completion("fine") if n else failure(500)) as server:
        engine = OpenAIEngine(f"{server.url}?api-version=2&key=secret", "m", backoff_s=0.001)
        engine.complete(ASK, PARAMS)
        assert engine.context_tokens() is None
    assert server.paths == ["/v1/chat/completions?api-version=2&key=secret"] * 2
    assert "secret" not in engine._name()


def said_by_us(caplog: pytest.LogCaptureFixture) -> str:
    """The log without what the server sent back, which the HTTP client writes as it is."""
    return "\n".join(r.getMessage() for r in caplog.records if "response" not in r.getMessage().lower())


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (["sk-secret-value"], "write NAME=VALUE"),
        (["bad name=1"], "is no header's name"),
        (["X-A=$NOT_SET_ANYWHERE"], "the environment has no NOT_SET_ANYWHERE"),
        (["X-A=1", "x-a=2"], "given twice"),
        (["X-A="], "is empty"),
        (["X-A=a\r\nX-B: b"], "cannot be sent"),
        (["X-A=sécret"], "cannot be sent"),
    ],
)
def test_headers_that_cannot_be_sent_are_refused_without_their_values(pairs: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read_headers(pairs, {})
    assert "secret" not in str(caught.value).replace("where it is secret", "")


def test_extra_body_is_a_json_object(tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text('{"top_k": 20, "chat_template_kwargs": {"enable_thinking": true}}')
    found = read_extra_body(f"@{tmp_path / 'body.json'}")
    assert found == {"top_k": 20, "chat_template_kwargs": {"enable_thinking": True}}
    for text in ("{", "[1]", "7", '{"a": NaN}', "@" + str(tmp_path / "absent.json"), "[" * 100_000):
        with pytest.raises(ConfigError, match="--extra-body"):
            read_extra_body(text)
    with pytest.raises(ConfigError, match="may not hold messages, stream"):
        ServerOptions(extra_body={"stream": True, "messages": [], "top_k": 1})


def test_all_of_it_is_sent_and_what_varies_answers_is_named() -> None:
    options = ServerOptions(
        temperature=0.3, reasoning_effort="low", extra_body={"top_k": 20}, thinking_tokens=100, headers={"X-A": "b"}
    )
    with serve(lambda n, body: completion("x")) as server:
        OpenAIEngine(server.url, "m", options=options).complete(ASK, PARAMS)
    (body,) = server.requests
    assert (body["reasoning_effort"], body["top_k"], body["max_tokens"]) == ("low", 20, 116)
    expected = {"temperature": 0.3, "reasoning_effort": "low", "extra_body": {"top_k": 20}, "thinking_tokens": 100}
    assert options.deciding == expected and ServerOptions(headers={"X-A": "b"}).deciding == {}


def test_a_reply_that_goes_on_keeps_what_its_template_is_told() -> None:
    options = ServerOptions(extra_body={"chat_template_kwargs": {"locale": "en"}, "top_k": 3})
    with serve(lambda n, body: completion("x")) as server:
        messages = [*ASK, {"role": "assistant", "content": "<score>"}]
        OpenAIEngine(server.url, "m", options=options).complete(messages, PARAMS)
    (body,) = server.requests
    assert body["chat_template_kwargs"] == {"enable_thinking": False, "locale": "en"} and body["top_k"] == 3
    assert body["continue_final_message"] is True


@pytest.mark.parametrize("bad", [{"temperature": -1.0}, {"temperature": float("nan")}, {"thinking_tokens": -1}])
def test_numbers_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ServerOptions(**bad)


@pytest.mark.parametrize(
    ("key", "text", "left"),
    [
        ("x", "the context length exceeds x", "the context length exceeds x"),
        ("token", "2000 tokens; your token is wrong", "2000 tokens; your *** is wrong"),
        ("sk-12345", "Incorrect key 'sk-12345'abc", "Incorrect key '***'abc"),
        ("sk-12345", "asksk-12345z", "ask***z"),
    ],
)
def test_a_short_key_does_not_garble_a_message(key: str, text: str, left: str) -> None:
    assert Hidden([key]).hide(text) == left


def test_an_address_is_saved_without_what_may_be_secret() -> None:
    assert saved("https://h:1/v1?api-version=2024-06-01") == ("https://h:1/v1?api-version=2024-06-01", [])
    found = saved("https://ann:pw@h/v1?API-Version=a%20b&key=s3cret&key=t#")
    assert found == ("https://h/v1?API-Version=a+b", ["its user", "key=…", "key=…"])
    assert saved("http://h/v1") == ("http://h/v1", [])


def test_addresses() -> None:
    two = "openai:http://a:1/v1, http://b:2/v1#org/m"
    assert addresses_of(two) == (["http://a:1/v1", "http://b:2/v1"], "org/m")
    engine = OpenAIEngine.from_spec("openai:http://a:1/v1,http://b:2/v1/,http://a:1/v1#m")
    assert [e.url for e in engine.endpoints.all] == ["http://a:1/v1", "http://b:2/v1"]
    assert public("openai:http://me:pw@a/v1,https://you:pw2@b/v1#m") == "openai:http://a/v1,https://b/v1#m"
    for spec in ("openai:,#m", "openai:http://a/v1#", "openai:http://u:hunter2@a/v1"):
        with pytest.raises(ConfigError) as caught:
            addresses_of(spec)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(EngineError, match="not a server's address"):
        OpenAIEngine.from_spec("openai:http://a/v1,b/v1#m")
