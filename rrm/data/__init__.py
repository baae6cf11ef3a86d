"""Data: what a run is made of, in one form, and what a label of a step means."""
