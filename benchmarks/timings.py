"""How long `make quickstart` and `make test` take once everything is installed.

    python -m benchmarks.timings            # both; writes benchmarks/results/timings.json

Run it on an otherwise idle machine: the load of the last minute before each command is written beside its seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time

from benchmarks import record
from rrm.data.provenance import environment


def script_hash() -> str:
    """16 hex digits of the script that `make quickstart` runs: seconds are of this one."""
    return hashlib.sha256((record.ROOT / "examples" / "quickstart.sh").read_bytes()).hexdigest()[:16]


def main() -> None:
    subprocess.run(["make", ".venv/ready"], cwd=record.ROOT, check=True)
    found = record.load("timings") or {}
    for target in sys.argv[1:] or ["quickstart", "test"]:
        load, start = os.getloadavg()[0], time.monotonic()
        subprocess.run(["make", target], cwd=record.ROOT, check=True)
        found |= {f"{target}_s": round(time.monotonic() - start, 1), f"{target}_load_before": round(load, 2)}
        found |= {"quickstart_script": script_hash()} if target == "quickstart" else {}
        found |= {
            f"{target}_commit": record.commit(),
            "command": record.command("timings"),
            "environment": environment(),
        }
        record.write(record.RESULTS / "timings.json", found)
    print(json.dumps({k: v for k, v in found.items() if k.endswith("_s")}))


if __name__ == "__main__":
    main()
