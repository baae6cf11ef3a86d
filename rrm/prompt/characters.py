"""Budgets in characters, where what reads the prompt is a server whose tokenizer is not at hand."""

from __future__ import annotations


class CharacterTokenizer:
    """Counts a token as four characters: the budget of a server whose tokenizer we do not have."""

    ids_a_token = 4

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """One id a character."""
        return [ord(c) for c in text]

    def decode(self, token_ids: list[int]) -> str:
        """The inverse of `encode`."""
        return "".join(map(chr, token_ids))


CHARACTERS_PER_TOKEN = CharacterTokenizer.ids_a_token
