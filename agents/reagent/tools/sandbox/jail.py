"""Runs between the supervisor's fork and the program: isolates the file system, then drops all rights.

`enter` runs as process 1 of a new PID namespace. When it ends, the kernel kills everything in there, so no daemon outlives a call."""

import ctypes
import os
import resource
import select
import signal
import socket
from typing import Any, NoReturn

from . import seccomp

libc = ctypes.CDLL(None, use_errno=True)

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 4096, 16384, 1 << 18
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_PDEATHSIG, DUMPABLE, _CAPBSET_DROP, _NO_NEW_PRIVS, _AMBIENT = 1, 4, 24, 38, 47
_DEVICES = ("null", "zero", "full", "random", "urandom")
_SYSTEM = (
    *(f"{folder}/{name}" for folder in ("/usr", "") for name in ("bin", "lib", "lib32", "lib64")),
    "/usr/libexec", "/usr/share/fonts", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/etc/alternatives", "/nix/store",
)  # fmt: skip
"""Paths that an interpreter and its libraries need. Nothing else of the file system is visible."""

ROOT_BYTES = 8 << 20
"""Size of the file system with the folders and the code, of which a character takes six bytes at most."""


def call(name: str, result: int) -> int:
    """The result of a libc call. Raises OSError: it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    call("unshare", libc.unshare(flags))


def prctl(option: int, value: int = 0) -> None:
    zero = ctypes.c_ulong(0)
    call(f"prctl {option}", libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero))


def mount(source: str, target: str, filesystem: str | None, flags: int, data: str | None = None) -> None:
    arguments = [None if text is None else text.encode() for text in (source, target, filesystem)]
    call(f"mount {target}", libc.mount(*arguments, ctypes.c_ulong(flags), None if data is None else data.encode()))


def seal(target: str, flags: int, recursive: bool) -> None:
    """Set attributes of a mount, and of those below it, for good (mount_setattr, Linux 5.12)."""
    attributes = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)
    how = _AT_RECURSIVE if recursive else 0
    arguments = [ctypes.c_long(n) for n in (_MOUNT_SETATTR, _AT_FDCWD)]
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    call(
        f"seal {target}", libc.syscall(*arguments, target.encode(), ctypes.c_uint(how), ctypes.byref(attributes), size)
    )


# ---- the file system ----------------------------------------------------------------------------------------------------


def _show(source: str, target: str, *, device: bool = False) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    mount(source, target, None, _BIND | _REC)
    # the attributes of mount_setattr have mount's values for these three; a device file on a nodev mount cannot be opened
    seal(target, _RDONLY | _NOSUID | (0 if device else _NODEV), recursive=True)


def visible(interpreter: list[str], files: str | None) -> list[tuple[str, str]]:
    """(source, path in the sandbox) of the visible folders, links resolved: the new root breaks them.
    A path inside another one comes with it."""
    pairs = [(os.path.realpath(path), path) for path in (*_SYSTEM, *interpreter) if os.path.exists(path)]
    pairs += [(source, source) for source, _ in pairs]
    places: list[tuple[str, str]] = []
    for source, inside in sorted(set(pairs), key=lambda pair: (len(pair[1]), pair)):
        if not any(inside == other or inside.startswith(other + "/") for _, other in places):
            places.append((source, inside))
    return [*places, *([(os.path.realpath(files), "/files")] if files else [])]


def within(hidden: list[str], mounts: list[tuple[str, str]]) -> list[str]:
    """Paths in the sandbox of hidden folders that lie inside visible ones."""
    inside = ((source, path, folder) for source, path in mounts for folder in hidden if folder.startswith(source + "/"))
    return [path + folder[len(source) :] for source, path, folder in inside]


def build_root(config: dict[str, Any], user: int) -> None:
    mounts = visible(config["interpreter"], config["files"])
    mount("none", "/", None, _REC | _PRIVATE)
    mount("tmpfs", "/tmp", "tmpfs", _NOSUID | _NODEV, f"size={ROOT_BYTES},nr_inodes=2048,mode=755")
    os.mkdir("/tmp/.old")
    number = _PIVOT_ROOT[os.uname().machine]
    call("pivot_root", libc.syscall(ctypes.c_long(number), b"/tmp", b"/tmp/.old"))
    os.chdir("/")
    os.umask(0o022)
    for source, path in mounts:
        _show("/.old" + source, path)
    for path in within(config["hidden"], mounts):
        mount("tmpfs", path, "tmpfs", _RDONLY | _NOSUID | _NODEV, "size=4096,mode=755")
    for device in _DEVICES:
        _show(f"/.old/dev/{device}", f"/dev/{device}", device=True)
    _scratch("/scratch", config["scratch_bytes"], user)
    _scratch("/dev/shm", 8 << 20, user)
    if not os.path.lexists("/tmp"):  # unless the interpreter lies there
        os.symlink("scratch", "/tmp")
    os.makedirs("/etc", exist_ok=True)
    _write("/etc/passwd", f"sandbox:x:{user}:{user}::/scratch:/bin/sh\n")
    _write("/program.py", config["code"])
    call("umount", libc.umount2(b"/.old", _DETACH))
    os.rmdir("/.old")
    seal("/", _RDONLY, recursive=False)


def _scratch(path: str, size: int, user: int) -> None:
    os.makedirs(path, exist_ok=True)
    options = f"size={size},nr_inodes=4096,mode=700,uid={user},gid={user}"
    mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV | _NOEXEC, options)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as out:
        out.write(text)


# ---- rights -------------------------------------------------------------------------------------------------------------


def drop(user: int | None) -> None:
    """Give up every capability, for good, and become `user` (None: stay)."""
    last = 63
    for capability in range(last + 1):
        if libc.prctl(_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            break  # the kernel knows no more of them
    prctl(_AMBIENT, 4)
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call("capset", libc.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)())))
    prctl(_NO_NEW_PRIVS, 1)
    prctl(DUMPABLE, 0)


def limit(config: dict[str, Any]) -> None:
    """Set the limits of each process. The supervisor watches those of all together."""
    limits = {
        resource.RLIMIT_AS: config["memory_bytes"],
        resource.RLIMIT_FSIZE: config["scratch_bytes"],
        resource.RLIMIT_NOFILE: config["open_files"],
        resource.RLIMIT_NPROC: config["processes"] + 2,  # process 1 counts, and in a user namespace the supervisor
        resource.RLIMIT_STACK: 8 << 20,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 256,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
    }
    for number, value in limits.items():
        _lower(number, value, value)
    _lower(resource.RLIMIT_CPU, config["cpu_s"], config["cpu_s"] + 1)


def _lower(number: int, soft: int, hard: int) -> None:
    """Set a limit; a lower one stays, for nobody in here may raise it."""
    highest = resource.getrlimit(number)[1]
    if highest != resource.RLIM_INFINITY:
        soft, hard = min(soft, highest), min(hard, highest)
    resource.setrlimit(number, (soft, hard))


# ---- processes ----------------------------------------------------------------------------------------------------------


def enter(config: dict[str, Any], user: int | None, output: int, report: int) -> NoReturn:
    """Be process 1: build the root, start the program, wait for it, report its end.

    Args:
        user: to become; None where a user namespace has taken all rights already.
        output: descriptor for the program's standard output and error.
        report: descriptor that gets `refused REASON`, or `exit N` or `signal N` and processor seconds.
    """
    try:
        prctl(_PDEATHSIG, signal.SIGKILL)
        end = select.poll()
        end.register(report, 0)
        if end.poll(0):  # nobody reads: the supervisor died before it could be tied to us
            os._exit(1)
        unshare(NEWNS | NEWIPC | NEWNET | NEWUTS | NEWCGROUP)
        build_root(config, os.getuid() if user is None else user)
        socket.sethostname("sandbox")
        drop(user)
        prctl(_PDEATHSIG, signal.SIGKILL)  # becoming another user has cleared it
        child = os.fork()
    except Exception as error:  # noqa: BLE001 - whatever is missing, the program must not run
        os.write(report, f"refused {type(error).__name__}: {error}".encode()[:2000])
        os._exit(1)
    if child == 0:
        _become(config, output, report)
    os.close(output)
    while True:
        pid, status = os.wait()
        if pid == child:
            break
    ending = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    os.write(report, f"{ending} {used.ru_utime + used.ru_stime:.3f}".encode())
    os._exit(0)


def _become(config: dict[str, Any], output: int, report: int) -> NoReturn:
    try:
        os.setsid()
        nothing = os.open("/dev/null", os.O_RDONLY)
        for target, source in enumerate((nothing, output, output)):
            os.dup2(source, target)
        os.set_inheritable(report, False)
        os.closerange(3, report)
        os.closerange(report + 1, 4096)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.chdir("/scratch")
        limit(config)
        seccomp.install(libc)
        os.execve(config["python"], [config["python"], "-I", "-u", "/program.py"], config["environment"])
    except BaseException as error:  # noqa: BLE001 - nothing of this process may run on
        os.write(report, f"refused {type(error).__name__}: {error}".encode()[:2000])
    os._exit(127)
