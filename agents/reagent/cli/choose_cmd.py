"""`reagent choose`, the same as `rrm choose`."""

from rrm.cli.choose_cmd import command

__all__ = ["command"]
