"""The labelling page over HTTP, for one person at this machine.

Bound to 127.0.0.1. Addresses begin with a random token, the same at every start (`rrm.annotate.label_address`). A request must name
this host (against DNS rebinding), and one that changes something must be JSON from the page itself (Origin).

    GET  /TOKEN/            the page
    GET  /TOKEN/start       who rates, how many transcripts, the first that is not done
    GET  /TOKEN/item/N      one transcript and its label, N from 1
    GET  /TOKEN/open/N      the next that is not done after N, wrapping around; 0: all are done
    POST /TOKEN/act         one action (`Act`); 409 where another tab changed what this one has not seen, or where undo would take back
                            another change (`last` names it); 410 where the transcript is not among these
    POST /TOKEN/acts        a list of actions, from a page that is left, up to the first refused
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import socket
import sys
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rrm.annotate.label import MOST_CHARS, Ask, Change
from rrm.annotate.label_address import HOST, PageAddress, keep_address, kept_address
from rrm.annotate.label_journal import Journal
from rrm.annotate.label_pool import TranscriptPool
from rrm.annotate.label_store import LabelRefused, PageState
from rrm.errors import RRMError
from rrm.readers.base import describe
from rrm.report.page import embed_json, page_parts

log = logging.getLogger(__name__)
MOST_BODY = 64 * 1024
SECONDS = 30.0
"""A connection may be silent."""
REPORT_SCRIPTS = ("dom.js", "message.js")
SCRIPTS = ("actions.js", "comment.js", "label.js")


class Act(BaseModel):
    """Action that the page posts: a change to one transcript, or an undo."""

    model_config = ConfigDict(extra="forbid")

    action: str = Field(min_length=8, max_length=64)
    """The page's id of it; one that was taken is not taken again."""
    digest: str | None = None
    change: Change | None = None
    undo: bool = False
    page: str | None = Field(default=None, min_length=8, max_length=64)
    seen: int = Field(default=0, ge=0)
    """The last `version` that the tab was sent."""
    undoes: int | None = Field(default=None, ge=0)
    """Number of the change that undo means (`last`), 0: none; None: the last, if it is this tab's."""


