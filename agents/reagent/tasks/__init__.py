"""Benchmarks, one file each: published formats in, tasks and their own metric out (docs/tasks.md)."""
