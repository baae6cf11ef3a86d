"""Measures of a judge: numpy functions in `pairs`, `probability`, `process` and `text`."""


def __getattr__(name: str) -> None:
    if name[:1].isupper():
        raise ImportError(f"rrm.evaluation.metrics.{name} is gone: examples/evaluate_metric.py is an evaluate.Metric")
    raise AttributeError(f"module 'rrm.evaluation.metrics' has no attribute {name!r}")
