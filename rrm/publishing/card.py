"""A data set's card: what the rows are, who judged and labelled them, and what nobody has checked. Nothing is claimed that is not known."""

from __future__ import annotations

import re
from typing import Any

import yaml

from rrm import __version__
from rrm.errors import ConfigError
from rrm.publishing.dataset import COLUMNS, Contents

LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]{1,48}")
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
    """The licence as the hub writes it.

    Raises:
        ConfigError: it is no identifier (`apache-2.0`, `cc-by-4.0`, `other`, `unknown`).
    """
    name = licence.strip().lower()
    if not LICENCE.fullmatch(name):
        raise ConfigError(
            f"--license {licence!r}: give the hub's identifier, e.g. apache-2.0, cc-by-4.0, other or unknown"
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
