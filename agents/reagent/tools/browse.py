"""`browse`: a public page as text. Refusals: `addresses.py`; limits of a fetch: `fetch.py`."""

from collections.abc import Sequence

from reagent.env.tool import Tool, tool
from reagent.errors import ToolError
from reagent.tools.deny import DenyList
from reagent.tools.documents.run import read_document
from reagent.tools.fetch import Page, fetch
from rrm.errors import ConfigError

_KINDS = {"text/html": "html", "application/xhtml+xml": "html", "application/pdf": "pdf"}
_TEXT = ("text/", "application/json", "application/xml", "application/javascript")


def kind_of(page: Page) -> str:
    """The file suffix that a page's body is read as. Raises ToolError: it is binary, and no PDF."""
    if page.content_type in _KINDS:
        return _KINDS[page.content_type]
    if page.content_type.startswith(_TEXT) or page.content_type.endswith(("+json", "+xml")):
        return "txt"
    if not page.content_type:
        return "html" if page.body.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")) else "txt"
    raise ToolError(
        f"{page.url[:150]} is {page.content_type[:60]}, which is not read; pages, text, JSON and PDF are",
        "content_refused",
    )


def browse_tools(
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    ports: Sequence[int] = (80, 443),
    timeout_s: float = 20.0,
    max_bytes: int = 2_000_000,
    max_redirects: int = 5,
    max_chars: int = 6000,
    max_concurrency: int = 16,
) -> list[Tool]:
    """Make the tool `browse`.

    Args:
        allow: `host:port`, fetched whatever their address; all others must be public.
        deny: `host` or `host/path`, never fetched; counted (`reagent.tools.deny`).
        ports: that are fetched.
        timeout_s: of a fetch, redirects included.
        max_bytes: of a page, unpacked; what is longer is cut.
        max_redirects: each judged like the first address.
        max_chars: of a reading; the agent reads on by `start`.
        max_concurrency: fetches at once.

    Raises:
        ConfigError: `allow` holds something else than `host:port`, or `deny` something else than a host or a path of one.
    """
    for entry in allow:
        host, colon, port = entry.rpartition(":")
        if not (colon and host and port.isdigit()) or host != host.lower():
            raise ConfigError(
                f"tools.browse: allow holds {entry!r}; write host:port in lower case, e.g. localhost:8000"
            )

    denied = DenyList(deny, "tools.browse: deny")

    @tool(timeout_s=timeout_s + 25, max_concurrency=max_concurrency, max_result_chars=max_chars + 500)
    def browse(url: str, start: int = 0) -> str:
        """Fetch a web page as text, with its links.

        Args:
            url: The page's address, beginning with http:// or https://.
            start: The character to begin with, to read on in a long page.
        """
        page = fetch(
            url,
            allow=allow,
            ports=ports,
            timeout_s=timeout_s,
            max_bytes=max_bytes,
            max_redirects=max_redirects,
            deny=denied,
        )
        suffix = kind_of(page)
        if page.cut and suffix == "pdf":
            raise ToolError(
                f"{page.url[:150]} is a PDF of more than {max_bytes} bytes, which is not read", "content_refused"
            )
        window = read_document(
            page.body, suffix, start=start, max_chars=max_chars, charset=page.charset, base_url=page.url
        )
        note = f"\n[only the page's first {max_bytes} bytes were read]" if page.cut else ""
        return f"{page.url}\n\n{window.with_note()}{note}"

    return [browse]
