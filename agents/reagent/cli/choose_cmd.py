"""`reagent choose`: `rrm choose`, for who plays attempts and has no other errand there."""

from rrm.cli.choose_cmd import command

__all__ = ["command"]
