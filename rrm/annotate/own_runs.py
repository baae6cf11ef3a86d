"""Planted mistakes in a user's own successful runs, with their labels (docs/labels.md)."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from rrm.annotate.planted import Donors, Planted, SuccessfulRun, plant
from rrm.data.annotation import Annotation, Finding
from rrm.data.feedback import format_findings
from rrm.data.mistakes import DESCRIPTIONS, MISTAKE_KINDS, MistakeKind
from rrm.data.printing import nearest
from rrm.data.seeds import derive_seed
from rrm.data.text import normalise
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, RRMError
from rrm.prompt.canonical import in_form
from rrm.prompt.proven import name_of, proven_mistakes

SUCCESS = 0.99
NEED_CHANGES: frozenset[MistakeKind] = frozenset({"unsupported_claim", "needless_side_effect"})
"""Mistakes that need to know which tools change state."""
PER_RUN = 2


def chosen_kinds(names: Sequence[str], changes_state: Collection[str]) -> tuple[list[MistakeKind], list[MistakeKind]]:
    """Return (mistakes to plant, mistakes left out for lack of `changes_state`); no names: all.
    Raises ConfigError for an unknown mistake, or one asked for that needs `changes_state`."""
    for name in names:
        if name not in MISTAKE_KINDS:
            near = nearest(name, MISTAKE_KINDS)
            meant = f"; did you mean {near}?" if near else ""
            raise ConfigError(f"there is no kind of mistake {name!r}{meant} The kinds are {', '.join(MISTAKE_KINDS)}")
        if name in NEED_CHANGES and not changes_state:
            raise ConfigError(f"{name} needs --changes-state TOOL,…: the tools that change something")
    chosen: list[MistakeKind] = [mistake for mistake in MISTAKE_KINDS if not names or mistake in names]
    left_out: list[MistakeKind] = [mistake for mistake in chosen if mistake in NEED_CHANGES and not changes_state]
    return [mistake for mistake in chosen if mistake not in left_out], left_out


def succeeded(trajectories: Iterable[Trajectory], counts: Counter[str]) -> list[Trajectory]:
    """Select the successful runs, each content once, and count; raises RRMError where there is none."""
    by_digest: dict[str, Trajectory] = {}
    for trajectory in trajectories:
        counts["transcripts"] += 1
        if trajectory.outcome is not None and trajectory.outcome >= SUCCESS and trajectory.steps:
            counts["repeated" if trajectory.digest in by_digest else "succeeded"] += 1
            by_digest.setdefault(trajectory.digest, trajectory)
        counts["without_outcome"] += trajectory.outcome is None
    if not by_digest:
        without = f", {counts['without_outcome']} of them without an outcome" if counts["without_outcome"] else ""
        raise RRMError(
            f"none of {counts['transcripts']} runs has an outcome of {SUCCESS} or more{without}: mistakes are planted in runs that "
            "succeeded; --outcome FIELD says where the outcome stands"
        )
    return list(by_digest.values())


def check_tools(runs: Sequence[Trajectory], changes_state: Collection[str]) -> None:
    """Raise ConfigError for a tool in `changes_state` that no run calls or offers."""
    tools = {call.name for run in runs for m in run.messages for call in m.tool_calls or []}
    tools |= {name for run in runs for tool in run.tools or [] if (name := name_of(tool))}
    tools |= {call.name for run in runs for step in _view(run, Donors(), ()).steps for call in step.calls}
    for name in changes_state:
        if name not in tools:
            near = nearest(name, tools)
            meant = f"; did you mean {near}?" if near else ""
            raise ConfigError(f"--changes-state {name}: no run that succeeded calls or offers it{meant}")


def planted_copies(
    runs: Sequence[Trajectory],
    kinds: Sequence[MistakeKind],
    per_run: int = PER_RUN,
    seed: int = 0,
    changes_state: Collection[str] = (),
    counts: Counter[str] | None = None,
) -> Iterator[tuple[Trajectory, Annotation]]:
    """Yield (copy, label) of up to `per_run` different mistakes a run; all draws by seed and run.
    `counts` gains the mistakes planted and `without_place`."""
    counts = Counter() if counts is None else counts
    groups: dict[tuple[str, ...], list[Trajectory]] = defaultdict(list)
    for run in runs:
        groups[_tools(run)].append(run)
    donors = {tools: Donors.of((_question(run), run) for run in mine) for tools, mine in groups.items()}
    for run in runs:
        rng = random.Random(derive_seed(seed, run.digest))
        proven = proven_mistakes(run, changes_state)
        view, copies = _view(run, donors[_tools(run)], changes_state, proven), 0
        for mistake in rng.sample(list(kinds), len(kinds)):
            if copies < per_run and (planted := plant(view, mistake, rng)) is not None:
                copies += 1
                counts[mistake] += 1
                yield _labelled(run, planted, proven)
        counts["without_place"] += not copies


def _tools(run: Trajectory) -> tuple[str, ...]:
    return tuple(sorted(filter(None, map(name_of, run.tools or []))))


def _question(run: Trajectory) -> str:
    return run.question_id or normalise(run.task or " ".join(m.text() for m in run.prelude))


def _view(
    run: Trajectory, donors: Donors, changes_state: Collection[str], proven: Collection[int] = ()
) -> SuccessfulRun:
    free = [k for k in range(1, len(run.steps) + 1) if k not in proven]
    return SuccessfulRun(run, _question(run), donors, changes_state, free)


def _labelled(run: Trajectory, planted: Planted, proven: dict[int, MistakeKind]) -> tuple[Trajectory, Annotation]:
    """Return the copy in native form, so that the planted step is written as the others, and its label."""
    copy = in_form(planted.trajectory, "native").model_copy(
        update={
            "id": f"{run.id}+{planted.kind}",
            "question_id": _question(run),
            "meta": {"planted": {"kind": planted.kind, "step": planted.step, "of": run.id}},
            "source": None,
        }
    )
    findings = [
        Finding(step=k, verdict="bad", text=DESCRIPTIONS[proven[k]]) if k in proven else Finding(step=k, verdict="good")
        for k in range(1, planted.known + 1)
    ]
    findings.append(Finding(step=planted.step, verdict="bad", text=planted.critique))
    label = Annotation(
        trajectory_id=copy.id,
        digest=copy.digest,
        critique=format_findings(f for f in findings if f.verdict == "bad"),
        findings=findings,
        annotator="planted",
        kind="rules",
    )
    return copy, label
