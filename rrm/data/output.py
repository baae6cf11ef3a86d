"""Rows that a killed run leaves usable: appended, resumed, written by one run at a time, all of one making.

OUT.jsonl             the rows, one JSON object a line
OUT.jsonl.run.json    what made them: rows of different making are never mixed in a file
OUT.jsonl.replaced    with its own .run.json: what --overwrite is to replace, until there is a first new row; a run that was killed before
                      that leaves it, and the next one brings it back
OUT.jsonl.lock        locked while a run writes (the file itself stays: who has opened it, and waits, would lock another than who comes next);
                      the rows are locked as well: another name of theirs (a hard link) has another lock beside it

And what takes the place of another only when all of it is written: one file (`file_when_whole`), the files of a folder
(`files_when_whole`), a whole folder (`folder_when_whole`). They take the same lock (`locked`).
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import tempfile
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rrm.data.jsonl import cut_half_line
from rrm.errors import RRMError

if TYPE_CHECKING:
    import numpy as np

log = logging.getLogger(__name__)
UNROWED = "unrowed"
"""In OUT.jsonl.run.json: usage of requests that were under way as a run was stopped."""
WAY_OUT = "choose another -o, or --overwrite"
CONTEXT = (
    "a server that is down does not say its context: start it, make failed rows again with --retry-errors, or name the context "
    "that the rows were made with (--transcript-tokens)"
)
"""The likely cause where rows over a server differ in how much of a transcript is read at once."""
SYNC_SECONDS = 1.0
"""A row is with the system as soon as it is appended, which a killed run does not undo; on disk after this long."""


@contextmanager
def writing(path: Path, way_out: str) -> Iterator[None]:
    """What the system refuses within is an error that names the file and what to do.

    Raises:
        RRMError: the disk is full or gone, or the like.
    """
    try:
        yield
    except OSError as error:
        raise RRMError(f"cannot write {path}: {error.strerror}; {way_out}") from error


@contextmanager
def locked(path: Path, *, stays: bool = False) -> Iterator[None]:
    """Keep all other writers from a file or folder meanwhile, by `PATH.lock`.

    Args:
        stays: leave the lock's file there in the end, as where it stood before.

    Raises:
        RRMError: another process is writing it, or there can be no lock.
    """
    from filelock import FileLock, Timeout

    lock = Path(f"{path}.lock")
    os.stat(path.parent)  # the library would make the folder
    stays, held = stays or lock.exists(), FileLock(lock, timeout=0)
    try:
        held.acquire()
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
        held.release()


def _lock_rows(stack: ExitStack, path: Path) -> None:
    """Lock the file itself, by whatever name it is opened, until the stack ends.

    Raises:
        RRMError: another process has it.
    """
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


class Output:
    """A locked file of rows: those that stand, and an append (see `open_output`)."""

    def __init__(self, path: Path, sync_seconds: float = SYNC_SECONDS) -> None:
        self.path = path
        self.unrowed: dict[str, Any] | None = None
        """What earlier runs used of a server and no row says, as they were stopped (`keep_unrowed`)."""
        self._sync_seconds = sync_seconds
        self._file: IO[bytes] | None = None
        self._synced = 0.0

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(line number, row) of all rows.

        Raises:
            RRMError: a line that is no JSON object.
        """
        with open(self.path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise RRMError(f"{self.path}:{number}: not a row but {line[:40]!r}; {WAY_OUT}") from error
                if not isinstance(row, dict):
                    raise RRMError(f"{self.path}:{number}: not a row but {line[:40]!r}; {WAY_OUT}")
                yield number, row

    def append(self, rows: Iterable[Mapping[str, Any]]) -> int:
        """Append rows as they come; a kill loses none of those appended. Returns how many there were.

        Raises:
            RRMError: the disk is full or gone; what was written before stays.
        """
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

    def keep(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Rewrite the file with the wanted rows alone; the old file stands until the new one is whole."""
        with self._rewriting() as new, open(self.path, "rb") as old:
            new.writelines(line for line in old if wanted(json.loads(line)))

    def replace(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rewrite the file with these rows; the old file stands until the new one is whole."""
        with self._rewriting() as new:
            new.writelines(json.dumps(row, allow_nan=False).encode("ascii") + b"\n" for row in rows)

    def reorder(self, order: Sequence[int] | np.ndarray) -> None:
        """Rewrite the file with its lines in this order, numbers from 0; the old file stands until the new one is whole."""
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
        """A file that takes the place of this one when the block ends well."""
        self.close()
        draft = Path(f"{self.path}.tmp")
        with self._writing():
            with open(draft, "wb") as new:
                yield new
                new.flush()
                os.fsync(new.fileno())
            os.replace(draft, self.path)

    def keep_unrowed(self, usage: Mapping[str, Any]) -> None:
        """Keep what was used and stands in no row, beside what made the rows."""
        header = Path(f"{self.path}.run.json")
        with self._writing():
            draft = Path(f"{header}.tmp")
            draft.write_text(json.dumps({**json.loads(header.read_bytes()), UNROWED: dict(usage)}), encoding="ascii")
            os.replace(draft, header)

    def close(self) -> None:
        """Sync what was appended to disk."""
        file, self._file = self._file, None
        if file is not None:
            with self._writing(), file:
                os.fsync(file.fileno())

    def _writing(self) -> AbstractContextManager[None]:
        return writing(self.path, "mend that and run the same command to continue")


@contextmanager
def open_output(
    path: Path,
    made_by: Mapping[str, Any],
    *,
    overwrite: bool = False,
    empty: Callable[[dict[str, Any]], bool] | None = None,
    sync_seconds: float = SYNC_SECONDS,
) -> Iterator[Output]:
    """Lock the file, check that its rows are of this run's making, cut off a half-written end. A run that fails before its first row
    leaves none of the files that it made but the lock.

    Args:
        made_by: everything that decides the rows: command, model, seed, … (anything JSON holds).
        overwrite: drop the rows of an earlier run, which come back where this one fails before its first row.
        empty: whether a row says nothing and is about to be dropped: where all are such, what made them does not matter.
        sync_seconds: how long a row may be with the system alone; 0: each is on disk when it is appended.

    Raises:
        RRMError: the file belongs to other settings or to a running process, or cannot be written.
    """
    if str(path) == "-" or (path.exists() and not path.is_file()):
        raise RRMError(f"-o {path} is not a file: rows are added to it and a killed run goes on with it; name a file")
    path = path.resolve() if path.is_symlink() else path  # a rewritten file would take the link's place
    header = Path(f"{path}.run.json")
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # beside the rows, not the rows: those may be replaced by a rewritten file, and Windows locks what it reads
            stack.enter_context(locked(path, stays=True))
            _bring_back(path, header)
            made = [file for file in (path, header) if not file.exists()]
            stack.push(lambda failed, *_: _leave_nothing(path, made) if failed and path in made else None)
            run = stack.enter_context(os.fdopen(os.open(header, os.O_RDWR | os.O_CREAT, 0o644), "r+", encoding="ascii"))
            if path.exists():
                _lock_rows(stack, path)
            if overwrite:
                stack.push(_put_aside(path, header))
            if not path.exists():
                path.write_bytes(b"")
                _lock_rows(stack, path)
            if overwrite or path in made:
                path.write_bytes(b"")
                run.truncate(0)
            with open(path, "r+b") as file:
                torn = cut_half_line(file)
        except OSError as error:
            raise RRMError(f"cannot write {error.filename or header}: {error.strerror}") from error
        output = Output(path, sync_seconds)
        said = run.read()
        with suppress(ValueError, AttributeError):
            output.unrowed = json.loads(said).get(UNROWED)
        stands = path.stat().st_size and not (empty and all(empty(row) for _, row in output.rows()))
        if not stands or _compare(path, said, made_by):
            write_header(run, made_by, **({} if output.unrowed is None else {UNROWED: output.unrowed}))
        if torn:
            log.warning("%s: its last line was only half written and is made again", path)
        stack.callback(output.close)
        yield output


def _why_locked(path: Path, lock: Path) -> str:
    """Why a lock cannot be had: another run has it, or (which the library says in the same way, for some folders) it cannot be made."""
    try:
        os.close(os.open(lock, os.O_RDWR | os.O_CREAT, 0o644))
    except OSError as error:
        return f"cannot write {lock}: {error.strerror}; choose an -o in a folder that can be written"
    return f"another run is writing {path}; wait for it, or choose another -o"


def _put_aside(path: Path, header: Path) -> Callable[..., None]:
    """Move an earlier run's rows aside. What is returned, called with how the run ended, brings them back where it failed before its
    first row, and else drops them."""
    aside, said = _aside(path)
    if _has_rows(path):
        shutil.copyfile(header, said)
        os.replace(path, aside)

    def end(failed: object, *_: object) -> None:
        with suppress(OSError):
            _bring_back(path, header, ended_well=not failed)

    return end


def _aside(path: Path) -> tuple[Path, Path]:
    """The rows that a run is to replace, and what made them."""
    return Path(f"{path}.replaced"), Path(f"{path}.replaced.run.json")


def _bring_back(path: Path, header: Path, *, ended_well: bool = False) -> None:
    """Put rows that stand aside in their place again, or drop them where there are new ones, or none are to come; a kill amid that is
    made good by the next call."""
    aside, said = _aside(path)
    if aside.exists() and not (ended_well or _has_rows(path)):
        if said.exists():
            os.replace(said, header)  # before the rows, which never stand with what made others
        os.replace(aside, path)
        log.warning("%s: the rows that a run was to replace, and made none in their place, are back", path)
    aside.unlink(missing_ok=True)
    said.unlink(missing_ok=True)


def _has_rows(path: Path) -> bool:
    """Whether there is a whole one."""
    if not path.exists():
        return False
    with open(path, "rb") as file:
        return file.readline().endswith(b"\n")


def _leave_nothing(path: Path, made: Sequence[Path]) -> None:
    """Take away the files that a run made which wrote no row; while it holds the lock, which stays."""
    with suppress(OSError):
        if not _has_rows(path):
            for file in made:
                file.unlink(missing_ok=True)


def write_header(run: IO[str], made_by: Mapping[str, Any], **more: Any) -> None:
    """On disk before the first row, so rows never stand without it."""
    run.seek(0)
    run.truncate()
    json.dump({"fingerprint": dict(made_by), **more}, run)
    run.flush()
    os.fsync(run.fileno())


ROOM = frozenset(("max_new_tokens", "thinking_tokens"))
"""Room for a reply: with more of it others are whole, and those that were are what they were. The window shrinks by it."""


def _compare(path: Path, header: str, made_by: Mapping[str, Any]) -> bool:
    """Refuse to mix rows of different making in one file; returns whether they differ in what may change between two runs."""
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
    differs = differences(*({name: v for name, v in made.items() if name not in freed} for made in (before, now)))
    if differs:
        context = any(said.startswith("transcript_tokens ") for said in differs) and _served_name(now) is not None
        first = f"{CONTEXT}; else " if context else ""
        raise RRMError(f"{path} holds rows made otherwise: {'; '.join(differs)}; {first}{way_out}")
    if before.get("model") != now.get("model") and _served_name(before) is not None:
        log.warning("%s: its rows came from %s, further ones come from %s", path, before["model"], now["model"])
    if changed:
        said = "; ".join(differences(*({name: made.get(name) for name in freed} for made in (before, now))))
        log.warning("%s: further rows are made with other room for a reply: %s", path, said)
    return bool(changed)


def _makes_room(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a window is smaller by no more than there is more room for a reply, or larger by no more than there is less."""
    more = sum((now.get(name) or 0) - (before.get(name) or 0) for name in ROOM)
    smaller = (before.get("transcript_tokens") or 0) - (now.get("transcript_tokens") or 0)
    return min(more, 0) <= smaller <= max(more, 0)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What decides the rows of two runs and is not the same, in words; of one judge under two names, nothing."""
    names = sorted(set(before) | set(now))
    if now.get("model_hash") and now.get("model_hash") == before.get("model_hash"):
        names = [n for n in names if n != "model"]  # the same weights under another path are the same judge
    if before.get("model") != now.get("model") and _served_name(before) == _served_name(now) is not None:
        names = [n for n in names if n != "model"]  # a mended address, or the server's new one
    return [_difference(n, before.get(n), now.get(n)) for n in names if before.get(n) != now.get(n)]


def header_of(path: Path) -> dict[str, Any]:
    """What made a file's rows.

    Raises:
        RRMError: nothing says so.
    """
    header = Path(f"{path}.run.json")
    try:
        made_by = json.loads(header.read_text(encoding="ascii"))["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RRMError(f"{header} does not say what made the rows of {path}: keep it beside them") from error
    if not isinstance(made_by, dict):
        raise RRMError(f"{header} does not say what made the rows of {path}: keep it beside them")
    return made_by


def _difference(name: str, before: Any, now: Any) -> str:
    """What decides the rows and is another than it was; with the option that goes on as before, where it is one."""
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
    return f"{name} was {before!r} and is {now!r}"


def _served_name(made_by: Mapping[str, Any]) -> str | None:
    """The name that a server knows the model by (`openai:URL#name`); None for a judge that is not served."""
    model = made_by.get("model")
    return model.rpartition("#")[2] if isinstance(model, str) and model.startswith("openai:") else None


def streams(path: Path) -> bool:
    """Whether a file is written as it comes: a pipe or a device, which no other may replace. A link is what it names, but
    for those of the system's own (/dev/stdout): they name what is open, not a file."""
    if path.is_symlink() and os.path.abspath(path).startswith(("/dev/", "/proc/")):
        return True
    return path.exists() and not path.is_file()


@contextmanager
def file_when_whole(path: Path, *, encoding: str = "utf-8", errors: str = "strict") -> Iterator[IO[str]]:
    """A text file that appears under its name when the block ends well: written beside it, then renamed. An error or an
    interruption leaves what stood there as it was.

    A link stays one: the file that it names is replaced. What `streams` is written to as it comes.

    Raises:
        OSError: it cannot be written; RRMError: another process is writing it.
    """
    how: dict[str, Any] = {"encoding": encoding, "errors": errors, "newline": "\n"}
    if streams(path):
        with open(path, "w", **how) as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    part = path.with_name(path.name + ".part")
    with locked(path):
        try:
            with open(part, "w", **how) as file:
                yield file
            os.replace(part, path)
        finally:
            with suppress(OSError):
                part.unlink()


def write_lines(path: str | Path, lines: Iterable[str]) -> int:
    """Write ASCII lines, each ended by a newline, as `file_when_whole` does; returns how many were written."""
    count = 0
    with file_when_whole(Path(path), encoding="ascii") as out:
        for line in lines:
            out.write(line + "\n")
            count += 1
    return count


@contextmanager
def files_when_whole(folder: Path, owned: Sequence[str]) -> Iterator[Path]:
    """A place to write files that go into `folder` when the block ends well; an error there leaves the folder as it was.

    Args:
        owned: patterns of the folder's files that the new ones replace. Whatever else stands in it stays.
    """
    made = not folder.exists()
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
        if made:
            folder.rmdir()
        raise


@contextmanager
def folder_when_whole(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` to build in, which takes its place when the block ends well.

    A build that is stopped leaves what stood at `folder` as it was; a later one starts from nothing.
    """
    building, old = folder.with_name(f"{folder.name}.tmp"), folder.with_name(f"{folder.name}.old")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        if old.exists() and not folder.exists():
            old.rename(folder)  # stopped between the two renamings
        for left in (building, old):
            if left.exists():
                shutil.rmtree(left)
        yield building
        if folder.exists():
            folder.rename(old)
        building.rename(folder)
        if old.exists():
            shutil.rmtree(old)
