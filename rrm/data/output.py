"""Output files: rows that survive a kill and can be resumed, and files that appear only when complete.

OUT.jsonl             rows, one JSON object a line
OUT.jsonl.run.json    settings that made them: rows of different settings are never mixed
OUT.jsonl.replaced    with its own .run.json: rows that --overwrite replaces, until the first new row; restored after a kill
OUT.jsonl.lock        lock of the writer; it stays, since a waiting process may have it open. The rows are locked as well,
                      as a hard link has another lock file
"""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import shutil
import tempfile
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rrm.data.jsonl import cut_half_line
from rrm.data.printing import describe
from rrm.errors import RRMError

if TYPE_CHECKING:
    import numpy as np

log = logging.getLogger(__name__)
UNROWED = "unrowed"  # key in OUT.jsonl.run.json: usage of requests under way when a run was stopped
WAY_OUT = "choose another -o, or --overwrite"
CONTEXT = (
    "a server that is down does not say its context: start it, make failed rows again with --retry-errors, or name the context "
    "that the rows were made with (--transcript-tokens)"
)
SYNC_SECONDS = 1.0  # seconds between fsyncs; each row is flushed when appended


@contextmanager
def writing(path: Path, way_out: str) -> Iterator[None]:
    """Turn an `OSError` within the block into an `RRMError` that names the file and what to do."""
    try:
        yield
    except OSError as error:
        raise RRMError(f"cannot write {path}: {error.strerror}; {way_out}") from error


@contextmanager
def locked(path: Path, *, stays: bool = False) -> Iterator[None]:
    """Hold the lock `PATH.lock` of a file or folder, and keep its file if `stays`; raises `RRMError`."""
    from filelock import FileLock, Timeout

    lock = Path(f"{path}.lock")
    os.stat(path.parent)  # the library would make the folder
    stays, file_lock = stays or lock.exists(), FileLock(lock, timeout=0)
    try:
        file_lock.acquire()
    except Timeout as error:
        raise RRMError(_why_locked(path, lock)) from error
    except NotImplementedError as error:
        raise RRMError(f"cannot lock {lock} ({error}); choose an -o on a local disk") from error
    try:
        yield
    finally:
        if not stays:
            with suppress(OSError):
                lock.unlink()  # while it is held: who has opened it meanwhile finds it gone
        file_lock.release()


