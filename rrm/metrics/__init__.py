"""Metrics of a judge, as local `evaluate.Metric` modules (nothing is fetched)."""
