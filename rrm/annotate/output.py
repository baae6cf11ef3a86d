"""An annotation file that is appended to, and the transcripts it already labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from rrm.data.annotation import Annotation
from rrm.data.output import WAY_OUT, RowFile
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError


class LabelledDigests:
    """The transcripts that an annotation file labels by one line or more, by their content's digest."""

    def __init__(self, output: RowFile) -> None:
        """Read the file; raises RRMError for a line that is no annotation of a transcript."""
        self._output = output
        self._names: dict[str, set[str]] = defaultdict(set)
        """Digest → ids of transcripts with a label, or about to get one."""
        self._taken: dict[str, set[str]] = defaultdict(set)
        """Digest → those of the ids that this run's input has had."""
        self.read = self.resumed = self.repeated = self.written = 0
        for number, annotation in output.rows(Annotation.model_validate, "an annotation"):
            if annotation.digest is None:
                raise RRMError(f"{output.path}:{number}: an annotation without a digest; {WAY_OUT}")
            self._names[annotation.digest].add(annotation.trajectory_id)

    def unlabelled(self, trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
        """Yield the transcripts without a label; count `read`, `resumed`, and `repeated`."""
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
        before = self.written
        for annotation in annotations:
            self.written += self._output.append([annotation.model_dump(exclude_none=True)])
        return self.written - before
