"""The sandbox: ordinary programs run, every attack ends typed and bounded, nothing stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
from attacks import ATTACKS, DAEMON, SOCKETS

from reagent.env.tool import Tool
from reagent.errors import ToolError
from reagent.tools import build
from reagent.tools.sandbox import run as run_module
from reagent.tools.sandbox import seccomp
from reagent.tools.sandbox.jail import within
from reagent.tools.sandbox.run import CODE_CHARS, Ending, SandboxLimits, SandboxResult, check, run
from rrm.errors import ConfigError, RRMError


@pytest.fixture(scope="module", autouse=True)
def isolation() -> None:
    """Where a machine forbids namespaces there is nothing to attack. Any other refusal is a defect, and fails."""
    try:
        check()
    except RRMError as error:
        if "no user namespace" not in str(error) or os.environ.get("SANDBOX_REQUIRED"):
            raise  # CI sets it: skipping everything would look like passing
        pytest.skip(str(error))


def sandbox_processes() -> list[psutil.Process]:
    """Our supervisors and what descends from them (other tests may have servers running)."""
    supervisors = [p for p in psutil.Process().children() if _says(p, "sandbox.supervisor")]
    return [*supervisors, *(p for s in supervisors for p in s.children(recursive=True))]


def test_an_ordinary_program_runs() -> None:
    code = """
import json, math, pathlib, tempfile
pathlib.Path("notes.txt").write_text("kept for a moment")
with tempfile.TemporaryFile() as file:
    file.write(b"x" * 1000)
print(json.dumps({"root": math.isqrt(1764), "read": pathlib.Path("/scratch/notes.txt").read_text()}))
"""
    outcome = run(code)
    assert (outcome.ending, outcome.exit_code, outcome.signal) == (Ending.ok, 0, None)
    assert json.loads(outcome.output) == {"root": 42, "read": "kept for a moment"}
    assert 0 < outcome.seconds < 10 and outcome.cpu_s > 0


@pytest.mark.skipif(
    not Path(np.__file__).is_relative_to(sys.prefix), reason="numpy is not in this interpreter's folder"
)
def test_numpy_and_subprocesses_run() -> None:
    code = """
import subprocess, sys
import numpy as np
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
print(int(np.arange(10) @ np.arange(10)))
print(subprocess.run(["/bin/echo", "from a child"], capture_output=True, text=True).stdout.strip())
with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
    print(sum(pool.map(abs, [-1, -2, -3])))
"""
    outcome = run(code)
    assert outcome.output.split("\n")[:3] == ["285", "from a child", "6"], outcome


def test_output_keeps_its_order_and_survives_bad_bytes() -> None:
    outcome = run("import os, sys\nprint('one')\nprint('two', file=sys.stderr)\nos.write(1, b'\\xff three\\n')")
    assert outcome.output == "one\ntwo\n\ufffd three\n"


def test_an_exception_is_an_error_with_its_line() -> None:
    outcome = run("x = 1\nprint('so far')\nraise ValueError('no such thing')\n")
    assert outcome.ending is Ending.error and outcome.exit_code == 1
    assert outcome.output.startswith("so far\n") and "line 3" in outcome.output
    assert "ValueError: no such thing" in outcome.output
    assert run("import sys; sys.exit(7)").exit_code == 7
    assert run("this is no Python").ending is Ending.error


class _Silent(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.reached = True  # pyright: ignore[reportAttributeAccessIssue]
        self.send_response(200)
        self.end_headers()


@pytest.fixture(scope="module")
def server() -> Iterator[http.server.ThreadingHTTPServer]:
    """A server on loopback that no sandboxed program may reach."""
    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Silent)
    listener.reached = False  # pyright: ignore[reportAttributeAccessIssue]
    threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True).start()
    yield listener
    listener.shutdown()
    listener.server_close()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_every_attack_ends_typed_and_bounded(attack, tmp_path, server, monkeypatch) -> None:
    monkeypatch.setenv("SANDBOX_SECRET", "hidden")
    mark = tmp_path / "mark"
    mark.write_text("outside")
    tmp_path.chmod(0o777)
    mark.chmod(0o666)
    repo = str(Path(__file__).resolve().parents[3] / "tests")
    names: dict[str, object] = {
        "MARK": str(mark), "REPO": repo, "CALLER": os.getpid(), "SERVER": f"http://127.0.0.1:{server.server_port}/",
    }  # fmt: skip
    code = "".join(f"{name} = {value!r}\n" for name, value in names.items()) + attack.code
    limits = SandboxLimits(**{"wall_s": 6.0, "memory_mb": 256, "scratch_mb": 8} | attack.limits)  # pyright: ignore[reportArgumentType]
    began = time.monotonic()
    outcome = run(code, limits)
    assert time.monotonic() - began < limits.wall_s + 3
    assert outcome.ending in attack.endings, outcome
    assert "GOT" not in outcome.output, outcome.output
    assert not attack.says or any(word in outcome.output for word in attack.says), outcome
    assert len(outcome.output.encode()) <= limits.output_bytes
    assert mark.read_text() == "outside" and sorted(os.listdir(tmp_path)) == ["mark"]
    assert not server.reached  # pyright: ignore[reportAttributeAccessIssue]
    assert sandbox_processes() == []


def test_the_graders_are_not_to_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the project is installed as a package, `import reagent` gave a program every grader."""
    assert {Path(folder).name for folder in run_module._OURS} == {"rrm", "reagent"}
    monkeypatch.setattr(run_module, "_OURS", (Path(pytest.__file__).parent,))
    program = "import pluggy\ntry:\n    from pytest import fixture\nexcept ImportError:\n    print('stopped')"
    outcome = run(program)
    assert (outcome.ending, outcome.output) == (Ending.ok, "stopped\n"), outcome
    assert within(["/a/b", "/ab", "/c/d/e"], [("/a", "/x"), ("/c/d", "/c/d")]) == ["/x/b", "/c/d/e"]


