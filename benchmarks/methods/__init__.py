"""Ways to answer a benchmark's questions, one small file each: what `benchmarks.agents.run --methods` takes (docs/tasks.md)."""
