"""Guards as a config asks for them: what could never stop anything is refused before a run begins."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.guards import check_guards
from rrm.errors import ConfigError


def config(**changes: Any) -> AgentConfig:
    every = {"eval.every": 2, "feedback.mode": "r"} | changes
    return load_agent_config("lab", ["algorithm=grpo", *(f"{k}={v}" for k, v in every.items())])


STOPS = {"guards.success.action": "stop"}
AUDITS = {"guards.auditor.action": "stop", "guards.auditor.judge": "default"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({**STOPS, "eval.every": 0}, "0 evaluations are made"),
        ({**STOPS, "environment.eval_tasks": 9}, "9 held-out tasks .* prove nothing, and it takes 10"),
        ({"guards.drift.action": "stop", "environment.eval_tasks": 9}, "9 held-out tasks"),
        ({"guards.drift.action": "stop", "eval.every": 0}, "0 evaluations are made"),
        ({"guards.drift.action": "stop", "feedback.score_from": "rank"}, "the mean score is ½ whatever is learned"),
        ({**STOPS, "eval.every": 50, "max_updates": 10}, "1 evaluations are made before the last update"),
        ({**STOPS, "eval.every": 4, "max_updates": 8, "guards.success.patience": 2}, "2 evaluations are made before the last update"),
        ({**STOPS, "eval.every": 4, "max_updates": 9, "guards.evaluate": "false"}, "2 evaluations are made .* it takes 3"),
        ({"guards.kl.action": "stop"}, "set guards.kl.max"),
        ({"guards.length.action": "stop", "max_updates": 6}, "it takes more than max_updates=6"),
        ({"guards.out_of_domain.action": "stop", "max_updates": 1}, "it takes more than max_updates=1"),
        ({"guards.auditor.action": "stop"}, "set guards.auditor.judge"),
        ({**AUDITS, "guards.auditor.share": 0.0, "guards.evaluate": "false"}, "neither evaluations"),
        ({**STOPS, "feedback.mode": "none"}, "feedback.mode=none .* nothing is learned from a judge"),
        ({**STOPS, "feedback.mode": "c"}, "nothing is learned from a judge"),
        ({**AUDITS, "feedback.mode": "process", "feedback.process.pay": "shaping", "feedback.score_weight": 0.0, "loss.credit": "turn"}, "nothing is learned"),
        ({"guards.auditor.judge": "lab", "feedback.score_mode": "score"}, "cannot disagree with itself"),
        ({"guards.auditor.judge": "lab", "guards.auditor.judge_mode": "full", "feedback.mode": "process", "feedback.process.judge_mode": "full"},
         "cannot disagree with itself"),
    ],
)  # fmt: skip
def test_a_guard_that_could_never_stop_anything_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_guards(config(**changes))


@pytest.mark.parametrize(
    "said", ["guards.length.ratio=1.0", "guards.success.action=halt", "guards.out_of_domain.share=1.0"]
)
def test_settings_that_mean_nothing_are_refused(said: str) -> None:
    name, _, value = said.partition("=")
    with pytest.raises(ConfigError, match=name):
        config(**{name: value})


@pytest.mark.parametrize(
    "changes",
    [
        {**STOPS, "eval.every": 4, "max_updates": 9},
        {**STOPS, "eval.every": 4, "max_updates": 13, "guards.evaluate": "false"},
        {**STOPS, "environment.eval_tasks": 10},
        {**STOPS, "feedback.score_from": "rank"},
        {
            "guards.auditor.judge": "lab",
            "feedback.score_mode": "score",
            "feedback.criteria": "tool-use",
        },  # other questions: it can disagree
        {"guards.auditor.judge": "lab", "feedback.score_mode": "score", "feedback.score_from": "rank"},
        {
            **STOPS,
            "feedback.mode": "process",
            "feedback.process.pay": "shaping",
            "loss.credit": "turn",
        },  # each turn is paid
        {**AUDITS, "guards.evaluate": "false"},
        {**STOPS, "feedback.mode": "u", "feedback.score_weight": 0.0},  # the judge's texts teach
        {"guards.kl.action": "stop", "guards.kl.max": 0.1, "feedback.mode": "none"},
    ],
)
def test_guards_that_can_stop_a_run_are_not(changes: dict[str, Any]) -> None:
    check_guards(config(**changes))


def test_an_auditor_that_is_never_asked_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_guards(config(**{"feedback.mode": "none", "guards.auditor.judge": "default"}))
    assert "guards.auditor.judge=default is not asked" in caplog.text
