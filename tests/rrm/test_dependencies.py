"""What the packages import is declared, what is declared is imported, and what is optional is imported only where used."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai_server import completion, serve

from rrm.data.extras import EXTRAS, explain, needs, needs_trackers
from rrm.errors import MissingExtra

ROOT = Path(__file__).resolve().parents[2]
OWN = {"rrm", "reagent"}
NAMES = {
    "agents": "openai-agents",
    "openai": "openai-agents",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "PIL": "pillow",
    "huggingface_hub": "huggingface-hub",
    "pytest_timeout": "pytest-timeout",
    "Stemmer": "PyStemmer",
}
"""Modules that are called otherwise than their distribution."""
UNSEEN = {
    "gguf": "transformers imports it to read the packaged base",
    "accelerate": "imported by reagent, and by transformers under `local`",
    "build": "the wheel's test runs it",
    "evaluate": "examples/evaluate_metric.py, which a test runs",
    "hatchling": "the wheel's test builds with it",
    "mkdocs-material": "builds the site: a command, in an environment of its own",
    "mkdocstrings": "a plugin of it",
    "pillow": "draws the site's pictures (benchmarks/pictures.py)",
    "pyright": "a command",
    "pytest-timeout": "a plugin of pytest",
    "pytest-xdist": "a plugin of pytest: `make test` runs a file to a worker",
    "ray": "the reader's job; rrm.integrations.ray is a class for it",
    "ruff": "a command",
    "tensorboard": "a tracker, by name",
    "wandb": "a tracker, by name",
    "trackio": "a tracker, by name",
}
"""Declared without an import of ours, and why."""
REFUSED = ("torch", "transformers", "tokenizers", "trl", "peft", "datasets", "evaluate", "matplotlib", "gguf", "accelerate", "safetensors")  # fmt: skip
PROGRAM = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {REFUSED}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
from rrm.cli import main

for line in sys.stdin.read().splitlines():
    sys.argv = ["rrm", *line.split("\\t")]
    code = 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code or 0
    print("EXIT", code, flush=True)
"""


ELSEWHERE = {"scripted.py", "reloadable.py"}
"""What runs in vLLM's environment, inside its server."""


def imports(*folders: str) -> dict[str, set[str]]:
    """Third-party module → the files that import it anywhere, also inside functions."""
    found: dict[str, set[str]] = {}
    local = {path.stem for folder in folders for path in (ROOT / folder).rglob("*.py")} | {"benchmarks"}
    own = OWN | (local if "tests" in folders else set())
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            if (
                path.name.startswith("make_") or path.name in ELSEWHERE
            ):  # makes sample files with a framework of its own
                continue
            for name in modules_in(ast.parse(path.read_text(encoding="utf-8"))):
                top = name.partition(".")[0]
                if top not in sys.stdlib_module_names and top not in own:
                    found.setdefault(top, set()).add(str(path.relative_to(ROOT)))
    return found


def modules_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module


