"""What was silently wrong, section by section: chat judges over real HTTP, logs, agents' faults, hostile input, failing machines."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.acceptance import Bar, suite_bars

ROOT = Path(__file__).resolve().parents[2]
MORE = ROOT / "tests" / "rrm" / "judge" / "judge_replies_more.json"
CASES = ROOT.parent / "shared" / "cases" / "judge_replies.json"
CHAT_TESTS = {
    "scores of replies, repair": "rrm/judge/test_said_score.py",
    "log-probabilities, refused parameters": "rrm/engines/test_openai_refusals.py",
    "contexts, cut prompts": "rrm/engines/test_contexts.py",
    "kinds of scores": "rrm/judge/test_score_sources.py",
    "truncated runs, retries": "rrm/test_truncated_runs.py",
    "guard of unfinished runs": "rrm/guard/test_chat_guard.py",
    "annotators": "rrm/annotators/test_ranked_agreement.py",
}
"""Of the section on chat judges: what a file of tests is about."""


LOGS = "tests/rrm/readers/test_logs.py"
CLIS = "tests/rrm/readers/test_cli_logs.py"
FORMATS = {
    "Codex CLI, stored and printed": f"{CLIS}::test_codexs_sessions_and_what_it_prints",
    "Claude Code's stream-json": f"{CLIS}::test_what_claude_code_prints",
    "Gemini CLI's sessions": f"{CLIS}::test_geminis_sessions_in_both_forms_and_its_api",
    "Vercel's UI messages": f"{LOGS}::test_vercels_chats",
    "Langfuse's traces": f"{LOGS}::test_a_langfuse_trace_whose_agent_shortens_its_history "
    f"{LOGS}::test_langfuses_observations_a_line_each_with_an_agent_below",
    "smolagents' memory": f"{LOGS}::test_smolagents_failed_call_stands_in_the_models_message_alone",
    "Google ADK's sessions": f"{LOGS}::test_adks_sessions",
    "AutoGen's messages": f"{LOGS}::test_autogens_messages",
    "Pydantic AI's messages": f"{LOGS}::test_pydantic_ais_messages",
    "CrewAI's outputs": f"{LOGS}::test_crews",
    "LlamaIndex's messages and events": f"{LOGS}::test_llama_indexs_messages_and_events",
    "LangGraph's streams": f"{LOGS}::test_langgraphs_streams",
    "Bedrock's Converse": f"{LOGS}::test_bedrocks_converse",
}
"""Of agents' logs → the tests that show that it comes back whole."""
SILENT = {
    "logs: one reply of Claude Code is one message id": f"{CLIS}::test_a_reply_of_claude_code_is_one_message_id_wherever_its_blocks_stand",
    "logs: the run is the root agent's": f"{LOGS}::test_the_run_is_the_root_agents_and_the_reading_says_how_many_are_below",
    "logs: an infrastructure error is no outcome": f"{LOGS}::test_an_error_beside_a_reward_of_zero_is_no_outcome",
    "logs: a sample and its retry are one attempt": f"{LOGS}::test_a_sample_and_its_retry_are_one_attempt_the_last",
    "logs: what stays behind is counted, and nothing read is an error": f"{LOGS}::test_what_stays_behind_is_counted_and_messages_that_come_out_empty_are_an_error",
}


def bars(run: bool = True) -> list[Bar]:
    """The bars of every section.

    Args:
        run: whether tests that are bars are run.
    """
    return [*chat_judges(run), *logs(run), *agents(run), *hostile(run), *machines(run)]


def chat_judges(run: bool = True) -> Iterator[Bar]:
    """Replies that are read or typed as they should be, of both files; and the tests of the section."""
    from rrm.engines.base import Reply
    from rrm.judge.chat import read_reply

    def right(text: str, wanted: object) -> bool:
        found = read_reply(Reply(text, "eos"))
        return (found.raw_score if found.status == "scored" else found.status) == wanted

    cases: list[tuple[str, object]] = [(text, wanted) for text, wanted in json.loads(MORE.read_text("utf-8"))]
    yield _counted("chat judges: further replies read or typed", cases, [right(*case) for case in cases])
    if CASES.is_file():
        told = json.loads(CASES.read_text("utf-8"))
        given = [(text, wanted) for text, wanted in told["readable"]] + [
            (t, "unparsable") for t in told["not_readable"]
        ]
        yield _counted("chat judges: replies of shared/cases read or typed", given, [right(*case) for case in given])
    else:
        yield Bar("chat judges: replies of shared/cases read or typed", "no ../shared/cases", "all", None)
    yield from suite_bars({f"chat judges: {what}": f"tests/{path}" for what, path in CHAT_TESTS.items()}, run)


