"""One vLLM server over HTTP: its address, what it is sent, and every way in which that can fail."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rrm.engines.clients import UnreadableAnswer, chat_client, send
from rrm.engines.hidden import Hidden
from rrm.engines.http_errors import Rejected
from rrm.engines.server_options import ServerOptions, filled, is_address, public
from rrm.engines.vllm_wire import WrongReply
from rrm.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

PREFIX = "vllm:"
CONNECT_S = 10.0
"""Longest wait for a connection: a machine that was switched off does not even refuse one."""
KEY = "VLLM_API_KEY"
"""Where vLLM's servers read the key that they ask for; not OPENAI_API_KEY, which is a judge's and no business of theirs."""


@dataclass(eq=False)
class Server:
    """One address."""

    url: str
    """Without `/v1` and without a password: as messages show it."""
    client: AsyncOpenAI
    timeout_s: float
    connect_s: float
    hidden: Hidden
    rows: int = 0
    """Of those at work, whose beginnings it holds."""
    strikes: int = 0
    """Failures since it answered last."""
    down_until: float = 0.0
    """It is left alone till then (by the clock of `Servers`); 0: it is up."""
    down_s: float = 0.0
    """For how long it was left alone last."""
    probed: bool = False
    """Whether a row asks it, after that time, on behalf of all."""
    said: bool = False
    """Whether the log has it that it fails."""
    loads: int = 0
    """How often it was given weights that it did not know."""
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def send(
        self, path: str, body: dict[str, Any] | None = None, *, as_text: bool = False, root: bool = False
    ) -> Any:
        """One HTTP request, GET without a body.

        Args:
            as_text: the reply is no JSON, or nobody's business.
            root: below the address itself, not `/v1`.

        Raises:
            Retry: it may pass.
            Rejected: it will not.
            WrongReply: a body that is no JSON.
        """
        answer_type = str if as_text else object
        path = f"{self.url}{path}" if root else path
        ask = self.client.get if body is None else partial(self.client.post, body=body)
        late = "raise the time-out, or look into its log"
        try:
            return await send(ask(path, cast_to=answer_type), self.timeout_s, self.hidden, late, self.connect_s)
        except UnreadableAnswer as error:
            raise WrongReply(str(error)) from error
        except ValueError as error:  # a body that is no JSON
            raise WrongReply(f"it is no JSON ({error})") from error

    def error(self, reason: str, hint: str) -> EngineError:
        """What went wrong there, and what to do."""
        return EngineError(self.hidden.hide(f"vLLM at {self.url}: {reason}; {hint}"))

    def refusal(self, refused: Rejected) -> EngineError:
        """A status that trying again does not change."""
        key = refused.status in (401, 403)
        hint = f"set {KEY} to the key that the server asks for" if key else "read the server's log"
        return self.error(f"HTTP {refused.status}: {refused.text}", hint)


def servers_at(urls: Sequence[str], connections: int, timeout_s: float) -> list[Server]:
    """The servers at these addresses (without `/v1`), which share one pool of connections.

    A password in an address is sent as HTTP's basic authorization, and is no part of the address, which HTTP libraries log.
    """
    from openai import AsyncOpenAI, Timeout

    http = chat_client(connections)
    connect_s = min(CONNECT_S, timeout_s)
    wait = Timeout(timeout_s, connect=connect_s)
    key = (os.environ.get(KEY) or "none").strip()
    found: list[Server] = []
    for url in urls:
        shown, headers = public(url), ServerOptions().headers_to(url)
        client = AsyncOpenAI(
            base_url=f"{shown}/v1",
            api_key=key,
            default_headers=headers,
            timeout=wait,
            http_client=http,
            max_retries=0,
        )
        # OPENAI_ORG_ID, OPENAI_PROJECT_ID and OPENAI_CUSTOM_HEADERS, which the client reads by itself, are for others
        client.organization = client.project = None
        client._custom_headers = headers
        hidden = Hidden({*ServerOptions().secrets([url]), *([] if key == "none" else [key])})
        found.append(Server(shown, client, timeout_s, connect_s, hidden))
    return found


def servers_of(spec: str) -> tuple[list[str], str | None]:
    """(addresses without `/v1`, model or None) of `vllm:URL[,URL…][#model]`.

    Raises:
        ConfigError: not of that form.
    """
    addresses, _, model = spec.removeprefix(PREFIX).partition("#")
    urls = [filled(url, public(spec), in_url=True) for url in addresses.split(",") if url.strip()]
    urls = [url.strip().rstrip("/").removesuffix("/v1") for url in urls]
    wrong = [url for url in urls if not is_address(url) or urlsplit(url).query]
    if not spec.startswith(PREFIX) or not urls or wrong:
        shown = public(spec)
        if "@" in shown:  # a password with a mark in it that ends an address
            shown = "the address"
        what = "names no address; " if spec.startswith(PREFIX) and not urls else ""
        raise ConfigError(
            f"{shown!r:.120}: {what}write vllm:URL#model, e.g. vllm:http://localhost:8000#base; several servers with commas between "
            "their addresses; /, #, comma and ? of a password as %2F, %23, %2C and %3F"
        )
    return list(dict.fromkeys(urls)), model or None
