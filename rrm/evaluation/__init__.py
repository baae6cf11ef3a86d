"""Measuring a judge: metrics, baselines and bootstrap intervals over questions (`rrm eval`)."""