def test_a_daemon_dies_with_its_program() -> None:
    before = {p.pid for p in psutil.process_iter() if _says(p, "/program.py")}
    outcome = run(DAEMON)
    assert (outcome.ending, outcome.output) == (Ending.ok, "alive\n")
    assert {p.pid for p in psutil.process_iter() if _says(p, "/program.py")} == before
    assert run("import os; print(os.listdir('.'))").output == "[]\n"  # and its scratch folder with it


def _says(process: psutil.Process, word: str) -> bool:
    """Whether a word stands in a process's command line."""
    try:
        return word in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def test_the_sandbox_dies_with_its_caller() -> None:
    def children() -> list[psutil.Process]:
        return [p for p in sandbox_processes() if _says(p, "/program.py")]

    outcomes: list[SandboxResult] = []
    thread = threading.Thread(
        target=lambda: outcomes.append(run("import time\ntime.sleep(60)", SandboxLimits(wall_s=60)))
    )
    thread.start()
    _until(lambda: bool(children()))
    program = children()[0]
    supervisor = sandbox_processes()[0]
    supervisor.kill()
    thread.join(10)
    assert outcomes[0].ending is Ending.killed
    _until(lambda: not _lives(program))


CALLER = """
import os, signal, threading
from reagent.tools.sandbox.run import SandboxLimits, run
threading.Thread(target=run, args=("import time\\ntime.sleep(60)", SandboxLimits(wall_s=60.0)), daemon=True).start()
input()
if os.fork() == 0:
    print(os.getpid(), flush=True)
    signal.pause()
os.wait()
"""


