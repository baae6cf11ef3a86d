"""Feedback from a judge during training: modes, shaping of rewards, second attempts, texts to learn."""
