"""Checks of `rrm doctor`: versions, extras, devices, memory, folders, servers, and the default judge.

They change and fetch nothing (but `measure`), and raise nothing: problems stand in the results. Work without torch.
"""

from __future__ import annotations

import ctypes.util
import importlib
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from rrm.data.extras import EXTRAS, absent
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.async_runner import run
from rrm.engines.hf.weights import DEFAULT_BASE, cached_base
from rrm.engines.hf.weights import cache_dir as own_cache
from rrm.engines.http import Answer, NoAnswer, ask, client
from rrm.engines.server_options import meant, shown_address
from rrm.errors import RRMError

PACKAGES = ("agent-rrm", "torch", "transformers", "peft", "trl", "accelerate", "numpy", "scikit-learn", "httpx2", "pydantic", "huggingface-hub", "vllm")  # fmt: skip
# entry points of other packages' checks: functions that raise an RRMError, which says what is missing
CHECKS = "rrm.doctor"
TIMEOUT_S = 5.0
# status of an `rrm serve` that takes no requests → what that means
UNREADY = {
    "starting": "its judge is being loaded: ask again in a moment",
    "failing": "its judge cannot be loaded: its log says why",
}
JEMALLOC = "LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=oversize_threshold:0,dirty_decay_ms:5000,muzzy_decay_ms:5000"


def versions() -> dict[str, str]:
    """Return the versions of Python and of installed `PACKAGES`; imports nothing."""
    installed = {"python": platform.python_version(), "platform": platform.platform(terse=True)}
    for name in PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def extras() -> dict[str, dict[str, Any]]:
    """Return, by extra, whether it is installed, what is missing, and the line that installs it."""
    result = {}
    for name in EXTRAS:
        missing = absent(name)
        result[name] = {"installed": not missing}
        if missing:
            result[name] |= {"missing": missing, "install": f"pip install 'agent-rrm[{name}]'"}
    return result


def machine() -> dict[str, Any]:
    """Return cores, memory in bytes (the container's limit, if any) and thread settings of this process."""
    total, available = _memory()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = {name: os.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ}
    return {"cores": cores, "memory": total, "available": available, "threads": threads}


def _memory() -> tuple[int | None, int | None]:
    total = available = None
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines if len(line.split()) > 1}
        total, available = sizes.get("MemTotal"), sizes.get("MemAvailable")
    except (OSError, ValueError):
        try:
            total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (OSError, ValueError, AttributeError):
            return None, None
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no container, or one without a limit
        return total, available
    return min(total or limit, limit), min(available or limit, max(limit - used, 0))


def devices() -> dict[str, Any]:
    """Return torch's device as the judge chooses it, accelerators (bytes), and threads; or an `error`."""
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError:
        return {"error": "no torch: weights run on a server alone (pip install 'agent-rrm[local]')"}
    except Exception as error:  # noqa: BLE001 - a torch that is installed and broken is what a doctor is asked about
        return {"error": f"torch cannot be imported: {type(error).__name__}: {error}"}
    from rrm.engines.hf.base_model import default_device, default_dtype

    accelerators = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(index)
            accelerators.append({"name": torch.cuda.get_device_name(index), "memory": total, "free": free})
    chosen = default_device()
    return {
        "default": chosen,
        "dtype": str(default_dtype(chosen)).removeprefix("torch."),
        "accelerators": accelerators,
        "threads": torch.get_num_threads(),
    }