def _lock_rows(stack: ExitStack, path: Path) -> None:
    """Lock the file itself, under any of its names, until the stack ends; raises `RRMError`."""
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:  # Windows locks what it reads
        return
    try:
        flock(stack.enter_context(open(path, "rb")), LOCK_EX | LOCK_NB)  # noqa: SIM115
    except BlockingIOError as error:
        raise RRMError(
            f"another run is writing {path} under another of its names (hard links); wait for it, or choose another -o"
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise


def read_rows(
    path: Path, parse: Callable[[dict[str, Any]], Any] = dict, noun: str = "a row", way_out: str = WAY_OUT
) -> Iterator[tuple[int, Any]]:
    """Yield (line number, parsed row), without a half-written last line.

    Raises:
        RRMError: a line is no JSON object, or `parse` refuses it.
    """
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            row = None
            with suppress(ValueError, RecursionError):
                row = json.loads(line)
            if not isinstance(row, dict):
                raise RRMError(f"{path}:{number}: not a row but {line[:40]!r}; {way_out}")
            try:
                parsed = parse(row)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                why = f" ({describe(error)})" if isinstance(error, ValueError) else ""
                raise RRMError(f"{path}:{number}: not {noun}{why}; {way_out}") from error
            yield number, parsed


class RowFile:
    """A locked file of JSON rows; the settings that made them stand beside it. `RowFile.open` opens it."""

    def __init__(self, path: Path, sync_seconds: float = SYNC_SECONDS) -> None:
        self.path = path
        self.unrowed: dict[str, Any] | None = None  # usage of earlier, stopped runs that is in no row (`keep_unrowed`)
        self._sync_seconds = sync_seconds
        self._file: IO[bytes] | None = None
        self._synced = 0.0

    @classmethod
    @contextmanager
    def open(
        cls,
        path: Path,
        made_by: Mapping[str, Any],
        *,
        overwrite: bool = False,
        empty: Callable[[dict[str, Any]], bool] | None = None,
        sync_seconds: float = SYNC_SECONDS,
    ) -> Iterator[RowFile]:
        """Lock the file, check that its settings are this run's, cut off a half-written end.

        Args:
            made_by: all settings that decide the rows: command, model, seed, … (JSON).
            overwrite: drop an earlier run's rows; they come back where this run fails before its first row.
            empty: whether a row will be dropped anyway: with only such rows, their settings do not matter.
            sync_seconds: seconds between fsyncs; 0: after each row.

        Raises:
            RRMError: the file has other settings, is locked, or cannot be written.
        """
        if str(path) == "-" or (path.exists() and not path.is_file()):
            raise RRMError(
                f"-o {path} is not a file: rows are added to it and a killed run goes on with it; name a file"
            )
        path = path.resolve() if path.is_symlink() else path  # a rewritten file would take the link's place
        header = Path(f"{path}.run.json")
        with ExitStack() as stack:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                # beside the rows, not the rows: those may be replaced by a rewritten file, and Windows locks what it reads
                stack.enter_context(locked(path, stays=True))
                _bring_back(path, header)
                created = [file for file in (path, header) if not file.exists()]
                stack.push(lambda failed, *_: _leave_nothing(path, created) if failed and path in created else None)
                run = stack.enter_context(
                    os.fdopen(os.open(header, os.O_RDWR | os.O_CREAT, 0o644), "r+", encoding="ascii")
                )
                if path.exists():
                    _lock_rows(stack, path)
                if overwrite:
                    stack.push(_put_aside(path, header))
                if not path.exists():
                    path.write_bytes(b"")
                    _lock_rows(stack, path)
                if overwrite or path in created:
                    path.write_bytes(b"")
                    run.truncate(0)
                with open(path, "r+b") as file:
                    torn = cut_half_line(file)
            except OSError as error:
                raise RRMError(f"cannot write {error.filename or header}: {error.strerror}") from error
            rows = cls(path, sync_seconds)
            header_text = run.read()
            with suppress(ValueError, AttributeError):
                rows.unrowed = json.loads(header_text).get(UNROWED)
            stands = path.stat().st_size and not (empty and all(empty(row) for _, row in rows.rows()))
            if not stands or _compare(path, header_text, made_by):
                write_header(run, made_by, **({} if rows.unrowed is None else {UNROWED: rows.unrowed}))
            if torn:
                log.warning("%s: its last line was only half written and is made again", path)
            stack.callback(rows.close)
            yield rows

    def rows(self, *how: Any) -> Iterator[tuple[int, Any]]:
        """Yield (line number, parsed row); takes what `read_rows` takes behind the path."""
        return read_rows(self.path, *how)

    def append(self, rows: Iterable[Mapping[str, Any]]) -> int:
        """Append rows as they come, each flushed at once; returns how many. Raises `RRMError`."""
        count = 0
        for row in rows:  # outside of `try`: an error in what makes the rows is none of the file's
            data = json.dumps(row, allow_nan=False).encode("ascii") + b"\n"
            with self._writing():
                self._file = self._file or open(self.path, "ab")  # noqa: SIM115  # closed by `close`
                self._file.write(data)
                self._file.flush()
                if time.monotonic() - self._synced >= self._sync_seconds:
                    os.fsync(self._file.fileno())
                    self._synced = time.monotonic()
            count += 1
        return count

    def keep(self, keeps: Callable[[dict[str, Any]], bool]) -> None:
        """Keep the rows that pass the predicate; atomic, as all rewriting here."""
        with self._rewriting() as new, open(self.path, "rb") as old:
            new.writelines(line for line in old if keeps(json.loads(line)))

    def replace(self, rows: Iterable[Mapping[str, Any]]) -> None:
        with self._rewriting() as new:
            new.writelines(json.dumps(row, allow_nan=False).encode("ascii") + b"\n" for row in rows)

    def reorder(self, order: Sequence[int] | np.ndarray) -> None:
        """Order the lines, numbered from 0."""
        ends = array("Q", [0])
        with self._rewriting() as new, open(self.path, "rb") as old:
            for line in old:
                ends.append(ends[-1] + len(line))
            if len(order) != len(ends) - 1:
                raise RRMError(f"{self.path} has {len(ends) - 1} rows, not {len(order)}: it was changed meanwhile")
            for number in order:
                old.seek(ends[number])
                new.write(old.read(ends[number + 1] - ends[number]))

    @contextmanager
    def _rewriting(self) -> Iterator[IO[bytes]]:
        """Yield a draft that replaces the file when the block ends well."""
        self.close()
        with self._writing(), drafted(self.path, ".tmp") as draft, open(draft, "wb") as new:
            yield new
            new.flush()
            os.fsync(new.fileno())

    def keep_unrowed(self, usage: Mapping[str, Any]) -> None:
        """Store usage that is in no row beside the settings."""
        header = Path(f"{self.path}.run.json")
        with self._writing(), drafted(header) as draft:
            draft.write_text(json.dumps({**json.loads(header.read_bytes()), UNROWED: dict(usage)}), encoding="ascii")

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with self._writing(), file:
                os.fsync(file.fileno())

    def _writing(self) -> AbstractContextManager[None]:
        return writing(self.path, "mend that and run the same command to continue")


def _why_locked(path: Path, lock: Path) -> str:
    # `filelock` does not tell a lock that is held from one that cannot be created
    try:
        os.close(os.open(lock, os.O_RDWR | os.O_CREAT, 0o644))
    except OSError as error:
        return f"cannot write {lock}: {error.strerror}; choose an -o in a folder that can be written"
    return f"another run is writing {path}; wait for it, or choose another -o"


def _put_aside(path: Path, header: Path) -> Callable[..., None]:
    """Move an earlier run's rows aside; the returned exit callback restores them on failure."""
    aside, settings = _aside(path)
    if _has_rows(path):
        shutil.copyfile(header, settings)
        os.replace(path, aside)

    def end(failed: object, *_: object) -> None:
        with suppress(OSError):
            _bring_back(path, header, ended_well=not failed)

    return end


def _aside(path: Path) -> tuple[Path, Path]:
    return Path(f"{path}.replaced"), Path(f"{path}.replaced.run.json")


def _bring_back(path: Path, header: Path, *, ended_well: bool = False) -> None:
    """Restore the rows put aside, unless the run ended well or wrote rows; safe to repeat after a kill."""
    aside, settings = _aside(path)
    if aside.exists() and not (ended_well or _has_rows(path)):
        if settings.exists():
            os.replace(settings, header)  # before the rows, which never stand with what made others
        os.replace(aside, path)
        log.warning("%s: the rows that a run was to replace, and made none in their place, are back", path)
    aside.unlink(missing_ok=True)
    settings.unlink(missing_ok=True)


def _has_rows(path: Path) -> bool:
    if not path.exists():
        return False
    with open(path, "rb") as file:
        return file.readline().endswith(b"\n")


def _leave_nothing(path: Path, created: Sequence[Path]) -> None:
    """Delete the files of a run that wrote no row; the lock stays."""
    with suppress(OSError):
        if not _has_rows(path):
            for file in created:
                file.unlink(missing_ok=True)


def write_header(run: IO[str], made_by: Mapping[str, Any], **more: Any) -> None:
    # on disk before the first row
    run.seek(0)
    run.truncate()
    json.dump({"fingerprint": dict(made_by), **more}, run)
    run.flush()
    os.fsync(run.fileno())


# may change between runs: with more room other replies are complete, the earlier ones are the same
ROOM = frozenset(("max_new_tokens", "thinking_tokens"))


def _compare(path: Path, header: str, made_by: Mapping[str, Any]) -> bool:
    """Refuse to mix rows of different settings; returns whether only `ROOM` changed."""
    way_out = f"{WAY_OUT} to make everything again"
    try:
        before = json.loads(header)["fingerprint"]
    except (ValueError, KeyError, TypeError) as error:
        raise RRMError(f"{path} has rows, but {path}.run.json does not say what made them; {way_out}") from error
    now = json.loads(json.dumps(dict(made_by)))
    changed = {name for name in ROOM if before.get(name) != now.get(name)}
    freed = changed | (
        {"transcript_tokens"} if changed and _served_name(now) is not None and _makes_room(before, now) else set()
    )
    differs = differences(
        *({name: v for name, v in settings.items() if name not in freed} for settings in (before, now))
    )
    if before.get("model") != now.get("model") and any(text.startswith("model was") for text in differs):
        raise RRMError(f"{path} was made by {before.get('model')}, now {now.get('model')}; {way_out}")
    if differs:
        context = any(text.startswith("transcript_tokens ") for text in differs) and _served_name(now) is not None
        first = f"{CONTEXT}; else " if context else ""
        raise RRMError(f"{path} holds rows made otherwise: {'; '.join(differs)}; {first}{way_out}")
    if before.get("model") != now.get("model") and _served_name(before) is not None:
        log.warning("%s: its rows came from %s, further ones come from %s", path, before["model"], now["model"])
    if changed:
        changes = "; ".join(differences(*({name: settings.get(name) for name in freed} for settings in (before, now))))
        log.warning("%s: further rows are made with other room for a reply: %s", path, changes)
    return bool(changed)


def _makes_room(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Check that the transcript budget changed by no more than the room for a reply did."""
    more = sum((now.get(name) or 0) - (before.get(name) or 0) for name in ROOM)
    smaller = (before.get("transcript_tokens") or 0) - (now.get("transcript_tokens") or 0)
    return min(more, 0) <= smaller <= max(more, 0)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe the differences of two runs' settings; one judge under two names is none."""
    names = sorted(set(before) | set(now))
    if now.get("model_hash") and now.get("model_hash") == before.get("model_hash"):
        names = [n for n in names if n != "model"]  # the same weights under another path are the same judge
    if before.get("model") != now.get("model") and _served_name(before) == _served_name(now) is not None:
        names = [n for n in names if n != "model"]  # a mended address, or the server's new one
    return [_difference(n, before.get(n), now.get(n)) for n in names if before.get(n) != now.get(n)]


def header_of(path: Path) -> dict[str, Any]:
    """Read the settings that made a file's rows; raises `RRMError`."""
    header = Path(f"{path}.run.json")
    try:
        made_by = json.loads(header.read_text(encoding="ascii"))["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RRMError(f"{header} does not say what made the rows of {path}: keep it beside them") from error
    if not isinstance(made_by, dict):
        raise RRMError(f"{header} does not say what made the rows of {path}: keep it beside them")
    return made_by


# setting → what it is called where it differs
WORDS = {"rules": "the version of the checks by program", "prompt_version": "the version of the prompt"}


def _difference(name: str, before: Any, now: Any) -> str:
    if name == "blend":
        return "their scores were blended with a lexical model, which judges have no longer"
    if name == "out_of_domain":
        was, go_on = (
            ("verdicts of transcripts outside what the judge was measured on", "keep")
            if before is None
            else ("no such verdicts", "unsure")
        )
        return f"they hold {was} and further ones would not (--out-of-domain {go_on} goes on so)"
    if name == "criteria":
        was, now_is = (f"the criteria {c}" if c else "the judge's fixed rubric" for c in (before, now))
        return f"they answer {was} and further ones would answer {now_is} (--criteria)"
    if name == "dtype" and before and now:  # an extra that was installed meanwhile changes the default
        return f"dtype was {before!r} and is {now!r} (--dtype {before} goes on so)"
    if name == "model_hash":
        return "the judge's weights or settings have changed"
    was, now_is = ("not set" if value is None else repr(value) for value in (before, now))
    return f"{WORDS.get(name, name)} was {was} and is {now_is}"


def _served_name(made_by: Mapping[str, Any]) -> str | None:
    """The model's name on its server (`openai:URL#name`); None for a judge that is not served."""
    model = made_by.get("model")
    return model.rpartition("#")[2] if isinstance(model, str) and model.startswith("openai:") else None


def streams(path: Path) -> bool:
    """Check for a pipe or a device, also by a link of /dev or /proc (/dev/stdout)."""
    if path.is_symlink() and os.path.abspath(path).startswith(("/dev/", "/proc/")):
        return True
    return path.exists() and not path.is_file()


@contextmanager
def drafted(path: Path, suffix: str | None = None) -> Iterator[Path]:
    """Yield a path beside `path`, whose file replaces it when the block ends well, and is removed otherwise.

    Args:
        suffix: of the draft; None: one that no other process has.
    """
    draft = path.with_name(f"{path.name}{f'.{secrets.token_hex(4)}.part' if suffix is None else suffix}")
    try:
        yield draft
        os.replace(draft, path)
    finally:
        with suppress(OSError):
            draft.unlink()


@contextmanager
def file_when_whole(path: Path, *, encoding: str = "utf-8", errors: str = "strict") -> Iterator[IO[str]]:
    """Write a text file that replaces `path`, or a link's target, when the block ends well.

    Raises:
        OSError: it cannot be written; RRMError: another process is writing it.
    """
    how: dict[str, Any] = {"encoding": encoding, "errors": errors, "newline": "\n"}
    if streams(path):
        with open(path, "w", **how) as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    with locked(path), drafted(path, ".part") as draft, open(draft, "w", **how) as file:
        yield file


def write_lines(path: str | Path, lines: Iterable[str]) -> int:
    """Write ASCII lines, each ended by a newline, as `file_when_whole` does; returns how many."""
    count = 0
    with file_when_whole(Path(path), encoding="ascii") as out:
        for line in lines:
            out.write(line + "\n")
            count += 1
    return count


@contextmanager
def files_when_whole(folder: Path, owned: Sequence[str]) -> Iterator[Path]:
    """Yield a folder for files that replace those of `folder` that match `owned` patterns.

    They move when the block ends well; other files stay.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        # inside of it, so on the same disk: what follows are renamings
        with locked(folder), tempfile.TemporaryDirectory(prefix=".saving-", dir=folder) as building:
            yield Path(building)
            for path in {path for pattern in owned for path in folder.glob(pattern) if path.is_file()}:
                path.unlink()
            for path in Path(building).iterdir():
                os.replace(path, folder / path.name)
    except BaseException:
        if is_new:
            folder.rmdir()
        raise


@contextmanager
def folder_when_whole(folder: Path) -> Iterator[Path]:
    """Yield a folder beside `folder` that replaces it when the block ends well, and is removed otherwise."""
    building, old = folder.with_name(f"{folder.name}.tmp"), folder.with_name(f"{folder.name}.old")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        if old.exists() and not folder.exists():
            old.rename(folder)  # stopped between the two renamings
        for left in (building, old):
            if left.exists():
                shutil.rmtree(left)
        try:
            yield building
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        if folder.exists():
            folder.rename(old)
        building.rename(folder)
        if old.exists():
            shutil.rmtree(old)
