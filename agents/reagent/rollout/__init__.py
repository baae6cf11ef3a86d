"""Play: episodes, the templates that lay them out as tokens, and the batched loop that samples them."""
