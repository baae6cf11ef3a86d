"""The bars of SmolLM2 on GSM8K (`smollm2_gsm8k.json`, `_gpu`, `_few`, `_wide`): the warm start, and what trainings gained on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from benchmarks.accept_7 import recorded
from benchmarks.acceptance import Bar, interval, load, missing
from benchmarks.studies.smollm2_gsm8k import ARMS, FEW, FEW_SEEDS, GPU_SEEDS, SEEDS, SHOWN, TRAINING, UPDATES
from benchmarks.studies.smollm2_gsm8k_figures import (
    CONTROLS,
    GREEDY,
    LESS_GREEDY,
    SAMPLED,
    START,
    TEMPERATURES,
)
from benchmarks.studies.smollm2_qa_data import HELD_OUT
from benchmarks.training_bars import Found, commits_bar, otherwise, seeds_of
from reagent.train.config import load_agent_config

GSM8K = "smollm2_gsm8k"
ABLE = 0.1
ABOVE = "paired interval above 0"


def gsm8k_bars() -> Iterator[Bar]:
    """SmolLM2 on GSM8K with the calculator; from few solutions and with wide updates too, where that was trained."""
    found = next((one for name in (GSM8K, f"{GSM8K}_gpu") if (one := load(name)) and "figures" in one), None)
    if found is None:
        yield missing("4 GSM8K, one or two operations: the warm start", f"≥ {ABLE}", GSM8K)
        yield missing("4 GSM8K: after GRPO less the warm start", ABOVE, GSM8K)
    else:
        yield from Asked("4 GSM8K", found, SEEDS, SHOWN).bars(("grpo",))
    if found := load(f"{GSM8K}_few"):
        few = Asked(f"4 GSM8K from {FEW} solutions", found, FEW_SEEDS, FEW)
        yield from few.bars(("grpo", "filled"))
        yield few.control("filled")
        sampled = Asked(f"{few.name}, sampled as attempts are", found, FEW_SEEDS, FEW, SAMPLED)
        yield from sampled.gains(("grpo", "filled"))
        yield sampled.control("filled")
        yield from sampled.over_greedy(("grpo", "filled"))
    if found := load(f"{GSM8K}_wide"):
        wide = Asked("4 GSM8K, 32 questions an update", found, GPU_SEEDS, FEW)
        yield from wide.bars(("wide",))
        yield wide.control("wide")


@dataclass(frozen=True)
class Asked:
    """A record of the study whose held-out questions were answered in one way.

    Args:
        name: what is said of it.
        found: the record. seeds: arm → the seeds that it is wanted of.
        solutions: that its warm start is shown. way: of `TEMPERATURES`.
    """

    name: str
    found: Found
    seeds: Mapping[str, int]
    solutions: int
    way: str = GREEDY

    @property
    def answers(self) -> Found:
        """`figures` and `answered` of this way; both empty where nobody was asked so."""
        return self.found if self.way == GREEDY else self.found.get(self.way, {"figures": {}, "answered": {}})

    def bars(self, arms: Sequence[str]) -> Iterator[Bar]:
        """The record, its trainings, the warm start, and arms less it."""
        yield recorded(self.name, self.found, "environment", "seeds")
        yield commits_bar(f"{self.name}: the trainings", self.found["trainings"], self.seeds, UPDATES)
        able = f"{self.name}, one or two operations: the warm start"
        if (start := self.answers["figures"].get(START)) is None:
            yield missing(able, f"≥ {ABLE}", GSM8K)
        else:
            unlike = self.unlike(())
            shown = f"{interval(start['success'])} of {start['questions']} held-out questions"
            yield Bar(able, _but(shown, unlike), f"≥ {ABLE}", not unlike and start["success"]["value"] >= ABLE)
        yield from self.gains(arms)

    def gains(self, arms: Sequence[str]) -> Iterator[Bar]:
        """Arms less the warm start."""
        for arm in arms:
            what, after = f"{self.name}: after GRPO less the warm start ({arm})", self.answers["figures"].get(arm, {})
            if "less_start" not in after:
                yield Bar(what, "not measured", ABOVE, False)
                continue
            gain, over, unlike = after["less_start"], after.get("less_start_over_seeds"), self.unlike((arm,))
            each = ", ".join(interval(one) for one in after["less_start_by_seed"])
            more = (
                f"over seeds too {interval(over)}" if over else "over questions alone: other seeds may differ by more"
            )
            yield Bar(what, _but(f"{interval(gain)} (by seed {each}; {more})", unlike), ABOVE, not unlike and gain["low"] > 0)  # fmt: skip

    def control(self, arm: str) -> Bar:
        """An arm less its control: every seed above every one, and an interval above 0."""
        control, told = CONTROLS[arm], self.answers["figures"]
        wanted = f"interval above 0, every seed of {arm} above every one of its control"
        what = f"{self.name}: {arm} less {control} (rewards dealt anew)"
        mine, others = (told.get(one, {}).get("by_seed", []) for one in (arm, control))
        if (apart := told.get(arm, {}).get("less_control")) is None:
            return Bar(what, "not both measured", wanted, False)
        unlike = self.unlike((arm, control))
        ok = not unlike and apart["low"] > 0 and min(mine) > max(others)
        return Bar(what, _but(f"{interval(apart)}; seeds {_plain(mine)} and {_plain(others)}", unlike), wanted, ok)

    def over_greedy(self, arms: Sequence[str]) -> Iterator[Bar]:
        """Arms less what the warm start answers greedily, which a policy that only grew surer of itself cannot pass."""
        for arm in arms:
            less = self.answers["figures"].get(arm, {}).get(LESS_GREEDY)
            shown = "not measured" if less is None else _but(interval(less), self.unlike((arm,)))
            yield Bar(f"{self.name}: after GRPO ({arm}) less the warm start's greedy answers", shown, "reported", None)

    def unlike(self, arms: Sequence[str]) -> str:
        """What the record holds that is not the study; empty where it is.

        Args:
            arms: beside the warm start, whose answers are needed.
        """
        found, answered = self.found, self.answers["answered"]
        if (overrides := found.get("overrides", ())) or found.get("shown") != self.solutions:
            return f"made with {', '.join(overrides) or 'no overrides'}, {found.get('shown')} solutions"
        if self._wrong:
            return self._wrong
        if few := [arm for arm in arms if len(set(seeds_of(answered.get(arm, ())))) < self.seeds[arm]]:
            return f"too few seeds of {', '.join(few)} answered"
        if lost := [arm for arm in arms if seeds_of(found["trainings"].get(arm, ())) != seeds_of(answered[arm])]:
            return f"other seeds of {', '.join(lost)} were trained"
        return ""

    @cached_property
    def _wrong(self) -> str:
        """What of the trainings or the questions is not the study's; empty where all is."""
        return otherwise(self.found["trainings"], ARMS, TRAINING) or self._asked_unlike()

    def _asked_unlike(self) -> str:
        """Whether all answered every held-out question, enough of them, and in the way it is said."""
        asked, held_out = (
            {one["questions"] for one in self.answers["figures"].values()},
            self.found["questions"]["held_out"],
        )
        if asked != {held_out} or held_out < HELD_OUT:
            return f"{sorted(asked)} questions of {held_out}, of {HELD_OUT} wanted"
        if self.way == GREEDY:
            return ""
        trained_at = {
            load_agent_config(
                "smollm2", [o for o in run["options"] if o.startswith("rollout.temperature=")]
            ).rollout.temperature
            for runs in self.found["trainings"].values()
            for run in runs
        }
        told = self.answers.get("temperature")
        return "" if trained_at <= {told} and told == TEMPERATURES[self.way] else f"sampled at {told}, trained at {sorted(trained_at)}"  # fmt: skip


def _but(shown: str, unlike: str) -> str:
    """What was measured, and why it is not what was asked for."""
    return f"{shown}; {unlike}" if unlike else shown


def _plain(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)
