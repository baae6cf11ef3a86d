"""What goes to vLLM's addresses beside the requests: their own key and password, nobody else's, and nothing of it into messages."""

from __future__ import annotations

import base64
import logging

import pytest
from vllm_server import VLLMServer

from rrm.engines import vllm_servers
from rrm.engines.base import SamplingParams
from rrm.engines.server_options import public
from rrm.engines.vllm import VLLMEngine
from rrm.engines.vllm_http import servers_of
from rrm.errors import ConfigError, EngineError


@pytest.fixture(autouse=True)
def _judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge's server is another one, with secrets of its own."""
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "judge-SECRET")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Portal: judge-SECRET")
    monkeypatch.delenv("VLLM_API_KEY", raising=False)


def ask(spec: str) -> None:
    engine = VLLMEngine(spec, eos_ids={2}, vocabulary=100, patience_s=0.0)
    engine.generate([[3]], SamplingParams(max_new_tokens=8))
    engine.close()


def test_the_judges_key_is_not_sent(server: VLLMServer, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(f"vllm:{server.url}#base")
    assert len(server.sent) == 5 and "SECRET" not in str(server.sent)
    monkeypatch.setenv("VLLM_API_KEY", "the-servers-key")
    ask(f"vllm:{server.url}#base")
    assert {sent["authorization"] for sent in server.sent[5:]} == {"Bearer the-servers-key"}
    server.fault = lambda path, body: (401, {"error": "Unauthorized"})
    with pytest.raises(EngineError, match=r"HTTP 401.*set VLLM_API_KEY"):
        ask(f"vllm:{server.url}#base")


def test_a_password_is_sent_and_not_said(server: VLLMServer, caplog: pytest.LogCaptureFixture) -> None:
    spec = f"vllm:{server.url.replace('://', '://ann:s3cret%2F@')}/v1#base"
    with caplog.at_level(logging.DEBUG):
        ask(spec)
        server.fault = lambda path, body: (500, "{}")
        with pytest.raises(EngineError) as failed:
            ask(spec)
    basic = "Basic " + base64.b64encode(b"ann:s3cret/").decode()
    assert {sent["authorization"] for sent in server.sent} == {basic}
    assert "s3cret" not in caplog.text + str(failed.value) and basic not in caplog.text
    assert (
        public(f"{spec},http://bob:s3cret@b") == f"vllm:{server.url}/v1#base,http://bob:s3cret@b"
    )  # of the name nothing
    assert public("vllm:http://ann:s3cret@a:1,http://bob:s3cret@b#m") == "vllm:http://a:1,http://b#m"


@pytest.mark.parametrize(
    "address",
    ["ftp://ann:s3cret@gpu:8000", "http://ann:s3cret@gpu:80?key=s3cret", "http://ann:s3cret/x@gpu", "http://ann:p#s3cret@gpu",
     "http://ann:s3,cret@gpu", "http://ann:s3cret@", "http://gpu:port#s3cret@m"],
)  # fmt: skip
def test_an_address_that_is_none_is_not_quoted_with_its_password(address: str) -> None:
    with pytest.raises(ConfigError, match="write vllm:URL#model") as failed:
        servers_of(f"vllm:{address}")
    assert "cret" not in str(failed.value)


def test_a_spec_without_an_address_says_so() -> None:
    for spec in ("vllm:", "vllm:#base"):
        with pytest.raises(ConfigError, match=f"'{spec}': names no address; write vllm:URL#model"):
            servers_of(spec)


def test_a_wrong_address_is_said_to_be_waited_for_as_long_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(vllm_servers, "START_S", 0.2)
    with pytest.raises(EngineError, match=r"cannot connect .*tried \d+ times in 0 s"):
        VLLMEngine("vllm:http://127.0.0.1:9#m", eos_ids={2}, patience_s=600.0)
    assert "it is waited for, up to 0 s" in caplog.text and "600 s" not in caplog.text
