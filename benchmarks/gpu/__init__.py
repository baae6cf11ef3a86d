"""Runs for one H100 on a machine without a network: a queue of items, and what carries them there and back."""
