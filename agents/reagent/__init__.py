"""The agent side of Agent-RRM."""
