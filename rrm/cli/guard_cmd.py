"""`rrm guard`: a hook of Claude Code, or finished runs replayed."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from rrm.cli import finish
from rrm.cli.judge_options import ESCALATE, JudgeOptions, with_judge_options
from rrm.cli.reading import OUTCOME, ErrorLog, mapping_of, read_inputs, refuse_missing, refuse_overlap
from rrm.config import overridden, read_config
from rrm.errors import ConfigError, RRMError
from rrm.guard.timeouts import Deadline

if TYPE_CHECKING:
    from rrm.guard.policy import GuardPolicy
    from rrm.guard.prefix import AbsentJudge
    from rrm.judge.agent_rrm import AgentRRM

log = logging.getLogger(__name__)

# seconds in which a hook's judge must answer, loading included (an agent ends a hook after 60 s); requests to a server
# end a second before
HOOK_S, ANSWER_S = 50.0, 1.0
# seconds in which a hook retries a server that does not answer (also its first answer), and waits for a row
HOOK_PATIENCE_S, HOOK_TIMEOUT_S = 5.0, 45.0


@with_judge_options
def command(
    inputs: list[str] = typer.Argument(
        None, metavar="[TRANSCRIPTS]...", help="Finished runs to replay. Without them: a hook's JSON on standard input."
    ),
    audit: Path = typer.Option(
        ..., metavar="AUDIT.jsonl", help="Gets a line a step. A hook reads in it what was said of its session before."
    ),
    policy: Path | None = typer.Option(None, metavar="FILE.yaml", help="When to speak (rrm.guard.GuardPolicy)."),
    set: list[str] = typer.Option([], metavar="KEY=VALUE", help="One value of the policy, e.g. halt_below=0.2."),
    format: str = typer.Option("auto", help="The transcripts' format."),
    map: list[str] = typer.Option([], "--map", metavar="FIELD=PATH", help="Where a field stands in any other JSON."),
    outcome: str | None = OUTCOME,
    escalate: str | None = ESCALATE,
    *,
    judge: JudgeOptions,
) -> None:
    """Guard a running agent: halt it, or ask, when a judge thinks little of what it did so far.

    As a hook of Claude Code it reads the hook's JSON and answers with JSON (docs/guard.md). A judge that cannot be loaded or asked, or has said
    nothing after 50 s, is a failed judgement, in the audit and by the policy's on_failure; what else goes wrong, a wrong option included, is said on standard error
    with exit code 1, which lets the agent go on. With transcripts it says what it would have said of them step by step, and, where
    outcomes are known, how many good runs it would have halted and what it would have saved.
    """
    if inputs:
        reading = {"format": format, "mapping": mapping_of(map), "outcome": outcome}
        _replay(inputs, audit, policy_of(policy, set), judge, reading, escalate)
        return
    if sys.stdin.isatty():
        raise ConfigError("give transcripts to replay; without them a hook's JSON is read from standard input")
    deadline, code = Deadline(HOOK_S), 0
    try:
        finish(_hook(audit, policy_of(policy, set), judge, deadline, escalate))
    except Exception as error:  # noqa: BLE001
        # whatever it was: 2, this package's code of a user's error, would block the agent's call
        log.error("%s%s", "" if isinstance(error, RRMError) else f"{type(error).__name__}: ", error)
        code = 1
    if deadline.late:
        _leave(code)
    if code:
        raise typer.Exit(code)


def _leave(code: int) -> NoReturn:
    """End the process without waiting for its threads, as Python's own end would."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(code)


def policy_of(path: Path | None, overrides: list[str]) -> GuardPolicy:
    """Read the policy of a file and single values; raises `ConfigError`."""
    from rrm.guard.policy import GuardPolicy

    if path is None:
        return overridden({}, GuardPolicy, overrides)
    if not path.is_file():
        raise ConfigError(f"--policy {path}: there is no such file")
    return read_config(path, GuardPolicy, overrides)


