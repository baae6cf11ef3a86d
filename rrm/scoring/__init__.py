"""Scoring runs of more than one judge."""