class Labelling:
    """The page's requests, without HTTP. Safe to call from several threads."""

    def __init__(self, pool: TranscriptPool, journal: Journal, ask: Ask, categories: tuple[str, ...]) -> None:
        self.pool, self.journal, self.categories = pool, journal, categories
        self.ask: Ask = ask
        self._lock = threading.Lock()
        self._closed = False
        self._done = {i.digest for i in pool.items if journal.said(i.digest).done(i.steps, ask)}

    def start(self) -> dict[str, Any]:
        with self._lock:
            return {**self._progress(), "rater": self.journal.rater, "first": self._open(0) or 1}

    def item(self, number: int) -> dict[str, Any]:
        """Return one transcript, from 1; raises LabelRefused where there is none."""
        with self._lock:
            if not 1 <= number <= len(self.pool):
                raise LabelRefused(HTTPStatus.NOT_FOUND, f"there is no transcript {number}: there are {len(self.pool)}")
            item = self.pool.items[number - 1]
            return {**self._state(number - 1), "id": item.id, "view": self.pool.view(number - 1)}

    def next_open(self, number: int) -> dict[str, Any]:
        with self._lock:
            return {"n": self._open(number)}

    def act(self, act: Act) -> dict[str, Any]:
        """Take an action; it returns when the action is on the disk.
        Raises LabelRefused where the transcript is not here or cannot have the change."""
        with self._lock:
            if self._closed:
                raise RRMError("the page is closed: the browser keeps this action")
            try:
                return self._act(act, None if act.page is None else PageState(act.page, act.seen))
            except LabelRefused as refused:
                if refused.status is HTTPStatus.CONFLICT:
                    refused.more = self._progress()
                raise

    def _act(self, act: Act, state: PageState | None) -> dict[str, Any]:
        if act.undo:
            last = self.journal.sayings.last
            if last and self.pool.place(last.digest) is None and not self.journal.sayings.taken(act.action):
                raise LabelRefused(
                    HTTPStatus.GONE, "the last change is to a transcript that is not among those that are labelled here"
                )
            digest = self.journal.undo(act.action, act.page, act.undoes)
            if digest is None:
                return {**self._progress(), "undone": False}
        elif act.digest is None or act.change is None:
            raise LabelRefused(HTTPStatus.BAD_REQUEST, "an action is a change to a transcript, or undo")
        else:
            digest = act.digest
        index = self.pool.place(digest)
        if act.undo and index is None:
            return {**self._progress(), "undone": True}  # of a transcript that is not among these
        if index is None:
            raise LabelRefused(HTTPStatus.GONE, "this transcript is not among those that are labelled here")
        item = self.pool.items[index]
        if act.change is not None and not act.undo:
            if act.change.field == "category" and act.change.value not in (None, "", *self.categories):
                raise LabelRefused(HTTPStatus.BAD_REQUEST, "there is no such category")
            try:
                self.journal.change(act.action, digest, item.id, item.steps, act.change, state)
            except ValidationError as error:
                raise LabelRefused(HTTPStatus.BAD_REQUEST, describe(error)) from error
            except ValueError as error:
                raise LabelRefused(HTTPStatus.BAD_REQUEST, str(error)) from error
        done = self.journal.said(digest).done(item.steps, self.ask)
        (self._done.add if done else self._done.discard)(digest)
        return {**self._state(index), "undone": act.undo}

    def close(self) -> None:
        """Wait for the action under way, and take no more: the journal is another's from now on."""
        with self._lock:
            self._closed = True

    def summary(self) -> dict[str, Any]:
        with self._lock:
            here, labels = {item.digest for item in self.pool.items}, self.journal.sayings.all
            return {
                "output": str(self.journal.path),
                "rater": self.journal.rater,
                "transcripts": len(self.pool),
                "done": len(self._done),
                "begun": len((labels.keys() & here) - self._done),
                "comments_without_verdict": sum(len(labels[digest].waiting) for digest in labels.keys() & here),
                "of_other_transcripts": len(labels.keys() - here),
                "repeated": self.pool.repeated,
            }

    def _progress(self) -> dict[str, Any]:
        return {
            "total": len(self.pool),
            "done": len(self._done),
            "version": self.journal.sayings.version,
            "last": self._last(),
        }

    def _last(self) -> dict[str, Any] | None:
        """Describe the change that undo would take back: its number, its page, its transcript's number."""
        last = self.journal.sayings.last
        if last is None:
            return None
        index = self.pool.place(last.digest)
        return {"number": last.number, "page": last.page, "n": None if index is None else index + 1}

    def _state(self, index: int) -> dict[str, Any]:
        item = self.pool.items[index]
        return {
            **self._progress(),
            "n": index + 1,
            "digest": item.digest,
            "steps": item.steps,
            "said": self.journal.said(item.digest).model_dump(),
        }

    def _open(self, number: int) -> int:
        total = len(self.pool)
        order = (index % total for index in range(number, number + total))
        return next((index + 1 for index in order if self.pool.items[index].digest not in self._done), 0)


