"""Sources of completions and log-probabilities: `hf` in process, `openai` over HTTP, `scripted`."""
