"""Every bar of criteria, servers, formats, the report and a million transcripts: what, measured, wanted, pass or fail.

    python -m benchmarks.accept_7            (exit code 1 if a bar is missed)

    server_speed.json  python -m benchmarks.speed.server speed, then served, then paths
    scale.json         python -m benchmarks.scale
    report.json        python -m benchmarks.speed.report -o benchmarks/results/report.json
    timings.json       python -m benchmarks.timings quickstart

Recorded results are read; nothing is judged here. Every figure is made anew from its raw rows, and a record whose figures are not
those that follow is refused, as one without command, commit or seed. Tests that are bars are run unless `--no-run` is given: a bar
whose tests were all skipped is missed, as one of something that was not measured.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.acceptance import ROOT, Bar, load, main, missing, suite_bars, unmade
from benchmarks.scale import KINDS, bytes_a_row
from benchmarks.timings import script_hash

READERS = "tests/rrm/readers"
SUITES = {
    "1 criteria: an answer missing, off its scale, given twice, cut JSON: all typed": (
        "tests/rrm/judge/test_answers.py tests/rrm/judge/test_criteria_judge.py"
    ),
    "1 criteria files: three shipped ones, a commented start, what is refused": (
        "tests/rrm/prompt/test_criteria.py tests/rrm/cli/test_criteria_command.py"
    ),
    "2 rank: ties, orders by seed, both orders, heats, every failure typed": (
        "tests/rrm/judge/test_rank.py tests/rrm/judge/test_rank_run.py tests/rrm/judge/test_heats.py"
    ),
    "2 rank and criteria as rewards": "tests/reagent/feedback/test_rank_and_criteria.py",
    "3 calibrate: servers, criteria, few labels and the interval they leave": (
        "tests/rrm/cli/test_calibrate_command.py tests/rrm/evaluation/test_calibrating.py"
    ),
    "3 a served judge is that of its directory": (
        "tests/rrm/judge/test_served.py tests/rrm/judge/test_serving.py tests/rrm/judge/test_served_slots.py tests/rrm/judge/test_expected.py"
    ),
    "4 options, headers, several addresses, thinking": (
        "tests/rrm/engines/test_server_options.py tests/rrm/engines/test_endpoints.py tests/rrm/cli/test_server_judges.py tests/rrm/judge/test_thinking.py"
    ),
    "4 usage and money in rows and summary, a limit that stops cleanly": (
        "tests/rrm/test_usage.py tests/rrm/test_server_runs.py::test_rows_and_summary_say_what_was_used"
        " tests/rrm/test_server_runs.py::test_a_limit_of_money_stops_cleanly_and_the_next_run_goes_on"
    ),
    "4 prompts that share a beginning are asked beside each other": (
        "tests/rrm/test_server_runs.py::test_attempts_at_one_question_are_asked_beside_each_other tests/rrm/test_score_streaming.py"
    ),
    "4 kills, 500s, 429s, slow and garbage servers at 64 in flight: nothing lost, nothing twice, money once": (
        "tests/rrm/test_server_troubles.py tests/rrm/test_server_runs.py"
    ),
    "4 servers that answer what none should": "tests/rrm/engines/test_hostile_servers.py",
    "5 OpenAI Responses": f"{READERS}/test_responses.py",
    "5 request and response logs": f"{READERS}/test_calls.py",
    "5 LangChain": f"{READERS}/test_langchain.py",
    "5 LangSmith": f"{READERS}/test_langsmith.py",
    "5 OpenTelemetry's GenAI spans": f"{READERS}/test_otel.py",
    "5 Inspect: all samples and tool names, attachments": f"{READERS}/test_inspect.py",
    "5 Inspect with two samples keeps both and all tool names": (
        f"{READERS}/test_inspect.py::test_every_sample_of_every_epoch_with_its_tools"
    ),
    "5 ATIF, read and written back field by field": f"{READERS}/test_atif.py tests/rrm/writers/test_to_atif.py",
    "5 SWE-agent and mini-swe-agent": f"{READERS}/test_swe_agents.py",
    "5 OpenHands' events": f"{READERS}/test_openhands.py",
    "5 verl's and Agent-R1's dumps": f"{READERS}/test_verl.py",
    "5 what a file holds decides; an unknown format names the nearest": f"{READERS}/test_formats.py",
    "5 archives, garbage and bombs": f"{READERS}/test_archive.py {READERS}/test_readers_garbage.py",
    "5 scores back into the tools": "tests/rrm/writers",
    "5 labelled sets pushed with a card": "tests/rrm/publishing",
    "5 data sets of the hub": f"{READERS}/test_hub.py",
    "5 published data of reasoning reward models as annotations": f"{READERS}/test_labelled_sets.py",
    "6 the report: what is in it, two judges, pictures, times": (
        "tests/rrm/report/test_report.py tests/rrm/report/test_comparison.py tests/rrm/report/test_images.py tests/rrm/report/test_timeline.py"
    ),
    "6 the report in a browser: outcomes, address, export, attempts side by side": "tests/rrm/report/test_report_browser.py",
    "6 at 1400 and 390 px keyboard alone reaches everything, and nothing is cut off": (
        "tests/rrm/report/test_report_browser.py::test_tab_reaches_everything_and_shows_where_it_is"
        " tests/rrm/report/test_report_browser.py::test_an_address_opens_a_transcript_and_a_phone_shows_one_screen"
    ),
    "6 whether trainings differ by more than noise": "tests/reagent/report/test_differences.py",
    "7 shards put together are the whole, byte for byte": "tests/rrm/test_sharding.py",
    "7 killed at any point and continued": "tests/rrm/test_score_resume.py",
    "8 good and bad runs of a trained agent, outcomes beside": "tests/rrm/test_worth_seeing.py",
}
BYTES, FEW, MANY = 150, 10_000, 1_000_000
SLACK = 4
"""On the way the line may be left by a buffer: of 10⁵ rows by no more than so many times what the rows may add."""
RATIO, PAIRS = 0.9, 5
APART, TRANSCRIPTS = 0.02, 40
MODES = ("score", "full", "steps")
SPREAD = 0.1
"""Between the scores of a judge that says anything: equal constants agree with each other."""
LEAST = 4
"""Rows of each path."""
PATHS = ("full", "criteria", "rank", "calibrate")
TYPED = frozenset({"scored", "unparsable", "truncated", "too_long"})
"""How a row may end where the server answers; `judge_error` is none of them."""
READ = ("criteria",)
"""Answers that the server holds to a schema: they can be read, however small the model."""
FRAME_MS, JUMP_MS, REPORT_ROWS, LOADS = 17, 34, 10_000, 3
"""Sixty frames a second draw every 16.7 ms; two of them missed are seen as a jump."""
SECONDS = 360
Found = Mapping[str, Any]


def recorded(what: str, found: Found, *keys: str) -> Bar:
    """Whether a record says what made it: command, a commit without changes, and `keys`."""
    wrong = [f"no {key}" for key in ("command", *keys) if found.get(key) in (None, "", [], {})]
    wrong += [why] if (why := unmade(found.get("commit"))) else []
    return Bar(f"{what}: the record", "; ".join(wrong) or str(found["command"]), "says what made it", not wrong)


def scale_bars() -> Iterator[Bar]:
    """Memory from 10⁴ to 10⁶ rows: what a row adds to the peak."""
    found, wanted = load("scale"), f"≤ {BYTES} bytes a row from 10⁴ to 10⁶"
    if found is None:
        yield missing("7 memory of a million transcripts", wanted, "scale")
        return
    yield recorded("7 memory", found, *KINDS)
    for kind in KINDS:
        what, runs = f"7 memory, {kind}", found.get(kind) or []
        if not runs or runs[0]["rows"] > FEW or runs[-1]["rows"] < MANY:
            rows = f"{runs[0]['rows']:,} to {runs[-1]['rows']:,}" if runs else "no"
            yield Bar(what, f"{rows} rows were measured", wanted, False)
            continue
        grown = bytes_a_row(runs)
        first = runs[0]
        most = max((run["peak_mib"] - first["peak_mib"]) * 2**20 / (run["rows"] - first["rows"]) for run in runs[1:])
        peaks = ", ".join(f"{run['peak_mib']} MiB at {run['rows']:,}" for run in runs)
        known = found["bytes_a_row"].get(kind) == grown
        shown = f"{grown} ({peaks})" if known else "not what the raw rows say"
        yield Bar(what, shown, wanted, known and grown <= BYTES and most <= SLACK * BYTES)


def server_bars() -> Iterator[Bar]:
    """All that was measured of a real server, each part with what made it."""
    found = load("server_speed") or {}
    yield from speed_bars(found)
    yield from served_bars(found.get("served") or {})
    yield from path_bars(found.get("paths") or {})


def speed_bars(found: Found) -> Iterator[Bar]:
    """Our client beside the server's own benchmark, in interleaved pairs."""
    what, wanted = "4 throughput over the server's own benchmark, median", f"≥ {RATIO}, {PAIRS} interleaved pairs"
    if not (pairs := found.get("pairs")):
        yield missing(what, wanted, "server_speed")
        return
    yield recorded("4 throughput", found, "seed", "versions", "model")
    turns = [pair["first"] for pair in pairs]
    if len(pairs) < PAIRS or any(one == other for one, other in pairwise(turns)):
        yield Bar(what, f"{len(pairs)} pairs, first {', '.join(turns)}", wanted, False)
        return
    ratios = [pair["rrm"] / pair["server"] for pair in pairs]
    ratio = statistics.median(ratios)
    known = math.isclose(found.get("ratio") or math.nan, ratio, abs_tol=1e-3)
    shown = f"{ratio:.3f} of {', '.join(f'{r:.3f}' for r in ratios)}" if known else "not what the raw rows say"
    yield Bar(what, shown, wanted, known and ratio >= RATIO)


