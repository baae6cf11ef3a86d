"""Every code block of README.md and docs/ is right: commands and programs run, configs and data are read by what they are for.

A page's blocks run in order in one folder, as a reader would run them; servers that they name are real ones on this machine. What cannot
run here says why in a comment before it (`doc_blocks`), and its commands are still held against the programs' own options and configs.

    python tests/doc_blocks.py                        # what is not run, and why
    RRM_DOCS_HEAVY=1 python -m pytest tests/test_docs.py      # with the blocks that take minutes: make docs-check
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import doc_commands
import doc_server
import pytest
import yaml
from doc_blocks import FENCE, LANGUAGES, ROOT, BadNote, Block, blocks_of, idle, lines_of, note, pages
from doc_commands import Command, Wrong, check, parse

HEAVY = bool(os.environ.get("RRM_DOCS_HEAVY"))
BLOCKS = [block for page in pages() for block in blocks_of(page)]
SHELL = [block for block in BLOCKS if block.language in ("bash", "console")]
RUN = {
    page: [b for b in BLOCKS if b.page == page and b.language in ("bash", "console", "python") and not idle(b, HEAVY)]
    for page in dict.fromkeys(block.page for block in BLOCKS)
}
"""Page → those of its blocks that run, in order."""
STANDING = (("pip",), ("rrm", "serve"))
"""Commands whose words are checked and that are not run: an installation, and a server (the tests start one)."""
OTHERS = ("cat", "cd", "cp", "curl", "echo", "export", "head", "ls", "mkdir", "mv", "printf")
"""What a block may call beside our programs."""


def name(block: Block) -> str:
    return block.place


# -- what is read ----------------------------------------------------------------------------------------------------------------


def agent_config(path: Path) -> None:
    from reagent.train.config import load_agent_config

    load_agent_config(str(path))


def judge_config(path: Path) -> None:
    from rrm.config import load_config

    load_config(str(path))


def criteria(path: Path) -> None:
    from rrm.prompt.criteria import load_criteria

    load_criteria(path)


def search_api(path: Path) -> None:
    from reagent.tools import build

    (options,) = yaml.safe_load(path.read_text()).items()
    build([options[0]], {options[0]: options[1]})


def mcp_servers(path: Path) -> None:
    from reagent.tools.mcp_server import ServerSpec

    for given in yaml.safe_load(path.read_text())["mcp"]["servers"].values():
        ServerSpec.model_validate(given)


VALIDATORS: dict[str, Callable[[Path], None]] = {
    "agent": agent_config,
    "judge": judge_config,
    "criteria": criteria,
    "search_api": search_api,
    "mcp": mcp_servers,
}


def test_every_block_has_a_language() -> None:
    assert {b.place: b.language for b in BLOCKS if b.language not in LANGUAGES} == {}


def test_no_command_hides_in_a_block_of_text() -> None:
    hidden = [
        b.place
        for b in BLOCKS
        if b.language == "text" and re.search(r"^(\$ )?(rrm|reagent|python|pip|make) ", b.text, re.M)
    ]
    assert hidden == []


def test_no_command_stands_in_an_indented_block() -> None:
    """Those are no blocks to this file: write a fence."""
    command = re.compile(
        r"^ {4}(?:[A-Z_]+=\S+ )*(?:rrm|reagent|python|pip|make|sbatch|docker|accelerate|vllm) .*$", re.MULTILINE
    )
    found = {page.name: command.findall(FENCE.sub("", page.read_text(encoding="utf-8"))) for page in pages()}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_what_is_not_run_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    idle_ones = {b.place: reason for b in BLOCKS if (reason := idle(b, HEAVY))}
    print(f"{len(BLOCKS)} code blocks, {len(idle_ones)} of them not run here:")
    print(*(f"  {place}: {reason}" for place, reason in idle_ones.items()), sep="\n")
    assert all(len(reason.split()) > 2 for reason in idle_ones.values())
    named = {test for reason in idle_ones.values() for test in re.findall(r"tests/[\w/]+(?:\.py)?", reason)}
    assert [test for test in sorted(named) if not (ROOT / test).exists()] == []
    for block in BLOCKS:
        if file := block.notes.get("run by"):
            page = Path(block.page).name
            assert page in (ROOT / file).read_text(encoding="utf-8"), f"{block.place}: {file} does not name {page}"


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.language in ("json", "jsonl", "yaml", "toml", "csv")], ids=name
)
def test_data_is_what_it_says(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SEARCH_KEY", "MY_KEY", "MCP_AUTH"):
        monkeypatch.setenv(variable, "k")
    text = block.text
    if block.language == "json":
        json.loads(whole(text))
    elif block.language == "jsonl":
        assert all(isinstance(json.loads(whole(line)), dict) for line in text.splitlines())
    elif block.language == "toml":
        tomllib.loads(text)
    elif block.language == "csv":
        assert len({line.count(",") for line in text.splitlines()}) == 1
    else:
        assert "config" in block.notes or "file" in block.notes, (
            f"{block.place}: say of which kind it is (<!-- config: KIND -->)"
        )
    if "config" in block.notes:
        path = tmp_path / "block.yaml"
        path.write_text(text, encoding="utf-8")
        VALIDATORS[block.notes["config"]](path)


def whole(text: str) -> str:
    """JSON with … where something was left out, without it; a member alone gets its braces."""
    for pattern in (r"…,\s*", r",\s*…", "…"):
        text = re.sub(pattern, "", text)
    return f"{{{text}}}" if text.startswith('"') else text


# -- what is run -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", SHELL, ids=name)
def test_commands_have_the_options_they_are_given(block: Block) -> None:
    for line in lines_of(block):
        for command in parse(line.text):
            check(command)
            known = (*OTHERS, "rrm", "reagent", "python", "make", "pip")
            if not idle(block, HEAVY):
                assert command.program[0] in known, f"{block.place}: {command.program[0]} is run by nothing here"


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files for readers who have some: labelled runs of the lab, judgements of them, a judge and a policy."""
    from reagent.lab.shipped import judge_folder, lab_policy_folder
    from reagent.lab.transcripts import make_transcripts
    from rrm.data.trajectory import write_jsonl

    folder = tmp_path_factory.mktemp("examples")
    rows = make_transcripts(60, seed=5)
    write_jsonl(folder / "runs.jsonl", [t for t, _ in rows])
    write_jsonl(folder / "few.jsonl", [t for t, _ in rows[:4]])
    lines = (a.model_dump_json(exclude_none=True) + "\n" for _, a in rows)
    (folder / "labels.jsonl").write_text("".join(lines), encoding="utf-8")
    split = {"train": [], "calibration": [], "test": sorted({str(t.question_id) for t, _ in rows})}
    (folder / "split.json").write_text(json.dumps(split), encoding="utf-8")
    (folder / "judge").symlink_to(judge_folder())
    (folder / "policy").symlink_to(lab_policy_folder())
    (folder / "transcripts").symlink_to(ROOT / "examples" / "transcripts")
    (folder / "traces.jsonl").symlink_to(ROOT / "tests" / "rrm" / "readers" / "samples" / "otel_otlp.jsonl")
    (environment,) = [b for b in blocks_of(ROOT / "docs" / "your-environment.md") if b.notes.get("file") == "my_env.py"]
    (folder / "my_env.py").write_text(environment.text, encoding="utf-8")
    done = doc_commands.run(
        Command(["rrm", "score", "runs.jsonl", "--model", "judge", "--mode", "score", "-o", "scored.jsonl"]), folder
    )
    assert done.code == 0, done.said
    return folder


