"""The agent side of Agent-RRM."""

from reagent.moved import ROOMS
from rrm.moved import forward

forward(ROOMS)
