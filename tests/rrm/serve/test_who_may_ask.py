"""Without a key: no page of elsewhere. With or without: no connection that asks nothing, and no body that is small as bytes alone."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from serving import PATIENCE_S, Served, heard, run, serving

from rrm.data.sizes import VARIABLE, weight
from rrm.errors import RRMError
from rrm.serve.address import ServerAddress
from rrm.serve.app import SMALL, VALUES
from rrm.serve.limits import KEPT, MOST, most_connections

BODY = {"transcripts": [run("a", "score 0.5")]}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(names=frozenset({"judge.example"})) as found:
        yield found


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8321"}, 200),
        ({"Host": "[::1]:8321"}, 200),
        ({"Host": "10.1.2.3"}, 200),
        ({"Host": "judge.example:8321"}, 200),
        ({"Host": "judge.example:8321", "Origin": "http://judge.example:8321"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost.evil.example"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
    ],
)
def test_without_a_key_only_this_machines_names_are_asked(served: Served, headers: dict[str, str], status: int) -> None:
    """A page whose name was rebound to this machine, and any page's form, were answered with 200."""
    said = served.ask("/v1/score", BODY, **headers)
    assert said[0] == status and (status == 200 or "without a key" in said[1]["error"]["message"])


def test_with_a_key_any_name_is_asked() -> None:
    with serving(key="k") as found:
        foreign = {"Host": "evil.example", "Origin": "http://evil.example"}
        assert found.ask("/v1/score", BODY, **foreign)[0] == 401
        assert found.ask("/v1/score", BODY, **foreign, Authorization="Bearer k")[0] == 200


def test_the_api_has_no_page_with_scripts_of_elsewhere(served: Served) -> None:
    """`/docs` ran a script from a server of others."""
    assert [served.ask(path)[0] for path in ("/docs", "/redoc", "/openapi.json")] == [404, 404, 200]


def test_whoever_asks_nothing_is_cut_off_and_others_are_not() -> None:
    """300 of 300 connections without a request lived on."""
    with serving(head_s=2.0) as found, ExitStack() as stack:
        parts = urlsplit(found.url)
        kept = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
        kept.request("GET", "/healthz")
        assert kept.getresponse().read()
        sock = kept.sock
        silent = [stack.enter_context(found.connect()) for _ in range(20)]
        dripping = stack.enter_context(found.connect())
        dripping.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
        assert found.ask("/healthz")[0] == 200
        for one in [*silent, dripping]:  # longer than a head may take
            assert one.recv(100).startswith(b"HTTP/1.1 408 ")
        kept.request("GET", "/healthz")  # between two requests nothing had begun
        assert kept.getresponse().status == 200 and kept.sock is sock
        kept.close()


def test_the_longest_idle_connection_makes_room() -> None:
    """With few file descriptors even `/healthz` was refused."""
    with serving(connections=8, head_s=600.0) as found, ExitStack() as stack:
        idle = [stack.enter_context(found.connect()) for _ in range(30)]
        assert found.ask("/healthz")[0] == 200 and found.ask("/v1/score", BODY)[0] == 200
        assert idle[0].recv(1) == b""


def test_as_many_connections_as_there_are_descriptors_for(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    for soft, most in ((256, 256 - KEPT), (1 << 20, MOST), (resource.RLIM_INFINITY, MOST), (10, 1)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert most_connections() == most


def test_a_body_of_many_small_values_is_refused_before_it_is_parsed(served: Served) -> None:
    """Four bodies of 31 MiB of `{},` took 3.4 GB."""
    raw = b'{"transcripts": [' + b"{}," * 250_000 + b"{}]}"
    assert SMALL < len(raw) < 2**20 and weight(raw) > VALUES * 2**20
    status, said = served.ask("/v1/score", raw=raw)
    assert status == 413 and "so many values" in said["error"]["message"]
    large = {"transcripts": [run(str(n), "score 0.5") | {"meta": {"text": "x" * SMALL}} for n in range(3)]}
    assert served.ask("/v1/score", large)[0] == 200


def test_an_answer_of_a_server_is_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer at `/v1/judge` took 3.1 GB."""
    monkeypatch.setenv(VARIABLE, "100")
    with pytest.raises(RRMError, match="the answer has more than 100 bytes"):
        asyncio.run(ServerAddress(served.url, patience_s=1).ask("/v1/judge"))
    with pytest.raises(RRMError, match="a line of the answer has more than 100 bytes"):
        heard(ServerAddress(served.url, patience_s=1), "/v1/score", {**BODY, "stream": True})
