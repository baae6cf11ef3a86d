"""The in-process engine: KV kept between turns, shared prefixes prefilled once."""
