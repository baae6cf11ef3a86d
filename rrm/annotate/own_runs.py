"""Planted mistakes in a user's own runs that succeeded: the copies, and a label of each (docs/labels.md)."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from rrm.annotate.planted import Donors, Planted, SuccessfulRun, plant
from rrm.annotate.proven import name_of, proven_mistakes
from rrm.data.annotation import Annotation, Finding
from rrm.data.feedback import format_findings
from rrm.data.mistakes import DESCRIPTIONS, MISTAKE_KINDS, MistakeKind
from rrm.data.printing import nearest
from rrm.data.seeds import derive_seed
from rrm.data.text import normalise
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, RRMError
from rrm.prompt.canonical import in_form

SUCCESS = 0.99
"""The outcome from which a run succeeded."""
NEED_CHANGES: frozenset[MistakeKind] = frozenset({"unsupported_claim", "needless_side_effect"})
"""Kinds that need to know which tools change state."""
PER_RUN = 2


def chosen_kinds(names: Sequence[str], changes_state: Collection[str]) -> tuple[list[MistakeKind], list[MistakeKind]]:
    """(kinds to plant, kinds left out as no tool is said to change state); no names: all kinds.

    Raises:
        ConfigError: a name that is no kind, or a kind asked for by name that needs `changes_state`.
    """
    for name in names:
        if name not in MISTAKE_KINDS:
            near = nearest(name, MISTAKE_KINDS)
            meant = f"; did you mean {near}?" if near else ""
            raise ConfigError(f"there is no kind of mistake {name!r}{meant} The kinds are {', '.join(MISTAKE_KINDS)}")
        if name in NEED_CHANGES and not changes_state:
            raise ConfigError(f"{name} needs --changes-state TOOL,…: the tools that change something")
    wanted: list[MistakeKind] = [kind for kind in MISTAKE_KINDS if not names or kind in names]
    left_out: list[MistakeKind] = [kind for kind in wanted if kind in NEED_CHANGES and not changes_state]
    return [kind for kind in wanted if kind not in left_out], left_out


def succeeded(trajectories: Iterable[Trajectory], counts: Counter[str]) -> list[Trajectory]:
    """The runs that succeeded, each content once; `counts` gains `transcripts`, `succeeded` and `repeated`.

    Raises:
        RRMError: there is none.
    """
    found: dict[str, Trajectory] = {}
    for trajectory in trajectories:
        counts["transcripts"] += 1
        if trajectory.outcome is not None and trajectory.outcome >= SUCCESS and trajectory.steps:
            counts["repeated" if trajectory.digest in found else "succeeded"] += 1
            found.setdefault(trajectory.digest, trajectory)
        counts["without_outcome"] += trajectory.outcome is None
    if not found:
        without = f", {counts['without_outcome']} of them without an outcome" if counts["without_outcome"] else ""
        raise RRMError(
            f"none of {counts['transcripts']} runs has an outcome of {SUCCESS} or more{without}: mistakes are planted in runs that "
            "succeeded; --outcome FIELD says where the outcome stands"
        )
    return list(found.values())


def check_tools(runs: Sequence[Trajectory], changes_state: Collection[str]) -> None:
    """`ConfigError` for a tool that changes state and that no run calls or offers."""
    known = {call.name for run in runs for m in run.messages for call in m.tool_calls or []}
    known |= {name for run in runs for tool in run.tools or [] if (name := name_of(tool))}
    known |= {call.name for run in runs for step in _view(run, Donors(), ()).steps for call in step.calls}
    for name in changes_state:
        if name not in known:
            near = nearest(name, known)
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
    """(copy, its label) of up to `per_run` mistakes a run, each of another kind; all draws by seed and run.

    Values and calls of others come from runs of other tasks that offer the same tools.

    Args:
        counts: gains the kinds planted, and `without_place`: runs in which none of the kinds has a place.
    """
    counts = Counter() if counts is None else counts
    groups: dict[tuple[str, ...], list[Trajectory]] = defaultdict(list)
    for run in runs:
        groups[_tools(run)].append(run)
    donors = {tools: Donors.of((_question(run), run) for run in mine) for tools, mine in groups.items()}
    for run in runs:
        rng = random.Random(derive_seed(seed, run.digest))
        proven = proven_mistakes(run, changes_state)
        view, made = _view(run, donors[_tools(run)], changes_state, proven), 0
        for kind in rng.sample(list(kinds), len(kinds)):
            if made < per_run and (planted := plant(view, kind, rng)) is not None:
                made += 1
                counts[kind] += 1
                yield _labelled(run, planted, proven)
        counts["without_place"] += not made


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
    """The copy, all of it in native form so that the planted step is written as the others are, and what is known of its steps."""
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
