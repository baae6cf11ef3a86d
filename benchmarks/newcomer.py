"""How long a newcomer takes, from nothing to a judged log, a trained judge and a trained agent, by the site's first pages alone.

    python -m benchmarks.newcomer            # writes benchmarks/results/newcomer.json

The commands are not in this file: they are the shell blocks of `PAGES`, in order, but for those that the pages themselves mark as needing more
(a server, hours). They run in an empty folder, in a virtual environment of its own, with an empty cache; where a page installs the clone (`.`)
the wheel of this checkout is installed, at the versions of constraints.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS, command, commit, made_with, write

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("start.md", "your-labels.md", "judge-only.md")
GOALS = {"start.md": "a judged log", "your-labels.md": "a trained judge", "judge-only.md": "a trained agent"}
LEFT_OUT = ("not run", "heavy", "needs a server")
BLOCK = re.compile(r"((?:<!--(?:(?!-->).)*-->\s*)*)```bash\n(.*?)```", re.DOTALL)
COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)


def commands(page: str) -> list[str]:
    """A page's commands, a line each: of shell blocks without a comment that leaves them out."""
    found = []
    for notes, text in BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
        if any(note.startswith(LEFT_OUT) for note in COMMENT.findall(notes)):
            continue
        lines = re.sub(r"\\\n\s*", " ", text).splitlines()
        lines = [line.strip().replace("'.[", "'agent-rrm[") for line in lines]
        found += [line for line in lines if line and not line.startswith("#")]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, default=RESULTS / "newcomer.json")
    parser.add_argument("--list", action="store_true", help="print the commands, run nothing")
    args = parser.parse_args()
    if args.list:
        print("\n".join(line for page in PAGES for line in commands(page)))
        return
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as scratch:
        rows, seen = play(Path(scratch))
    pages = {page: sum(row["seconds"] for row in rows if row["page"] == page) / 60 for page in PAGES}
    record = {
        "minutes": {GOALS[page]: round(minutes, 2) for page, minutes in pages.items()},
        "minutes_in_all": round(sum(pages.values()), 2),
        "reached": seen,
        "commands": rows,
        **{"command": command("newcomer"), "commit": commit(), "load_average_before": load},
        **made_with("torch", "transformers", "trl", "peft"),
    }
    write(args.out, record)
    print(json.dumps({key: record[key] for key in ("minutes", "minutes_in_all", "reached")}))


def play(scratch: Path) -> tuple[list[dict[str, Any]], dict[str, bool]]:
    """Run every command; seconds of each, and which of the goals was reached.

    Raises:
        SystemExit: a command failed; with what it said.
    """
    wheels, venv, folder = scratch / "wheels", scratch / "venv", scratch / "work"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    folder.mkdir()
    links = " ".join(filter(None, [str(wheels), os.environ.get("PIP_FIND_LINKS")]))
    own = ("PYTHONPATH", "RRM_BASE_DIR", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if name not in own} | {
        "PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(scratch),
        "AGENT_RRM_CACHE": str(scratch / "cache"),
        "PIP_FIND_LINKS": links,
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
    }
    rows = []
    for page in PAGES:
        for line in commands(page):
            print(f"$ {line}", file=sys.stderr, flush=True)
            begun = time.monotonic()
            done = subprocess.run(["sh", "-c", line], cwd=folder, env=env, capture_output=True, text=True, check=False)
            if done.returncode:
                said = f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
                raise SystemExit(f"{page}: {line}: exit code {done.returncode}\n{said}")
            rows.append({"page": page, "command": line, "seconds": round(time.monotonic() - begun, 1)})
    return rows, reached(folder)


def reached(folder: Path) -> dict[str, bool]:
    """Whether the log is judged, the judge trained and the agent trained, by what lies in the folder."""
    lines = (folder / "scored.jsonl").read_text(encoding="utf-8").splitlines()
    return {
        "a judged log": bool(lines) and all(json.loads(line)["status"] == "scored" for line in lines),
        "a trained judge": (folder / "runs" / "judge" / "judge" / "judge.json").is_file(),
        "a trained agent": (folder / "runs" / "agent" / "policy" / "model.safetensors").is_file(),
    }


if __name__ == "__main__":
    main()
