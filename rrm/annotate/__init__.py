"""Annotators: what writes labels of steps. Checks by program, and mistakes planted into copies of runs that succeeded."""
