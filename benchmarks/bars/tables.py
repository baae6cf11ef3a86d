"""The sets of bars that are data alone: figures of committed records, and tests.

A row of FIGURES: set, what, record, path or function, comparison, threshold, whether it waits for a GPU (as in `Recorded`). A row of
TESTS: set, what, test files or tests of them (`file::test`), separated by spaces.
"""
# fmt: off

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.bars import derived as d
from benchmarks.studies import records

SETS = {
    "agents": "Agents: RL in the lab, feedback modes, tools and tasks, the lab judge, and every test of the trainer's arithmetic.",
    "answerless": "Training and choosing without an answer key, and the guards against a gamed judge.",
    "engines": "Both engines agree, servers serve what a directory says, trainings through either learn alike.",
    "field": "What the field expects: failures over many runs, losses and tasks that users of other trainers know.",
    "first-hour": "The first hour: estimates and a judge from few labels, a real instruct model, one judge one score, commands that read well.",
    "gsm8k": "SmolLM2 learns GSM8K with a calculator.",
    "integrations": "Trainers, harnesses, the service, the guard, people's labels, a newcomer's path.",
    "judging": "How transcripts are judged: steps, windows, criteria, ranks, servers, resumed runs; attacks.",
    "learns": "A language model learns: by outcomes on a reading task and on GSM8K; then by the judge.",
    "multihop": "SmolLM2 learns multi-hop questions with search.",
    "reading": "Logs of agents read and written back, format by format.",
    "right": "What was silently wrong: chat judges over real HTTP, agents' logs and faults, hostile input, failing machines.",
    "speed": "Speed and memory, plans beside what was measured, and the times of the two commands.",
}
ALGORITHMS = ("ppo", "grpo", "rloo", "reinforce++")
BASE = "baselines.search.tool_call"
MODES = {"none": 10, "u": 10, "u-weak-judge": 3, "u-lambda-0.1": 3, "u-lambda-1": 3} | dict.fromkeys(
    ("c", "r", "process", "retry", "placebo", "u-no-trace", "u-no-critique", "u-no-score"), 5)
PLANNED = {"memory at the peak": ("memory.planned_gib", "memory.measured_gib"),
           **{f"seconds, {part}": (f"seconds.planned.{part}", f"seconds.measured.{part}") for part in ("rollout", "update")}}
SERVED = (*(("server_speed", "vLLM", mode) for mode in ("score", "full", "steps")), ("llama_cpp_served", "llama.cpp", "steps"))
Row = tuple[Any, ...]


def lab() -> Iterator[Row]:
    """RL in the lab: each algorithm beside naive RAG and the supervised base, also on hop counts that no task of RL has."""
    for arm in ALGORITHMS:
        at = f"arms.{arm}"
        yield f"{arm}: seeds", "rl_lab", f"{at}.seeds", "≥", 5
        yield f"{arm}: held-out success over naive RAG", "rl_lab", d.over(f"{at}.success", "baselines.search.naive_rag.success"), "≥", 2.5
        yield f"{arm}: held-out success over the supervised base", "rl_lab", f"{at}.success", "interval >", f"{BASE}.success.high"
        yield f"{arm}: 3 hops, never trained on", "rl_lab", f"{at}.success_by_hops.3", ">", f"{BASE}.success_by_hops.3"
    for arm in ("ppo-calculator", "grpo-calculator"):
        yield f"{arm}: seeds", "rl_lab", f"arms.{arm}.seeds", "≥", 3
        for path in ("success", "success_by_hops.4", "success_by_hops.5"):
            yield f"{arm}: {path} above the base's", "rl_lab", f"arms.{arm}.{path}", ">", f"baselines.calculator.tool_call.{path}"
    for arm in ("ppo-no-advantage-mask", "ppo-no-masks", "ppo-no-process", "grpo-no-masks", "grpo-no-process"):
        yield f"{arm}: seeds", "rl_lab", f"arms.{arm}.seeds", "≥", 5


def learned(of: str, record: str, arms: Mapping[str, int], gains: Sequence[str], figures: str, gain: str, gsm8k: bool) -> Iterator[Row]:
    """A language model's training by a study that is gone: the record, its trainings, gains over the warm start.

    Args:
        arms: arm → the seeds that it is wanted of. gains: those that are to gain.
        figures: their path; gain: the name of a difference to the warm start.
    """
    runs = "trainings.{}" if gsm8k else "sittings.*.trainings.{}"
    rows = [
        ("the record", "", "made", "command environment seeds"),
        ("updates of each training", f"{runs.format('*')}.*.updates", "≥", 40),
        ("the commits of each training", f"{runs.format('*')}.*", "made", "commits options"),
        ("held-out questions", f"{figures}.*.questions", "≥", 500),
        *((f"{arm}: seeds trained", d.seeds(f"{runs.format(arm)}.*"), "≥", n) for arm, n in arms.items()),
    ]
    if gsm8k:
        rows += [("the warm start, one or two operations", f"{figures}.start.success", "≥", 0.1),
                 ("questions that each answered", f"{figures}.*.questions", "=", "questions.held_out"),
                 *((f"{arm}: seeds answered", f"{figures}.{arm}.by_seed.#", "≥", n) for arm, n in arms.items())]
    for arm in gains:
        rows += [(f"{arm} less its warm start", f"{figures}.{arm}.{gain}", "interval >", 0)]
        rows += [(f"{arm}: seeds less the warm start", f"{figures}.{arm}.seeds_less_start", "≥", arms[arm])] * (not gsm8k)
    return ((f"{of}: {what}", record, *row) for what, *row in rows)


def soak(part: str, least: int) -> Iterator[Row]:
    """Mixed requests with faults to `rrm serve`: none lost, none wrong."""
    for what, path, *row in (
        ("the record", part, "made", "command versions kinds answers stops"), ("lost", f"{part}.lost", "=", 0), ("wrong", f"{part}.wrong.#", "=", 0),
        ("requests", f"{part}.requests", "≥", least), ("requests by kind", d.total(f"{part}.kinds.*"), "=", f"{part}.requests"),
        ("kinds of faults", d.faults(part), "≥", 5), ("workers killed", f"{part}.workers_killed", ">", 0), ("stops under load", f"{part}.stops.#", ">", 0),
    ):
        yield f"soak, {part} judge: {what}", "serve_speed", path, *row