def _counted(what: str, cases: Sequence[tuple[str, object]], right: list[bool]) -> Bar:
    wrong = [text for (text, _), ok in zip(cases, right, strict=True) if not ok]
    first = f"; the first that is not: {wrong[0][:80]!r}" if wrong else ""
    return Bar(what, f"{sum(right)} of {len(cases)}{first}", "all", not wrong)


def logs(run: bool) -> Iterator[Bar]:
    """Logs as they really are: formats that come back whole, and what was silently wrong."""
    found = list(suite_bars(FORMATS | SILENT, run))
    formats = found[: len(FORMATS)]
    whole, lost = sum(bar.ok is True for bar in formats), [bar.what for bar in formats if bar.ok is False]
    measured = f"{whole} of {len(formats)}" + (f"; not {', '.join(lost)}" if lost else "")
    wanted, ok = f"{len(formats)} of {len(formats)}", whole == len(formats)
    yield Bar(
        "logs: formats of agents' logs that come back whole",
        measured if run else formats[0].measured,
        wanted,
        ok if run else None,
    )
    yield from found[len(FORMATS) :]


RRM, AGENTS = "tests/rrm/", "tests/reagent/"

AGENT_FAULTS = {
    "rewards belong to the run; no pay for calls": f"{AGENTS}env/test_run_rewards.py::test_calls_earn_nothing_by_default_and_no_answer_costs "
    f"{AGENTS}env/test_run_rewards.py::test_rewards_survive_the_naming_of_another_environment",
    "exports in float32, compared": f"{AGENTS}train/test_policy_export.py",
    "malformed calls once a turn, with a floor": f"{AGENTS}env/test_run_rewards.py::test_malformed_calls_cost_once_a_turn_and_have_a_floor",
    "an answer that breaks its grader": f"{AGENTS}env/test_run_rewards.py::test_an_answer_that_breaks_its_grader_earns_the_failure_reward "
    f"{AGENTS}env/test_run_rewards.py::test_a_rising_share_of_unknown_rewards_is_an_alarm",
    "the paper's text and its code, a config each": f"{AGENTS}train/test_agent_config.py::test_the_papers_text_and_its_code_are_a_config_each",
    "schedules keep their horizon": f"{AGENTS}train/test_trainer.py::test_a_larger_max_updates_on_resume_moves_no_schedule",
    "bootstrap from a state that is trained": f"{AGENTS}train/test_trainer.py::test_bootstrap_puts_the_last_states_value_behind_cut_off_episodes",
    "a first attempt's baseline without its own second one": (
        f"{AGENTS}algorithms/test_advantages.py::test_under_grpo_too_a_first_attempts_baseline_is_without_its_own_second_one_by_hand"
    ),
    "lessons are defaults": f"{AGENTS}train/test_agent_config.py::test_what_was_learned_is_the_default",
    "16 bits, equal rewards, bounds": f"{AGENTS}train/test_agent_config.py::test_16_bits_are_weighed_by_default "
    f"{AGENTS}algorithms/test_advantages.py::test_rewards_that_differ_by_a_millionth_are_equal_everywhere "
    f"{AGENTS}train/test_agent_config.py::test_numbers_outside_their_bounds_are_errors_that_name_the_key",
    "made-up results": f"{AGENTS}rollout/test_made_up_results.py",
    "a judge's malformed replies in a group": f"{AGENTS}feedback/test_malformed_replies.py",
    "repeats, loops, supported answers, failed judgements told": f"{RRM}annotators/test_rules_again.py "
    f"{AGENTS}train/test_update_metrics.py::test_the_summary_says_how_many_judgements_failed_and_of_what",
}
"""Of the section on agents: a fault, by its item → the tests that hold the right value, by hand in float64 where it is a number."""


def agents(run: bool) -> Iterator[Bar]:
    """Section 3: the agents' side; how many faults of its thirteen are mended, and those that are not."""
    found = list(suite_bars(AGENT_FAULTS, run))
    right, wrong = sum(bar.ok is True for bar in found), [bar.what for bar in found if bar.ok is False]
    measured = f"{right} of {len(found)}" + (f"; not {', '.join(wrong)}" if wrong else "")
    ok = right == len(found) if run else None
    yield Bar(
        "agents: faults mended, by hand in float64",
        measured if run else found[0].measured,
        f"{len(found)} of {len(found)}",
        ok,
    )


