"""Sets of bars: tables of figures and tests, and modules for what a table cannot say; `python -m benchmarks.bars NAME` prints one."""
