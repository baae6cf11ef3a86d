"""Right on real servers, real logs, hostile text and failing machines: what was silently wrong, one function a section."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.acceptance import Bar, suite_bars

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


def bars(run: bool) -> list[Bar]:
    """The bars of every section.

    Args:
        run: whether tests that are bars are run.
    """
    return [*logs(run)]


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
