"""What a judge's card may say of its base: whose it is and under which licence. Nothing is claimed that is not known."""

from __future__ import annotations

from typing import Any

import yaml

from rrm.judge.judge_dir import judge_folder
from rrm.models.hub import HubError, download

HUB_NAMES = {"smollm2": "HuggingFaceTB/SmolLM2-135M-Instruct"}
"""Public names of bases that have a short one here."""
LICENCES = {"smollm2": "apache-2.0"}
"""Of bases that come without a card (their weights are taken from a package)."""
KEYS = ("license", "license_name", "license_link")


def card_head(base: str | None) -> list[str]:
    """The lines of a model card's front matter between its `---`: library, tags, and the base's name and licence.

    Args:
        base: what the judge was trained from: `smollm2`, a hub id, a directory; None (or an import path) for one that was
            trained from scratch, whose licence is its maker's to say.
    """
    facts: dict[str, Any] = {"library_name": "agent-rrm", "tags": ["reward-model", "agents"]}
    if base is not None and ":" not in base:
        if judge_folder(base) is None:
            facts["base_model"] = HUB_NAMES.get(base, base)
        facts |= licence_of(base) or {"license": "other", "license_name": "that-of-the-base"}
    return yaml.safe_dump(facts, sort_keys=False, default_flow_style=None).splitlines()


def licence_of(base: str) -> dict[str, str]:
    """The licence as a base's own card gives it, {} where it has no card or the card names none."""
    if base in LICENCES:
        return {"license": LICENCES[base]}
    folder = judge_folder(base)
    if folder is None:
        try:
            folder = download(base, weights=False)
        except HubError:
            return {}
    card = folder / "README.md"
    found = front_matter(card.read_text(encoding="utf-8", errors="replace")) if card.is_file() else {}
    return {key: str(found[key]) for key in KEYS if found.get(key)}


def front_matter(text: str) -> dict[str, Any]:
    """The YAML between a card's first two `---` lines, {} where there is none that can be read."""
    opening, _, rest = text.partition("---\n")
    head, closing, _ = rest.partition("\n---")
    if opening.strip() or not closing:
        return {}
    try:
        found = yaml.safe_load(head)
    except yaml.YAMLError:
        return {}
    return found if isinstance(found, dict) else {}
