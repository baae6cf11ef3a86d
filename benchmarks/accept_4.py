"""Every bar of the repairs: what, measured, wanted, pass or fail. A number is the item of the list they were taken from.

    python -m benchmarks.accept_4            (exit code 1 if a bar is missed)

    rl_lab.json      python -m benchmarks.studies.rl_lab     (old figures beside new: rl_lab_before.json)
    timings.json     python -m benchmarks.timings

Wrong results have a test each that fails on 632fec7, the last commit before they were mended; they are run here, unless
`--no-run` is given.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from benchmarks.acceptance import ROOT, Bar, interval, load, main, missing, suite_bars

RRM, AGENTS = "tests/rrm/", "tests/reagent/"
GRPO_LINES, LOOP_LINES = 60, 200
SECONDS = {"test_s": ("make test", 480), "quickstart_s": ("make quickstart", 360)}

SUITES = {
    "1 no circle of imports; rrm names no lab": (
        "tests/test_architecture.py tests/rrm/test_config.py::test_the_core_names_no_lab"
    ),
    "1 one home for targets, splits, texts, resumable rows": (
        f"{RRM}test_labels.py {RRM}train/test_train_data.py {RRM}test_text.py {RRM}test_score_resume.py"
    ),
    "2 a whole GRPO loop from the parts makes the trainer's update": f"{AGENTS}train/test_example.py",
    "3 what is imported is declared; judging through a server needs no torch": f"{RRM}test_dependencies.py",
    "3 the metric modules give the numbers of rrm eval": f"{RRM}evaluation/test_metric_modules.py",
    "4 the page of results is what was measured": "tests/benchmarks/test_tables.py",
    "5 70 spellings of a verdict; what cannot be read is unclear, never bad": f"{RRM}test_verdicts.py",
    "6 labels are joined by content; ambiguity is an error that names both": f"{RRM}test_annotation.py",
    "6 annotate resumes by digest and settings, under a lock": (
        f"{RRM}cli/test_annotate_command.py::test_transcripts_are_resumed_by_content_not_by_name_or_order "
        f"{RRM}cli/test_annotate_command.py::test_lines_of_another_making_are_not_mixed_in_and_a_running_one_is_left_alone"
    ),
    "7 true outcomes are not replaced; raters averaged; weights reach the loss": f"{RRM}test_labels.py",
    "8 outcomes are read from fields that say so, or one that is named": f"{RRM}readers/test_outcomes.py",
    "8 verdicts in the text are counted and cut": f"{RRM}readers/test_cut_verdicts.py",
    "9 a mode's share of the gradient, whatever accumulates beside it": f"{RRM}train/test_weighting.py",
    "10 two processes train what one does, one finishes; sharding is refused; data to judge directory": (
        f"{RRM}train/test_run.py"
    ),
    "11 bfloat16 whole weights learn in small steps": (
        f"{RRM}train/test_run.py::test_bfloat16_whole_weights_learn_in_small_steps"
    ),
    "11 any base's own end of turn and template; no special token comes out of data": f"{RRM}prompt/test_template.py",
    "12 a judge survives its journey: saved, on the hub, behind a server": (
        f"{RRM}judge/test_journey.py {RRM}judge/test_served.py"
    ),
    "12 cards say licence, base, what was calibrated, whole questions": (
        f"{RRM}judge/test_card.py {RRM}train/test_run.py::test_a_card_is_measured_on_whole_questions "
        f"{RRM}train/test_run.py::test_a_card_says_calibrated_only_of_what_is "
        f"{RRM}cli/test_judge_options.py::test_eval_warns_of_training_questions"
    ),
    "13 no float64 where a device has none; locks without fcntl": (
        f"{RRM}engines/test_no_float64.py {RRM}test_score_resume.py::test_the_lock_needs_no_fcntl"
    ),
    "13 servers that refuse a temperature or a key": f"{RRM}engines/test_openai_refusals.py",
    "13 one set of judge options; no usable score is no success": f"{RRM}cli/test_judge_options.py",
    "14 rows are written as they end; progress off a terminal; Ctrl-C": f"{RRM}test_score_streaming.py",
    "14 targets are unbiased; judge/ is never half built": (
        f"{RRM}train/test_train_data.py::test_targets_between_two_tenths_are_unbiased "
        f"{RRM}train/test_run.py::test_a_finish_that_is_stopped_leaves_the_judge_that_was_there "
        f"{RRM}train/test_run.py::test_a_judge_stopped_between_two_renamings_is_found_again"
    ),
    "15 a turn cut by the limit is never the answer": f"{AGENTS}rollout/test_cut_turns.py",
    "16 ungraded is not unknown; the judge alone teaches": f"{AGENTS}feedback/test_ungraded.py",
    "17 identical rows have exactly zero advantage; by hand; unbiased": (
        f"{AGENTS}algorithms/test_advantages.py {AGENTS}algorithms/test_advantages_properties.py"
    ),
    "18 one precision in rollout and training; a float32 value head": f"{AGENTS}train/test_precision.py",
    "18 multiple choice is graded right; refined_prompt is gone": (
        f"{AGENTS}env/test_graders.py "
        f"{AGENTS}feedback/test_feedback.py::test_second_attempts_are_learned_after_the_prompt_they_were_sampled_with"
    ),
    "19 the cache of a finished episode is released; template options": (
        f"{AGENTS}rollout/test_rollout.py::test_the_cache_of_a_finished_episode_is_released_at_once "
        f"{AGENTS}rollout/test_rollout.py::test_template_options_reach_the_prompt "
        f"{AGENTS}feedback/test_failures_and_bounds.py::test_judge_options_reach_the_judge"
    ),
    "19 findings are bounded an episode; failures have a floor": f"{AGENTS}feedback/test_failures_and_bounds.py",
    "19 two processes equal one: minibatches, LoRA, evaluation, resume; never the same episode": (
        f"{AGENTS}train/test_distributed.py"
    ),
    "19 ranks with few rows; times that add up; ratio clamped": (
        f"{AGENTS}train/test_trainer.py::test_processes_deal_the_same_minibatches_and_as_many_as_each_other "
        f"{AGENTS}train/test_trainer.py::test_times_add_up_where_judging_overlaps_with_playing "
        f"{AGENTS}algorithms/test_losses.py::test_a_ratio_beyond_all_numbers_stays_finite"
    ),
    "19 optim is checked on resume; a checkpoint on SIGTERM and on errors": f"{AGENTS}train/test_stopping.py",
    "19 sharded launches are refused; tasks from files are shuffled": (
        f"{AGENTS}train/test_launch.py {AGENTS}env/test_task_files.py"
    ),
    "20 nothing learns silently": f"{AGENTS}train/test_alarms.py {AGENTS}train/test_silent_runs.py",
    "20 wrong paths end with 2, a full disk with one line": f"{AGENTS}cli/test_paths_and_disks.py",
    "20 numbers in configs have bounds; a judge that cannot read is refused": (
        f"{AGENTS}train/test_agent_config.py {RRM}test_config.py "
        f"{AGENTS}feedback/test_failures_and_bounds.py::test_the_lab_judge_is_refused_where_it_cannot_read"
    ),
    "21 no name of the lab is a crude word, each is one token": f"{AGENTS}lab/test_lab_names.py",
    "tests that learn: a bandit's success rises under every algorithm": f"{AGENTS}train/test_learning.py",
}


def house_bars() -> Iterator[Bar]:
    """Items 1 and 2: what can be counted."""
    grpo = ROOT / "agents" / "reagent" / "algorithms" / "grpo.py"
    lines = len(grpo.read_text(encoding="utf-8").splitlines())
    yield Bar("2 the advantage of grpo, lines of its file", str(lines), f"≤ {GRPO_LINES}", lines <= GRPO_LINES)
    loop = ROOT / "examples" / "grpo_from_parts.py"
    lines = len(loop.read_text(encoding="utf-8").splitlines()) if loop.is_file() else 0
    yield Bar("2 a whole multi-turn GRPO loop, lines", str(lines), f"≤ {LOOP_LINES}", 0 < lines <= LOOP_LINES)
    arguments = _arguments(ROOT / "agents" / "reagent" / "train" / "learner.py", "step")
    yield Bar("1 arguments of Learner.step", ", ".join(arguments), "one prepared object", "prepared" in arguments)
    taken = _arguments(ROOT / "agents" / "reagent" / "train" / "trainer.py", "__init__")
    ok = {"engine", "judge", "accelerator"} <= set(taken)
    yield Bar("1 AgentTrainer takes", ", ".join(taken), "engine, judge, accelerator", ok)
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    tables = sum(line.startswith("|---") for line in page.splitlines())
    yield Bar(
        "4 README: lines, tables", f"{len(page.splitlines())}, {tables}", "three minutes; tables elsewhere", tables <= 1
    )


def _arguments(path: Path, function: str) -> list[str]:
    """The names a method of a file's class takes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return [a.arg for a in (*node.args.args, *node.args.kwonlyargs) if a.arg != "self"]
    return []


