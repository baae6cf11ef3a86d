"""The agent side of Agent-RRM."""

from rrm.moved import forward

forward()