def served_bars(found: Found) -> Iterator[Bar]:
    """A trained judge behind a real server beside its directory, score by score."""
    what, wanted = "3 a served judge beside its directory", f"within {APART} on ≥ {TRANSCRIPTS} transcripts"
    if not (modes := found.get("by_mode")):
        yield missing(what, wanted, "server_speed")
        return
    yield recorded("3 a served judge", found, "seed", "judge", "versions")
    for mode in MODES:
        if (of := modes.get(mode)) is None:
            yield missing(f"{what}, mode {mode}", wanted, "server_speed")
        else:
            yield apart_bar(f"{what}, mode {mode}", wanted, of["local"], of["served"])


def path_bars(found: Found) -> Iterator[Bar]:
    """How the rows of every command over a real server ended."""
    for path in PATHS:
        what = f"1–3 over a real server: {path}"
        wanted = f"≥ {LEAST} rows, each ends typed" + (", half of them are read" if path in READ else "")
        if (run := found.get(path)) is None:
            yield missing(what, wanted, "server_speed")
            continue
        yield recorded(what, {**run.get("options", {}), **run}, "seed", "model")
        statuses = run.get("statuses") or {}
        shown = ", ".join(f"{n} {status}" for status, n in statuses.items()) or "no row"
        rows, read = sum(statuses.values()), statuses.get("scored", 0)
        ok = rows >= LEAST and statuses.keys() <= TYPED and (path not in READ or read >= rows / 2)
        yield Bar(what, shown, wanted, ok)


