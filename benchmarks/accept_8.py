"""Every bar of engines, sharding, plans and templates: what, measured, wanted, pass or fail.

    python -m benchmarks.accept_8            (exit code 1 if a bar is missed)

    engines_agree.json   python -m benchmarks.agreement
    engines_lab.json     python -m benchmarks.studies.engines
    engines_speed.json   python -m benchmarks.speed.engines
    plan.json            python -m benchmarks.speed.plan
    server_speed.json    python -m benchmarks.speed.server served
    llama_cpp_served.json   the same with a server of llama.cpp (benchmarks.llama_cpp_server)

Recorded results are read, and their figures made anew from their raw rows; what needs vLLM is measured by the commands above (`make test-vllm` builds its
environment). Tests that are bars are run unless `--no-run` is given.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.accept_7 import MODES, apart_bar, recorded
from benchmarks.acceptance import Bar, interval, load, main, missing, suite_bars, unmade

TRAIN, ENGINES = "tests/reagent/train", "tests/rrm/engines"
SUITES = {
    "1 the wire, adapters, several servers, what a server says of itself": (
        f"{ENGINES}/test_vllm.py {ENGINES}/test_vllm_addresses.py {ENGINES}/test_vllm_replies.py {TRAIN}/test_server_agreement.py"
    ),
    "1 whole runs over servers, LoRA and whole weights": f"{TRAIN}/test_remote_runs.py {ENGINES}/test_vllm_whole.py",
    "2 one update ahead: exact at 0, the same played by hand at 1, resumed to the bit": f"{TRAIN}/test_ahead.py",
    "3 two and four ranks: losses of one, resume, also from four on two": (
        f"{TRAIN}/test_sharded.py {TRAIN}/test_distributed.py {TRAIN}/test_launch.py"
    ),
    "3 the judge's training in shards": "tests/rrm/train/test_sharded_sft.py",
    "4 a plan counts what is there, and refuses what training would": f"{TRAIN}/test_plan.py",
    "5 templates and parsers of the families, token by token": "tests/reagent/rollout/test_templates.py tests/reagent/rollout/test_families.py tests/reagent/env/test_family_parsers.py",
    "6 servers that die, hang, come back with old weights, answer other ids": (
        f"{ENGINES}/test_vllm_troubles.py {ENGINES}/test_vllm_whole.py {ENGINES}/test_vllm_replies.py"
    ),
}
GREEDY_PROMPTS, APART, GAP = 10, 1e-3, 1e-2
"""Prompts; nats a token that float32 kernels may differ by; nats that the weights of another update would be above."""
SAME, LEARNED = 0.1, 0.1
"""Success that learning through vLLM may differ by; that both must gain."""
OVER_TRL, LOST, PLANNED = 2.0, 0.2, 0.2
MATMUL_SHARE = 0.4
TURNS = (2, 8, 16)
PLANS = ("lora", "lora preloaded", "whole")
SERVED, TRANSCRIPTS = 0.02, 40
Found = Mapping[str, Any]


def agreement_bars() -> Iterator[Bar]:
    """SmolLM2 on both engines, before and after updates through the server."""
    found = load("engines_agree")
    what = "1 SmolLM2 on vLLM and hf: greedy tokens"
    if found is None:
        yield missing(what, "the same", "engines_agree")
        return
    yield recorded("1 SmolLM2 on both engines", found, "vllm", "versions")
    for name, said in (("before training", found["greedy"]), ("the trained adapter", found["trained"])):
        same = sum(a == b for a, b in zip(said["hf"], said["vllm"], strict=True))
        gaps = [
            abs(x - y)
            for mine, theirs in zip(said.get("hf_logprobs", []), said.get("vllm_logprobs", []), strict=True)
            for x, y in zip(mine, theirs, strict=False)
        ]
        apart = max(gaps, default=float("inf"))
        shown = f"{same} of {len(said['hf'])} prompts, {len(gaps)} tokens, log-probabilities {apart:.1e} apart"
        ok = same == len(said["hf"]) >= GREEDY_PROMPTS and apart <= APART
        yield Bar(f"{what}, {name}", shown, f"all of ≥ {GREEDY_PROMPTS}, ≤ {APART:g} nats", ok)
    updates = found["updates"]
    gaps = ", ".join(f"{row['logprob_gap']:.1e}" for row in updates)
    moved = sum(a != b for a, b in zip(found["greedy"]["hf"], found["trained"]["hf"], strict=True))
    ok = len(updates) >= 3 and all(row["logprob_gap"] <= GAP and row["grad_norm"] > 0 for row in updates)
    wanted = f"≥ 3, each ≤ {GAP:g}; they change what is said"
    yield Bar(
        "1 updates through vLLM: largest gap of each",
        f"{gaps}; {moved} greedy answers changed",
        wanted,
        ok and moved > 0,
    )


def lab_bars() -> Iterator[Bar]:
    """What a policy learns through either engine."""
    found = load("engines_lab")
    what = "1 learned through vLLM less through hf, lab, three seeds"
    if found is None or not {"hf", "vllm"} <= found["arms"].keys():
        yield missing(what, f"within {SAME}", "engines_lab")
        return
    arms, start = found["arms"], found["start"]
    commits = {commit for arm in arms.values() for commit in arm["commits"]}
    wrong = [why for commit in sorted(commits) if (why := unmade(commit))]
    yield Bar(
        "1 learned through vLLM: the record", "; ".join(wrong) or found["command"], "says what made it", not wrong
    )
    success = {name: statistics.mean(arm["by_seed"]) for name, arm in arms.items()}
    shown = ", ".join(
        f"{name} {interval(arm['success'])} ({', '.join(map(str, arm['by_seed']))})" for name, arm in arms.items()
    )
    apart, less = success["vllm"] - success["hf"], arms["vllm"]["less_hf"]
    gained = min(success["vllm"], success["hf"]) - start
    seeds = min(len(arms[name]["by_seed"]) for name in ("hf", "vllm"))
    yield Bar(
        what,
        f"{apart:+.3f} {interval(arms['vllm']['less_hf'])}; start {start:.3f}; {shown}",
        f"its interval within {SAME}, ≥ 3 seeds, both {LEARNED} above the start",
        -SAME <= less["low"] <= apart <= less["high"] <= SAME and gained >= LEARNED and seeds >= 3,
    )
    again = "1 hf on three other seeds less hf (A/A)"
    if (other := arms.get("hf-again")) is None:
        yield missing(again, "reported", "engines_lab")
    else:
        shown = f"{interval(other['less_hf'])} ({', '.join(map(str, other['by_seed']))})"
        yield Bar(again, shown, "reported: what three seeds can tell", None)
    # one update ahead the gap is the update's own
    gap = max(of["logprob_gap"] for name, of in arms.items() if name.startswith("vllm") and of["staleness"] == 0)
    yield Bar("1 largest difference of a log-probability in these runs", f"{gap:.1e} nats", f"≤ {GAP:g}", gap <= GAP)
    for name in ("hf", "vllm"):
        if (ahead := arms.get(f"{name}-ahead")) is None:
            yield missing(f"2 one update ahead, {name}: success, seconds an update", "reported", "engines_lab")
            continue
        exact = arms[name]
        shown = (
            f"{interval(ahead['success'])} at staleness {ahead['staleness']:.2f} ({exact['success']['value']:.3f} without); "
            f"{ahead['update_seconds']['whole']} s an update ({exact['update_seconds']['whole']}), "
            f"{ahead['action_tokens_per_s']} action tokens/s ({exact['action_tokens_per_s']})"
        )
        yield Bar(f"2 one update ahead, {name}: success, seconds an update", shown, "reported", None)


def speed_bars() -> Iterator[Bar]:
    """Rollouts on both engines and in TRL's loop; slow tools."""
    found = load("engines_speed")
    what = "1 action tokens/s, SmolLM2"
    if found is None:
        yield missing(what, f"vLLM ≥ {OVER_TRL} of TRL's at 8 turns", "engines_speed")
        return
    yield recorded("1 rollout speed", found, "vllm", "versions", "model")
    by_turns = {row["turns"]: row for row in found["rollouts"]}
    for turns in TURNS:
        if (row := by_turns.get(turns)) is None:
            yield missing(f"{what}, {turns} turns", "measured", "engines_speed")
            continue
        rates = {name: row["action_tokens"] / statistics.median(of) for name, of in row["seconds"].items()}
        shown = ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
        ratio = rates["vllm"] / rates["trl"]
        bar = turns == 8
        wanted = f"vLLM ≥ {OVER_TRL} × TRL's" if bar else "reported"
        yield Bar(f"{what}, {turns} turns", f"{shown}: {ratio:.2f}", wanted, ratio >= OVER_TRL if bar else None)
    if (waiting := found.get("waiting")) is None:
        yield missing("1 lost to slow tools", f"≤ {LOST:.0%}", "engines_speed")
        return
    low, high = waiting["tool_s"]
    for name in ("hf", "vllm"):
        quick, slow, lock_step = (waiting[name]["seconds"][kind][0] for kind in ("quick", "slow", "lock-step"))
        lost, control = 1 - quick / slow, 1 - quick / lock_step
        yield Bar(
            f"1 lost to tools of {low} to {high} s, {name}",
            f"{lost:.1%} of {slow:.0f} s; where all wait for a turn's slowest {control:.1%}",
            f"≤ {LOST:.0%}, and the control above it",
            lost <= LOST < control,
        )