def _hook(
    audit: Path, policy: GuardPolicy, options: JudgeOptions, deadline: Deadline, escalate: str | None
) -> dict[str, Any]:
    """Answer a hook; a judge is loaded only where one is asked."""
    from rrm.guard.audit import NOT_JUDGED, AuditRow, append, read_audit
    from rrm.guard.claude_code import JUDGED, MOST, SPOKEN, answer, hook_input, session_of, step_is_over
    from rrm.guard.guard import Guard
    from rrm.guard.prefix import AbsentJudge
    from rrm.guard.state import GuardState, now

    hook = hook_input(sys.stdin.read(MOST))
    event, run = hook["hook_event_name"], hook["session_id"]
    if isinstance(hook.get("agent_id"), str):
        return answer(event, "continue", None)
    state = GuardState(policy)
    state.recall(read_audit(audit, run) if audit.exists() else ())
    if event == SPOKEN and state.spent.checks:
        time = now()
        append(
            audit,
            AuditRow(run=run, began=state.began, step=0, at=time, verdict="continue", status=NOT_JUDGED, resumed=True),
        )
        return answer(event, "continue", None)
    if event not in JUDGED:
        return answer(event, state.action, state.why)
    trajectory = session_of(hook)
    if not step_is_over(trajectory):
        return answer(event, state.action, state.why)
    judge = _judge_of(options, deadline, escalate)
    if isinstance(judge, AbsentJudge):  # which says so at once
        guard = Guard(judge, policy, audit=audit, mode="steps")
    else:
        guard = Guard(judge, policy, audit=audit, deadline=deadline)
    with guard.session(run=run, resume=True) as session:
        verdict = session.judge_now(trajectory)
    if verdict.checked and verdict.status != "scored":
        log.warning("the judge failed: %s", verdict.reason)
    return answer(event, verdict.action, verdict.reason)


def _judge_of(options: JudgeOptions, deadline: Deadline, escalate: str | None) -> AgentRRM | AbsentJudge:
    """Load a hook's judge, else return one that fails each time: audited, and `on_failure` is obeyed.

    Raises:
        ConfigError: an option that is wrong, or does not go with the judge.
    """
    from rrm.guard.prefix import AbsentJudge
    from rrm.scoring.escalating import escalating
    from rrm.serve.address import SCHEMES
    from rrm.serve.client import CONCURRENCY, RemoteJudge, address_for

    model = options.model
    if model is None or not model.startswith(SCHEMES):
        try:
            return deadline.within(lambda: options.load_with(escalate))
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it was, the agent waits for an answer
            return AbsentJudge(model, error)
    options, second = (options, None) if escalate is None else options.escalating(escalate)
    how = options.how()
    timeout_s, concurrency = how.pop("timeout_s") or HOOK_TIMEOUT_S, how.pop("concurrency") or CONCURRENCY
    how |= {"max_transcript_tokens": how.pop("transcript_tokens"), "until": deadline.at - ANSWER_S}
    address = address_for(model, timeout_s=timeout_s, patience_s=HOOK_PATIENCE_S, **how)
    try:
        judge = deadline.within(lambda: RemoteJudge(address, concurrency=concurrency, out_of_domain=options.of_domain))
        return judge if second is None else escalating(judge, deadline.within(second.load))
    except Exception as error:  # noqa: BLE001 - likewise; what a server refuses is a ConfigError, too
        return AbsentJudge(model, error)


def _replay(
    inputs: list[str],
    audit: Path,
    policy: GuardPolicy,
    options: JudgeOptions,
    reading: dict[str, Any],
    escalate: str | None,
) -> None:
    from rrm.guard.audit import read_audit
    from rrm.guard.guard import Guard
    from rrm.guard.replay import replay, summed

    refuse_missing(inputs)
    refuse_overlap(inputs, audit)
    guard = Guard(options.load_with(escalate), policy, audit=audit)
    if audit.is_file() and (before := sum(1 for _ in read_audit(audit))):
        log.warning("%s holds %d rows already: these are put behind them", audit, before)
    with ErrorLog(None) as errors:
        runs = [replay(guard, t) for t in read_inputs(inputs, errors, **reading) if t.steps]
    figures = summed(runs)
    finish({"audit": str(audit), **figures, "unreadable": errors.count})
    if errors.count or figures["failed_checks"]:
        raise typer.Exit(1)