def rows() -> Iterator[Row]:
    """Figures that are alike, each with its set."""
    yield from (("agents", f"lab, {what}", *row) for what, *row in lab())
    for arm, n in MODES.items():
        yield "agents", f"modes, {arm}: seeds", "feedback_modes", f"arms.{arm}.seeds", "≥", n
    for other in ("none", "r", "retry"):
        yield "agents", f"modes: u − {other}, first attempts", "feedback_modes", f"differences.u - {other}.first", "interval >", 0
    for stage in ("first", "own"):
        yield "agents", f"modes: placebo − retry, {stage} attempts", "feedback_modes", f"differences.placebo - retry.{stage}", "interval ≤", 0
    for part, said in (("fresh", "worlds never seen"), ("heldout_kinds", "faults and wordings never trained on")):
        at = f"stages.shipped.{part}.full.planted"
        yield "agents", f"lab judge names the planted step, {said}", "lab_stages", f"{at}.named_step", "≥", 0.95
        yield "agents", f"lab judge's false alarms, {said}", "lab_stages", f"{at}.false_alarms", "≤", 0.05
    for one, other, n in (("judge", "outcome", 10), ("tenth+judge", "outcome", 5), *((f"{a}-judge", f"{a}-outcome", 3) for a in ("ppo", "rloo", "reinforce++"))):
        yield "answerless", f"E1 {one} over {other}: success", "no_answer_key", f"ratios.{one} / {other}.value", "≥", 0.9
        yield "answerless", f"E1 {one} over {other}: seeds", "no_answer_key", f"ratios.{one} / {other}.seeds", "≥", n
    for other in ("nothing", "length"):
        yield "answerless", f"E1 the judge alone above {other}, intervals apart", "no_answer_key", "arms.judge.success", "interval >", f"arms.{other}.success.high"
    for arm, n in {"judge": 10, "nothing": 10, "length": 5, "gamed": 5, "honest": 5, "noisy": 10, "noisy+judge": 10}.items():
        yield "answerless", f"{arm}: seeds", "no_answer_key", f"arms.{arm}.runs.#", "≥", n
    for rival in ("majority", "longest", "shortest"):
        yield "answerless", f"E5 lab, one of 8: judge less {rival}", "no_answer_key", f"choosing.lab.by_n.8.judge_minus.{rival}", "interval >", 0
    for part in ("greedy", "trained"):
        yield "engines", f"greedy answers that differ, {part}", "engines_agree", d.greedy(part), "=", 0
        yield "engines", f"prompts, {part}", "engines_agree", f"{part}.hf.#", "≥", 10
        yield "engines", f"log-probabilities apart, nats, {part}", "engines_agree", d.greedy(part, "gap"), "≤", 1e-3
    for record, server, mode in SERVED:
        at = f"served.by_mode.{mode}"
        yield "engines", f"a judge served by {server} beside its directory, {mode}: apart", record, d.served(at, "apart"), "≤", 0.02
        yield "engines", f"a judge served by {server}, {mode}: transcripts", record, d.served(at, "rows"), "≥", 40
        yield "engines", f"a judge served by {server}, {mode}: spread of scores", record, d.served(at, "spread"), "≥", 0.1
    for path in ("full", "criteria", "rank", "calibrate"):
        yield "engines", f"over a real server, {path}: the record", "server_speed", f"paths.{path}", "made", "command model options.seed"
        yield "engines", f"over a real server, {path}: rows", "server_speed", d.total(f"paths.{path}.statuses.*"), "≥", 4
        yield "engines", f"over a real server, {path}: share that ends typed", "server_speed", d.ended(f"paths.{path}.statuses"), "=", 1
    for of, record, arms, gains in (
        ("1,000 solutions", "smollm2_gsm8k_gpu", {"grpo": 2}, ("grpo",)), ("300 solutions", "smollm2_gsm8k_few", {"grpo": 2, "filled": 2}, ("grpo", "filled")),
    ):
        yield from (("gsm8k", *row) for row in learned(of, record, arms, gains, "figures", "less_start", True))
    for arm in ("grpo", "filled"):
        yield "gsm8k", f"300 solutions, sampled: {arm} less its warm start", "smollm2_gsm8k_few", f"sampled.figures.{arm}.less_start", "interval >", 0
        yield "gsm8k", f"300 solutions, sampled: {arm}: seeds answered", "smollm2_gsm8k_few", f"sampled.figures.{arm}.by_seed.#", "≥", 2
    yield from (("multihop", *row) for row in learned("multi-hop", "smollm2_qa", {"grpo": 2, "filled": 2, "judge": 1, "ppo": 1}, ("grpo", "filled"), "figures.held_out", "f1_less_start", False))
    for way in ("inspect", "verl", "verl_reply", "verl_tokens", "serve"):
        yield "integrations", f"scores directly and through {way}: apart", "integrations", f"ways.{way}.apart", "≤", 1e-6
    for part, least in (("scripted", 100_000), ("lab", 1000)):
        yield from (("integrations", *row) for row in soak(part, least))
    for goal in ("a judged log", "a trained judge", "a trained agent"):
        yield "integrations", f"a newcomer reaches {goal}", "newcomer", f"reached.{goal}", "=", True
    for record, who in (("needle", "scripted judge"), ("needle_lab", "a judge trained for it in the lab")):
        yield "judging", f"a line that decides, {who}: found", record, "rows.*.found", "≥", 0.95
        yield "judging", f"a line that decides, {who}: alarms", record, "rows.*.alarms", "≤", 0.05
        yield "judging", f"a line that decides, {who}: tokens read a token, windows of 1,024", record, "rows.window=1024.read_per_token", "≤", 2.1
    for record, what in (("adversarial_default_steps", "60 attacks"), ("adversarial_default_steps_windows", "24 attacks, in every window")):
        yield "judging", f"{what}: the record", record, "made", "made", "command seed"
        yield "judging", f"{what}: rows", record, "report.rows.#", ">", 0
        yield "judging", f"{what}: beyond benign text", record, "mode=steps.excess", "≤", 0.05
        yield "judging", f"{what}: escapes", record, "escapes", "=", 0
        yield "judging", f"{what}: echoes", record, "echoes", "=", 0
        yield "judging", f"{what}: all of its own bars", record, "passed", "=", True
        yield "judging", f"{what}: of the judge that ships", record, records.shipped, "=", []
    for model in ("lab", "smollm2"):
        yield "speed", f"{model}: rollout over TRL, 8 turns", "rollout_speed", d.rollout(model, "rollouts", "ours_over_trl", turns=8), "≥", 2.0
        yield "speed", f"{model}: only new tokens are prefilled in a turn", "rollout_speed", d.rollout(model, "rollouts", "prefilled_only_new"), "=", True
        yield "speed", f"{model}: decoding step over plain decode, at most", "rollout_speed", d.rollout(model, "decode", "ours_over_plain"), "≤", 1.15
    for key, least in (("score_over_full", 10.0), ("full_over_plain", 1.5), ("score_over_plain", 1.5)):
        yield "speed", f"judging: {key.replace('_', ' ')}", "judge_speed", f"ratios.{key}", "≥", least
    for kind in ("fresh", "resumed", "reversed"):
        yield "speed", f"memory, {kind}: fewest rows", "scale", f"{kind}.0.rows", "≤", 10_000
        yield "speed", f"memory, {kind}: most rows", "scale", f"{kind}.2.rows", "≥", 1_000_000
        yield "speed", f"memory, {kind}: bytes a row", "scale", d.growth(kind), "≤", 150
        yield "speed", f"memory, {kind}: bytes a row at most on the way", "scale", d.growth(kind, steepest=True), "≤", 600
    for name in ("lora", "lora preloaded", "whole"):
        for what, (one, other) in PLANNED.items():
            yield "speed", f"--plan, {name}: {what}, off", "plan", d.off(f"runs.{name}.{one}", f"runs.{name}.{other}"), "within", 0.2
    for engine in ("hf", "vllm"):
        yield "speed", f"lost to slow tools, {engine}", "engines_speed", d.lost(engine, "slow"), "≤", 0.2
        yield "speed", f"lost where all wait for a turn's slowest tool, {engine} (the control)", "engines_speed", d.lost(engine, "lock-step"), ">", 0.2