def served_bars() -> Iterator[Bar]:
    """A judge's directory served by vLLM, and by llama.cpp's server."""
    wanted = f"within {SERVED} on ≥ {TRANSCRIPTS} transcripts"
    what = "1 a judge's directory served by llama.cpp, mode steps"
    said = load("llama_cpp_served")
    if said is None:
        yield missing(what, wanted, "llama_cpp_served")
    else:
        of = said["served"]["by_mode"]["steps"]
        yield apart_bar(what, wanted, of["local"], of["served"])
    found = (load("server_speed") or {}).get("served", {}).get("by_mode", {})
    what = "1 a judge's directory served by vLLM"
    for mode in MODES:
        if (of := found.get(mode)) is None:
            yield missing(f"{what}, mode {mode}", wanted, "server_speed")
        else:
            yield apart_bar(f"{what}, mode {mode}", wanted, of["local"], of["served"])


def plan_bars() -> Iterator[Bar]:
    """A plan beside the training that it is of."""
    found = load("plan")
    wanted = f"within {PLANNED:.0%}"
    if found is None or "runs" not in found:
        yield missing("4 --plan against SmolLM2", wanted, "plan")
        return
    yield recorded("4 plans", found, "versions")
    for name in PLANS:
        if (run := found["runs"].get(name)) is None:
            yield missing(f"4 --plan, {name}", wanted, "plan")
            continue
        memory, seconds = run["memory"], run["seconds"]
        off = memory["planned_gib"] / memory["measured_gib"] - 1
        shown = f"{memory['planned_gib']} GiB planned, {memory['measured_gib']} held: {off:+.1%}"
        yield Bar(f"4 --plan, {name}: memory at the peak", shown, wanted, abs(off) <= PLANNED)
        for part, said in (("rollout", "at play"), ("update", "learning")):
            planned, measured = seconds["planned"][part], seconds["measured"][part]
            off = planned / measured - 1
            shown = f"{planned:.0f} s planned, {measured:.0f} taken: {off:+.1%}"
            yield Bar(f"4 --plan, {name}: seconds {said}", shown, wanted, abs(off) <= PLANNED)
    derived = {k: v for k, v in found["qwen3"].items() if isinstance(v, dict)}
    shown = ", ".join(f"{name} {of['update_gib']} GiB" for name, of in derived.items())
    yield Bar("4 Qwen3, derived, not run", shown, "reported", None)


def bars(run: bool = True) -> list[Bar]:
    """All of them; tests that are bars only where they are run."""
    gpu = load("gpu")
    shown = "not measured" if gpu is None else f"{gpu['matmul_share']} of the peak"
    reached = None if gpu is None else gpu["matmul_share"] >= MATMUL_SHARE
    wanted = f"≥ {MATMUL_SHARE}, where one is"
    gpu_bar = Bar("7 the largest Llama on a GPU: tokens/s, memory, matmul share", shown, wanted, reached)
    read = [*agreement_bars(), *lab_bars(), *speed_bars(), *served_bars(), *plan_bars()]
    return [*read, gpu_bar, *suite_bars(SUITES, run)]


if __name__ == "__main__":
    main(__doc__, bars)