def study_bars() -> Iterator[Bar]:
    """Item 17: the study of algorithms before and after credit turn by turn was mended."""
    now, before = load("rl_lab"), load("rl_lab_before")
    if now is None or before is None:
        yield missing("17 rl_lab, old beside new", "every arm that credits turns, five seeds", "rl_lab_before")
        return
    for arm, row in now["arms"].items():
        old = before["arms"][arm]
        same = row == old
        shown = f"{interval(old['success'])} → {interval(row['success'])}, {row['seeds']} seeds"
        if same:
            yield Bar(f"17 {arm}: not run again", interval(row["success"]), f"of {row.get('commit', '9fb068e')}", None)
        else:
            whole = row["seeds"] >= old["seeds"]
            yield Bar(f"17 {arm}: held-out success, before → now", shown, f"run again, {old['seeds']} seeds", whole)


def timing_bars() -> Iterator[Bar]:
    """How long the two commands take."""
    found = load("timings") or {}
    for key, (what, most) in SECONDS.items():
        if key not in found:
            yield missing(f"{what}, without installation", f"≤ {most} s", "timings")
        else:
            yield Bar(
                f"{what}, without installation, two cores", f"{found[key]:.0f} s", f"≤ {most} s", found[key] <= most
            )


def bars(run: bool = True) -> list[Bar]:
    """All of them; tests that are bars only where they are run."""
    return [*house_bars(), *study_bars(), *timing_bars(), *suite_bars(SUITES, run)]


if __name__ == "__main__":
    main(__doc__, bars)
