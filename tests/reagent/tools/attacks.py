"""Programs that must not get what they want. Each prints `GOT …` where it did."""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import dedent

from reagent.tools.sandbox.run import Ending


@dataclass(frozen=True)
class Attack:
    """A program, how it may end, and what its output must hold (at least one of them, where there are any)."""

    name: str
    code: str
    endings: set[Ending]
    says: tuple[str, ...] = ()
    limits: dict[str, float] = field(default_factory=dict)


def _try(body: str, *, many: str = "") -> str:
    """A program that tries `body` (for each TARGET of `many`) and says what stopped it."""
    loop = f"for TARGET in {many}:\n" if many else "for _ in range(1):\n"
    inner = dedent(body).strip().replace("\n", "\n        ")
    return f"{loop}    try:\n        {inner}\n    except Exception as error:\n        print('stopped', type(error).__name__)\n"


ended, stopped = {Ending.ok}, ("stopped",)
NATIVE = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
calls = {
    "mount": lambda: libc.mount(b"none", b"/scratch", b"tmpfs", 0, None),
    "umount": lambda: libc.umount2(b"/usr", 2),
    "unshare": lambda: libc.unshare(0x10000000),
    "setns": lambda: libc.setns(0, 0),
    "chroot": lambda: libc.chroot(b"/scratch"),
    "ptrace": lambda: libc.ptrace(16, 1, 0, 0),
    "process_vm_readv": lambda: libc.syscall(310 if os.uname().machine == "x86_64" else 270, 1, 0, 0, 0, 0, 0),
    "bpf": lambda: libc.syscall(321 if os.uname().machine == "x86_64" else 280, 0, 0, 0),
    "memfd_create": lambda: libc.syscall(319 if os.uname().machine == "x86_64" else 279, b"x", 0),
    "io_uring_setup": lambda: libc.syscall(425, 1, 0),
    "clone3": lambda: libc.syscall(435, 0, 0),
    "clone NEWUSER": lambda: libc.syscall(56 if os.uname().machine == "x86_64" else 220, 0x10000011, 0, 0, 0, 0),
    "setuid": lambda: libc.setuid(0),
    "shmget": lambda: libc.shmget(0, 4096, 0o1600),
    "sethostname": lambda: libc.sethostname(b"x", 1),
}
for name, call in calls.items():
    got = call()
    print("GOT" if got >= 0 else "stopped", name, errno.errorcode.get(ctypes.get_errno()))
"""

SOCKETS = """
import ctypes, os, socket, time
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: where the kernel does so, its open files can be seen no more
for _ in range(7):
    if os.fork() == 0:
        break
held = []
for _ in range(55):
    held += socket.socketpair()
for end in held:
    end.setblocking(False)
    try:
        while end.send(b"x" * 65536):
            pass
    except BlockingIOError:
        pass