HOSTILE = {
    "hostile: every compiled pattern of both packages: 100 kB within a second": "tests/test_patterns.py",
    "hostile: no redirect is followed; neither key nor prompt goes elsewhere": (
        f"{RRM}engines/test_elsewhere_and_bombs.py {RRM}serve/test_client_troubles.py"
    ),
    "hostile: one limit of bytes for a line, a document, a batch, an unpacked file, a reply": (
        f"{RRM}test_sizes.py {RRM}test_plain_yaml.py"
    ),
    "hostile: rrm serve: silent connections, foreign names and pages, bodies of many values": (
        f"{RRM}serve/test_who_may_ask.py {RRM}serve/test_large_bodies.py"
    ),
    "hostile: damaged weights are named": f"{RRM}models/test_damaged_weights.py",
    "hostile: a secret of an address or token may be a variable": (
        f"{RRM}engines/test_elsewhere_and_bombs.py::test_a_secret_of_an_address_may_be_a_variable"
    ),
    "hostile: a sandboxed program imports no grader": f"{AGENTS}tools/test_sandbox.py",
    "hostile: no cell of an exported table is a formula": f"{RRM}report/test_report_browser.py",
}


def hostile(run: bool) -> Iterator[Bar]:
    """Section 4: hostile input."""
    yield from suite_bars(HOSTILE, run)


MACHINES = {
    "machines: one writer a file or folder, by any of its names": f"{RRM}test_sole_writers.py",
    "machines: damaged checkpoints and stages of rrm train": f"{RRM}train/test_damaged_runs.py",
    "machines: damaged checkpoints and cut logs of reagent train and distil": f"{AGENTS}train/test_damaged_checkpoints.py",
    "machines: kills of a scoring run lose and double nothing": (
        f"{RRM}test_score_resume.py::test_a_run_killed_at_random_points_ends_like_an_unbroken_one "
        f"{RRM}test_score_resume.py::test_a_local_judge_goes_on_with_the_same_rows"
    ),
    "machines: folders, ids and outcomes that were lost without a word": f"{RRM}readers/test_unread.py",
    "machines: damaged output rows are refused, rows of no input named": f"{RRM}test_damaged_output.py",
    "machines: Ctrl-C and SIGTERM from the first line on": f"{RRM}cli/test_stops.py",
    "machines: a server that only says 429 ends the run": (
        f"{RRM}engines/test_hostile_servers.py::test_a_server_that_only_says_that_it_is_too_much_ends_the_run"
    ),
    "machines: requests under way at a stop are counted": (
        f"{RRM}test_server_runs.py::test_what_was_under_way_at_a_stop_is_counted"
    ),
    "machines: full disks are named by their files": (
        f"{RRM}test_checkpoints.py::test_a_full_disk_is_said_with_the_files_name"
    ),
    "machines: long transcripts in time of their length": f"{RRM}judge/test_long_transcripts.py",
}


def machines(run: bool) -> Iterator[Bar]:
    """Section 5: machines that fail."""
    yield _damages()
    yield from suite_bars(MACHINES, run)


def _damages() -> Bar:
    """Each file of a checkpoint damaged in each way: how often it is told from the older one, which is whole."""
    from rrm.checkpoints import damage, seal

    harms: dict[str, Callable[[Path], object]] = {
        "removed": Path.unlink,
        "emptied": lambda path: path.write_bytes(b""),
        "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
        "longer": lambda path: path.write_bytes(path.read_bytes() + b"0"),
        "a bit flipped": lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]),
    }
    names = (
        "model.safetensors",
        "optimizer.pt",
        "scheduler.pt",
        "rng_state.pth",
        "trainer_state.json",
        "manifest.json",
    )
    cases = [
        (f"{name} {how}", (name, harm))
        for name in names
        for how, harm in harms.items()
        if (name, how) != ("manifest.json", "longer")
    ]
    right = []
    for _, (name, harm) in cases:
        with tempfile.TemporaryDirectory() as place:
            older, newer = Path(place, "checkpoint-20"), Path(place, "checkpoint-40")
            for folder in (older, newer):
                folder.mkdir()
                for file in names[:-1]:
                    (folder / file).write_text(f"{folder.name} {file}")
                seal(folder)
            harm(newer / name)
            right.append(damage(newer) is not None and damage(older) is None)
    return _counted("machines: damages of a checkpoint that are told from a whole one", cases, right)
