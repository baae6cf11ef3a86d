"""Every bar of plugging in: trainers, harnesses, the service, the guard, people's labels, the site: what, measured, wanted, pass or fail.

    python -m benchmarks.accept_10            (exit code 1 if a bar is missed)

    integrations.json    python -m benchmarks.integrations
    serve_speed.json     python -m benchmarks.speed.serve
    guard.json           python -m benchmarks.guard
    newcomer.json        python -m benchmarks.newcomer

Recorded results are read, and those of the adapters made anew from their scores. Tests that are bars are run unless
`--no-run` is given.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.accept_7 import recorded
from benchmarks.acceptance import Bar, interval, load, main, missing, suite_bars, unmade
from benchmarks.integrations import apart

INTEGRATIONS, SERVE, GUARD, NEWCOMER = "integrations", "serve_speed", "guard", "newcomer"
EQUAL = 1e-6
WAYS = ("inspect", "verl", "serve")
CLIENTS = ("1", "8", "64")
KEPT = 0.9
SOAKS = {"scripted": 100_000, "lab": 1000}
"""Part of the record → the requests that it takes."""
MIXED = 5
"""Kinds of faults at least among a soak's requests."""
FAULTS = (
    "malformed",
    "invalid",
    "large",
    "no key",
    "wrong key",
    "hang up",
    "leave stream",
    "cut body",
    "drip",
    "slow reader",
    "unfinished",
)
GOALS = ("a judged log", "a trained judge", "a trained agent")
ADAPTERS, REAGENT = "tests/rrm/integrations", "tests/reagent/integrations"
SUITES = {
    "1 GRPO of TRL through environment_factory, paid by the judge": (
        f"{ADAPTERS}/test_trl.py::test_grpo_trains_through_an_environment_that_is_judged {REAGENT}/test_trl_environment.py"
    ),
    "1, 2 adapters against their frameworks (skipped where one is not installed)": ADAPTERS,
    "3 rrm serve: requests, limits, troubles on either side": "tests/rrm/serve",
    "4 the guard: verdicts, kept keys and values, audit, hook": "tests/rrm/guard",
    "5 labelling from the keyboard, 100 transcripts, nothing lost; agreement": "tests/rrm/labelling",
    "5 blind sheets and what comes back": "tests/rrm/comparing",
    "7 every code block of README and docs": "tests/test_docs.py",
    "8 rrm doctor, what a base installation has": "tests/rrm/test_doctor.py tests/rrm/test_wheel.py",
}
Found = Mapping[str, Any]


def equal_bars() -> Iterator[Bar]:
    """The same transcripts, scored directly and through others."""
    what, wanted = "1 the same transcripts directly, through Inspect, verl's function and rrm serve", f"≤ {EQUAL}"
    found = load(INTEGRATIONS)
    if found is None:
        yield missing(what, wanted, INTEGRATIONS)
        return
    yield recorded("1 equal scores", found, "versions", "transcripts", "scores")
    ways, scores = found["ways"], found["scores"]
    absent = [way for way in (*WAYS, "verl_reply", "verl_tokens") if way not in ways]
    own, wrong = scores.get("judge", {}), []
    for name, one in ways.items():
        for part, key in (("alone", "apart"), ("at_once", "apart_at_once")):
            direct, through = own.get(part, {}), scores.get(name, {}).get(part, {})
            if len(direct) != found["transcripts"] or apart(direct, through) != one[key]:
                wrong.append(f"{name} {part}")
    said = "; ".join(f"{name} {one['apart']:.1e} ({one['apart_at_once']:.1e} at once)" for name, one in ways.items())
    if wrong:
        said = f"not what its scores say: {', '.join(wrong)}"
    if absent:
        said += f"; not measured: {', '.join(absent)}"
    ok = not absent and not wrong and all(one["apart"] <= EQUAL for one in ways.values())
    yield Bar(what, said, f"{wanted}, asked one at a time", ok)


