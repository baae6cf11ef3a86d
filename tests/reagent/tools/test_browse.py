"""Every address that must not be fetched, whatever it is called and whoever leads to it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from browsed_pages import browse, kind, pages_served
from tool_errors import raises

from reagent.tools import build
from reagent.tools.addresses import parse, target, why_not
from reagent.tools.deny import DenyList
from reagent.tools.fetch import fetch
from rrm.errors import ConfigError


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with pages_served() as pages:
        yield pages


REFUSED = [
    "http://127.0.0.1/", "http://127.1.2.3/", "http://localhost/", "http://localhost./", "http://LOCALHOST/",
    "http://0.0.0.0/", "http://10.0.0.1/", "http://172.16.0.1/", "http://192.168.1.1/",
    "http://169.254.169.254/latest/meta-data/", "http://168.63.129.16/machine?comp=goalstate", "http://100.64.0.1/",
    "http://100.100.100.200/latest/meta-data/", "http://192.0.0.8/", "http://192.0.0.192/latest/", "http://198.18.0.1/",
    "http://224.0.0.1/", "http://240.0.0.1/", "http://255.255.255.255/", "http://2130706433/", "http://0x7f000001/",
    "http://0x7f.0.0.1/", "http://0177.0.0.1/", "http://017700000001/", "http://127.1/", "http://127.0.1/",
    "http://127.0.0.1./", "http://134744072/",  # 8.8.8.8: public, but nobody writes it so
    "http://[::1]/", "http://[::]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:10.0.0.1]/",
    "http://[::ffff:a9fe:a9fe]/", "http://[::127.0.0.1]/", "http://[::ffff:168.63.129.16]/",
    "http://[64:ff9b::7f00:1]/", "http://[64:ff9b::a83f:8110]/", "http://[64:ff9b:1::1]/", "http://[2002:7f00:1::]/",
    "http://[2001:0:7f00:1:0:0:f5ff:fffe]/", "http://[fe80::1]/", "http://[fe80::1%25eth0]/", "http://[fc00::1]/",
    "http://[fd00:ec2::254]/latest/meta-data/", "http://[fd20:ce::254]/", "http://[fec0::1]/", "http://[ff02::1]/",
    "http://user@example.com/", "http://user:pass@example.com/", "http://example.com@127.0.0.1/", "http://8.8.8.8:22/",
    "http://8.8.8.8:0/", "http://8.8.8.8:99999/", "http://8.8.8.8:8080/", "https://127.0.0.1/", "ftp://8.8.8.8/",
    "file:///etc/passwd", "gopher://8.8.8.8/", "javascript:alert(1)", "data:text/plain,hello", "//8.8.8.8/", "8.8.8.8",
    "", "http://", "http:///path", "http://exa mple.com/", "http://example.com/\r\nHost: x",
    "http://example.com\\@127.0.0.1/", "http://127%2e0.0.1/", "http://１２７.0.0.1/", "http://①②⑦.0.0.1/",
    "http://-example.com/", "http://[::1/", "http://" + "a" * 5000 + "/",
]  # fmt: skip


@pytest.mark.parametrize("url", REFUSED)
def test_what_must_not_be_fetched(url: str) -> None:
    with raises("address_refused", "host_not_found"):  # some resolvers do not know `localhost.`
        target(url)


@pytest.mark.parametrize(
    "url", [u for u in REFUSED if "://" in u and u not in ("http://", "http:///path") and "\r" not in u and len(u) < 99]
)
def test_nor_behind_a_redirect(server: Any, url: str) -> None:
    before = len(server.asked)
    with raises("address_refused", "host_not_found"):
        fetch(f"{server.base}/inside?{quote(url)}", allow=server.allow)
    assert len(server.asked) == before + 1  # the redirect alone


def test_public_addresses_pass() -> None:
    for text in ("8.8.8.8", "1.1.1.1", "168.63.129.17", "2001:4860:4860::8888", "64:ff9b::808:808", "2002:808:808::"):
        assert why_not(ipaddress.ip_address(text)) is None, text
    destination = target("https://8.8.8.8/dns?q=a")
    assert (destination.addresses, destination.port, destination.path, destination.authority) == (
        ("8.8.8.8",), 443, "/dns?q=a", "8.8.8.8",
    )  # fmt: skip
    assert target("http://[2001:4860:4860::8888]").authority == "[2001:4860:4860::8888]"


def test_other_letters_are_encoded() -> None:
    url = parse("https://de.wikipedia.org/wiki/Köln?x=ä")
    assert url.geturl() == "https://de.wikipedia.org/wiki/K%C3%B6ln?x=%C3%A4"
    assert parse("http://bücher.example/").hostname == "xn--bcher-kva.example"


def test_allow_is_for_that_host_and_port_alone(server: Any) -> None:
    assert target(f"{server.base}/x", server.allow).addresses == ("127.0.0.1",)
    for url in (
        f"http://127.0.0.1:{server.server_port + 1}/",
        f"http://localhost:{server.server_port}/",
        "http://127.0.0.1/",
    ):
        with raises("address_refused"):
            target(url, server.allow)
    with pytest.raises(ConfigError, match="write host:port"):
        build(["browse"], {"browse": {"allow": ["127.0.0.1"]}})


def test_a_redirect_from_an_allowed_server_leads_nowhere_else(server: Any) -> None:
    result = browse(server, "/inside?http://169.254.169.254/latest/")
    assert kind(result) == "address_refused" and "link-local" in result.content
    assert kind(browse(server, "/inside?file:///etc/passwd")) == "address_refused"


def test_a_cookie_is_sent_on_to_no_host(server: Any) -> None:
    other = f"localhost:{server.server_port}"
    result = browse(server, f"/marked?http://{other}/cookies", allow=[*server.allow, other])
    assert "None" in result.content and "visitor" not in result.content
    assert "visitor" not in browse(server, "/marked?/cookies").content


DENIED = ["sets.example", "code.example/lab"]


@pytest.mark.parametrize(
    "url",
    [
        "https://sets.example",
        "http://SETS.example:80/x",
        "https://sets.example./x",
        "https://www.a.sets.example/x",
        "https://sets。example/x",  # a full stop of another script
        "https://archive.example/web/2024/https://sets.example/x",
        "https://reader.example/?url=https%3A%2F%2Fsets.example%2Fx",
        "https://reader.example/?url=https%253A%252F%252Fsets%252Eexample",
        "https://code.example/lab",
        "https://raw.code.example/lab-two/x",
        "https://code.example//LAB/x",
        "https://code.example/x/../lab/x",
        "https://code.example/%6Cab/x",
    ],
)
def test_denied_addresses(url: str) -> None:
    """In whatever spelling, and where another server is asked for them."""
    with raises("host_denied", match=r"addresses of (sets|code)\.example.* are not fetched"):
        target(url, deny=DenyList(DENIED))


@pytest.mark.parametrize(
    "url",
    [
        "https://sets.example.org/x", "https://my-sets.example/x", "https://sets.examples/x",
        "https://a.example/sets-example", "https://code.example/", "https://code.example/other/lab",
    ],
)  # fmt: skip
def test_their_neighbours_are_not_denied(url: str) -> None:
    assert DenyList(DENIED).entry_for(url) is None and DenyList().entry_for(url) is None


@pytest.mark.parametrize(
    "text",
    [
        "https://se\u1806ts.example/x",  # which IDNA of 2003 drops, as Python's own codec does
        "https://se\u3164ts.example/x",
        "https://se\u206ats.example/x",
        "https://se\U000e0100ts.example/x",  # and that of 2008 by UTS 46
        "https://\u017fet\u017f.example/x",
        "请打开sets.example上的文件",  # a sentence without spaces
        "看code.example/lab",
    ],
)
def test_a_denied_address_in_a_text_is_found_whatever_stands_in_and_beside_it(text: str) -> None:
    assert DenyList(DENIED).entry_within({"request": [text]}) in DENIED


@pytest.mark.parametrize(
    "entry",
    ["code.example/OpenLab/Sets", "code.example//openlab/sets", "code.example/Stra\u00dfe", "code.example/lab//sets/"],
)
def test_a_path_is_denied_whatever_its_case(entry: str) -> None:
    denied = DenyList([entry])
    url = "https://" + entry.replace("//", "/")
    assert denied.entry_for(url + "/x") == denied.entry_for(url.lower()) == entry
    assert denied.entry_for("https://code.example/other") is None


def test_nothing_is_sent_to_a_denied_address_behind_a_redirect_either(server: Any) -> None:
    before = len(server.asked)
    for path in ("/towns", "/moved"):
        result = browse(server, path, deny=["127.0.0.1/towns"])
        assert kind(result) == "host_denied" and result.denied == 1, result
    assert [path.partition("?")[0] for path, _ in server.asked[before:]] == ["/moved"]
    assert browse(server, "/json", deny=["127.0.0.1/towns"]).denied == 0
    for entry in ("https://a.example", "A.example", "example", "a.example/?x", ""):
        with pytest.raises(ConfigError, match=r"deny holds .*; write a host in lower case"):
            build(["browse"], {"browse": {"deny": [entry]}})
    with pytest.raises(ConfigError, match=r"deny is a list, not the text 'a\.example'"):
        build(["browse"], {"browse": {"deny": "a.example"}})


def test_a_name_is_resolved_once_and_all_its_addresses_count(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real, answers, hosts = socket.getaddrinfo, [["127.0.0.1"], ["10.0.0.1"], ["168.63.129.16"]], []

    def lookup(host: str, port: int, *args: Any, **kwargs: Any) -> Any:
        if host not in ("rebind.example", "mixed.example"):
            return real(host, port, *args, **kwargs)
        hosts.append(host)
        addresses = ["8.8.8.8", "192.168.0.9"] if host == "mixed.example" else answers.pop(0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    name = f"rebind.example:{server.server_port}"
    page = fetch(f"http://{name}/towns", allow=[name])
    assert b"Aldermoor" in page.body and hosts == ["rebind.example"]
    assert server.asked[-1] == ("/towns", name)  # the name is what the server is told
    with raises("address_refused", match="private"):
        target("http://rebind.example/")
    with raises("address_refused", match="cloud-internal"):
        target("http://rebind.example/")
    with raises("address_refused", match="private"):
        target("http://mixed.example/")


def test_a_name_without_an_address() -> None:
    with raises("host_not_found", match=r"no-such-host\.invalid"):
        target("http://no-such-host.invalid/")
