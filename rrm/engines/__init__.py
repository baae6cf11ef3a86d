"""Engines: where completions and log-probabilities come from (`hf` in process, `openai` over HTTP, `scripted`)."""
