"""Sets of bars, one module each; `python -m benchmarks.bars NAME` prints one, `registry` says what a set is."""
