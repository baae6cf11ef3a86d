"""Feedback modes: how an Agent-RRM's critiques and scores enter an agent's training (`feedback.mode`, docs/feedback.md)."""
