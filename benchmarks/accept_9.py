"""Every bar of the papers' tasks, their tools, methods, and a real language model: what, measured, wanted, pass or fail.

    python -m benchmarks.accept_9            (exit code 1 if a bar is missed)

    smollm2_qa.json      python -m benchmarks.studies.smollm2_qa (smollm2_qa_few.json, smollm2_qa_gpu.json: the commands in its docstring)
    smollm2_gsm8k.json   python -m benchmarks.studies.smollm2_gsm8k (on a GPU: smollm2_gsm8k_gpu.json, smollm2_gsm8k_wide.json)
    agent_table.json     python -m benchmarks.studies.agent_table

Recorded results are read, and the figures of multi-hop questions made anew from their answers. Tests that are bars are run unless `--no-run` is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.accept_6 import ahead, same
from benchmarks.accept_7 import recorded
from benchmarks.acceptance import Bar, interval, load, main, missing, suite_bars
from benchmarks.gsm8k_bars import gsm8k_bars
from benchmarks.studies.smollm2_qa import (
    ARMS,
    CONTROLS,
    FEW,
    FEW_SEEDS,
    GPU_SEEDS,
    RIVAL,
    SEEDS,
    START,
    TRAINING,
    UPDATES,
    figures_of,
)
from benchmarks.studies.smollm2_qa_data import HELD_OUT
from benchmarks.studies.smollm2_qa_demos import METHODS
from benchmarks.studies.smollm2_qa_sittings import trained
from benchmarks.training_bars import Found, commits_bar, otherwise, seeds_of

TASKS, TOOLS = "tests/reagent/tasks", "tests/reagent/tools"
SUITES = {
    "1 metrics as the official scripts have them, loaders on the published formats: multi-hop questions": (
        f"{TASKS}/test_multihop.py {TASKS}/test_reading.py {TASKS}/test_official_values.py"
    ),
    "1 the same: GSM8K, MATH-500, AIME": f"{TASKS}/test_math_tasks.py",
    "1 the same: BFCL multi-turn": f"{TASKS}/test_bfcl.py",
    "1 the same: GAIA, WebWalkerQA, HLE, xbench-DeepSearch": f"{TASKS}/test_gaia.py {TASKS}/test_judged.py",
    "1 tasks in configs and commands": f"{TASKS}/test_task_env.py {TASKS}/test_tasks_command.py",
    "2 the sandbox: ordinary programs run, every attack ends typed": f"{TOOLS}/test_sandbox.py",
    "2 browse refuses private addresses, also behind redirects and names": f"{TOOLS}/test_browse.py",
    "2 search, read_file, MCP servers, limits": (
        f"{TOOLS}/test_search.py {TOOLS}/test_read_file.py {TOOLS}/test_mcp.py {TOOLS}/test_limits.py {TOOLS}/test_registry.py"
    ),
    "3 methods, and the table: killed, resumed, judged": (
        "tests/benchmarks/methods tests/benchmarks/test_agent_table.py tests/benchmarks/test_agent_table_judges.py"
    ),
    "4 the studies: splits, demonstrations, figures by hand": (
        "tests/benchmarks/test_smollm2_qa.py tests/benchmarks/test_smollm2_qa_runs.py tests/benchmarks/test_smollm2_gsm8k.py"
    ),
}
QA, QA_GPU, QA_FEW = "smollm2_qa", "smollm2_qa_gpu", "smollm2_qa_few"
TABLE = "agent_table"
AGENT_R1 = 2.9
"""Its best over naive RAG, exact match (arXiv 2511.14460)."""
SAMPLES = "8"


def qa_made(found: Found, shown: int | None = None) -> str:
    """What a record of multi-hop questions holds that is not the study; empty where it is.

    Args:
        shown: demonstrations of its warm starts; None: all.
    """
    for one in found["sittings"]:
        if one["made_with"]["overrides"] or one["made_with"].get("shown") != shown:
            return f"made with {one['made_with']['overrides']}, {one['made_with'].get('shown')} demonstrations"
        if any(card["demonstrations"] != shown for card in one["warm"].values() if shown is not None):
            return f"warm starts of other than {shown} demonstrations"
        made, answered = one["trainings"], one["rows"]["held_out"]
        arms = sorted((made.keys() | answered.keys()) - set(METHODS))
        if lost := [arm for arm in arms if seeds_of(made.get(arm, ())) != seeds_of(answered.get(arm, ()))]:
            return f"of {', '.join(lost)} other seeds answered than were trained"
    if why := otherwise(trained(found), ARMS, TRAINING):
        return why
    try:
        known = same(found["figures"], figures_of(found["sittings"]))
    except ValueError as error:  # runs of other questions
        return str(error)
    return "" if known else "other figures"


def qa_bars() -> Iterator[Bar]:
    """SmolLM2 on multi-hop questions."""
    what = "4 multi-hop QA: GRPO on outcomes less its warm start, F1"
    found = load(QA)
    if found is None:
        yield missing(what, "paired interval above 0", QA)
        return
    yield recorded("4 multi-hop QA", found, "environment", "seeds")
    yield commits_bar("4 multi-hop QA: the trainings", trained(found), SEEDS, UPDATES)
    told = found["figures"]["held_out"]
    unlike = qa_made(found)
    questions = min((one["questions"] for one in told.values()), default=0)
    yield Bar(
        "4 held-out questions, trainings as their arms say, figures from the rows", f"{questions}, {unlike or 'equal'}",
        f"≥ {HELD_OUT}, equal", not unlike and questions >= HELD_OUT,
    )  # fmt: skip
    for name in ("direct", RIVAL, START, *SEEDS):
        if (one := told.get(name)) is None:
            yield missing(f"4 multi-hop QA, {name}: F1, EM", "reported", QA)
            continue
        times = one.get("f1_over_rival", {}).get("value")
        over = f"; {times:.2f} × naive RAG" if times is not None and name not in ("direct", RIVAL) else ""
        yield Bar(
            f"4 multi-hop QA, {name}: F1, EM", f"{interval(one['f1'])}, {interval(one['em'])}{over}", "reported", None
        )
    for name, shown in (("grpo", what), ("filled", f"{what}, updates filled with groups that differ")):
        yield gain_bar(found, name, shown)
    yield from control_bars(told, SEEDS)
    over = [one["em_over_rival"]["value"] for name, one in told.items() if name in SEEDS and "em_over_rival" in one]
    shown = f"{max(o or 0.0 for o in over):.2f}" if over else "not measured"
    yield Bar("4 the best arm over naive RAG, EM", shown, f"reported; Agent-R1's best: {AGENT_R1}", None)
    for name in ("judge", "ppo"):
        if (one := told.get(name)) is not None and "f1_less_start" in one:
            yield Bar(f"4 {name} less the warm start, F1", interval(one["f1_less_start"]), "reported", None)
    yield from chosen_bars(found.get("choosing") or {})


def gain_bar(found: Found, arm: str, what: str, name: str = QA) -> Bar:
    """An arm on outcomes against its warm start.

    Args:
        name: of the record.
    """
    told = found["figures"]["held_out"].get(arm, {})
    if "f1_less_start" not in told:
        return missing(what, "paired interval above 0", name)
    gain = told["f1_less_start"]
    seeds = len({run["seed"] for run in trained(found).get(arm, ())})
    ok = (
        min(seeds, told["seeds_less_start"]) >= (SEEDS | FEW_SEEDS | GPU_SEEDS)[arm]
        and gain["low"] is not None
        and gain["low"] > 0
    )
    each = ", ".join(interval(one) for one in told["f1_less_start_by_seed"])
    return Bar(what, f"{interval(gain)} (by seed {each})", "paired interval above 0, two seeds", ok)


def control_bars(told: Found, seeds: Mapping[str, int]) -> Iterator[Bar]:
    """Each arm of a record that has a control, against it.

    Args:
        seeds: arm → the seeds that it is wanted of.
    """
    for name, control in CONTROLS.items():
        if name not in seeds:
            continue
        what = f"4 {name} less {control} (rewards dealt anew), each less its warm start, F1"
        wanted = f"interval above 0, every seed of {name} above every one of {control}"
        apart, (mine, others) = (
            told.get(name, {}).get("f1_less_control"),
            (gains_by_seed(told, a) for a in (name, control)),
        )
        if apart is None:
            yield Bar(what, "not both measured", wanted, False)
            continue
        shown = f"{interval(apart)}; seeds {_signed(mine)} and {_signed(others)}"
        enough = len(mine) >= seeds[name] and len(others) >= seeds[control]
        ok = enough and apart["low"] is not None and apart["low"] > 0 and min(mine) > max(others)
        yield Bar(what, shown, wanted, ok)


def other_bars(
    name: str, where: str, arm: str, what: str, seeds: Mapping[str, int], shown: int | None = None
) -> Iterator[Bar]:
    """The same questions, learned in another way; nothing where no arm was trained so.

    Args:
        name: of the record; where: what is said of it.
        arm: the one on outcomes; what: what is said of that.
        seeds: arm → the seeds that it is wanted of.
        shown: demonstrations of its warm starts; None: all.
    """
    found = load(name)
    if found is None or not trained(found):
        return
    told = found["figures"]["held_out"]
    yield recorded(where, found, "environment", "seeds")
    yield commits_bar(f"{where}: the trainings", trained(found), seeds, UPDATES)
    unlike = qa_made(found, shown)
    questions = min((one["questions"] for one in told.values()), default=0)
    yield Bar(
        f"{where}: held-out questions, trainings as their arms say, figures from the rows",
        f"{questions}, {unlike or 'equal'}", f"≥ {HELD_OUT}, equal", not unlike and questions >= HELD_OUT,
    )  # fmt: skip
    yield gain_bar(found, arm, f"{where}: GRPO on outcomes, {what}, less its warm start, F1", name)
    yield from control_bars(told, seeds)
    for other in (START, *seeds):
        if (one := told.get(other)) is not None:
            less = f", {interval(one['f1_less_start'])} less the warm start" if "f1_less_start" in one else ""
            yield Bar(
                f"{where}, {other}: F1, EM", f"{interval(one['f1'])}, {interval(one['em'])}{less}", "reported", None
            )


def gpu_bars() -> Iterator[Bar]:
    """On a GPU, 16 questions an update."""
    return other_bars(QA_GPU, "4 multi-hop QA on a GPU", "wide", "16 questions an update", GPU_SEEDS)


def few_bars() -> Iterator[Bar]:
    """From a warm start of few demonstrations."""
    return other_bars(QA_FEW, "4 multi-hop QA from few demonstrations", "bare", "paid for F1 alone", FEW_SEEDS, FEW)


def gains_by_seed(told: Found, name: str) -> list[float]:
    """Of each run of a policy, over the warm start of its sitting; none where it was not run."""
    return [gain["value"] for gain in told.get(name, {}).get("f1_less_start_by_seed", ())]


def _signed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:+.3f}" for value in values)


def chosen_bars(chosen: Found) -> Iterator[Bar]:
    """One of eight attempts of the warm start."""
    what = f"4 one of {SAMPLES} attempts at multi-hop questions: the judge, majority, the better of longest and shortest; oracle"
    measured = chosen.get("by_n", {}).get(SAMPLES)
    if measured is None:
        yield missing(what, "measured", QA)
        return
    shown, _ = ahead(measured)
    oracle, pairs = interval(measured["success"]["oracle"]), interval(chosen["auroc_within"])
    yield Bar(what, f"{shown}; oracle {oracle}; the better of two scored higher in {pairs} of pairs", "measured", True)


def table_bars() -> Iterator[Bar]:
    """Tasks × methods, from one command."""
    what, found = "3 tasks × methods from one command: cells played and judged", load(TABLE)
    if found is None:
        yield missing(what, "every cell", TABLE)
        return
    yield recorded("3 the table", found, "environment", "questions")
    rows = found["rows"]
    failed = [f"{row['task']} {row['label']}: {row['failure']['kind']}" for row in rows if "failure" in row]
    unjudged = [f"{row['task']} {row['label']}" for row in rows if "figures" in row and not row["figures"].get("judge")]
    shown = "; ".join([*failed, *(f"{name} without a judge" for name in unjudged)])
    tasks, methods = {row["task"] for row in rows}, {row["label"] for row in rows}
    said = f"{len(tasks)} tasks × {len(methods)} methods, {found['questions']} questions; stopped by SIGKILL {found['kills']} times"
    ok = not failed and not unjudged and len(tasks) > 1 and len(methods) > 2 and found["kills"] > 0
    yield Bar(what, f"{said}{'; ' + shown if shown else ''}", "every cell, killed and resumed", ok)


def bars(run: bool = True) -> list[Bar]:
    """All of them; tests that are bars only where they are run."""
    return [*qa_bars(), *few_bars(), *gpu_bars(), *gsm8k_bars(), *table_bars(), *suite_bars(SUITES, run)]


if __name__ == "__main__":
    main(__doc__, bars)