def serve_bars() -> Iterator[Bar]:
    """Requests a second, and soaks."""
    what, wanted = "3 rrm serve at 64 clients over the judge in process", f"≥ {KEPT}"
    found = load(SERVE)
    if found is None or "speed" not in found:
        yield missing(what, wanted, SERVE)
    else:
        speed = found["speed"]
        yield recorded("3 speed of rrm serve", speed, "versions", "rounds")
        for clients in CLIENTS:
            one = speed["clients"][clients]
            shown = f"{one['per_s']:.1f} requests/s, p50 {one['p50_s'] * 1000:.0f} ms, p99 {one['p99_s'] * 1000:.0f} ms"
            yield Bar(f"3 rrm serve, {clients} clients", shown, "reported", None)
        ratios = [one["64"]["per_s"] / one["in_process"]["per_s"] for one in speed["rounds"]]
        kept = statistics.median(ratios)
        known = abs(kept - speed["kept_at_64"]) < 1e-3
        shown = f"{kept:.3f}, median of {len(ratios)} rounds ({min(ratios):.2f} to {max(ratios):.2f})"
        yield Bar(what, shown if known else "not what its rounds say", wanted, known and kept >= KEPT)
    for part, least in SOAKS.items():
        yield from soak_bars(part, (found or {}).get(part), least)


def soak_bars(part: str, soak: Found | None, least: int) -> Iterator[Bar]:
    """Mixed requests with faults: none lost."""
    what, wanted = f"3 mixed requests with faults, {part} judge: lost, wrong", f"none of ≥ {least:,}"
    if soak is None:
        yield missing(what, wanted, SERVE)
        return
    yield recorded(f"3 soak, {part} judge", soak, "versions", "kinds", "answers", "stops")
    faults = [kind for kind in FAULTS if soak["kinds"].get(kind)]
    killed, asked = soak["workers_killed"], sum(soak["kinds"].values())
    shown = (
        f"{soak['lost']} lost, {len(soak['wrong'])} wrong of {asked:,}; {len(faults)} kinds of faults, {killed} workers "
        f"killed, {len(soak['stops'])} stops under load"
    )
    ok = not soak["lost"] and not soak["wrong"] and asked == soak["requests"] >= least
    yield Bar(what, shown, wanted, ok and len(faults) >= MIXED and killed > 0 and bool(soak["stops"]))


def guard_bars() -> Iterator[Bar]:
    """What stopping early saves, beside rivals."""
    what, found = "4 the guard beside stopping after k turns and at random", load(GUARD)
    if found is None:
        yield missing(what, "measured, with intervals", GUARD)
        return
    yield recorded("4 the guard", found, "environment", "cross_fitted")
    lacking = [name for name in ("guard", "turns", "random") if name not in found["cross_fitted"]]
    shown = f"{found['runs']} held-out runs of {found['questions']} questions, {found['good']} good"
    yield Bar(what, f"no {', '.join(lacking)}" if lacking else shown, "measured, with intervals", not lacking)
    if lacking:
        return
    for way, one in found["cross_fitted"].items():
        shown = (
            f"{interval(one['failing_tokens_saved'])} of failing runs' tokens, {interval(one['good_stopped'])} of good runs stopped, "
            f"{interval(one['failing_stopped'])} of failing ones"
        )
        yield Bar(f"4 bounds that stop ≤ 10 % of other questions' good runs, {way}: saved", shown, "reported", None)
    drawn = found["shuffled"]
    shown = f"{interval(drawn['failing_tokens_saved'])}, the middle 95 % of {drawn['draws']} draws"
    yield Bar("4 the guard with scores of other runs of each source: saved", shown, "reported", None)
    first = found["primary"]
    yield Bar(f"4 {first['figure']} ({first['rival']})", interval(first), "reported; 0.03 was expected", None)


def newcomer_bars() -> Iterator[Bar]:
    """From the site alone to a judged log, a trained judge and a trained agent."""
    what, found = "7 a newcomer's path, by the commands of the site's first pages", load(NEWCOMER)
    if found is None:
        yield missing(what, "timed, everything reached", NEWCOMER)
        return
    if why := unmade(found.get("commit")):
        yield Bar("7 the newcomer's record", why, "says what made it", False)
    pages = ", ".join(f"{page} {minutes:.1f}" for page, minutes in found["minutes"].items())
    reached = [goal for goal in GOALS if found["reached"].get(goal)]
    shown = f"{found['minutes_in_all']:.1f} minutes ({pages}); reached: {', '.join(reached)}"
    yield Bar(what, shown, f"timed; {', '.join(GOALS)}", len(reached) == len(GOALS))


def bars(run: bool = True) -> list[Bar]:
    """All of them; tests that are bars only where they are run."""
    return [*equal_bars(), *serve_bars(), *guard_bars(), *newcomer_bars(), *suite_bars(SUITES, run)]


if __name__ == "__main__":
    main(__doc__, bars)
