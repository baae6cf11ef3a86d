"""Names of judges that installed packages ship, and their folders."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

from rrm.errors import RRMError

FILE = "judge.json"
JUDGES = "rrm.judges"  # entry point group under which packages name the judges they ship
ASSETS = Path(__file__).resolve().parents[1] / "assets"
DEFAULT = "small"
OWN = {"small": "small", "default": "small", "base": "base"}  # names of the judges of this package, and their folders


def shipped(name: str) -> Path:
    """Folder of a shipped judge: own ones (`OWN`), or by a function at entry point `rrm.judges`.

    Raises:
        RRMError: nothing installed ships a judge of that name.
    """
    if name in OWN:
        folder = ASSETS / OWN[name]
    else:
        points = {point.name: point for point in entry_points(group=JUDGES)}
        if name not in points:
            raise RRMError(f"no judge named {name!r} is installed; there are {', '.join([DEFAULT, *sorted(points)])}")
        folder = Path(points[name].load()())
    if not (folder / FILE).is_file():
        raise RRMError(f"this installation has no {name} judge; name one with --model")
    return folder


def is_shipped(name: str) -> bool:
    return name in OWN or any(point.name == name for point in entry_points(group=JUDGES))


def judge_folder(name: str) -> Path | None:
    """Folder of a name: an existing folder (of a run, its `judge`), else a shipped judge, else None."""
    here = Path(name).expanduser()
    if here.is_dir():
        return here / "judge" if (here / "judge" / FILE).is_file() else here
    return shipped(name) if is_shipped(name) else None
