"""`reagent eval`."""

import json
import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from reagent.cli.policy_settings import Config, Policy, Task, Words, policy_settings
from rrm.cli import finish
from rrm.cli.paths import check_outputs
from rrm.data.extras import needs
from rrm.data.output import file_when_whole

log = logging.getLogger(__name__)


def command(
    words: Words = None,
    task: Task = None,
    config: Config = None,
    policy: Policy = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="write the figures as JSON")] = None,
    transcripts: Annotated[
        Path | None, typer.Option(help="write every episode as a canonical trajectory (JSONL), for `rrm score`")
    ] = None,
    choose: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STRATEGY",
            help="also choose one of the eval.samples attempts at each task, by judge (feedback.judge), weighted (votes by its "
            "scores), majority, longest, shortest, random, oracle (a comma list, or all): success of what is chosen; marked in --transcripts",
        ),
    ] = None,
    retries: Annotated[
        int,
        typer.Option(
            min=0,
            help="with --choose judge: so many attempts at each task are also tried again after a critique, and compared with "
            "first attempts alone at equal tokens",
        ),
    ] = 0,
) -> None:
    """Run a policy on held-out tasks: success greedy and sampled, EM, F1, pass@k (eval.samples), turns, tool errors.

    reagent eval Qwen/Qwen2.5-0.5B-Instruct --task gsm8k

    feedback.mode=c gives the frozen policy a second attempt after the judge's critique, reported as `refined`.
    """
    needs("agents", "playing a policy", "torch", "transformers", "accelerate")
    from reagent.train.choosing import evaluate_chosen
    from reagent.train.evaluate import evaluate_config, without_interval
    from rrm.data.trajectory import write_jsonl
    from rrm.errors import ConfigError
    from rrm.evaluation.bootstrap import MIN_QUESTIONS, MIN_ROWS
    from rrm.evaluation.choosing import strategies_of

    check_outputs(output, transcripts)
    settings = policy_settings(words, config, policy, task)
    strategies = strategies_of(choose or [])
    if retries and not strategies:
        raise ConfigError(
            "--retries lets the judge choose among first and second attempts: give --choose judge with it"
        )
    figures, episodes = (
        evaluate_chosen(settings, strategies, retries=retries) if strategies else evaluate_config(settings)
    )
    if transcripts is not None:
        write_jsonl(transcripts, (e.trajectory for e in episodes))
    if output is not None:
        with file_when_whole(output) as file:
            file.write(json.dumps(figures, indent=1) + "\n")
    summary = _summary(figures)
    thin = without_interval(summary)
    if thin:
        log.warning(
            "no interval where fewer than %d tasks or %d attempts carry a figure (%s): it would be far narrower than it says; "
            "environment.eval_tasks and eval.samples make them more",
            MIN_QUESTIONS,
            MIN_ROWS,
            ", ".join(thin),
        )
    setting = {"policy": settings.policy.base, "environment": settings.environment.name, "without_interval": thin}
    finish({**setting, **summary})


def _summary(figures: dict[str, Any]) -> dict[str, Any]:
    """The figures without those of single tasks and of fewer attempts, which `--output` has."""
    left_out = ("by_task", "by_n", "chosen")
    return {k: _summary(v) if k in ("refined", "choose") else v for k, v in figures.items() if k not in left_out}