def test_the_sandbox_dies_with_its_caller_whatever_that_has_forked() -> None:
    """A process forked meanwhile holds the supervisor's input open."""
    caller = subprocess.Popen([sys.executable, "-c", CALLER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert caller.stdin and caller.stdout

    def below() -> list[psutil.Process]:
        return psutil.Process(caller.pid).children(recursive=True)

    with caller:
        _until(lambda: any(_says(p, "/program.py") for p in below()))
        sandbox = below()
        caller.stdin.write("\n")
        caller.stdin.flush()
        sibling = psutil.Process(int(caller.stdout.readline()))
        try:
            caller.kill()
            _until(lambda: not any(map(_lives, sandbox)))
            assert sibling.is_running()
        finally:
            sibling.kill()


def _lives(process: psutil.Process) -> bool:
    """Whether it has not ended; one that nobody has asked for its ending yet has."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _until(done: object, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not done():  # pyright: ignore[reportCallIssue]
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def test_programs_beside_each_other_share_nothing() -> None:
    code = "import os\nn = {n}\nopen('mine', 'w').write(str(n))\nprint(n, open('mine').read(), os.listdir('.'))"
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda n: run(code.replace("{n}", str(n))), range(8)))
    assert [o.output for o in outcomes] == [f"{n} {n} ['mine']\n" for n in range(8)]


def test_files_are_shown_read_only(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    tmp_path.chmod(0o755)
    code = "print(open('/files/table.csv').read())\ntry:\n    open('/files/x', 'w')\nexcept OSError as error:\n    print(type(error).__name__)"
    assert run(code, files=tmp_path).output == "a,b\n1,2\n\nOSError\n"


def test_the_agent_is_told_where_its_files_lie(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    [with_files], [without] = (build(["python"], {"python": own}) for own in ({"files": str(tmp_path)}, {}))
    assert "/files" in with_files.description and "/files" not in without.description


def test_files_that_programs_cannot_read_are_refused_at_the_start(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("who is not root reads what is their own")
    (tmp_path / "in").mkdir(mode=0o700)
    (tmp_path / "in" / "table's.csv").write_text("a")
    (tmp_path / "in" / "link").symlink_to("/gone")

    def refusal() -> str:
        with pytest.raises(ConfigError) as refused:
            build(["python"], {"python": {"files": str(tmp_path)}})
        return str(refused.value)

    tmp_path.chmod(0o700)
    assert f"may not read {tmp_path} (mode 0700); chmod -R o+rX {tmp_path}" in refusal()
    tmp_path.chmod(0o755)
    assert f"may not read {tmp_path}/in (mode 0700)" in refusal()
    (tmp_path / "in").chmod(0o755)
    (tmp_path / "in" / "table's.csv").chmod(0o600)
    assert f"may not read {tmp_path}/in/table's.csv (mode 0600)" in refusal()
    (tmp_path / "in" / "table's.csv").chmod(0o644)
    build(["python"], {"python": {"files": str(tmp_path)}})


def test_of_the_interpreters_folder_only_what_it_needs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual environment may lie in a project's own folder, beside runs and data."""
    names = set(json.loads(run("import json, os, sys\nprint(json.dumps(os.listdir(sys.prefix)))").output))
    assert {"bin", "lib"} <= names <= {"bin", "lib", "lib32", "lib64", "pyvenv.cfg"}
    monkeypatch.chdir(Path(np.__file__).parent)
    with pytest.raises(RRMError, match=r"the working folder .*numpy lies in the interpreter's"):
        run("print(1)")


BOMB = """
import os, time
n = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(9)
        n += 1
except OSError:
    print("GOT" if n > 40 else "stopped", n)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("way", ["an ordinary user", "a container's root"])
def test_others_than_root_are_isolated_by_a_user_namespace(way: str) -> None:
    """The other ways in: a supervisor that is nobody, and one that is root but may not make namespaces."""
    outcome = _started(way, "import os\nprint(6 * 7, os.getuid() > 60000, os.path.exists('/etc/shadow'))")
    if outcome["ending"] == "refused":
        assert "no user namespace" in str(outcome["reason"]), outcome
        pytest.skip(str(outcome["reason"]))
    assert outcome["output"] == "42 True False\n"
    bomb = _started(way, BOMB)
    assert str(bomb["output"]).startswith("stopped"), bomb
    report = _started(way, SOCKETS)
    assert report["ending"] == "memory", report


def _started(way: str, code: str) -> dict[str, object]:
    """A run under the system's Python, which every user can read, whatever our own is."""
    python, setpriv = shutil.which("python3", path="/usr/bin:/usr/local/bin"), shutil.which("setpriv")
    if python is None or setpriv is None:
        pytest.skip("no /usr/bin/python3, or no setpriv")
    prefix = {
        "an ordinary user": ["--reuid", "65534", "--regid", "65534", "--clear-groups"],
        "a container's root": ["--bounding-set", "-sys_admin"],
    }
    request = {
        "caller": os.getpid(), "python": python, "interpreter": ["/usr"], "environment": {}, "code": code, "files": None, "wall_s": 10, "cpu_s": 5,
        "memory_bytes": 256 << 20, "scratch_bytes": 1 << 20, "output_bytes": 10_000, "processes": 32, "open_files": 128, "hidden": [],
    }  # fmt: skip
    folder = str(Path(run_module.__file__).parents[1])
    process = subprocess.Popen(
        [setpriv, *prefix[way], python, "-I", "-S", "-c", run_module._START, folder], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", env={},
    )  # fmt: skip
    assert process.stdin and process.stdout and process.stderr
    with process:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        output = process.stdout.read()
        if not output:
            pytest.skip(f"another user cannot read the package: {process.stderr.read()[-200:]!r}")
        return json.loads(output)


def test_without_isolation_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that refuses namespaces: here, a supervisor without the means to make them."""
    broken = (
        "import sys; sys.path.insert(0, sys.argv[1])\nfrom sandbox import jail, supervisor\n"
        "def no(*_): raise PermissionError(1, 'unshare: Operation not permitted')\n"
        "jail.unshare = no\nsupervisor.main()"
    )
    monkeypatch.setattr(run_module, "_START", broken)
    mark = tmp_path / "ran"
    outcome = run(f"open({str(mark)!r}, 'w')\nprint('ran')")
    assert outcome.ending is Ending.refused and outcome.output == ""
    assert "user namespace" in outcome.reason or "not permitted" in outcome.reason
    assert not mark.exists()
    check.cache_clear()
    try:
        with pytest.raises(RRMError, match="no sandbox on this machine"):
            build(["python"])
    finally:
        check.cache_clear()


def test_the_filter_knows_every_call_by_number() -> None:
    for machine in ("x86_64", "aarch64"):
        program = seccomp.program(machine)
        # every jump stays inside, and every path ends in a return
        for position, (opcode, yes, no, _) in enumerate(program):
            if opcode in (0x15, 0x35, 0x45):
                assert position + 1 + max(yes, no) < len(program)
        assert program[-1] == (0x06, 0, 0, 0x7FFF0000)


# ---- the tool -------------------------------------------------------------------------------------------------------------


def test_the_tool_answers_and_types_its_errors() -> None:
    (python,) = build(["python"], {"python": {"memory_mb": 256}})
    (hurried,) = build(["python"], {"python": {"wall_s": 0.4}})

    def call(code: str, tool: Tool = python) -> tuple[str, str | None]:
        result = asyncio.run(tool.call({"code": code}))
        return result.content, result.error.kind if isinstance(result.error, ToolError) else None

    assert call("print(2**10)") == ("1024\n", None)
    assert call("x = 1") == ("(no output)", None)
    content, error_kind = call("print('partial')\n1/0")
    assert error_kind == "program_failed" and "partial" in content and "ZeroDivisionError" in content
    assert call("while True: pass", hurried)[1] == "program_timeout"
    assert call("x = bytearray(1 << 33)")[1] == "program_memory"
    assert call("import os; os.abort()")[1] == "program_crashed"
    assert call("print('long')\n#" + "😀" * (CODE_CHARS - 15)) == ("long\n", None)
    content, error_kind = call("#" + " " * CODE_CHARS)
    assert error_kind == "bad_arguments" and "1000001 characters, and 1000000 are taken at most" in content
    content, error_kind = call("while True: print('spam' * 99)")
    assert error_kind == "program_output" and len(content) <= 2010


WAITING = "import os, time\nwhile not os.path.exists('/files/go'):\n    time.sleep(0.01)\nprint('slow')"


def test_slow_programs_hold_no_other_episode(tmp_path: Path) -> None:
    """One that ends only after the other has."""
    tmp_path.chmod(0o755)
    (python,) = build(["python"], {"python": {"wall_s": 20.0, "files": str(tmp_path)}})

    async def both() -> list[str]:
        slow = asyncio.ensure_future(python.call({"code": WAITING}))
        quick = await python.call({"code": "print('quick')"})
        (tmp_path / "go").touch()
        return [quick.content, (await slow).content]

    assert asyncio.run(both()) == ["quick\n", "slow\n"]


def test_wrong_limits_are_refused() -> None:
    with pytest.raises(ConfigError, match="memory_mb must be above 0"):
        build(["python"], {"python": {"memory_mb": 0}})
    with pytest.raises(ConfigError, match=r"no option 'memory'.*did you mean memory_mb"):
        build(["python"], {"python": {"memory": 5}})
    with pytest.raises(ConfigError, match="there is no folder"):
        build(["python"], {"python": {"files": "/no/such/folder"}})
