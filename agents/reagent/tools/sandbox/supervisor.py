"""The process between the caller and the sandbox: starts it, collects its output, watches it, ends it.

It reads a line of JSON from standard input and writes one to standard output, outside the sandbox, where no program can reach it. The
sandbox ends with its caller; the end of input says the same, but another process of the caller may hold it open."""

import contextlib
import json
import os
import selectors
import signal
import sys
import time
from typing import Any

from . import jail, seccomp

POLL_S = 0.02
_FIRST_USER = 0x40000000
"""Root gives each sandbox its own user from here on, so that its limit on processes is its own."""
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_BUFFERS = "/proc/sys/net/core/wmem_default"


class SandboxRefused(Exception):
    """This machine cannot isolate a program; the message says what is missing."""


def main() -> None:
    os.umask(0o077)
    try:
        config = json.loads(_read_line(0))
        outcome = supervise(config)
    except SandboxRefused as error:
        outcome = {"ending": "refused", "reason": str(error)}
    except Exception as error:  # noqa: BLE001 - nobody reads a traceback here
        outcome = {"ending": "refused", "reason": f"the supervisor failed: {type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(outcome) + "\n")
    sys.stdout.flush()


def _read_line(descriptor: int) -> bytes:
    parts = [b""]
    while not parts[-1].endswith(b"\n"):
        parts.append(os.read(descriptor, 1 << 16))
        if not parts[-1]:
            raise SystemExit(1)  # the caller has gone
    return b"".join(parts)


# ---- whom to become ------------------------------------------------------------------------------------------------------


def _check_machine() -> None:
    if not sys.platform.startswith("linux"):
        raise SandboxRefused(f"the sandbox is made of Linux namespaces; this is {sys.platform}")
    if not seccomp.supported():
        raise SandboxRefused(f"the sandbox knows x86_64 and aarch64; this is {os.uname().machine}")
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        raise SandboxRefused(
            "/proc shows no children of processes (CONFIG_PROC_CHILDREN), so their memory cannot be watched"
        )


def _mapped(user: int) -> bool:
    with open("/proc/self/uid_map", encoding="ascii") as lines:
        spans = [[int(n) for n in line.split()] for line in lines]
    return any(inside <= user < inside + count for inside, _, count in spans)


def separate() -> int | None:
    """Make this process's next child process 1 of a new PID namespace. Returns the user for the child.
    None: a user namespace has taken all rights outside it already. Root needs no user namespace, so it works where they are forbidden to
    others. Raises SandboxRefused: neither way is open."""
    user = None
    if os.geteuid() == 0:
        user = next((u for u in (_FIRST_USER + os.getpid(), 65534) if _mapped(u)), None)
        if user is None:
            raise SandboxRefused(
                "this root has no other user to become (/proc/self/uid_map): start it as an ordinary user"
            )
        try:
            jail.unshare(jail.NEWPID)
            return user
        except PermissionError:  # root in a container without CAP_SYS_ADMIN: as any other user, then
            try:
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
            except OSError as error:
                raise SandboxRefused(
                    f"this root may neither make namespaces nor become another user ({error})"
                ) from error
            jail.prctl(jail.DUMPABLE, 1)  # else /proc/self stays root's
    uid, gid = os.getuid(), os.getgid()
    try:
        jail.unshare(jail.NEWUSER | jail.NEWPID)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as out:
                out.write(text)
    except OSError as error:
        raise SandboxRefused(
            f"no user namespace ({error}): an administrator allows them with sysctl kernel.unprivileged_userns_clone=1, "
            "kernel.apparmor_restrict_unprivileged_userns=0 or user.max_user_namespaces; in a container they need a seccomp "
            "profile that lets unshare and mount pass, or CAP_SYS_ADMIN"
        ) from error
    return None


# ---- what it uses --------------------------------------------------------------------------------------------------------


def descendants(first: int) -> list[int]:
    """A process and all below it, as far as they live. Orphans become process 1's children."""
    processes, waiting = [], [first]
    while waiting:
        pid = waiting.pop()
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                    waiting += [int(n) for n in file.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        processes.append(pid)
    return processes


def sockets(process: int) -> set[str]:
    """Names of the sockets that a process holds open, the same for all that share one."""
    names = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):  # the last: our own process 1
        for thread in os.listdir(f"/proc/{process}/task"):  # a thread may have files of its own
            folder = f"/proc/{process}/task/{thread}/fd"
            for descriptor in os.listdir(folder):
                with contextlib.suppress(FileNotFoundError):
                    names.add(os.readlink(f"{folder}/{descriptor}"))
    return {name for name in names if name.startswith("socket:")}


def socket_bytes() -> int:
    """The most that a socket's unread data takes in the kernel.
    The default, which programs cannot raise (seccomp), and the excess of the last message."""
    with open(_BUFFERS, encoding="ascii") as file:
        return int(file.read()) * 3 // 2


class ProcessUsage:
    """Samples the use of a process and all below it.
    A parent that ignores its children's end never waits for them, so each process's last reading is kept. Data in sockets is in no account,
    so each socket counts as full."""

    def __init__(self) -> None:
        self.socket_bytes = socket_bytes()
        self.own: dict[tuple[int, str], int] = {}

    def sample(self, first: int) -> tuple[int, float]:
        """(resident bytes with those in sockets, processor seconds). Pages that several share count for each.
        A process that begins and ends between two samples counts where its parent waits for it."""
        memory, waited, open_sockets = 0, 0, set[str]()
        for pid in descendants(first):
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            self.own[pid, fields[19]] = int(fields[11]) + int(fields[12])
            waited += sum(int(n) for n in fields[11:15])  # its own, and those of children it has waited for
            memory += int(fields[21]) * _PAGE
            open_sockets |= sockets(pid)
        # the two overlap, so their sum would count twice
        return memory + len(open_sockets) * self.socket_bytes, max(waited, sum(self.own.values())) / _TICK


# ---- one run -------------------------------------------------------------------------------------------------------------


def supervise(config: dict[str, Any]) -> dict[str, Any]:
    """Run a program in a sandbox to its end, or until a limit. Raises SandboxRefused: nothing has run."""
    _check_machine()
    ends = [0, *_caller_end(config["caller"])]
    user = separate()
    output, output_end = os.pipe()
    report, report_end = os.pipe()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(output)
        os.close(report)
        jail.enter(config, user, output_end, report_end)
    os.close(output_end)
    os.close(report_end)
    run = _Run(config, child, output, report, started, ends)
    try:
        run.watch()
    finally:
        run.kill()
        os.waitpid(child, 0)
    return run.outcome()


def _caller_end(process: int) -> list[int]:
    """A descriptor that is readable once the caller has ended; none where the kernel gives none."""
    if os.getppid() != process:
        raise SystemExit(1)  # it has ended already
    with contextlib.suppress(OSError):
        return [os.pidfd_open(process)]
    return []


class _Run:
    """One sandbox. `ends`: descriptors that are readable when nobody waits for its outcome any more."""

    def __init__(
        self, config: dict[str, Any], child: int, output: int, report: int, started: float, ends: list[int]
    ) -> None:
        self.config, self.child, self.output, self.report, self.started = config, child, output, report, started
        self.text, self.said = bytearray(), b""
        self.stopped: str | None = None
        self.memory, self.cpu_s, self.usage = 0, 0.0, ProcessUsage()
        self.dead = False
        self.ends = ends

    def kill(self) -> None:
        if not self.dead:
            os.kill(self.child, signal.SIGKILL)  # it is waited for by us alone, so the number is still its own
            self.dead = True

    def stop(self, ending: str) -> None:
        """End it for a reason; the first one counts."""
        self.stopped = self.stopped or ending
        self.kill()

    def watch(self) -> None:
        """Read until process 1 has reported or died, and the last writer of the output is gone."""
        selector = selectors.DefaultSelector()
        for descriptor in (self.output, self.report, *self.ends):
            selector.register(descriptor, selectors.EVENT_READ)
        open_ends = {self.output, self.report}
        polled = 0.0
        while open_ends:
            for key, _ in selector.select(POLL_S):
                if key.fd in self.ends:
                    selector.unregister(key.fd)
                    self.stop("killed")
                elif not (data := os.read(key.fd, 1 << 16)):
                    selector.unregister(key.fd)
                    open_ends.discard(key.fd)
                else:
                    self._take(key.fd, data)
            now = time.monotonic()
            if now - self.started > self.config["wall_s"]:
                self.stop("timeout")
            elif now - polled >= POLL_S and not self.dead:
                polled = now
                self._measure()

    def _take(self, descriptor: int, data: bytes) -> None:
        if descriptor == self.report:
            self.said += data
            return
        room = self.config["output_bytes"] - len(self.text)
        self.text += data[:room]
        if len(data) > room:
            self.stop("output")

    def _measure(self) -> None:
        memory, cpu_s = self.usage.sample(self.child)
        self.memory, self.cpu_s = max(self.memory, memory), max(self.cpu_s, cpu_s)
        if memory > self.config["memory_bytes"]:
            self.stop("memory")
        elif cpu_s > self.config["cpu_s"]:
            self.stop("timeout")

    def outcome(self) -> dict[str, Any]:
        report = self.said.decode("utf-8", "replace")
        cause, _, rest = report.partition(" ")
        if cause == "refused":
            return {"ending": "refused", "reason": rest}
        number, cpu_s = (int(rest.split()[0]), float(rest.split()[1])) if rest else (None, 0.0)
        return {
            "ending": self.stopped or _ending(cause, number, bytes(self.text)),
            "exit_code": number if cause == "exit" and not self.stopped else None,
            "signal": number if cause == "signal" and not self.stopped else None,
            "output": self.text.decode("utf-8", "replace"),
            "seconds": round(time.monotonic() - self.started, 4),
            "cpu_s": round(max(self.cpu_s, cpu_s), 3),
            "memory_bytes": self.memory,
        }


def _ending(cause: str, number: int | None, output: bytes) -> str:
    if cause == "exit":
        last = output.rstrip().rpartition(b"\n")[2].partition(b":")[0].strip()
        if number and last.endswith(b"MemoryError") and b" " not in last:
            return "memory"  # the limit of one process shows as Python's own error
        return "error" if number else "ok"
    if cause == "signal" and number == signal.SIGXCPU:
        return "timeout"
    if cause == "signal" and number != signal.SIGKILL:
        return "crashed"
    return "killed"
