"""Put transcripts with labels and judgements on the Hugging Face hub, without keys and passwords of known forms.

    pip install datasets
    python examples/push_dataset.py runs/ --to owner/name --license mit --annotations labels.jsonl --scores scored.jsonl --dry-run set.parquet

Look at what `--dry-run` wrote, then push without it: the set is private unless you say `--public`. `rrm` reads it as `hf:owner/name:train`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

try:
    from datasets import Dataset
    from huggingface_hub import create_repo, metadata_update, repo_info
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install datasets")

from rrm import Annotation, Feedback, Trajectory
from rrm.data.annotation import match, own_annotations, read_annotations
from rrm.data.secrets import clean
from rrm.errors import RRMError
from rrm.readers import read
from rrm.scoring.row_matching import feedback_rows, match_rows


def shown(judge: str) -> str:
    """A judge's name without its server or folder."""
    return "a served model" if "://" in judge and "#" not in judge else judge.rpartition("#")[2].rpartition("/")[2]


def row(run: Trajectory, labels: Sequence[Annotation], said: Feedback | None, found: Counter[str]) -> dict[str, Any]:
    """A row of columns; what is nested is JSON text, for a column of objects would give every call the arguments of all others."""
    nested: dict[str, Any] = run.model_dump(include={"messages", "tools"}, exclude_none=True)
    nested["meta"] = {k: v for k, v in run.meta.items() if k == "reference"}  # the rest may name hosts and people
    labels = [*own_annotations(run)[0], *labels]
    nested["annotations"] = [a.model_dump(exclude_none=True) | {"annotator": shown(a.annotator)} for a in labels]
    if said is not None:
        nested["feedback"] = said.model_dump(exclude={"id", "usage", "reason"}, exclude_none=True)
        nested["feedback"]["judge"]["model"] = shown(said.judge.model)
    plain = {name: getattr(run, name) for name in ("schema_version", "id", "task", "question_id", "outcome")}
    texts = {k: json.dumps(clean(v, found)) for k, v in nested.items() if v}
    return clean(plain, found) | dict.fromkeys(("tools", "meta", "annotations", "feedback")) | texts


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--to", required=True)
    parser.add_argument("--license", required=True, help="as the hub writes it: mit, cc-by-4.0, unknown, …")
    parser.add_argument("--annotations", nargs="*", default=[])
    parser.add_argument("--scores")
    parser.add_argument("--public", action="store_true")
    parser.add_argument("--dry-run")
    args = parser.parse_args(arguments)
    runs, found = list(read(args.inputs)), Counter[str]()
    labels = match(runs, read_annotations(*args.annotations))
    if labels.strays:
        raise RRMError(str(labels.complaint()))
    said = match_rows(feedback_rows(args.scores), runs, args.scores) if args.scores else [None] * len(runs)
    pairs = zip(runs, said, strict=True)
    rows = Dataset.from_list([row(run, labels.by_id.get(run.id, ()), one, found) for run, one in pairs])
    if args.dry_run:
        rows.to_parquet(args.dry_run)
    else:
        create_repo(args.to, repo_type="dataset", private=not args.public, exist_ok=True)
        if repo_info(args.to, repo_type="dataset").private == args.public:
            sys.exit(f"error: {args.to} is there, and is {'private' if args.public else 'public'}")
        rows.push_to_hub(args.to)
        metadata_update(args.to, {"license": args.license}, repo_type="dataset", overwrite=True)
    print(json.dumps({"rows": len(rows), "removed": found}))


if __name__ == "__main__":
    main()
