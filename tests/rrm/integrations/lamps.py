"""Environments of TRL's protocol."""

from __future__ import annotations

from typing import Any


class Lamp:
    """An environment of TRL's protocol."""

    def __init__(self) -> None:
        self.lit: list[str] = []

    def reset(self, room: str = "hall", **_: Any) -> str:
        self.lit = []
        return f" Light the {room}."

    def light(self, room: str) -> str:
        """Light a room.

        Args:
            room: Which room.
        """
        if room == "roof":
            raise ValueError("there is no lamp")
        self.lit.append(room)
        return f"{room} is lit"


class Paid(Lamp):
    """One that pays of its own."""

    def get_reward(self) -> float:
        return 10.0 * len(self.lit)
