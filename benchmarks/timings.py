"""How long the two commands of the README take once everything is installed.

    python -m benchmarks.timings            # make quickstart, then make test; writes benchmarks/results/timings.json

Run it on an otherwise idle machine: the load of the last minute before each command is written beside its seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks import record
from rrm.data.provenance import environment

ROOT = Path(__file__).resolve().parents[1]
RESULT = record.RESULTS / "timings.json"


def script_hash() -> str:
    """16 hex digits of the script that `make quickstart` runs: seconds are of this one."""
    return hashlib.sha256((ROOT / "examples" / "quickstart.sh").read_bytes()).hexdigest()[:16]


def timed(target: str) -> dict[str, Any]:
    """Wall seconds of `make target`.

    Raises:
        subprocess.CalledProcessError: the command failed; its output was shown.
    """
    load = os.getloadavg()[0]
    start = time.monotonic()
    subprocess.run(["make", target], cwd=ROOT, check=True)
    return {f"{target}_s": round(time.monotonic() - start, 1), f"{target}_load_before": round(load, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=["quickstart", "test"])
    parser.add_argument("--output", type=Path, default=RESULT)
    args = parser.parse_args()
    subprocess.run(["make", ".venv/ready"], cwd=ROOT, check=True)
    found = json.loads(args.output.read_text()) if args.output.is_file() else {}
    for target in args.targets:
        found |= timed(target) | ({"quickstart_script": script_hash()} if target == "quickstart" else {})
        found |= {
            f"{target}_commit": record.commit(),
            "command": record.command("timings"),
            "environment": environment(),
        }
        record.write(args.output, found)
    print(json.dumps({k: v for k, v in found.items() if k.endswith("_s")}))


if __name__ == "__main__":
    main()
