"""Base models: their weights, fetched once, and how they are loaded."""
