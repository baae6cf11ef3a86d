"""A chat server that sends its clients elsewhere, or answers with more than anyone reads."""

from __future__ import annotations

import base64
import gzip
import json
import tracemalloc

import pytest
from openai_server import Answer, complete_many, completion, serve

from rrm.data.sizes import VARIABLE
from rrm.engines.async_runner import run
from rrm.engines.base import SamplingParams
from rrm.engines.http_errors import Retry
from rrm.engines.openai import OpenAIEngine
from rrm.engines.server_options import ServerOptions, filled, public
from rrm.engines.vllm_http import servers_at, servers_of
from rrm.errors import ConfigError, EngineError

PARAMS = SamplingParams(max_new_tokens=16, seed=5, timeout_s=20)
ASK = [{"role": "user", "content": "the whole transcript"}]


def engine(url: str) -> OpenAIEngine:
    return OpenAIEngine(url, "m", "key", max_retries=0, options=ServerOptions(headers={"x-api-key": "secret-of-mine"}))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with serve(lambda n, body: completion("<score>1.0</score>")) as other:
        there = f"{other.url}/chat/completions"
        with (
            serve(lambda n, body: Answer(status, headers={"Location": there})) as server,
            pytest.raises(
                EngineError,
                match=rf"HTTP {status}: sends its clients on to {other.url}.*name that address",
                check=lambda error: error.kind == "refused",
            ),
        ):
            complete_many(engine(server.url), [ASK] * 3, PARAMS, ["a", "b", "c"])
        assert engine(server.url).context_tokens() is None
    assert other.requests == [] and other.paths == []


def test_the_clients_of_vllm_and_of_model_lists_stay_too() -> None:
    (server,) = servers_at(["http://127.0.0.1:1"], 1, 1.0)
    assert server.client.follow_redirects is False


def test_a_packed_reply_is_read_and_a_bomb_is_an_error_of_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(1 << 20))
    whole = gzip.compress(completion("fine").body)
    with serve(lambda n, body: Answer(body=whole, headers={"Content-Encoding": "gzip"})) as server:
        assert engine(server.url).complete(ASK, PARAMS).text == "fine"
    bomb = gzip.compress(b" " * (64 << 20))
    tracemalloc.start()
    with (
        serve(lambda n, body: Answer(body=bomb, headers={"Content-Encoding": "gzip"})) as server,
        pytest.raises(EngineError, match="more than 1,048,576 bytes"),
    ):
        engine(server.url).complete(ASK, PARAMS)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 24 << 20


@pytest.mark.parametrize("coding", ["br", "zstd"])
def test_a_packing_that_was_not_asked_for_is_an_error(coding: str) -> None:
    with (
        serve(lambda n, body: Answer(body=b"xx", headers={"Content-Encoding": coding})) as server,
        pytest.raises(EngineError, match=f"packed as '{coding}'"),
    ):
        engine(server.url).complete(ASK, PARAMS)


@pytest.mark.parametrize("coding", ["br", "gzip"])
def test_an_error_is_tried_again_whatever_its_body_is_packed_as(coding: str) -> None:
    busy = Answer(503, b"busy", {"Content-Encoding": coding, "Retry-After": "0"})
    with serve(lambda n, body: completion("fine") if n else busy) as server:
        patient = OpenAIEngine(server.url, "m", "key", max_retries=1, backoff_s=0.0)
        assert patient.complete(ASK, PARAMS).text == "fine"
        (vllm,) = servers_at([server.url.removesuffix("/v1")], 1, 5.0)
        server.requests.clear()
        with pytest.raises(Retry, match=r"HTTP 503: .*(packed|damaged)"):
            run(vllm.send("/completions", {}))


def test_a_password_with_an_at_sign_is_sent_whole() -> None:
    with serve(lambda n, body: completion("fine")) as server:
        address = server.url.replace("://", "://me:p@ss@word@")
        assert engine(address).complete(ASK, PARAMS).text == "fine"
    assert server.keys == [f"Basic {base64.b64encode(b'me:p@ss@word').decode()}"]
    assert public(f"openai:{address}#m@x") == f"openai:{server.url}#m@x"


@pytest.mark.parametrize("value", ["org\nx", "\xf6rg"])
def test_an_account_that_no_header_carries_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", value)
    with pytest.raises(EngineError, match="OPENAI_ORG_ID holds characters"):
        engine("http://127.0.0.1:1")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1\n")
    with serve(lambda n, body: completion("fine")) as server:
        engine(server.url).complete(ASK, PARAMS)
    assert server.headers[0]["openai-organization"] == "org-1"


def test_a_reply_of_many_small_values_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three bytes of `{},` are 130 in memory."""
    monkeypatch.setenv(VARIABLE, str(1 << 20))
    body = json.dumps({"choices": [{}] * 200_000}).encode()
    with serve(lambda n, asked: Answer(body=body)) as server, pytest.raises(EngineError, match="so many values"):
        engine(server.url).complete(ASK, PARAMS)


def test_a_secret_of_an_address_may_be_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "p/w@rd#1")
    made = OpenAIEngine.from_spec("openai:http://me:${MY_KEY}@127.0.0.1:1/v1#m")
    assert made.base_url == "http://me:p%2Fw%40rd%231@127.0.0.1:1/v1"
    assert "rd" not in made._name()
    assert servers_of("vllm:http://me:$MY_KEY@127.0.0.1:1/v1#m") == (["http://me:p%2Fw%40rd%231@127.0.0.1:1"], "m")
    assert filled("$MY_KEY", "--token") == "p/w@rd#1"
    with pytest.raises(ConfigError, match="--token: the environment has no NO_SUCH_KEY"):
        filled("$NO_SUCH_KEY", "--token")