class LabelServer(ThreadingHTTPServer):
    """Serves with `serve_forever` until `shutdown`, at `address`; raises OSError where the port is taken."""

    daemon_threads = True

    def __init__(self, labelling: Labelling, port: int = 0, token: str | None = None) -> None:
        self.labelling = labelling
        self.token = token or secrets.token_urlsafe(24)
        self._open: set[socket.socket] = set()
        super().__init__((HOST, port), _Handler)
        self.page, self.policy = _page(labelling)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Close it and every connection: another process may own the label file from now on."""
        super().server_close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.labelling.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log errors, except a browser that hangs up."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            log.exception("a request failed")

    @property
    def address(self) -> str:
        return PageAddress(self.server_port, self.token).url


def label_server(labelling: Labelling, port: int = 0) -> LabelServer:
    """Serve the page at its earlier address, so that an open tab goes on, and store the address.
    `port` 0: the earlier one, or where that is taken or there was none, any free one. Raises RRMError where that fails."""
    labels = labelling.journal.path
    before = kept_address(labels)
    try:
        server = None if port or before is None else LabelServer(labelling, before.port, before.token)
    except OSError:
        log.warning(
            "port %d, where this page was, is another program's now: close tabs that are still open there, and open the new address",
            before.port if before else 0,
        )
        server, before = None, None  # an open tab told that program the token
    if server is None:
        try:
            server = LabelServer(labelling, port, before and before.token)
        except OSError as error:
            raise RRMError(f"cannot listen on {HOST}:{port}: {error.strerror}; choose another --port") from error
    try:
        keep_address(labels, PageAddress(server.server_port, server.token))
    except RRMError:
        server.server_close()
        raise
    return server


class _Handler(BaseHTTPRequestHandler):
    server: LabelServer  # type: ignore[assignment]
    protocol_version = "HTTP/1.1"
    # headers and body are two packets: the second would wait 40 ms for the receipt of the first
    disable_nagle_algorithm = True
    server_version = "rrm-label"
    sys_version = ""
    timeout = SECONDS
    HEADERS: ClassVar[dict[str, str]] = {
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a line would hold the token."""

    def _answer(self, handle: Any) -> None:
        try:
            body, content_type, status = *handle(self._inside()), HTTPStatus.OK
        except LabelRefused as refused:
            self.close_connection = True  # what is left of its body is not read
            body, content_type, status = *_json({"error": str(refused), **refused.more}), refused.status
        except RRMError as error:
            log.error("%s", error)
            body, content_type, status = *_json({"error": str(error)}), HTTPStatus.INSUFFICIENT_STORAGE
        self.send_response(status)
        for name, value in self.HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", self.server.policy)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _inside(self) -> str:
        """Return the path behind the token; raises LabelRefused for another host's name or token."""
        if self.headers.get("Host") not in (
            f"{HOST}:{self.server.server_port}",
            f"localhost:{self.server.server_port}",
        ):
            raise LabelRefused(HTTPStatus.MISDIRECTED_REQUEST, "this page is not served under that name")
        token, _, rest = urlsplit(self.path).path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode("ascii")):
            raise LabelRefused(HTTPStatus.NOT_FOUND, "open the address that rrm label printed")
        return rest

    def _get(self, path: str) -> tuple[bytes, str]:
        labelling = self.server.labelling
        resource, _, number = path.partition("/")
        if path == "":
            return self.server.page, "text/html; charset=utf-8"
        if path == "start":
            return _json(labelling.start())
        if resource in ("item", "open") and number.isascii() and number.isdigit() and len(number) < 10:
            return _json(labelling.item(int(number)) if resource == "item" else labelling.next_open(int(number)))
        raise LabelRefused(HTTPStatus.NOT_FOUND, "there is nothing at this address")

    def _post(self, path: str) -> tuple[bytes, str]:
        if self.headers.get("Origin") != f"http://{self.headers['Host']}":
            raise LabelRefused(HTTPStatus.FORBIDDEN, "only the page itself may post")
        if path not in ("act", "acts"):
            raise LabelRefused(HTTPStatus.NOT_FOUND, "there is nothing at this address")
        if self.headers.get_content_type() != "application/json":
            raise LabelRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "an action is JSON")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise LabelRefused(HTTPStatus.LENGTH_REQUIRED, "say how long the body is")
        # of thousands of digits Python makes no number
        if len(length) > len(str(MOST_BODY)) or int(length) > MOST_BODY:
            raise LabelRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {MOST_BODY} bytes")
        try:
            sent = json.loads(self.rfile.read(int(length)))
            acts = [Act.model_validate(act) for act in (sent if path == "acts" and isinstance(sent, list) else [sent])]
        except ValidationError as error:
            raise LabelRefused(HTTPStatus.BAD_REQUEST, describe(error)) from error
        except (ValueError, RecursionError) as error:
            raise LabelRefused(HTTPStatus.BAD_REQUEST, f"not JSON: {error}") from error
        if path == "act":
            return _json(self.server.labelling.act(acts[0]))
        with suppress(
            LabelRefused
        ):  # nobody is there to be told; an undo behind it would take back something else, so the rest waits in the browser
            for act in acts:
                self.server.labelling.act(act)
        return _json({})


def _json(value: dict[str, Any]) -> tuple[bytes, str]:
    return json.dumps(value, ensure_ascii=True).encode("ascii"), "application/json"


def _page(labelling: Labelling) -> tuple[bytes, str]:
    """Return the page, and the policy that names its script and style."""
    template, parts = page_parts("rrm.annotate", "label.html.jinja", REPORT_SCRIPTS, SCRIPTS, "label.css")
    settings = {"categories": labelling.categories, "ask": labelling.ask, "most_chars": MOST_CHARS}
    settings["file"] = labelling.journal.key
    page = template.render(known=embed_json(settings), **parts)
    policy = (
        f"default-src 'none'; img-src data:; connect-src 'self'; script-src '{parts['script_hash']}'; style-src '{parts['style_hash']}'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return page.encode("utf-8"), policy
