"""Every bar of the agent side: what, measured, wanted, pass or fail. Studies are read from benchmarks/results/*.json.

    python -m benchmarks.accept_2            (exit code 1 if a bar is missed)

Each results file names the command, seeds, versions and hardware that made it:

    rl_lab.json          python -m benchmarks.studies.rl_lab
    rollout_speed.json   python -m benchmarks.speed.rollout, with and without --decode: one object, or {"runs": [objects]}
    update_speed.json    python -m benchmarks.speed.update --model lab smollm2
    smollm2_gsm8k.json   {"updates", "curve": [{"update", "reward", …}], "before", "after", …}

The bars that are tests are run here, unless `--no-run` is given.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.acceptance import RESULTS, ROOT, Bar, interval, load, main, missing, suite_bars

Found = dict[str, Any]

ALGORITHMS = ("ppo", "grpo", "rloo", "reinforce++")
MASKS = {
    "ppo": "both masks, process rewards",
    "ppo-no-advantage-mask": "no advantage mask",
    "ppo-no-masks": "neither mask",
    "ppo-no-process": "no process rewards",
    "grpo": "action mask, process rewards",
    "grpo-no-masks": "no mask",
    "grpo-no-process": "no process rewards",
}
UNTRAINED = {"search": ("3",), "calculator": ("4", "5")}
"""Hop counts that no task of RL has (configs/agents/lab.yaml, benchmarks/studies/rl_lab.py)."""
SEEDS, CALCULATOR_SEEDS = 5, 3
RAG_RATIO, RAG_ONE_HOP = 2.5, 0.9
ROLLOUT_RATIO, ROLLOUT_GOAL, DECODE_RATIO = 2.0, 3.0, 1.15
TURNS = (2, 4, 8, 16)
SPEED_MODELS = ("lab", "smollm2")
UPDATES = 20

TESTS = "tests/reagent/"
SUITES = {
    "mask = sampled spans, tokens = the full template's turn by turn; three chat templates": (
        f"{TESTS}rollout/test_rollout.py::test_the_mask_is_what_was_sampled_and_its_logprobs_are_a_full_forwards "
        f"{TESTS}rollout/test_rollout.py::test_each_turns_prompt_is_the_full_rendering {TESTS}rollout/test_templates.py"
    ),
    "no observation token has a loss gradient": (
        f"{TESTS}algorithms/test_losses.py::test_tokens_off_the_mask_change_nothing_and_get_exactly_no_gradient "
        f"{TESTS}algorithms/test_ppo_oracle.py::test_states_that_predict_no_action_get_exactly_zero_gradient"
    ),
    "ratio on the first update = 1 to 1e-5": (
        f"{TESTS}train/test_trainer.py::test_first_update_has_ratio_one_and_engine_and_trainer_agree"
    ),
    "PPO's loss and gradient = an independent float64 computation": f"{TESTS}algorithms/test_ppo_oracle.py",
    "advantages and losses by hand": (
        f"{TESTS}algorithms/test_advantages.py {TESTS}algorithms/test_advantages_properties.py {TESTS}algorithms/test_losses.py"
    ),
    "two processes = one, to 1e-5": f"{TESTS}train/test_distributed.py",
    "SIGKILL and resume = unbroken, to the bit": f"{TESTS}train/test_trainer.py::test_a_killed_run_resumes_to_the_bit",
    "faults of tools, policy and environment end in typed outcomes": (
        f"{TESTS}rollout/test_rollout_faults.py {TESTS}env/test_tool.py {TESTS}env/test_env.py"
    ),
    "Gymnasium's env_checker": f"{TESTS}env/test_gym.py",
    "the guide's environment works as it stands": (
        f"{TESTS}lab/test_lab_envs.py::test_the_guides_environment_works_as_it_stands"
    ),
}


# ---- RL in the lab ----


def algorithm_bars(found: Found) -> Iterator[Bar]:
    """Each algorithm against the baselines on held-out questions of the search lab."""
    baselines = found.get("baselines", {}).get("search", {})
    rag, base = baselines.get("naive_rag"), baselines.get("tool_call")
    for name in ("direct", "naive_rag", "tool_call"):
        what = f"baseline {name}: held-out success"
        one = baselines.get(name)
        yield Bar(what, interval(one["success"]), "reported", None) if one else missing(what, "reported", "rl_lab")
    what, wanted = "naive RAG on one-hop questions (no straw man)", f"≥ {RAG_ONE_HOP}"
    if rag:
        one_hop = rag["success_by_hops"]["1"]
        yield Bar(what, interval(one_hop), wanted, one_hop["value"] >= RAG_ONE_HOP)
    else:
        yield missing(what, wanted, "rl_lab")
    for name in ALGORITHMS:
        arm = found.get("arms", {}).get(name)
        if arm is None or rag is None or base is None:
            yield missing(f"{name} against naive RAG and the supervised base", f"≥ {RAG_RATIO}×, above", "rl_lab")
            continue
        success = arm["success"]
        ratio = success["value"] / rag["success"]["value"] if rag["success"]["value"] else float("inf")
        yield Bar(
            f"{name}: held-out success, {arm['seeds']} seeds",
            interval(success),
            f"{SEEDS} seeds",
            arm["seeds"] >= SEEDS,
        )
        yield Bar(
            f"  ÷ naive RAG ({rag['success']['value']:.3f})", f"{ratio:.2f}×", f"≥ {RAG_RATIO}×", ratio >= RAG_RATIO
        )
        high = base["success"]["high"]
        yield Bar("  over the supervised base", interval(success), f"low end > {high:.3f}", success["low"] > high)
        yield Bar("  by hops", by_hops(arm), f"base: {by_hops(base)}", None)


def by_hops(row: Found) -> str:
    """`1: 0.95, 2: 0.80`."""
    return ", ".join(f"{hops}: {v['value']:.2f}" for hops, v in sorted(row["success_by_hops"].items()))


def budget_bars(found: Found) -> Iterator[Bar]:
    """The same number of episodes, in minutes."""
    arms = {name: found.get("arms", {}).get(name) for name in ALGORITHMS}
    episodes = {arm["episodes"] for arm in arms.values() if arm}
    if not episodes:
        yield missing("episodes of each algorithm", "the same", "rl_lab")
        return
    whole = len(episodes) == 1 and all(arms.values())
    yield Bar("episodes of each algorithm", ", ".join(map(str, sorted(episodes))), "the same", whole)
    minutes = {n: statistics.median(arm["seconds"]) / 60 for n, arm in arms.items() if arm}
    shown = ", ".join(f"{n} {m:.1f}" for n, m in minutes.items())
    yield Bar("minutes a run, one thread, median", shown, "reported", None)
    curves = RESULTS / "rl_lab.png"
    yield Bar("curves", curves.name if curves.is_file() else "none", "rl_lab.png", curves.is_file())


def generalisation_bars(found: Found) -> Iterator[Bar]:
    """Hop counts never trained on, and the other environment."""
    cases = [(name, "search", name) for name in ALGORITHMS]
    cases += [(f"{name}-calculator", "calculator", name) for name in ("ppo", "grpo")]
    for key, environment, name in cases:
        arm = found.get("arms", {}).get(key)
        base = found.get("baselines", {}).get(environment, {}).get("tool_call")
        if arm is None or base is None:
            yield missing(f"{name} in the {environment} lab, hops never trained on", "above the base", "rl_lab")
            continue
        if environment != "search":
            yield Bar(
                f"{name} in the {environment} lab, {arm['seeds']} seeds",
                interval(arm["success"]),
                f"{CALCULATOR_SEEDS} seeds, above the base's {interval(base['success'])}",
                arm["seeds"] >= CALCULATOR_SEEDS and arm["success"]["value"] > base["success"]["value"],
            )
        for hops in UNTRAINED[environment]:
            mine, theirs = arm["success_by_hops"][hops], base["success_by_hops"][hops]
            what = f"{name} in the {environment} lab, {hops} hops (never trained on)"
            wanted = f"above the base's {interval(theirs)}"
            yield Bar(what, interval(mine), wanted, mine["value"] > theirs["value"])


def mask_bars(found: Found) -> Iterator[Bar]:
    """Masks and process rewards, on and off, at the same budget; whatever comes out."""
    arms = found.get("arms", {})
    for name, said in MASKS.items():
        what, wanted = f"{name.partition('-')[0]}, {said}", f"{SEEDS} seeds, same budget; reported"
        arm = arms.get(name)
        if arm is None:
            yield missing(what, wanted, "rl_lab")
            continue
        whole = arm["seeds"] >= SEEDS and arm["episodes"] == arms.get("ppo", arm)["episodes"]
        yield Bar(what, f"{interval(arm['success'])}, {arm['seeds']} seeds", wanted, whole)


def lab_policy_bar() -> Bar:
    """The shipped base policy."""
    path = ROOT / "agents" / "reagent" / "lab" / "assets" / "policy" / "model.safetensors"
    size = path.stat().st_size / 1e6 if path.is_file() else 0.0
    return Bar("lab policy, shipped as safetensors", f"{size:.1f} MB", "shipped, ≤ 5 MB", 0 < size <= 5)


# ---- speed ----


def rollout_bars() -> Iterator[Bar]:
    """Rollouts against TRL's tool loop, tokens prefilled, and a decoding step against a plain one."""
    found = load("rollout_speed") or {}
    runs: list[Found] = found.get("runs", [found] if found else [])
    for model in SPEED_MODELS:
        mine = [r for r in runs if model in str(r["options"]["model"]).lower()]
        rows = {row["turns"]: row for r in mine for row in r.get("rollouts", ())}
        for turns in TURNS:
            what, wanted = f"{model}: rollout ÷ TRL, {turns} turns", "reported"
            if turns == 8:
                wanted = f"≥ {ROLLOUT_RATIO}× (goal {ROLLOUT_GOAL}×)"
            if turns not in rows:
                yield missing(what, wanted, "rollout_speed")
                continue
            row = rows[turns]
            speeds = row["action_tokens_per_s"]
            shown = f"{row['ours_over_trl']:.2f}× ({speeds['ours']:.0f} against {speeds['trl']:.0f} tokens/s)"
            yield Bar(what, shown, wanted, row["ours_over_trl"] >= ROLLOUT_RATIO if turns == 8 else None)
        if rows:
            new = all(row["prefilled_only_new"] for row in rows.values())
            yield Bar(f"{model}: tokens prefilled in a turn", "the new ones" if new else "more", "the new ones", new)
        steps = [step for r in mine for step in r.get("decode", ())]
        what, wanted = f"{model}: decoding step ÷ plain decode", f"≤ {DECODE_RATIO}×"
        if steps:
            worst = max(steps, key=lambda step: step["ours_over_plain"])
            shown = f"{worst['ours_over_plain']:.2f}× at most (context {worst['context']}, {worst['rows']})"
            yield Bar(what, shown, wanted, worst["ours_over_plain"] <= DECODE_RATIO)
        else:
            yield missing(what, wanted, "rollout_speed")


