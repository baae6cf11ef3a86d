"""Runnable studies and measurements; each module's docstring gives its command. Results go to benchmarks/results."""
