"""Plays episodes: attempts, chat templates as tokens, and the batched loop that samples."""
