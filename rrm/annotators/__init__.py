"""Annotators: each makes training labels (`rrm.annotation.Annotation`) from trajectories. See docs/annotating.md."""
