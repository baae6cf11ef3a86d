"""What a judge's card may say: of its base, whose it is and under which licence, and what is calibrated. Nothing is claimed that is
not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import yaml

from rrm.data.feedback import Mode
from rrm.data.plain_yaml import plain_yaml
from rrm.engines.hf.hub import HubError, download
from rrm.engines.shipped_judges import judge_folder
from rrm.judge.calibration import P_GOOD
from rrm.judge.judge_dir import JudgeSettings

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
        found = plain_yaml(head)
    except yaml.YAMLError:
        return {}
    return found if isinstance(found, dict) else {}


def calibrated(settings: JudgeSettings) -> str:
    """One sentence: in which modes scores are calibrated, however transcripts are read in them."""
    covers = settings.calibration.covers
    modes: list[str] = []
    for mode in get_args(Mode):
        if covers(mode) or covers(mode, windowed=True):
            modes.append(
                mode if covers(mode) else f"{mode} (of transcripts read in windows, as all were that it was fitted on)"
            )
    if not modes:
        return "Its scores are not calibrated."
    said = f"Scores are calibrated in mode {' and '.join(modes)}" + (", in no other." if len(modes) < 4 else ".")
    return said + (" So is the probability of each step." if P_GOOD in settings.calibration.modes else "")


CALIBRATION = "## Calibrated on labels"
"""Heading of the card's last section, of a judge that `rrm calibrate` made."""


def served_card(settings: JudgeSettings) -> str:
    """The card of a judge that is a server's model and its settings."""
    asked = f"the questions of {settings.criteria.identity}" if settings.criteria else "the fixed rubric"
    lines = [
        "---", *card_head(None), "---", "", f"# {settings.name}", "",
        f"A reasoning reward model for agents: the model of {settings.engine}, asked {asked}. {calibrated(settings)}", "",
        f"Transcript budget: {settings.transcript_tokens} tokens; longer transcripts are read in windows of as many.", "",
    ]  # fmt: skip
    return "\n".join(lines)


def with_section(card: str, heading: str, section: str) -> str:
    """The card with a section of this heading at its end, in the place of an earlier one."""
    return f"{card.partition(heading)[0].rstrip()}\n\n{heading}\n\n{section}"


def calibrated_section(record: Mapping[str, Any]) -> str:
    """What `rrm calibrate` found, for a card.

    Args:
        record: of `calibration.json`.
    """
    labels = ", ".join(f"{n} from {source}" for source, n in record["labels"].items())
    lines = [
        f"Mode {record['mode']}, {record['rows']} rows of {record['questions']} questions, {record['positive']:.0%} of success "
        f"({labels}). What stands above was measured before. On data unlike these rows scores are not calibrated.", "",
        "| out of fold | before | after | difference |", "|---|---|---|---|",
    ]  # fmt: skip
    for name in ("ece", "brier", "auroc"):
        kinds = ("before", "after", "difference")
        lines.append(
            f"| {name} | {' | '.join('–' if record[k] is None else interval_text(record[k][name]) for k in kinds)} |"
        )
    if said := record.get("no_order"):
        lines += ["", f"{said[0].upper()}{said[1:]}."]
    if record["interval"]:
        lines += ["", "| raw score | calibrated | 95 % interval |", "|---|---|---|"]
        lines += [
            f"| {at['raw']:.3f} | {at['score']:.3f} | {at['low']:.3f} – {at['high']:.3f} |" for at in record["interval"]
        ]
    return "\n".join([*lines, ""])


def interval_text(found: Mapping[str, Any]) -> str:
    """`0.071 [0.032, 0.110]`; without the interval where there is none, a dash for no value."""
    if found["value"] is None:
        return "–"
    return f"{found['value']:.3f}" + ("" if found["low"] is None else f" [{found['low']:.3f}, {found['high']:.3f}]")
