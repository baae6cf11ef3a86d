"""What stands in for a judge that cannot be loaded: each judgement fails with the reason, which the audit and `on_failure` then have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError


class AbsentJudge:
    """A judge that is not there.

    Args:
        model: its name, for the audit.
        why: it cannot be loaded.
    """

    def __init__(self, model: str | None, why: Exception) -> None:
        self.model, self.why = model, why

    def judge(self, trajectories: Sequence[Trajectory], **asked: object) -> NoReturn:
        """Raises RRMError, always: why there is none."""
        del trajectories, asked
        said = str(self.why) if isinstance(self.why, RRMError) else f"{type(self.why).__name__}: {self.why}"
        raise RRMError(f"no judge: {said}") from self.why
