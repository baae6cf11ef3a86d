"""Any number of transcripts over a server: each is begun as soon as one more request may be sent, and no batch ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from rrm.data.feedback import Feedback
from rrm.data.trajectory import Trajectory
from rrm.judge.domain import DomainFlagger, OutOfDomainDetector
from rrm.judge.empty_transcripts import unspoken
from rrm.judge.judge_request import JudgeRequest
from rrm.judge.windowed import Backend, JudgeState, hear_all


def judge_stream(
    backend: Backend,
    trajectories: Iterable[Trajectory],
    wanted: JudgeRequest,
    domain: OutOfDomainDetector | None,
    on_feedback: Callable[[Feedback], None],
) -> None:
    """Judge each transcript; one without a step is `unparsable`, and nobody is asked.

    Args:
        trajectories: read in a thread of their own, a little ahead.
        wanted: its own `on_feedback` is not called.
        domain: marks rows unlike what the judge was measured on.
        on_feedback: hears of each row as soon as it is judged, of one at a time.

    Raises:
        SpendingLimit: the money is spent: what was begun was judged, the rest was not.
    """
    one_at_a_time = threading.Lock()

    def tell(feedback: Feedback, trajectory: Trajectory) -> None:
        with one_at_a_time:
            on_feedback(DomainFlagger(domain, [trajectory]).mark(feedback, trajectory))

    def spoken() -> Iterator[Trajectory]:
        for trajectory in trajectories:
            if trajectory.steps:
                yield trajectory
            else:
                tell(unspoken(trajectory, wanted.info), trajectory)

    def ended(chain: JudgeState, rows: list[Feedback]) -> None:
        tell(rows[0], chain.trajectory)

    hear_all(backend, spoken(), wanted, ended)