def update_bars() -> Iterator[Bar]:
    """One update against TRL's."""
    runs = (load("update_speed") or {}).get("runs", [])
    for model in SPEED_MODELS:
        run = next((r for r in runs if model in str(r["model"]).lower()), None)
        if run is None:
            yield missing(f"{model}: update against TRL's", "measured", "update_speed")
            continue
        speed, peak, own, share = (
            run[k] for k in ("action_tokens_per_s", "peak_mb", "update_mb", "share_of_matmul_peak")
        )
        shown = f"{run['ours_over_trl']:.2f}× ({speed['ours']:.0f} against {speed['trl']:.0f} tokens/s)"
        yield Bar(f"{model}: update ÷ TRL, action tokens/s", shown, "reported", None)
        shown = (
            f"{peak['ours']:.0f} against {peak['trl']:.0f} MB ({own['ours']:.0f} and {own['trl']:.0f} of the update)"
        )
        yield Bar("  peak memory, ours and TRL", shown, "reported", None)
        shown = f"{share['ours']:.1%} and {share['trl']:.1%} of {run['matmul_gflops']:.0f} GFLOP/s"
        yield Bar("  share of the matmul peak, ours and TRL", shown, "reported", None)


# ---- a language model ----


def smollm2_bars() -> Iterator[Bar]:
    """A short PPO run with LoRA, recorded whatever it shows."""
    what, wanted = "SmolLM2-135M trains: PPO with LoRA", f"≥ {UPDATES} updates, with its curve"
    found = load("smollm2_gsm8k")
    if found is None:
        yield missing(what, wanted, "smollm2_gsm8k")
        return
    curve = found.get("curve", [])
    rewards = [row["reward"] for row in curve if row.get("reward") is not None]
    tenth = max(1, len(rewards) // 10)
    shown = f"{found['updates']} updates"
    if rewards:
        first, last = statistics.mean(rewards[:tenth]), statistics.mean(rewards[-tenth:])
        shown += f", reward {first:.3f} → {last:.3f} (first and last tenth)"
    yield Bar(what, shown, wanted, found["updates"] >= UPDATES and len(curve) >= UPDATES)


def bars(run: bool = True) -> list[Bar]:
    """All of them; tests that are bars only where they are run."""
    study = load("rl_lab") or {}
    return [
        *algorithm_bars(study),
        *budget_bars(study),
        *generalisation_bars(study),
        *mask_bars(study),
        lab_policy_bar(),
        *rollout_bars(),
        *update_bars(),
        *smollm2_bars(),
        *suite_bars(SUITES, run),
    ]


if __name__ == "__main__":
    main(__doc__, bars)