def apart_bar(what: str, wanted: str, local: Sequence[float | None], served: Sequence[float | None]) -> Bar:
    """How far two lists of scores of the same rows lie apart; a row without a score in one of them is one that is not there."""
    pairs = [(a, b) for a, b in zip(local, served, strict=False) if a is not None and b is not None]
    if len(local) != len(served) or len(pairs) != sum(a is not None for a in local):
        return Bar(what, f"{len(pairs)} of {len(local)} rows have both scores", wanted, False)
    apart = max((abs(a - b) for a, b in pairs), default=math.nan)
    spread = max((a for a, _ in pairs), default=0.0) - min((a for a, _ in pairs), default=0.0)
    shown = f"{apart:.4f} apart at most, {len(pairs)} transcripts" + (
        "" if spread >= SPREAD else f", all within {spread:.2f}"
    )
    return Bar(what, shown, wanted, len(pairs) >= TRANSCRIPTS and apart <= APART and spread >= SPREAD)


def report_bars() -> Iterator[Bar]:
    """A page of ten thousand transcripts in a browser."""
    found, wanted = (
        load("report"),
        f"p95 ≤ {FRAME_MS} ms a frame, none over {JUMP_MS}, of {LOADS} loads with {REPORT_ROWS:,} rows",
    )
    what = "6 10,000 transcripts stay smooth: frames while the list scrolls"
    if found is None:
        yield missing(what, wanted, "report")
        return
    yield recorded("6 the report's speed", found, "loads")
    loads = found.get("loads") or []
    same = all(
        math.isclose(found[name], statistics.median(one[name] for one in loads), abs_tol=0.01)
        for name in (loads[0] if loads else ())
    )
    if not loads or not same:
        yield Bar(what, "not what the raw rows say" if loads else "no raw rows", wanted, False)
        return
    slow = max(one["frame_p95_ms"] for one in loads)
    jumps = sum(one["frames_over_34ms"] for one in loads)
    ok = found["rows"] >= REPORT_ROWS and len(loads) >= LOADS and slow <= FRAME_MS and jumps == 0
    yield Bar(
        what, f"p95 {slow} ms in the slowest load, {jumps:g} over {JUMP_MS} ms, {found['rows']:,} rows", wanted, ok
    )
    for name in ("first_list_ms", "sort_ms", "open_ms", "search_ms", "rows_in_document"):
        yield Bar(f"6 the report: {name.removesuffix('_ms').replace('_', ' ')}", f"{found[name]:g}", "reported", None)


def quickstart_bars() -> Iterator[Bar]:
    """The quickstart ends with runs worth looking at, in time."""
    script = (ROOT / "examples" / "quickstart.sh").read_text(encoding="utf-8")
    last = script[script.rindex("worth_seeing.py pick") :] if "worth_seeing.py pick" in script else ""
    told = "rrm score" in last and "--html" in last and "worth_seeing.py look" in last
    shown = "picked, judged, and said where to look" if told else "it does not end so"
    yield Bar("8 `make quickstart` ends with good and bad runs of its trained agent", shown, "it does", told)
    timings = load("timings") or {}
    seconds, same = timings.get("quickstart_s"), timings.get("quickstart_script") == script_hash()
    shown = "not measured" if seconds is None else f"{seconds:.0f} s{'' if same else ', of another script'}"
    ok = seconds is not None and seconds <= SECONDS and same
    yield Bar("8 `make quickstart`", shown, f"≤ {SECONDS} s, of the script as it stands", ok)


def bars(run: bool = True) -> list[Bar]:
    """All of them; tests that are bars only where they are run."""
    return [*server_bars(), *scale_bars(), *report_bars(), *quickstart_bars(), *suite_bars(SUITES, run)]


if __name__ == "__main__":
    main(__doc__, bars)