def folders() -> dict[str, dict[str, Any]]:
    """Return the cache folders: path, whether they exist and are writable, bytes free on their disk."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return {name: _folder(Path(path)) for name, path in (("agent-rrm", own_cache()), ("hub", HF_HUB_CACHE))}


def _folder(path: Path) -> dict[str, Any]:
    there = next((p for p in (path, *path.parents) if p.exists()), Path("/"))
    writable = there.is_dir() and os.access(there, os.W_OK)
    try:
        free = shutil.disk_usage(there).free
    except OSError:
        free = None
    return {"path": str(path), "exists": path.exists(), "writable": writable, "free": free}


def checks() -> dict[str, dict[str, Any]]:
    """Run other packages' checks (the sandbox of agents' tools): name → `available`, and `why` not."""
    results = {}
    for point in entry_points(group=CHECKS):
        try:
            point.load()()
            results[point.name] = {"available": True}
        except (RRMError, ImportError, OSError) as error:
            results[point.name] = {"available": False, "why": str(error)}
        except Exception as error:  # noqa: BLE001 - another package's bug is a line of the report, and no end of it
            results[point.name] = {"available": False, "why": f"its check failed: {type(error).__name__}: {error}"}
    return results


def allocator() -> dict[str, Any]:
    """Tell whether this process uses jemalloc, and if not how to."""
    if not sys.platform.startswith("linux"):
        return {"jemalloc": False}
    try:
        used = "jemalloc" in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        used = "jemalloc" in os.environ.get("LD_PRELOAD", "")
    if used:
        return {"jemalloc": True}
    line = JEMALLOC if ctypes.util.find_library("jemalloc") else f"apt-get install libjemalloc2; {JEMALLOC}"
    return {"jemalloc": False, "advice": line}


# -- servers ---------------------------------------------------------------------------------------------------------------------


def _get(url: str, variable: str | None = None, *, unready: bool = False) -> Any:
    """GET JSON, with the key of the environment's `variable`; `unready`: read a 503's body as any other.

    Raises:
        ValueError: what is wrong and what to do, without the key.
    """
    key = os.environ.get(variable) if variable else None

    async def answer() -> Answer:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with client(trust_env=not _is_local(url)) as http:  # no proxy for what is here
            return await ask(http, "GET", url, limit_s=TIMEOUT_S, headers=headers)

    try:
        reply = run(answer())
    except NoAnswer as error:
        if error.kind == "late":
            raise ValueError(f"nothing came from it within {TIMEOUT_S:g} s: look into its log") from error
        raise ValueError(f"nobody answers there ({error}): start the server, or name another address") from error
    except ValueError as error:  # a host or a path that no request can hold
        raise ValueError(f"no address: {error}") from error
    if reply.status >= 300 and not (unready and reply.status == 503):
        raise ValueError(_refusal(reply.status, httpx2.codes.get_reason_phrase(reply.status), variable, key))
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its reply is no JSON: {error}") from error


def _refusal(code: int, reason: str, variable: str | None, key: str | None) -> str:
    """Explain a status, and what to do."""
    if code in (401, 403) and variable:
        if key is None:
            return f"it asks for a key ({code} {reason}), and the environment has no {variable}: set it"
        return f"it refuses the key in {variable} ({code} {reason}): set that to a key which it takes"
    if code == 404:
        return f"it answers, but neither as rrm serve nor as a server of models ({code} {reason}): where its API lies under a path, write openai:BASE_URL#model"
    return f"it answers {code} {reason}"


def _is_local(url: str) -> bool:
    return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")


def server(address: str) -> dict[str, Any]:
    """Ask an address whether it is `rrm serve` (its judge) or an OpenAI-compatible server (its models).

    Args:
        address: `http://HOST:PORT` (`/v1` may follow) or `openai:BASE_URL#model`. Keys: the environment's `RRM_API_KEY`
            for `rrm serve`, `OPENAI_API_KEY` for others.

    Returns:
        `address` (without key), `reachable`, and `kind`, `judge` or `models` (id → context in tokens), or `error`.
    """
    url, _, model = address.removeprefix("openai:").partition("#")
    url = url.partition(",")[0].rstrip("/")
    result: dict[str, Any] = {"address": shown_address(url), "reachable": False}
    try:
        parts = urlsplit(url)
    except ValueError as error:  # a bracket that is not closed, say
        return {**result, "error": f"no address ({error}): write http://HOST:PORT"}
    if (written := meant(f"{url}#{model}" if model else url)) is not None:
        return {**result, "error": f"no address, for want of http:// in front: write {written}"}
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return {**result, "error": "no address: write http://HOST:PORT"}
    if parts.username is not None:
        return {
            **result,
            "error": "an address with a key or user in it is not asked: set RRM_API_KEY or OPENAI_API_KEY",
        }
    root = url.removesuffix("/v1")
    try:
        health = None if address.startswith("openai:") else _get(f"{root}/healthz", unready=True)
    except ValueError:
        health = None
    try:
        if isinstance(health, Mapping) and {"workers", "waiting"} <= health.keys():
            if (status := str(health.get("status"))) in UNREADY:
                return {
                    **result,
                    "kind": "rrm serve",
                    "status": status,
                    "error": f"rrm serve ({status}): {UNREADY[status]}",
                }
            judge = _get(f"{root}/v1/judge", "RRM_API_KEY")
            about = {"judge": judge["describe"].get("model"), "modes": judge.get("modes")}
            return {**result, "reachable": True, "kind": "rrm serve", "status": health.get("status"), **about}
        base = url if address.startswith("openai:") or url.endswith("/v1") else f"{url}/v1"
        listed = _get(f"{base}/models", "OPENAI_API_KEY")
        models = {str(m["id"]): m.get("max_model_len") for m in listed["data"]}
    except ValueError as error:
        return {**result, "error": str(error)}
    except (KeyError, TypeError, AttributeError):
        return {**result, "error": "it answers, but not as a server of models does"}
    result |= {"reachable": True, "kind": "openai", "models": models}
    if model and model not in models:
        result |= {"reachable": False, "error": f"it has no model {model}"}
    return result


# -- judging ---------------------------------------------------------------------------------------------------------------------


def default_judge() -> dict[str, Any]:
    """Tell whether the default judge runs here, what is missing, and bytes to fetch."""
    missing = absent("local")
    if missing:
        return {"runs": False, "why": f"no {', '.join(missing)}", "install": "pip install 'agent-rrm[local]'"}
    where = cached_base()
    return {
        "runs": True,
        "base": DEFAULT_BASE,
        "weights": str(where) if where else None,
        "fetch": 0 if where else 98_000_000,
    }


def measure(model: str | None) -> dict[str, Any]:
    """Load a judge (None: the default) and judge one small transcript: seconds of each, and the score."""
    from rrm.judge.agent_rrm import AgentRRM

    try:
        begun = time.perf_counter()
        judge = AgentRRM.from_pretrained(model)
        loaded = time.perf_counter()
        (feedback,) = judge.judge([small_transcript()])
        done = time.perf_counter()
    except RRMError as error:
        return {"error": str(error)}
    result = {"judge": feedback.judge.model, "status": feedback.status, "score": feedback.score}
    return {**result, "load_s": round(loaded - begun, 2), "judge_s": round(done - loaded, 2)}


def small_transcript() -> Trajectory:
    """Make a run of four steps, some 250 tokens: a question looked up and answered."""

    def call(k: int, query: str) -> dict[str, Any]:
        return {"id": f"c{k}", "type": "function", "function": {"name": "search", "arguments": json.dumps({"query": query})}}  # fmt: skip

    turns = [
        ("which lake the town lies at", "The town of Velm lies at Lake Orsa, in the north of the county."),
        ("Lake Orsa depth", "Lake Orsa: area 52 square kilometres, greatest depth 97 metres, outflow the river Ore."),
        ("river Ore mouth", "The river Ore flows into the Daltar below the mill of Skatt."),
    ]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Velm lies at a lake. Into which river does the lake's outflow run?"}
    ]
    for k, (query, answer) in enumerate(turns):
        messages.append({"role": "assistant", "content": f"I look for {query}.", "tool_calls": [call(k, query)]})
        messages.append({"role": "tool", "tool_call_id": f"c{k}", "content": answer})
    messages.append({"role": "assistant", "content": "The outflow of Lake Orsa, the Ore, runs into the Daltar."})
    return Trajectory(id="doctor", task=messages[0]["content"], messages=[Message.model_validate(m) for m in messages])


def judges(report: Mapping[str, Any]) -> list[str]:
    """List what can judge."""
    runs = report["default_judge"]["runs"] and "error" not in report["devices"]
    measured = report.get("measured", {})
    named = [f"{measured['judge']} judges"] if measured.get("status") == "scored" and not runs else []
    answer = [f"{s['address']} answers" for s in report["servers"] if s["reachable"]]
    return ["the default judge runs here"] * runs + named + answer


def faults(report: Mapping[str, Any]) -> list[str]:
    """List what is wrong with servers, caches and the measurement."""
    wrong = [f"{s['address']}: {s['error']}" for s in report["servers"] if not s["reachable"]]
    wrong += [f"the cache {f['path']} cannot be written" for f in report["folders"].values() if not f["writable"]]
    if "error" in report.get("measured", {}):
        wrong.append(f"the measurement failed: {report['measured']['error']}")
    return wrong


def verdict(report: Mapping[str, Any]) -> str:
    """Sum up the report in one sentence."""
    ready, wrong = judges(report), faults(report)
    none = "nothing here can judge: the default judge does not run, and no server that was named (--server) answers"
    summary = f"ready: {', '.join(ready)}" if ready else none
    return "; BUT ".join([summary, "; ".join(wrong)] if wrong else [summary])


def examine(servers: list[str], *, measured: bool = False, model: str | None = None) -> dict[str, Any]:
    """Run all checks; `ok` is False where nothing can judge, or something is at fault."""
    report: dict[str, Any] = {
        "versions": versions(),
        "extras": extras(),
        "machine": machine(),
        "devices": devices(),
        "folders": folders(),
        "checks": checks(),
        "allocator": allocator(),
        "default_judge": default_judge(),
        "servers": [server(address) for address in servers],
    }
    if measured:
        report["measured"] = measure(model)
    report["verdict"] = verdict(report)
    report["ok"] = bool(judges(report)) and not faults(report)
    return report
