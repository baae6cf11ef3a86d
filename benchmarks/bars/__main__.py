"""The command `python -m benchmarks.bars`."""

from benchmarks.bars.registry import main

main()