def declared() -> dict[str, set[str]]:
    """Extra → the distributions it names itself, "" for those always installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    return {
        name: {re.split(r"[\[<>=,;! ]", line, maxsplit=1)[0] for line in lines if not line.startswith("agent-rrm[")}
        for name, lines in groups.items()
    }


def distribution(module: str) -> str:
    return NAMES.get(module, module.replace("_", "-"))


def test_every_import_is_declared() -> None:
    groups = declared()
    shipped = set().union(*(names for extra, names in groups.items() if extra != "dev"))
    missing = {m: f for m, f in imports("rrm", "agents/reagent").items() if distribution(m) not in shipped}
    assert missing == {}
    everything = set().union(*groups.values())
    assert {m: f for m, f in imports("tests", "benchmarks").items() if distribution(m) not in everything} == {}


def test_every_declared_package_is_imported() -> None:
    used = {distribution(m) for m in imports("rrm", "agents/reagent")}
    in_tests = {distribution(m) for m in imports("tests", "benchmarks")}
    for extra, names in declared().items():
        unused = names - used - set(UNSEEN) - (in_tests if extra == "dev" else set())
        assert unused == set(), f"{extra or 'dependencies'} names what nothing imports"


def test_the_table_of_extras_is_that_of_the_distribution() -> None:
    groups = declared()
    for extra, modules in EXTRAS.items():
        assert {distribution(m) for m in modules} <= groups[extra], extra
    optional = {m for modules in EXTRAS.values() for m in modules}
    assert not {distribution(m) for m in optional} & groups[""]


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The commands of someone who judges through a server, run where no optional package can be imported."""
    folder = tmp_path_factory.mktemp("base")
    reply = "<think>[step 1] looked</think><critique>[step 1] good: searches</critique><score>0.5</score>"
    scored, given = folder / "scored.jsonl", str(ROOT / "examples" / "transcripts")
    with serve(lambda number, body: completion(reply)) as server:
        commands = {
            "convert": ["convert", given, "-o", str(folder / "rows.jsonl")],
            "check": ["check", given],
            "score": ["score", given, "--model", f"openai:{server.url}#judge", "-o", str(scored), "--html", str(folder / "s.html")],
            "eval": ["eval", given, "--feedback", str(scored), "-o", str(folder / "metrics.json"), "--resamples", "100"],
            "report": ["report", str(scored), given, "-o", str(folder / "page.html")],
            "annotate": ["annotate", given, "-o", str(folder / "labels.jsonl"), "--annotator", "rules"],
            "plot": ["eval", given, "--feedback", str(scored), "-o", str(folder / "m.json"), "--plot", str(folder / "p.png")],
            "local": ["score", given, "--model", "lab", "-o", str(folder / "local.jsonl")],
            "train": ["train", "--config", "lab"],
        }  # fmt: skip
        lines = "\n".join("\t".join(arguments) for arguments in commands.values())
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], input=lines, capture_output=True, text=True, cwd=folder, check=False
        )
    outputs = re.split(r"^EXIT (\d+)\n", done.stdout, flags=re.MULTILINE)
    codes = dict(zip(commands, map(int, outputs[1::2]), strict=True))
    return {
        "codes": codes,
        "out": dict(zip(commands, outputs[::2], strict=False)),
        "err": done.stderr,
        "folder": folder,
    }


def test_judging_through_a_server_needs_no_torch(without: dict[str, Any]) -> None:
    wanted = ("convert", "check", "score", "eval", "report", "annotate")
    assert {name: without["codes"][name] for name in wanted} == dict.fromkeys(wanted, 0), without["err"]
    rows = [json.loads(line) for line in (without["folder"] / "scored.jsonl").read_text().splitlines()]
    assert len(rows) == 12 and {row["score"] for row in rows} == {0.5}
    assert "<html" in (without["folder"] / "page.html").read_text()
    assert json.loads((without["folder"] / "metrics.json").read_text())["rows"] == 12


@pytest.mark.parametrize(("command", "extra"), [("plot", "plots"), ("local", "local"), ("train", "train")])
def test_what_needs_more_names_the_extra_before_it_begins(without: dict[str, Any], command: str, extra: str) -> None:
    assert without["codes"][command] == 2
    assert f"pip install 'agent-rrm[{extra}]'" in without["err"]
    assert "Traceback" not in without["err"]
    assert not (without["folder"] / "m.json").exists()


def test_a_missing_module_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # what an absent module looks like to the import system
    with pytest.raises(MissingExtra, match=r"a plot needs matplotlib: pip install 'agent-rrm\[plots\]'"):
        needs("plots", "a plot", "numpy", "matplotlib")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtra, match=r"agent-rrm\[wandb\]"):
        needs_trackers(["wandb"])
    needs_trackers(["mlflow"])  # not ours to say
    needs("plots", "a plot", "numpy")
    said = explain(ModuleNotFoundError("No module named 'trl.trainer'", name="trl.trainer"))
    assert said is not None and "agent-rrm[train]" in str(said)
    assert explain(ModuleNotFoundError("No module named 'mine'", name="mine")) is None
