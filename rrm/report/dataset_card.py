"""A data set's card: what the rows are, who judged and labelled them, and what nobody has checked. Nothing is claimed that is not known."""

from __future__ import annotations

import logging
import re
from typing import Any

import yaml

from rrm import __version__
from rrm.data.printing import nearest
from rrm.errors import ConfigError
from rrm.report.dataset import COLUMNS, Contents

log = logging.getLogger(__name__)
LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]{1,48}")
LICENCES = {
    "apache-2.0", "mit", "openrail", "bigscience-openrail-m", "creativeml-openrail-m", "bigscience-bloom-rail-1.0",
    "bigcode-openrail-m", "afl-3.0", "artistic-2.0", "bsl-1.0", "bsd", "bsd-2-clause", "bsd-3-clause",
    "bsd-3-clause-clear", "c-uda", "cc", "cc0-1.0", "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0",
    "cc-by-sa-3.0", "cc-by-sa-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nd-4.0",
    "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0",
    "cdla-sharing-1.0", "cdla-permissive-1.0", "cdla-permissive-2.0", "wtfpl", "ecl-2.0", "epl-1.0", "epl-2.0",
    "etalab-2.0", "eupl-1.1", "eupl-1.2", "agpl-3.0", "gfdl", "gpl", "gpl-2.0", "gpl-3.0", "lgpl", "lgpl-2.1",
    "lgpl-3.0", "isc", "h-research", "intel-research", "lppl-1.3c", "ms-pl", "apple-ascl", "apple-amlr", "mpl-2.0",
    "odc-by", "odbl", "openmdw-1.0", "openrail++", "osl-3.0", "postgresql", "ofl-1.1", "ncsa", "unlicense", "zlib",
    "pddl", "lgpl-lr", "deepfloyd-if-license", "fair-noncommercial-research-license", "llama2", "llama3", "llama3.1",
    "llama3.2", "llama3.3", "llama4", "grok2-community", "gemma", "unknown", "other",
}  # fmt: skip
"""Identifiers that the hub knows (https://huggingface.co/docs/hub/repositories-licenses); it refuses a card with another one."""
FORMATS = 20
"""That are named."""
SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)


def check_licence(licence: str) -> str:
    """The licence as the hub writes it; warns of one that it may not know, with the nearest that it does.

    Raises:
        ConfigError: it is no identifier (`apache-2.0`, `cc-by-4.0`, `other`, `unknown`).
    """
    name = licence.strip().lower()
    if not LICENCE.fullmatch(name):
        raise ConfigError(
            f"--license {licence!r}: give the hub's identifier, e.g. apache-2.0, cc-by-4.0, other or unknown"
        )
    if name not in LICENCES:
        near = nearest(name, LICENCES)
        log.warning(
            "--license %s is none of the identifiers that the hub is known to take, and it refuses a card with another%s: see "
            "https://huggingface.co/docs/hub/repositories-licenses, or say other",
            name,
            f" (nearest: {near})" if near else "",
        )
    return name


def card(contents: Contents, name: str, licence: str) -> str:
    """The README of a data set.

    Args:
        name: `owner/name`.
        licence: the hub's identifier (`check_licence`).
    """
    size = next((word for limit, word in SIZES if contents.rows < limit), "n>10M")
    head: dict[str, Any] = {"license": licence}
    head |= {
        "pretty_name": name.rpartition("/")[2],
        "tags": ["agents", "reward-model", "agent-rrm"],
        "size_categories": [size],
    }
    head |= {
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": "data/train-*.parquet"}]}]
    }
    front = yaml.safe_dump(head, sort_keys=False, allow_unicode=True).strip()
    parts = [f"---\n{front}\n---", f"# {name.rpartition('/')[2]}", _summary(contents), _rows(contents)]
    parts += [_labels(contents), _judges(contents), _columns(contents), _reading(name, contents), _privacy(contents)]
    parts.append(f"## Licence\n\n`{licence}`, as said by who published it.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(contents: Contents) -> str:
    return (
        f"{contents.rows:,} transcripts of agents ({contents.steps:,} steps, {len(contents.questions):,} questions), one a row, "
        f"with the labels and judgements that follow. Written by agent-rrm {__version__}."
    )


def _rows(contents: Contents) -> str:
    most = contents.formats.most_common(FORMATS)
    formats = ", ".join(f"`{_cell(name)}` {count:,}" for name, count in most)
    if others := contents.rows - sum(count for _, count in most):
        formats += f", others {others:,}"
    outcomes = ", ".join(f"{what} {contents.outcomes[what]:,}" for what in ("success", "partial", "failure", "unknown"))
    return f"## Rows\n\n- read from: {formats}\n- outcomes: {outcomes}"


def _labels(contents: Contents) -> str:
    if not contents.annotators:
        return "## Labels\n\nNone."
    lines = [
        "## Labels",
        "",
        "| annotator | kind | labels | score | trace | critique | findings |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, kind), counts in sorted(contents.annotators.items()):
        cells = [f"{counts[part]:,}" for part in ("labels", "score", "trace", "critique", "findings")]
        lines.append(f"| {_cell(name)} | {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _judges(contents: Contents) -> str:
    if not contents.judges:
        return ""
    lines = [
        "## Judgements",
        "",
        "| judge | hash | prompt version | mode | criteria | rows |",
        "|---|---|---|---|---|---|",
    ]
    for said, count in contents.judges.most_common():
        lines.append(f"| {' | '.join(_cell(word) for word in said)} | {count:,} |")
    ended = ", ".join(f"{status} {count:,}" for status, count in contents.statuses.most_common())
    said = f"How they ended: {ended}. A row that is not `scored` has no score; that is no zero."
    if contents.ranked:
        said += (
            f" {contents.ranked:,} have a `rank`: attempts at one question were compared, and their scores are relative. They average to a half "
            "whether the attempts are good or bad; compare them within a question alone."
        )
    return "\n".join([*lines, "", said])


def _columns(contents: Contents) -> str:
    shown = {k: v for k, v in COLUMNS.items() if k != "meta" or contents.with_meta}
    return "\n".join(
        ["## Columns", "", "| column | what |", "|---|---|", *(f"| `{k}` | {v} |" for k, v in shown.items())]
    )


def _reading(name: str, contents: Contents) -> str:
    labels = f"rrm annotate hf:{name}:train -o labels.jsonl --annotator given\n" if contents.annotators else ""
    return (
        f"## Reading\n\n```\nrrm convert hf:{name}:train -o runs.jsonl\n{labels}```\n\n"
        f'or `datasets.load_dataset("{name}", split="train")`, and `json.loads` of the JSON columns.'
    )


def _privacy(contents: Contents) -> str:
    found = ", ".join(f"{kind} {count:,}" for kind, count in sorted(contents.found.counts.items()))
    looked = "Texts were searched for keys and passwords of known forms: " + (
        f"{found} found"
        + (", replaced by `[removed]`." if contents.redacted else ", and left in on the publisher's word.")
        if found
        else "none found."
    )
    return (
        "## Before you use it\n\nTranscripts of agents may hold private text: names, addresses, file contents, what tools returned. "
        f"Nobody has vouched for each row. {looked} Text in a transcript is data: it may try to instruct whoever reads it. "
        "Scores and critiques are a judge's, and may be wrong."
    )


def _cell(text: str) -> str:
    """A text in a table of Markdown, in which it can open nothing."""
    words = " ".join(re.sub(r"[`|<>\[\]]", " ", text).split())
    return words[:120] or "–"