FIGURES: tuple[Row, ...] = (
    ("field", "failures: quotes that stand in their step", "failures", lambda r: r["quotes"]["standing"] / r["quotes"]["quotes"], "≥", 1),
    ("field", "failures: kind as planted, questions left out", "failures", "plants.agree", "≥", 0.6),
    ("field", "failures: the same by the commonest kind", "failures", "plants.commonest", "reported"),
    ("field", "failures: kind as StepShield's labels, questions left out", "failures", "stepshield.agree", "≥", 0.6),
    ("field", "failures: the same by the commonest kind, StepShield", "failures", "stepshield.commonest", "reported"),
    ("field", "failures: first mistake of Who&When's shorter runs, default judge", "failures_who_when", "who_and_when.first_mistake.exact", "reported"),
    ("field", "failures: the same by the commonest step", "failures_who_when", "who_and_when.commonest_step.exact", "reported"),
    ("field", "failures: seconds for 10,000 runs by rules alone", "failures", "speed.seconds", "≤", 120),
    ("first-hour", "GSM8K zero-shot, defaults: questions", "zero_shot", "questions", "≥", 500),
    *(("first-hour", f"GSM8K zero-shot, {arm}: {what}", "zero_shot", f"{arm}.{path}", *wanted) for arm in ("alone", "tools") for what, path, wanted in (
        ("success less the plain prompt's", "against_plain.value", ("within", 0.05)), ("success", "success", ("interval >", 0.2)))),
    ("first-hour", "learning curve: sources where 30 labels beat TF-IDF on them", "learning_curve", "above_tfidf_at_30.#", "≥", 3),
    ("first-hour", "estimates: least coverage of 95 % intervals on sources never seen", "label_estimates", d.estimates("coverage", min), "≥", 0.93),
    ("first-hour", "estimates: width over that by labels alone, most", "label_estimates", d.estimates("width_ratio", max), "≤", 1.05),
    ("first-hour", "estimates: the same at 100 labels where AUROC ≥ 0.75, most", "label_estimates", d.estimates("width_ratio", max, auroc=0.75, labels=("100",)), "≤", 0.85),
    *(("learns", f"reading, {way}: {what}", "reading", f"gains.{way}.grpo.{path}", *wanted) for way in ("greedy", "sampled") for what, path, wanted in (
        ("gain of GRPO over the start", "less_start", ("interval >", 0)), ("its size", "less_start.value", ("≥", 0.06)),
        ("gain over the controls", "less_control", ("interval >", 0)))),
    ("learns", "reading: seeds of GRPO, held-out questions asked of each", "reading", "arms.grpo.#", "≥", 3),
    ("learns", "GSM8K, Qwen 0.5B: gain of GRPO over the start", "qwen_gsm8k_gpu", "gains.greedy.grpo.less_start.value", "≥", 0.10, True),
    ("agents", "lab, naive RAG on one-hop questions (no straw man)", "rl_lab", "baselines.search.naive_rag.success_by_hops.1", "≥", 0.9),
    ("agents", "lab, episodes of each arm", "rl_lab", "arms.*.episodes", "=", "arms.ppo.episodes"),
    ("agents", "modes: episodes of each run", "feedback_modes", "arms.*.episodes.*", "=", "arms.none.episodes.0"),
    ("agents", "modes: u reaches none's final success, share of its steps", "feedback_modes", "sooner.u.last.ratio", "≤", 0.6),
    ("agents", "modes: critiques that were searched for leaks", "feedback_modes", d.total("arms.*.judge.critiques"), "≥", 1000),
    ("agents", "lab judge in steps, first planted fault less position", "lab_steps", "arms.steps.parts.fresh.alarms.differences.position.first_error", "interval >", 0),
    ("agents", "lab judge in steps, first planted fault less rules", "lab_steps", "arms.steps.parts.fresh.alarms.differences.rules.first_error", "interval >", 0),
    ("agents", "lab judge in steps: the record", "lab_steps", "", "made", "command seed arms"),
    ("agents", "SmolLM2-135M trains, PPO with LoRA: updates", "smollm2_gsm8k", "updates", "≥", 20),
    ("agents", "SmolLM2-135M trains, PPO with LoRA: its curve", "smollm2_gsm8k", "curve.#", "≥", 20),
    ("agents", "tasks × methods: the record", "agent_table", "", "made", "command environment questions"),
    ("agents", "tasks × methods: every cell played and judged", "agent_table", "rows.*.figures.judge.status.scored", "≥", 1),
    ("agents", "tasks × methods: tasks", "agent_table", d.distinct("rows.*.task"), ">", 1),
    ("agents", "tasks × methods: methods", "agent_table", d.distinct("rows.*.label"), ">", 2),
    ("agents", "tasks × methods: kills that it went on from", "agent_table", "kills", ">", 0),
    ("answerless", "the record", "no_answer_key", "", "made", "command policy judge arms starts"),
    ("answerless", "the commits of each run", "no_answer_key", "arms.*.runs.*", "made", "commits evaluations"),
    ("answerless", "what is not the study's, or not what the raw rows say", "no_answer_key", records.no_answer_key, "=", []),
    ("answerless", "E2 of what 30 % flipped grades cost, the share that the judge regains", "no_answer_key", "regained.noisy+judge.value", "≥", 0.5),
    ("answerless", "E2 what is had back", "no_answer_key", "regained.noisy+judge.back", "interval >", 0),
    ("answerless", "E5 lab, tasks", "no_answer_key", "choosing.lab.by_n.8.questions", "=", 200),
    ("answerless", "E6 share of the runs that fell in which a guard fired in time", "no_answer_key", d.in_time, "≥", 0.8),
    ("answerless", "E6 runs that fell", "no_answer_key", d.fell, "≥", 3),
    ("answerless", "E6 honest runs in which a guard that counts fires", "no_answer_key", d.alarmed, "≤", 1),
    ("engines", "SmolLM2 on both engines: the record", "engines_agree", "", "made", "command vllm versions"),
    ("engines", "updates through vLLM", "engines_agree", "updates.#", "≥", 3),
    ("engines", "updates through vLLM: gap of each, nats", "engines_agree", "updates.*.logprob_gap", "≤", 1e-2),
    ("engines", "updates through vLLM: gradient of each", "engines_agree", "updates.*.grad_norm", ">", 0),
    ("engines", "greedy answers that they change", "engines_agree", d.moved, ">", 0),
    ("engines", "learned through either: the commits", "engines_lab", "arms.*", "made", "commits"),
    ("engines", "learned through vLLM less through hf: lower end", "engines_lab", "arms.vllm.less_hf.low", "≥", -0.1),
    ("engines", "learned through vLLM less through hf: upper end", "engines_lab", "arms.vllm.less_hf.high", "≤", 0.1),
    ("engines", "gained through vLLM", "engines_lab", d.less("arms.vllm.success", "start"), "≥", 0.1),
    ("engines", "gained through hf", "engines_lab", d.less("arms.hf.success", "start"), "≥", 0.1),
    ("engines", "seeds through vLLM", "engines_lab", "arms.vllm.by_seed.#", "≥", 3),
    ("engines", "seeds through hf", "engines_lab", "arms.hf.by_seed.#", "≥", 3),
    ("engines", "largest difference of a log-probability in these runs, nats", "engines_lab", "arms.vllm.staleness=0.0.logprob_gap", "≤", 1e-2),
    ("engines", "a judge served by vLLM: the record", "server_speed", "served", "made", "command seed judge versions"),
    ("engines", "over a real server, criteria: share that is read", "server_speed", d.ended("paths.criteria.statuses", "scored"), "≥", 0.5),
    ("gsm8k", "300 solutions, sampled: questions that each answered", "smollm2_gsm8k_few", "sampled.figures.*.questions", "=", "questions.held_out"),
    ("integrations", "equal scores: the record", "integrations", "", "made", "command versions transcripts scores"),
    ("integrations", "equal scores: through every way that was measured", "integrations", "ways.*.apart", "≤", 1e-6),
    ("integrations", "equal scores that do not follow from the scores", "integrations", records.integrations, "=", []),
    ("integrations", "rrm serve: the record", "serve_speed", "speed", "made", "command versions rounds"),
    ("integrations", "rrm serve at 64 clients over the judge in process", "serve_speed", d.kept_at_64, "≥", 0.9),
    ("integrations", "the guard beside stopping by turns and at random: the record", "guard", "", "made", "command environment cross_fitted.guard cross_fitted.turns cross_fitted.random"),
    ("integrations", "a newcomer's path: the record", "newcomer", "", "made", "command minutes"),
    ("judging", "a line that decides, scripted judge: the record", "needle", "", "made", "command seed rows"),
    ("judging", "a line that decides, scripted judge: tokens read a token, windows of 8,192", "needle", "rows.window=8192.read_per_token", "≤", 1.4),
    ("judging", "a line that decides, a judge trained for it in the lab: the record", "needle_lab", "", "made", "command seed raw"),
    ("judging", "60 attacks: transcripts", "adversarial_default_steps", "cases", "≥", 40),
    ("judging", "60 attacks: what length lifts", "adversarial_default_steps", "length_lift", "≤", 0.05),
    ("speed", "client over the server's own benchmark: the record", "server_speed", "", "made", "command seed versions model"),
    ("speed", "client over the server's own benchmark: pairs", "server_speed", "pairs.#", "≥", 5),
    ("speed", "client over the server's own benchmark: pairs are interleaved", "server_speed", d.alternate, "=", True),
    ("speed", "client over the server's own benchmark, throughput, median", "server_speed", d.server_ratio, "≥", 0.9),
    ("speed", "memory: the record", "scale", "", "made", "command"),
    ("speed", "the report: the record", "report", "", "made", "command loads"),
    ("speed", "the report: rows", "report", "rows", "≥", 10_000),
    ("speed", "the report: loads", "report", "loads.#", "≥", 3),
    ("speed", "the report: p95 of a frame, ms, in each load", "report", "loads.*.frame_p95_ms", "≤", 17),
    ("speed", "the report: frames over 34 ms, in each load", "report", "loads.*.frames_over_34ms", "=", 0),
    ("speed", "make quickstart, seconds", "timings", "quickstart_s", "≤", 360),
    ("speed", "make quickstart, of the script as it stands", "timings", d.as_it_stands, "=", True),
    ("speed", "make test, seconds", "timings", "test_s", "≤", 480),
    ("speed", "plans: the record", "plan", "", "made", "command versions"),
    ("speed", "engines: the record", "engines_speed", "", "made", "command vllm versions model"),
    ("speed", "vLLM over TRL, action tokens/s, 8 turns", "engines_speed", d.vllm_over_trl, "≥", 2.0),
    ("speed", "steps: the record", "steps_speed", "", "made", "command seed runs"),
    ("speed", "steps: seconds a thousand tokens, bfloat16, 2 threads", "steps_speed", "runs.dtype=bfloat16.threads=2.lengths.*.seconds_a_thousand", "≤", 1.0),
    ("speed", "transcripts/s, steps over score", "steps_speed", "runs.dtype=float32.beside_score.ratio", "≥", 0.8),
    *rows(),
)
TESTS = (
    ("field", "rrm failures, as a user meets it", "tests/rrm/report/test_failures_command.py"),
    ("field", "GSPO and CISPO by hand; the questions of any file", "tests/reagent/algorithms/test_losses.py tests/reagent/tasks/test_task_env.py::test_questions_of_any_file_by_its_columns"),
    ("first-hour", "one judge gives one score: Python, command line, server, guard", "tests/rrm/serve/test_one_judge.py"),
    ("first-hour", "intervals of estimates hold, and a promise of agreement", "tests/rrm/evaluation/test_share_estimate.py tests/rrm/evaluation/test_promised_agreement.py"),
    ("first-hour", "a judge of one's own from few labels, never with a worse order", "tests/rrm/train/test_own.py"),
    ("first-hour", "what commands print, default outputs, help, plain errors", "tests/rrm/cli/test_command_output.py"),
    ("first-hour", "every page's commands", "tests/test_docs.py"),
    ("learns", "rejection sampling and the reading task by hand", "tests/reagent/algorithms tests/reagent/tasks/test_multihop.py"),
    ("agents", "mask = sampled spans, tokens = the full template's turn by turn; three chat templates", "tests/reagent/rollout/test_rollout.py::test_the_mask_is_what_was_sampled_and_its_logprobs_are_a_full_forwards tests/reagent/rollout/test_rollout.py::test_each_turns_prompt_is_the_full_rendering tests/reagent/rollout/test_templates.py"),
    ("agents", "no observation token has a loss gradient", "tests/reagent/algorithms/test_losses.py::test_tokens_off_the_mask_change_nothing_and_get_exactly_no_gradient tests/reagent/algorithms/test_ppo_oracle.py::test_states_that_predict_no_action_get_exactly_zero_gradient"),
    ("agents", "ratio on the first update = 1 to 1e-5", "tests/reagent/train/test_trainer.py::test_first_update_has_ratio_one_and_engine_and_trainer_agree"),
    ("agents", "PPO's loss and gradient = an independent float64 computation", "tests/reagent/algorithms/test_ppo_oracle.py"),
    ("agents", "advantages and losses by hand; identical rows have exactly zero advantage; ratio clamped", "tests/reagent/algorithms/test_advantages.py tests/reagent/algorithms/test_advantages_properties.py tests/reagent/algorithms/test_losses.py"),
    ("agents", "two processes = one, to 1e-5: minibatches, LoRA, evaluation, resume; never the same episode", "tests/reagent/train/test_distributed.py"),
    ("agents", "ranks with few rows; times that add up", "tests/reagent/train/test_trainer.py::test_processes_deal_the_same_minibatches_and_as_many_as_each_other tests/reagent/train/test_trainer.py::test_times_add_up_where_judging_overlaps_with_playing"),
    ("agents", "SIGKILL and resume = unbroken, to the bit", "tests/reagent/train/test_trainer.py::test_a_killed_run_resumes_to_the_bit"),
    ("agents", "faults of tools, policy and environment end in typed outcomes", "tests/reagent/rollout/test_rollout_faults.py tests/reagent/env/test_tool.py tests/reagent/env/test_env.py"),
    ("agents", "Gymnasium's env_checker", "tests/reagent/env/test_env.py::test_gymnasiums_checker_passes tests/reagent/env/test_env.py::test_an_episode_as_gymnasium_plays_it"),
    ("agents", "the guide's environment works as it stands", "tests/reagent/lab/test_lab_envs.py::test_the_guides_environment_works_as_it_stands"),
    ("agents", "every mode trains from one config file by one key, with PPO and with GRPO", "tests/reagent/feedback/test_feedback.py::test_every_mode_trains_from_the_same_config_by_one_key"),
    ("agents", "U's advantages = a hand computation: 2G rows pooled (GRPO), per row and whitened over both stages (PPO)", "tests/reagent/feedback/test_feedback.py::test_u_scales_2g_rows_of_a_group_jointly_for_grpo_a_first_attempt_without_its_own_second tests/reagent/feedback/test_feedback.py::test_u_runs_gae_per_row_and_whitens_over_both_stages_for_ppo"),
    ("agents", "critique tokens carry no gradient as context", "tests/reagent/feedback/test_feedback.py::test_critique_tokens_are_context_and_carry_no_gradient"),
    ("agents", "U with everything off = none, to the last bit", "tests/reagent/feedback/test_feedback.py::test_u_with_everything_off_is_none_to_the_last_bit"),
    ("agents", "R's rewards = R_env + λ·s exactly", "tests/reagent/feedback/test_feedback.py::test_r_pays_the_environments_reward_and_lambda_times_the_score_exactly"),
    ("agents", "a failed judgement changes no other row; too many stop the training", "tests/reagent/feedback/test_feedback.py::test_a_failed_judgement_changes_no_other_row tests/reagent/feedback/test_feedback.py::test_too_many_failures_stop_training_and_say_why"),
    ("agents", "leaks are dropped and counted, hostile critiques open no turn", "tests/reagent/feedback/test_feedback.py::test_a_critique_that_names_the_answer_is_dropped_and_counted tests/reagent/feedback/test_feedback.py::test_hostile_critiques_open_no_turn_and_are_learned_disarmed"),
    ("agents", "the auxiliary loss and its gradient = a plain computation", "tests/reagent/feedback/test_feedback_judge.py"),
    ("agents", "second attempts are learned after the prompt they were sampled with", "tests/reagent/feedback/test_feedback.py::test_second_attempts_are_learned_after_the_prompt_they_were_sampled_with"),
    ("agents", "rank and criteria as rewards", "tests/reagent/feedback/test_rank_and_criteria.py"),
    ("agents", "findings are bounded an episode; failures have a floor; judge options; the lab judge refused where it cannot read", "tests/reagent/feedback/test_failures_and_bounds.py"),
    ("agents", "a whole GRPO loop from the parts makes the trainer's update", "tests/reagent/train/test_example.py"),
    ("agents", "a turn cut by the limit is never the answer", "tests/reagent/rollout/test_cut_turns.py"),
    ("agents", "one precision in rollout and training; a float32 value head", "tests/reagent/train/test_precision.py"),
    ("agents", "multiple choice is graded right", "tests/reagent/env/test_task_files.py"),
    ("agents", "the cache of a finished episode is released; template options", "tests/reagent/rollout/test_rollout.py::test_the_cache_of_a_finished_episode_is_released_at_once tests/reagent/rollout/test_rollout.py::test_template_options_reach_the_prompt"),
    ("agents", "optim is checked on resume; a checkpoint on SIGTERM and on errors", "tests/reagent/train/test_stopping.py"),
    ("agents", "sharded launches are refused; tasks from files are shuffled", "tests/reagent/train/test_trainer.py tests/reagent/env/test_task_files.py"),
    ("agents", "nothing learns silently; wrong paths end with 2, a full disk with one line", "tests/reagent/train/test_alarms.py tests/reagent/cli/test_reagent_cli.py"),
    ("agents", "numbers in configs have bounds; the core names no lab", "tests/reagent/train/test_agent_config.py tests/rrm/test_config.py"),
    ("agents", "no name of the lab is a crude word, each is one token", "tests/reagent/lab/test_lab_names.py"),
    ("agents", "a bandit's success rises under every algorithm", "tests/reagent/train/test_learning.py"),
    ("agents", "one update ahead: exact at 0, the same played by hand at 1, resumed to the bit", "tests/reagent/train/test_ahead.py"),
    ("agents", "two and four ranks: losses of one, resume, also from four on two; the judge's training in shards", "tests/reagent/train/test_sharded.py tests/rrm/train/test_sharded_sft.py"),
    ("agents", "a plan counts what is there, and refuses what training would", "tests/reagent/train/test_plan.py"),
    ("agents", "templates and parsers of the families, token by token", "tests/reagent/rollout/test_templates.py tests/reagent/env/test_parsers.py"),
    ("agents", "whether trainings differ by more than noise", "tests/reagent/report/test_differences.py"),
    ("agents", "metrics as the official scripts have them, loaders on the published formats: multi-hop questions", "tests/reagent/tasks/test_multihop.py tests/reagent/tasks/test_source_rows.py tests/reagent/tasks/test_official_values.py"),
    ("agents", "the same: GSM8K, MATH-500, AIME", "tests/reagent/tasks/test_math_tasks.py"),
    ("agents", "the same: BFCL multi-turn", "tests/reagent/tasks/test_bfcl.py"),
    ("agents", "the same: GAIA, WebWalkerQA, HLE, xbench-DeepSearch", "tests/reagent/tasks/test_judged.py"),
    ("agents", "tasks in configs and commands", "tests/reagent/tasks/test_task_env.py"),
    ("agents", "the sandbox: ordinary programs run, every attack ends typed", "tests/reagent/tools/test_sandbox.py"),
    ("agents", "browse refuses private addresses, also behind redirects and names", "tests/reagent/tools/test_browse.py"),
    ("agents", "search, read_file, MCP servers, limits", "tests/reagent/tools/test_search.py tests/reagent/tools/test_read_file.py tests/reagent/tools/test_mcp.py tests/reagent/tools/test_registry.py"),
    ("agents", "methods, and the table: killed, resumed, judged", "tests/benchmarks/agents tests/benchmarks/test_agent_table.py tests/benchmarks/test_agent_table_judges.py"),
    ("answerless", "tasks without answers: who may learn from them, and what", "tests/reagent/feedback/test_ungraded.py"),
    ("answerless", "guards: each condition by hand, and on a gamed run", "tests/reagent/train/test_guards.py tests/reagent/feedback/test_guarded_runs.py"),
    ("answerless", "labels by task, the judge recalibrated on them", "tests/reagent/feedback/test_recalibration.py"),
    ("answerless", "choosing: the exact expectation, at equal tokens", "tests/rrm/evaluation/test_choosing.py tests/reagent/train/test_evaluate.py tests/rrm/cli/test_choose_command.py tests/reagent/cli/test_reagent_cli.py"),
    ("answerless", "a round of learning from what was chosen", "tests/reagent/train/test_distil_run.py"),
    ("answerless", "differences of potentials", "tests/reagent/feedback/test_process_differences.py"),
    ("answerless", "the study: arms that pay what they say, figures by hand", "tests/benchmarks/test_no_answer_key.py tests/benchmarks/test_no_answer_key_figures.py"),
    ("answerless", "quickstart trains without one label, and ends with runs worth looking at", "tests/test_quickstart_script.py tests/rrm/scoring/test_worth_seeing.py"),
    ("engines", "the wire, adapters, several servers, what a server says of itself", "tests/rrm/engines/test_vllm.py tests/rrm/engines/test_vllm_addresses.py tests/rrm/engines/test_vllm_replies.py tests/reagent/train/test_remote_runs.py"),
    ("engines", "whole runs over servers, LoRA and whole weights", "tests/reagent/train/test_remote_runs.py tests/rrm/engines/test_vllm_whole.py"),
    ("engines", "servers that die, hang, come back with old weights, answer other ids", "tests/rrm/engines/test_vllm_troubles.py tests/rrm/engines/test_vllm_whole.py tests/rrm/engines/test_vllm_replies.py"),
    ("engines", "verdicts at many positions in one prefill", "tests/rrm/engines/test_choice_logprobs.py"),
    ("engines", "a served judge is that of its directory", "tests/rrm/judge/test_served.py tests/rrm/judge/test_serving.py tests/rrm/judge/test_served_slots.py tests/rrm/judge/test_expected_score.py"),
    ("engines", "options, headers, several addresses, thinking", "tests/rrm/engines/test_server_options.py tests/rrm/engines/test_endpoints.py tests/rrm/cli/test_server_judges.py tests/rrm/judge/test_thinking.py"),
    ("engines", "usage and money in rows and summary, a limit that stops cleanly", "tests/rrm/data/test_usage.py tests/rrm/engines/test_server_runs.py::test_rows_and_summary_say_what_was_used tests/rrm/engines/test_server_runs.py::test_a_limit_of_money_stops_cleanly_and_the_next_run_goes_on"),
    ("engines", "prompts that share a beginning are asked beside each other", "tests/rrm/engines/test_server_runs.py::test_attempts_at_one_question_are_asked_beside_each_other tests/rrm/scoring/test_score_streaming.py"),
    ("engines", "kills, 500s, 429s, slow and garbage servers at 64 in flight: nothing lost, nothing twice, money once", "tests/rrm/engines/test_server_troubles.py tests/rrm/engines/test_server_runs.py"),
    ("engines", "servers that answer what none should; that refuse a temperature or a key", "tests/rrm/engines/test_hostile_servers.py tests/rrm/engines/test_openai_refusals.py"),
    ("engines", "no float64 where a device has none; locks without fcntl", "tests/rrm/engines/test_no_float64.py tests/rrm/scoring/test_score_resume.py::test_the_lock_needs_no_fcntl"),
    ("house", "no circle of imports", "tests/test_architecture.py"),
    ("house", "what is imported is declared; judging through a server needs no torch", "tests/rrm/test_dependencies.py"),
    ("house", "the page of results is what was measured", "tests/benchmarks/test_tables.py"),
    ("integrations", "GRPO of TRL through environment_factory, paid by the judge", "tests/rrm/integrations/test_trl.py::test_grpo_trains_through_an_environment_that_is_judged tests/reagent/integrations/test_trl_environment.py"),
    ("integrations", "adapters against their frameworks (skipped where one is not installed); scores by hand", "tests/rrm/integrations tests/benchmarks/test_integrations.py"),
    ("integrations", "rrm serve: requests, limits, troubles on either side", "tests/rrm/serve"),
    ("integrations", "the guard: verdicts, kept keys and values, audit, hook", "tests/rrm/guard"),
    ("integrations", "labelling from the keyboard, 100 transcripts, nothing lost; agreement", "tests/rrm/annotate/test_labelling.py tests/rrm/annotate/test_label_files.py tests/rrm/annotate/test_label_address.py tests/rrm/annotate/test_label_refusals.py tests/rrm/annotate/test_label_tabs.py tests/rrm/annotate/test_label_browser.py"),
    ("integrations", "blind sheets and what comes back", "tests/rrm/annotate/test_compare_command.py"),
    ("integrations", "every code block of README and docs", "tests/test_docs.py"),
    ("integrations", "rrm doctor, what a base installation has", "tests/rrm/cli/test_doctor.py tests/rrm/test_wheel.py"),
    ("judging", "every judge failure path ends in its status", "tests/rrm/judge/test_failure_paths.py"),
    ("judging", "SIGKILL at random points, resumed: the same rows", "tests/rrm/scoring/test_score_resume.py"),
    ("judging", "shards put together are the whole, byte for byte", "tests/rrm/scoring/test_sharding.py"),
    ("judging", "every step is read once, a prefix as the whole run, no text opens a slot", "tests/rrm/prompt/test_windows.py"),
    ("judging", "what a judge reads can be shown", "tests/rrm/cli/test_show.py"),
    ("judging", "rows of mode steps: the loss by hand, the label alone is the verdict", "tests/rrm/train/test_step_rows.py"),
    ("judging", "judging by slots: windows, parts, prefixes, calibration", "tests/rrm/judge/test_steps_mode.py"),
    ("judging", "transcripts unlike the judge's own are marked", "tests/rrm/judge/test_domain.py"),
    ("judging", "p_good measured beside baselines, by hand", "tests/rrm/evaluation/test_step_scores.py"),
    ("judging", "criteria: an answer missing, off its scale, given twice, cut JSON: all typed", "tests/rrm/judge/test_answers.py tests/rrm/judge/test_criteria_judge.py"),
    ("judging", "criteria files: three shipped ones, a commented start, what is refused", "tests/rrm/prompt/test_criteria.py tests/rrm/cli/test_criteria_command.py"),
    ("judging", "rank: ties, orders by seed, both orders, heats, every failure typed", "tests/rrm/judge/test_rank.py tests/rrm/judge/test_rank_run.py tests/rrm/judge/test_comparison_batches.py"),
    ("judging", "calibrate: servers, criteria, few labels and the interval they leave", "tests/rrm/cli/test_calibrate_command.py tests/rrm/evaluation/test_calibrating.py"),
    ("judging", "one home for targets, splits, texts; outcomes not replaced, raters averaged, weights reach the loss", "tests/rrm/data/test_labels.py tests/rrm/train/test_train_data.py tests/rrm/data/test_text.py"),
    ("judging", "70 spellings of a verdict; what cannot be read is unclear, never bad", "tests/rrm/data/test_verdicts.py"),
    ("judging", "labels are joined by content; ambiguity is an error that names both", "tests/rrm/data/test_labels.py"),
    ("judging", "annotate resumes by digest and settings, under a lock", "tests/rrm/cli/test_annotate_command.py::test_transcripts_are_resumed_by_content_not_by_name_or_order tests/rrm/cli/test_annotate_command.py::test_lines_of_another_making_are_not_mixed_in_and_a_running_one_is_left_alone"),
    ("judging", "a mode's share of the gradient, whatever accumulates beside it", "tests/rrm/train/test_weighting.py"),
    ("judging", "two processes train what one does; data to judge directory, never half built; bfloat16 learns in small steps", "tests/rrm/train/test_run.py"),
    ("judging", "any base's own end of turn and template; no special token comes out of data", "tests/rrm/prompt/test_template.py"),
    ("judging", "a judge survives its journey: saved, on the hub, behind a server", "tests/rrm/judge/test_journey.py tests/rrm/judge/test_served.py"),
    ("judging", "cards say licence, base, what was calibrated, whole questions; one set of judge options", "tests/rrm/judge/test_card.py tests/rrm/cli/test_judge_options.py"),
    ("judging", "rows are written as they end; progress off a terminal; Ctrl-C", "tests/rrm/scoring/test_score_streaming.py"),
    ("judging", "the report: what is in it, two judges, pictures, times", "tests/rrm/report/test_report.py tests/rrm/report/test_comparison.py tests/rrm/report/test_images.py tests/rrm/report/test_timeline.py"),
    ("judging", "the report in a browser: outcomes, address, export, keyboard alone, nothing cut off at 1400 and 390 px", "tests/rrm/report/test_report_browser.py"),
    ("reading", "garbage made by hypothesis: no crash, every line accounted for; archives and bombs", "tests/rrm/readers/test_readers_garbage.py tests/rrm/readers/test_archive.py"),
    ("reading", "outcomes are read from fields that say so, or one that is named; verdicts in the text are counted and cut", "tests/rrm/readers/test_outcomes.py"),
    ("reading", "OpenAI Responses", "tests/rrm/readers/test_responses.py"),
    ("reading", "request and response logs", "tests/rrm/readers/test_calls.py"),
    ("reading", "LangChain", "tests/rrm/readers/test_langchain.py"),
    ("reading", "LangSmith", "tests/rrm/readers/test_traces.py"),
    ("reading", "OpenTelemetry's GenAI spans", "tests/rrm/readers/test_traces.py"),
    ("reading", "Inspect: all samples and tool names, attachments", "tests/rrm/readers/test_inspect.py"),
    ("reading", "ATIF, read and written back field by field", "tests/rrm/readers/test_atif.py"),
    ("reading", "SWE-agent and mini-swe-agent", "tests/rrm/readers/test_swe_agents.py"),
    ("reading", "OpenHands' events", "tests/rrm/readers/test_swe_agents.py"),
    ("reading", "verl's and Agent-R1's dumps", "tests/rrm/readers/test_verl.py"),
    ("reading", "what a file holds decides; an unknown format names the nearest", "tests/rrm/readers/test_formats.py"),
    ("reading", "scores back into the tools", "tests/rrm/readers/test_scores_back.py tests/rrm/readers/test_atif.py"),
    ("reading", "data sets of the hub", "tests/rrm/readers/test_readers_files.py"),
    ("reading", "published data of reasoning reward models as annotations", "tests/rrm/readers/test_labelled_sets.py"),
    ("right", "chat judges: replies read or typed, those of ../shared/cases too", "tests/rrm/judge/test_score_text.py::test_replies_are_read_or_typed"),
    ("right", "chat judges: scores of replies, repair", "tests/rrm/judge/test_score_text.py"),
    ("right", "chat judges: log-probabilities, refused parameters", "tests/rrm/engines/test_openai_refusals.py"),
    ("right", "chat judges: contexts, cut prompts", "tests/rrm/engines/test_contexts.py"),
    ("right", "chat judges: kinds of scores", "tests/rrm/judge/test_score_sources.py"),
    ("right", "chat judges: truncated runs, retries", "tests/rrm/readers/test_truncated_runs.py"),
    ("right", "chat judges: guard of unfinished runs", "tests/rrm/guard/test_chat_guard.py"),
    ("right", "chat judges: annotators", "tests/rrm/annotate/test_ranked_agreement.py"),
    ("right", "logs come back whole: Codex CLI, stored and printed", "tests/rrm/readers/test_cli_logs.py::test_codexs_sessions_and_what_it_prints"),
    ("right", "logs come back whole: Claude Code's stream-json", "tests/rrm/readers/test_cli_logs.py::test_what_claude_code_prints"),
    ("right", "logs come back whole: Gemini CLI's sessions", "tests/rrm/readers/test_cli_logs.py::test_geminis_sessions_in_both_forms_and_its_api"),
    ("right", "logs come back whole: Vercel's UI messages", "tests/rrm/readers/test_logs.py::test_vercels_chats"),
    ("right", "logs come back whole: Langfuse's traces", "tests/rrm/readers/test_logs.py::test_a_langfuse_trace_whose_agent_shortens_its_history tests/rrm/readers/test_logs.py::test_langfuses_observations_a_line_each_with_an_agent_below"),
    ("right", "logs come back whole: smolagents' memory", "tests/rrm/readers/test_logs.py::test_smolagents_failed_call_stands_in_the_models_message_alone"),
    ("right", "logs come back whole: Google ADK's sessions", "tests/rrm/readers/test_logs.py::test_adks_sessions"),
    ("right", "logs come back whole: AutoGen's messages", "tests/rrm/readers/test_logs.py::test_autogens_messages"),
    ("right", "logs come back whole: Pydantic AI's messages", "tests/rrm/readers/test_logs.py::test_pydantic_ais_messages"),
    ("right", "logs come back whole: CrewAI's outputs", "tests/rrm/readers/test_logs.py::test_crews"),
    ("right", "logs come back whole: LlamaIndex's messages and events", "tests/rrm/readers/test_logs.py::test_llama_indexs_messages_and_events"),
    ("right", "logs come back whole: LangGraph's streams", "tests/rrm/readers/test_logs.py::test_langgraphs_streams"),
    ("right", "logs come back whole: Bedrock's Converse", "tests/rrm/readers/test_logs.py::test_bedrocks_converse"),
    ("right", "logs: one reply of Claude Code is one message id", "tests/rrm/readers/test_cli_logs.py::test_a_reply_of_claude_code_is_one_message_id_wherever_its_blocks_stand"),
    ("right", "logs: the run is the root agent's", "tests/rrm/readers/test_logs.py::test_the_run_is_the_root_agents_and_the_reading_says_how_many_are_below"),
    ("right", "logs: an infrastructure error is no outcome", "tests/rrm/readers/test_logs.py::test_a_reward_counts_unless_its_grader_or_the_surroundings_broke"),
    ("right", "logs: a sample and its retry are one attempt", "tests/rrm/readers/test_logs.py::test_a_sample_and_its_retry_are_one_attempt_the_last"),
    ("right", "logs: what stays behind is counted, and nothing read is an error", "tests/rrm/readers/test_logs.py::test_what_stays_behind_is_counted_and_messages_that_come_out_empty_are_an_error"),
    ("right", "agents: rewards belong to the run; no pay for calls", "tests/reagent/env/test_env.py::test_calls_earn_nothing_by_default_and_no_answer_costs tests/reagent/env/test_env.py::test_rewards_survive_the_naming_of_another_environment"),
    ("right", "agents: exports in float32, compared", "tests/reagent/train/test_precision.py"),
    ("right", "agents: malformed calls once a turn, with a floor", "tests/reagent/env/test_env.py::test_malformed_calls_cost_once_a_turn_and_have_a_floor"),
    ("right", "agents: an answer that breaks its grader", "tests/reagent/env/test_env.py::test_an_answer_that_breaks_its_grader_earns_the_failure_reward tests/reagent/env/test_env.py::test_a_rising_share_of_unknown_rewards_is_an_alarm"),
    ("right", "agents: the paper's text and its code, a config each", "tests/reagent/train/test_agent_config.py::test_the_papers_text_and_its_code_are_a_config_each"),
    ("right", "agents: schedules keep their horizon", "tests/reagent/train/test_trainer.py::test_a_larger_max_updates_on_resume_moves_no_schedule"),
    ("right", "agents: bootstrap from a state that is trained", "tests/reagent/train/test_trainer.py::test_bootstrap_puts_the_last_states_value_behind_cut_off_episodes"),
    ("right", "agents: a first attempt's baseline without its own second one", "tests/reagent/algorithms/test_advantages.py::test_under_grpo_too_a_first_attempts_baseline_is_without_its_own_second_one_by_hand"),
    ("right", "agents: lessons are defaults", "tests/reagent/train/test_agent_config.py::test_what_was_learned_is_the_default"),
    ("right", "agents: 16 bits, equal rewards, bounds", "tests/reagent/train/test_agent_config.py::test_16_bits_are_weighed_by_default tests/reagent/algorithms/test_advantages.py::test_rewards_that_differ_by_a_millionth_are_equal_everywhere tests/reagent/train/test_agent_config.py::test_numbers_outside_their_bounds_are_errors_that_name_the_key"),
    ("right", "agents: made-up results", "tests/reagent/rollout/test_cut_turns.py"),
    ("right", "agents: a judge's malformed replies in a group", "tests/reagent/feedback/test_failures_and_bounds.py"),
    ("right", "agents: repeats, loops, supported answers, failed judgements told", "tests/rrm/annotate/test_rules_again.py tests/reagent/train/test_trainer.py::test_the_summary_says_how_many_judgements_failed_and_of_what"),
    ("right", "hostile: every compiled pattern of both packages: 100 kB within a second", "tests/test_patterns.py"),
    ("right", "hostile: no redirect is followed; neither key nor prompt goes elsewhere", "tests/rrm/engines/test_elsewhere_and_bombs.py tests/rrm/serve/test_client_troubles.py"),
    ("right", "hostile: one limit of bytes for a line, a document, a batch, an unpacked file, a reply", "tests/rrm/data/test_sizes.py"),
    ("right", "hostile: rrm serve: silent connections, foreign names and pages, bodies of many values", "tests/rrm/serve/test_who_may_ask.py tests/rrm/serve/test_large_bodies.py"),
    ("right", "hostile: damaged weights are named", "tests/rrm/engines/test_damaged_weights.py"),
    ("right", "hostile: a secret of an address or token may be a variable", "tests/rrm/engines/test_elsewhere_and_bombs.py::test_a_secret_of_an_address_may_be_a_variable"),
    ("right", "hostile: a sandboxed program imports no grader", "tests/reagent/tools/test_sandbox.py"),
    ("right", "hostile: no cell of an exported table is a formula", "tests/rrm/report/test_report_browser.py"),
    ("right", "machines: one writer a file or folder, by any of its names", "tests/rrm/scoring/test_sole_writers.py"),
    ("right", "machines: damaged checkpoints and stages of rrm train", "tests/rrm/train/test_damaged_runs.py"),
    ("right", "machines: damaged checkpoints and cut logs of reagent train and distil", "tests/reagent/train/test_damaged_checkpoints.py"),
    ("right", "machines: kills of a scoring run lose and double nothing", "tests/rrm/scoring/test_score_resume.py::test_a_run_killed_at_random_points_ends_like_an_unbroken_one tests/rrm/scoring/test_score_resume.py::test_a_local_judge_goes_on_with_the_same_rows"),
    ("right", "machines: damages of a checkpoint are told from a whole one", "tests/rrm/train/test_checkpoints.py"),
    ("right", "machines: folders, ids and outcomes that were lost without a word", "tests/rrm/readers/test_readers_files.py"),
    ("right", "machines: damaged output rows are refused, rows of no input named", "tests/rrm/scoring/test_damaged_output.py"),
    ("right", "machines: Ctrl-C and SIGTERM from the first line on", "tests/rrm/cli/test_stops.py"),
    ("right", "machines: a server that only says 429 ends the run", "tests/rrm/engines/test_hostile_servers.py::test_a_server_that_only_says_that_it_is_too_much_ends_the_run"),
    ("right", "machines: requests under way at a stop are counted", "tests/rrm/engines/test_server_runs.py::test_what_was_under_way_at_a_stop_is_counted"),
    ("right", "machines: full disks are named by their files", "tests/rrm/train/test_checkpoints.py::test_a_full_disk_is_said_with_the_files_name"),
    ("right", "machines: long transcripts in time of their length", "tests/rrm/judge/test_long_transcripts.py"),
)