@pytest.fixture(scope="session")
def address(examples: Path) -> Iterator[Callable[[str], str]]:
    """Puts the addresses of servers of ours where a text names a server; each is started when it is first named."""
    with ExitStack() as stack:
        started: dict[str, str] = {}

        def url(which: str) -> str:
            if which not in started:
                path = os.pathsep.join([str(ROOT), str(ROOT / "agents")])
                env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
                one = doc_server.chat() if which == "chat" else doc_server.judge_service(examples / "judge", env)
                started[which] = stack.enter_context(one)
            return started[which]

        def put(text: str) -> str:
            text = re.sub(r"http://(?:localhost|127\.0\.0\.1|host|a|b):8000", lambda _: url("chat"), text)
            return re.sub(r"(?:http://)?(?:localhost|127\.0\.0\.1):8321", lambda _: url("judge"), text)

        yield put


@pytest.mark.parametrize("page", [page for page, blocks in RUN.items() if blocks])
def test_a_page_s_blocks_run(
    page: str, tmp_path: Path, examples: Path, address: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXAMPLES", str(examples))
    monkeypatch.setenv("TEAM_TOKEN", "t")
    for shared in ("examples", "configs"):
        (tmp_path / shared).symlink_to(ROOT / shared)
    wrong = []
    for block in RUN[page]:
        if file := block.notes.get("file"):
            (tmp_path / file).write_text(block.text, encoding="utf-8")
        try:
            (run_python if block.language == "python" else run_shell)(block, tmp_path, address)
        except Wrong as error:
            wrong.append(f"{block.place}: {error}")
    assert wrong == [], "\n".join(wrong)


def run_python(block: Block, folder: Path, address: Callable[[str], str]) -> None:
    """A program, in a process of its own."""
    code = f"{block.notes.get('before', '')}\n{block.text}"
    path = os.pathsep.join([str(folder), str(ROOT), str(ROOT / "agents")])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-"],
        input=address(code),
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    if done.returncode:
        raise Wrong(done.stderr[-2000:])


def run_shell(block: Block, folder: Path, address: Callable[[str], str]) -> None:
    """Its lines, one by one. What a console block shows must be said, line by line."""
    if setup := block.notes.get("before"):
        done = subprocess.run(["sh", "-eu", "-c", setup], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Wrong(f"before it: {done.stderr}")
    code = 0
    for line in lines_of(block):
        said = ""
        for command in parse(address(line.text)):
            if command.program in STANDING:
                continue
            added = block.extra.get(" ".join(command.program), "")
            command.words += address(added).split()
            if command.words == ["echo", "$?"]:
                said += f"{code}\n"
                continue
            done = doc_commands.run(command, folder)
            code, said = done.code, said + done.said
            if code and block.language == "bash":
                raise Wrong(f"{' '.join(command.words)}: exit code {code}: {said[-1500:]}")
        if block.language == "console":
            shown = squeezed(said)
            if missing := [text for text in line.wanted if squeezed(text) and squeezed(text) not in shown]:
                raise Wrong(f"{line.text}: does not say {missing[0]!r}, but: {said[-3000:]}")


def squeezed(text: str) -> str:
    """Text whose boxes and white space do not count."""
    return " ".join(re.sub(r"[\u2500-\u257f]", " ", text).split())


# -- the tests' own --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "rrm score x.jsonl --no-such-option",
        "rrm judge x.jsonl",
        "reagent train --config lab feedback.mod=r",
        "rrm train --config smollm2 sft.epoch=1",
        "python -m benchmarks.nothing",
        "python -m benchmarks.scale --no-such-option",
        "make nothing",
        "pip install 'agent-rrm[nothing]'",
        "accelerate launch -m reagent train --config lab sharding=none_such",
        "rrm show 'one",
        "rrm train data.trajectories='[x.jsonl]'",
    ],
)
def test_a_wrong_command_is_found(text: str) -> None:
    with pytest.raises(Wrong):
        for command in parse(text):
            check(command)


def test_a_wrong_note_is_found() -> None:
    block = Block("docs/x.md", 1, "bash", "")
    for comment in ("not run", "not run: ", "skip: why", "TODO: later"):
        with pytest.raises(BadNote, match=r"docs/x\.md:1"):
            note(block, comment)


def test_lines_are_read_as_a_shell_reads_them() -> None:
    text = "A=1 rrm score 'a b' \\\n  -o x#y.jsonl  # why\n# no command\nrrm check a; echo $?\n"
    lines = lines_of(Block("p", 1, "bash", text))
    assert [[(c.env, c.words) for c in parse(line.text)] for line in lines] == [
        [({"A": "1"}, ["rrm", "score", "a b", "-o", "x#y.jsonl"])],
        [({}, ["rrm", "check", "a"]), ({}, ["echo", "$?"])],
    ]


def test_no_page_is_left_out() -> None:
    counted: dict[str, Any] = Counter(block.page for block in BLOCKS)
    assert counted["README.md"] > 3 and len(counted) > 10
