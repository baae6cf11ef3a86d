"""An annotation file: which transcripts it labels already, whatever they are called now, and an append to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from rrm.data.annotation import Annotation
from rrm.data.output import WAY_OUT, Output
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError


class LabelledDigests:
    """The transcripts that an annotation file labels, by the digest of their content.

    One line is enough for a transcript to count as labelled, also where a killed run had more to write (`self --keep 2`).
    """

    def __init__(self, output: Output) -> None:
        """Read the lines that stand.

        Raises:
            RRMError: a line that is no annotation of a transcript.
        """
        self._output = output
        self._names: dict[str, set[str]] = defaultdict(set)
        """digest → ids of the transcripts with that content that have a label (or are being given one)"""
        self._taken: dict[str, set[str]] = defaultdict(set)
        """The part of them that was met in this run's input."""
        self.read = self.resumed = self.repeated = self.written = 0
        for number, row in output.rows():
            try:
                annotation = Annotation.model_validate(row)
            except ValueError as error:
                raise RRMError(f"{output.path}:{number}: not an annotation; {WAY_OUT}") from error
            if annotation.digest is None:
                raise RRMError(f"{output.path}:{number}: an annotation without a digest; {WAY_OUT}")
            self._names[annotation.digest].add(annotation.trajectory_id)

    def unlabelled(self, trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
        """The transcripts without a label; counts `read`, `resumed`, and `repeated`: the same one given twice."""
        for trajectory in trajectories:
            self.read += 1
            names, taken = self._names[trajectory.digest], self._taken[trajectory.digest]
            name = trajectory.own_id
            if name in taken:
                self.repeated += 1
                continue
            label = name if name in names else next(iter(sorted(names - taken)), None)
            taken.add(name if label is None else label)
            if label is None:
                yield trajectory
            else:
                self.resumed += 1

    def append(self, annotations: Iterable[Annotation]) -> int:
        """Append annotations as they are made; returns how many, which `written` counts as they come."""
        before = self.written
        for annotation in annotations:
            self.written += self._output.append([annotation.model_dump(exclude_none=True)])
        return self.written - before
