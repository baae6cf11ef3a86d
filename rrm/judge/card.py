"""Parts of a judge's model card: base, licence and calibration, as far as known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import yaml

from rrm.data.feedback import Mode
from rrm.data.plain_yaml import plain_yaml
from rrm.engines.hf.hub import download
from rrm.engines.shipped_judges import judge_folder
from rrm.errors import DownloadError
from rrm.judge.calibration import P_GOOD
from rrm.judge.judge_dir import JudgeSettings

HUB_NAMES = {"smollm2": "HuggingFaceTB/SmolLM2-135M-Instruct"}  # public names of bases with a short name here
LICENCES = {"smollm2": "apache-2.0"}  # of bases without a card (their weights come from a package)
KEYS = ("license", "license_name", "license_link")


def card_head(base: str | None) -> list[str]:
    """Return the lines of a model card's front matter: library, tags, the base's name and licence.

    `base` is `smollm2`, a hub id or a directory; None or an import path: trained from scratch, licence up to its maker.
    """
    facts: dict[str, Any] = {"library_name": "agent-rrm", "tags": ["reward-model", "agents"]}
    if base is not None and ":" not in base:
        if judge_folder(base) is None:
            facts["base_model"] = HUB_NAMES.get(base, base)
        facts |= licence_of(base) or {"license": "other", "license_name": "that-of-the-base"}
    return yaml.safe_dump(facts, sort_keys=False, default_flow_style=None).splitlines()


def licence_of(base: str) -> dict[str, str]:
    """Return the licence fields of a base's own card, {} if none."""
    if base in LICENCES:
        return {"license": LICENCES[base]}
    folder = judge_folder(base)
    if folder is None:
        try:
            folder = download(base, weights=False)
        except DownloadError:
            return {}
    card = folder / "README.md"
    fields = front_matter(card.read_text(encoding="utf-8", errors="replace")) if card.is_file() else {}
    return {key: str(fields[key]) for key in KEYS if fields.get(key)}


def front_matter(text: str) -> dict[str, Any]:
    """Parse the YAML between a card's first two `---` lines, {} if unreadable."""
    opening, _, rest = text.partition("---\n")
    head, closing, _ = rest.partition("\n---")
    if opening.strip() or not closing:
        return {}
    try:
        fields = plain_yaml(head)
    except yaml.YAMLError:
        return {}
    return fields if isinstance(fields, dict) else {}


def calibrated(settings: JudgeSettings) -> str:
    covers = settings.calibration.covers
    modes: list[str] = []
    for mode in get_args(Mode):
        if covers(mode) or covers(mode, windowed=True):
            modes.append(
                mode if covers(mode) else f"{mode} (of transcripts read in windows, as all were that it was fitted on)"
            )
    if not modes:
        return "Its scores are not calibrated."
    sentence = f"Scores are calibrated in mode {' and '.join(modes)}" + (", in no other." if len(modes) < 4 else ".")
    return sentence + (" So is the probability of each step." if P_GOOD in settings.calibration.modes else "")


# heading of the last section of a card by `rrm calibrate`
CALIBRATION = "## Calibrated on labels"


def served_card(settings: JudgeSettings) -> str:
    rubric = f"the questions of {settings.criteria.identity}" if settings.criteria else "the fixed rubric"
    lines = [
        "---", *card_head(None), "---", "", f"# {settings.name}", "",
        f"A reasoning reward model for agents: the model of {settings.engine}, asked {rubric}. {calibrated(settings)}", "",
        f"Transcript budget: {settings.transcript_tokens} tokens; longer transcripts are read in windows of as many.", "",
    ]  # fmt: skip
    return "\n".join(lines)


def with_section(card: str, heading: str, section: str) -> str:
    return f"{card.partition(heading)[0].rstrip()}\n\n{heading}\n\n{section}"


def calibrated_section(record: Mapping[str, Any]) -> str:
    """Return the card's section on a record of `calibration.json`."""
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
    if note := record.get("no_order"):
        lines += ["", f"{note[0].upper()}{note[1:]}."]
    if record["interval"]:
        lines += ["", "| raw score | calibrated | 95 % interval |", "|---|---|---|"]
        lines += [
            f"| {row['raw']:.3f} | {row['score']:.3f} | {row['low']:.3f} – {row['high']:.3f} |"
            for row in record["interval"]
        ]
    return "\n".join([*lines, ""])


def interval_text(interval: Mapping[str, Any]) -> str:
    """Format as `0.071 [0.032, 0.110]`, without a missing interval; a dash for no value."""
    if interval["value"] is None:
        return "–"
    return f"{interval['value']:.3f}" + (
        "" if interval["low"] is None else f" [{interval['low']:.3f}, {interval['high']:.3f}]"
    )
