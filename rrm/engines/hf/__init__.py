"""The in-process engine over a transformers model: KV kept between turns, shared prefixes prefilled once."""