time.sleep(3)
print("GOT")
"""

ATTACKS = [
    Attack(
        "fork bomb",
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n",
        {Ending.timeout, Ending.memory},
        limits={"wall_s": 0.5},
    ),
    Attack(
        "thread bomb",
        "import threading, time\nn = 0\ntry:\n    while True:\n        threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n"
        "        n += 1\nexcept RuntimeError:\n    print('GOT' if n > 40 else 'stopped', n)\n",
        ended,
        stopped,
    ),
    Attack("memory bomb, one piece", "x = bytearray(8 << 30)", {Ending.memory}, ("MemoryError",)),
    Attack("memory bomb, piece by piece", "x = []\nwhile True:\n    x.append(bytearray(1 << 22))", {Ending.memory, Ending.killed}),
    Attack(
        "memory bomb, many processes",
        "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        break\nx = bytearray(b'x') * (100 << 20)\ntime.sleep(9)\n",
        {Ending.memory},
        limits={"memory_mb": 256, "wall_s": 8},
    ),
    Attack(
        "outside reads",
        _try(
            "open(TARGET).read()\nprint('GOT', TARGET)",
            many="['/etc/shadow', '/etc/hostname', '/root/.bashrc', '/proc/1/environ', '/proc/self/environ', '/proc/self/mounts', "
            "'/sys/kernel/hostname', '/dev/mem', '/dev/kmsg', '/.old/etc/passwd', '/scratch/../../etc/shadow', MARK]",
        ),
        ended,
        stopped,
    ),
    Attack(
        "outside folders",
        "import os, sys\nfor folder in ('/home', '/var', '/proc', '/sys', '/.old', '/run', '/boot', '/mnt', '/opt', '/usr/src', '/usr/include',\n"
        "               '/usr/share/doc', '/usr/local/share', '/usr/local/etc', sys.prefix + '/share', sys.prefix + '/include', REPO):\n"
        "    print('GOT ' + folder if os.path.exists(folder) and os.listdir(folder) else 'stopped')\n",
        ended,
        stopped,
    ),
    Attack(
        "the caller's environment",
        "import os\nprint('GOT' if 'SANDBOX_SECRET' in os.environ or 'hidden' in str(os.environ) else 'stopped')",
        ended,
        stopped,
    ),
    Attack(
        "outside writes",
        _try(
            "open(TARGET, 'w').write('x')\nprint('GOT', TARGET)",
            many="['/x', '/usr/x', '/etc/passwd', '/program.py', '/dev/x', '/bin/x', MARK]",
        ),
        ended,
        stopped,
    ),
    Attack(
        "sockets",
        "import socket\n"
        + _try(
            "s = socket.socket(*TARGET)\nprint('GOT', TARGET)",
            many="[(socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET, socket.SOCK_DGRAM), (socket.AF_INET6, socket.SOCK_STREAM),"
            " (socket.AF_UNIX, socket.SOCK_STREAM), (socket.AF_NETLINK, socket.SOCK_RAW), (socket.AF_INET, socket.SOCK_RAW)]",
        )
        + _try("import urllib.request\nurllib.request.urlopen(TARGET, timeout=2)\nprint('GOT')", many="[SERVER]"),
        ended,
        stopped,
    ),
    Attack(
        "signals to others",
        "import os, signal\nprint('parent', os.getppid())\n"
        + _try("os.kill(TARGET, signal.SIGKILL)\nprint('GOT', TARGET)", many="[CALLER, os.getppid() + 1000]")
        + "os.kill(1, signal.SIGKILL)\nprint('stopped: process 1 lives')\n",
        ended,
        ("process 1 lives",),
    ),
    Attack("signals to all", "import os\nif os.fork():\n    os.kill(-1, 9)\nos.kill(os.getpid(), 9)", {Ending.killed}),
    Attack("endless output", "while True:\n    print('x' * 1000)", {Ending.output}),
    Attack("endless loop", "while True:\n    pass", {Ending.timeout}, limits={"wall_s": 0.5}),
    Attack("endless processor time", "while True:\n    pass", {Ending.timeout}, limits={"cpu_s": 1}),
    Attack("endless sleep", "import time\ntime.sleep(99)", {Ending.timeout}, limits={"wall_s": 0.5}),
    Attack(
        "signals ignored",
        "import signal, time\nfor n in range(1, 65):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError):\n"
        "        pass\nwhile True:\n    time.sleep(1)\n",
        {Ending.timeout},
        limits={"wall_s": 0.5},
    ),
    Attack("native code", NATIVE, ended, stopped),
    Attack("native crash", "import ctypes\nctypes.string_at(0)", {Ending.crashed}),
    Attack(
        "links out of scratch",
        "import os\n"
        + _try(
            "os.path.islink('link') and os.remove('link')\nos.symlink(TARGET, 'link')\n"
            "os.listdir('link') if os.path.isdir('link') else open('link').read()\nprint('GOT', TARGET)",
            many="['/etc/shadow', '/../../etc/shadow', '/proc/1/root', REPO]",
        )
        + _try("os.link('/usr', 'hard')\nprint('GOT')")
        + _try("os.mknod('device', 0o60666, os.makedev(8, 0))\nprint('GOT')"),
        ended,
        stopped,
    ),
    Attack(
        "deep recursion",
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(x):\n    return [f(y) for y in [x]]\nf(1)\n",
        {Ending.crashed, Ending.memory, Ending.error},
    ),
    Attack("ordinary recursion", "def f():\n    return f()\nf()\n", {Ending.error}, ("RecursionError",)),
    Attack(
        "huge file",
        "try:\n    with open('big', 'wb') as out:\n        for _ in range(1000):\n            out.write(bytes(1 << 20))\n    print('GOT')\n"
        "except OSError as error:\n    print('stopped', error)\n",
        ended,
        stopped,
    ),
    Attack(
        "many large files",
        "try:\n    for n in range(1000):\n        open(str(n), 'wb').write(bytes(4 << 20))\n    print('GOT')\nexcept OSError as error:\n"
        "    print('stopped', error)\n",
        ended,
        stopped,
    ),
    Attack(
        "many small files",
        "try:\n    for n in range(10**6):\n        open(str(n), 'wb').close()\n    print('GOT')\nexcept OSError as error:\n"
        "    print('stopped', error)\n",
        ended,
        stopped,
    ),
    Attack("standard output closed", "import os\nos.close(1)\nos.close(2)\nwhile True:\n    pass", {Ending.timeout}, limits={"wall_s": 0.5}),
    Attack("standard input read", "import sys\nprint('GOT' if sys.stdin.read() else 'stopped')", ended, stopped),
    Attack(
        "a program in scratch",
        "import os, shutil\nshutil.copy('/bin/true', 'x')\nos.chmod('x', 0o755)\n" + _try("os.execv('./x', ['x'])\n"),
        ended,
        ("PermissionError",),
    ),
    Attack(
        "memory in the buffers of sockets",
        """
import socket
a, b = socket.socketpair()
held = 0
try:
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)
except OSError as error:
    print("stopped", type(error).__name__)
a.setblocking(False)
try:
    while True:
        held += a.send(b"x" * 65536)
except BlockingIOError:
    print("GOT" if held > 1 << 20 else "little", held)
""",
        ended,
        stopped,
    ),
    Attack("memory in the buffers of many sockets", SOCKETS, {Ending.memory}, limits={"memory_mb": 200}),
    Attack(
        "processor time of children nobody waits for",
        """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(40):
    if os.fork() == 0:
        while time.process_time() < 0.2:
            pass
        os._exit(0)
    try:
        os.wait()
    except ChildProcessError:
        pass
print("GOT")
""",
        {Ending.timeout},
        limits={"cpu_s": 1, "wall_s": 60.0},
    ),
    Attack("limits raised", "import resource\n" + _try("resource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nprint('GOT')"), ended, stopped),
]  # fmt: skip

DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 64)
        while True:
            open("/scratch/alive", "a").write("x")
            time.sleep(0.01)
    os._exit(0)
os.wait()
time.sleep(0.1)
print("alive" if os.path.exists("/scratch/alive") else "dead")
"""
