"""The start of a run: folder, data, labels, base model. A begun run keeps its data and split."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rrm.config import TrainConfig
from rrm.data.annotation import Annotation, match, read_annotations
from rrm.data.extras import call, is_import_path
from rrm.data.labels import JudgementTarget, LabelCounts, StepTarget, merged, step_targets_of, targets_of
from rrm.data.output import drafted
from rrm.data.questions import seen_in_training, text_hash
from rrm.data.splits import PARTS, apply_split, load_split, make_split
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.prompt.prompter import Prompter
from rrm.readers import read
from rrm.readers.base import printable
from rrm.readers.hub import is_hub
from rrm.readers.outcomes import refuse_other_scales
from rrm.train.given_labels import taken
from rrm.train.parent_judges import KEPT, Earlier, earlier_of, kept_earlier, warn_of_met
from rrm.train.ranks import is_main
from rrm.train.run_folder import check_folder, claim_folder, read_record

logger = logging.getLogger(__name__)

# options that must not change between a run and its continuation
FIXED = ("seed", "transcript_tokens", "prompt_version", "model", "data", "drills", "sft")
FREE = ("sft.gradient_accumulation_steps",)  # may change under `sharding: fsdp`: a checkpoint has the rows of an update
GIVEN = "given"  # in `data.annotations`: labels in the transcripts
STAGES = ("drills", "sft", "rl")  # folders; where one exists, the run has begun


@dataclass
class TrainingRun:
    config: TrainConfig
    folder: Path
    parts: dict[str, list[Trajectory]]  # `train`, `calibration`, `test`
    annotations: dict[str, Annotation]  # by trajectory id, several of one transcript merged
    raters: dict[str, list[Annotation]]  # by trajectory id, unmerged
    targets: dict[str, JudgementTarget]  # of the training part, by trajectory id
    step_targets: dict[str, StepTarget]  # labelled steps of the training part, likewise
    labels: LabelCounts  # sources of the targets
    model: Any  # base
    prompter: Prompter
    shared_texts: dict[str, int]  # see `shared_texts`
    # calibration and test rows of questions that the earlier judge was trained on; empty if it is none or names none
    seen_in_training: dict[str, int] = field(default_factory=dict)
    earlier: Earlier = field(default_factory=Earlier)  # judges that it goes on from


def load_annotations(paths: Sequence[str], trajectories: Sequence[Trajectory]) -> dict[str, list[Annotation]]:
    """Annotations by trajectory id; RRMError if one matches two transcripts, or none matches.

    Raises ReadError: names file and line of what is no annotation."""
    matched = match(trajectories, read_annotations(*paths))
    if complaint := matched.complaint():
        if not matched.by_id:
            raise RRMError(f"{complaint}: annotate these very files (`rrm annotate`)")
        logger.warning("%s; they are not used", complaint)
    return matched.by_id


def add_given(trajectories: Sequence[Trajectory], annotations: dict[str, list[Annotation]]) -> None:
    """Add the labels that the transcripts carry; RRMError if none does."""
    counts = Counter[str]()
    for trajectory in trajectories:
        if labels := list(taken(trajectory, counts)):
            annotations.setdefault(trajectory.id, []).extend(labels)
    if not counts["annotated"]:
        raise RRMError(f"data.annotations names {GIVEN!r}, and none of {len(trajectories)} transcripts carries a label")
    for reason in ("annotations_unusable", "leaks_dropped"):
        if counts[reason]:
            logger.warning("labels that the transcripts carry: %s %d", reason, counts[reason])


def merged_by_id(raters: Mapping[str, Sequence[Annotation]]) -> dict[str, Annotation]:
    by_id = {trajectory: merged(several) for trajectory, several in raters.items()}
    return {trajectory: annotation for trajectory, annotation in by_id.items() if annotation is not None}


def load_data(config: TrainConfig) -> tuple[list[Trajectory], dict[str, list[Annotation]]]:
    """The configured transcripts and annotations, then those of `data.generate`.

    Raises:
        RRMError: nothing configured, a missing file, outcomes of another scale (`rrm.readers.outcomes`), or a generated id twice.
    """
    data = config.data
    files = [path for path in data.annotations if path != GIVEN]
    missing = [p for p in (*data.trajectories, *files) if not is_hub(p) and not Path(p).exists()]
    if missing:
        raise RRMError(f"no such file or folder: {', '.join(missing)}")
    trajectories = list(read(data.trajectories, outcome=data.outcome)) if data.trajectories else []
    refuse_other_scales(trajectories)
    annotations = load_annotations(files, trajectories)
    if GIVEN in data.annotations:
        add_given(trajectories, annotations)
    if data.generate is not None:
        own = len(trajectories)
        options = {"options": data.generate_options, "options_key": "data.generate_options"}
        for trajectory, annotation in call(data.generate, "data.generate", seed=config.seed, **options):
            trajectories.append(trajectory)
            annotations.setdefault(annotation.trajectory_id, [annotation])
        if own:
            logger.warning(
                "data.generate=%s adds %d transcripts to the %d of data.trajectories; data.generate=null leaves them out",
                data.generate,
                len(trajectories) - own,
                own,
            )
    if not trajectories:
        raise RRMError(
            "no transcripts: set data.trajectories=[FILE…] (or data.generate=module:function that makes some)"
        )
    name, times = Counter(t.id for t in trajectories).most_common(1)[0]
    if times > 1:
        raise RRMError(
            f"{times} transcripts have the id {printable(name)!r}: data.generate={data.generate} made one that is there already"
        )
    return trajectories, annotations


def data_digest(trajectories: Sequence[Trajectory], annotations: Mapping[str, Annotation]) -> dict[str, Any]:
    """Numbers of transcripts and annotations, and a SHA-256 of their content, in order."""
    digest = hashlib.sha256()
    for row in (*trajectories, *annotations.values()):
        # as pydantic's own JSON, which takes no lone surrogate
        fields = row.model_dump(mode="python", exclude={"source"})
        for name in ("score_weight", "trace_weight", "critique_weight"):  # said where raters differ, as by older runs
            if name in fields and fields[name] == fields["weight"]:
                del fields[name]
        line = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
        digest.update(line.encode("utf-8", "surrogatepass"))
    return {"transcripts": len(trajectories), "annotations": len(annotations), "sha256": digest.hexdigest()}


def check_data(folder: Path, now: dict[str, Any]) -> None:
    """Refuse (RRMError) other data than the run began with: it would be tested on its training data."""
    path = folder / "data.json"
    before = read_record(path) if path.is_file() else now  # runs older than this record
    if before["sha256"] != now["sha256"]:
        raise RRMError(
            f"{folder} holds a run on other data: {before['transcripts']} transcripts and {before['annotations']} "
            f"annotations then, {now['transcripts']} and {now['annotations']} now, or the same number with other content. "
            "A continued run would be tested on what it was trained on: choose another output_dir=…, or give it the data it "
            "began with"
        )


def check_parts(parts: Mapping[str, Sequence[Trajectory]], split: Mapping[str, Sequence[str]], source: str) -> None:
    """Refuse (RRMError) a split that leaves the training, or a part with questions, without transcripts."""
    for name in PARTS:
        if parts[name] or not (split[name] or name == "train"):
            continue
        example = f", e.g. {printable(split[name][0])!r}" if split[name] else ""
        held_out = " and of no held-out agent" if name == "train" and split.get("held_out_agents") else ""
        raise RRMError(
            f"{source}: no transcript is of one of the {len(split[name])} question(s) under {name!r}{example}{held_out}. "
            "The ids are those of question_id (where it is absent: the task's text); --map question_id=… of `rrm convert` "
            "says where it stands"
        )


def shared_texts(parts: Mapping[str, Sequence[Trajectory]]) -> dict[str, int]:
    # calibration and test rows with the question text of a training row
    learned = {text_hash(t.task) for t in parts["train"] if t.task}
    return {
        name: sum(bool(t.task) and text_hash(t.task) in learned for t in parts[name])
        for name in PARTS
        if name != "train"
    }


def trains_every_weight(config: TrainConfig) -> bool:
    return config.sft.lora is None or not config.sft.enabled or bool(config.drills.rows)


def base_and_prompter(
    config: TrainConfig, trajectories: Sequence[Trajectory], annotations: Mapping[str, Annotation]
) -> tuple[Any, Prompter]:
    chosen = config.model
    if is_import_path(chosen.base):
        options = {"options": chosen.options, "options_key": "model.options"}
        model, tokenizer = call(chosen.base, "model.base", trajectories, annotations, seed=config.seed, **options)
    else:
        from rrm.engines.hf.base_model import load_model

        # bfloat16 cannot hold a weight and a step a thousandth of its size: what is trained is held in float32
        model, tokenizer = load_model(
            chosen.model_copy(update={"dtype": "float32"}) if trains_every_weight(config) else chosen
        )
    return model, Prompter(tokenizer, config.transcript_tokens, config.prompt_version)


def write_whole(path: Path, text: str) -> None:
    with drafted(path) as draft:
        draft.write_text(text, encoding="utf-8")


def prepare(config: TrainConfig) -> TrainingRun:
    """Prepare a run; RRMError if the folder holds another run, or the split does not fit the transcripts."""
    folder = Path(config.output_dir)
    begun = [stage for stage in STAGES if (folder / stage).exists()]
    if begun:
        free = FREE if config.sharding == "fsdp" else ()
        check_folder(config, folder, (*FIXED, "rl") if "rl" in begun else FIXED, free)
    # first: a wrong sft.lora.init is known without data or weights
    earlier = (kept_earlier(folder) if begun else None) or earlier_of(config)
    trajectories, raters = load_data(config)
    annotations = merged_by_id(raters)
    digest = data_digest(trajectories, annotations)
    if begun:
        check_data(folder, digest)
    if begun and (folder / "split.json").is_file():
        split, source = load_split(folder / "split.json"), str(folder / "split.json")
    elif config.data.split:
        split, source = load_split(config.data.split), f"data.split={config.data.split}"
    else:
        split, source = make_split(trajectories, config.data, config.seed), "the split by question"
    parts = apply_split(trajectories, split)
    check_parts(parts, split, source)
    targets, labels = targets_of(parts["train"], annotations, config.data.target, config.data.blend)
    steps = step_targets_of(parts["train"], raters)
    model, prompter = base_and_prompter(config, parts["train"], annotations)
    shared = shared_texts(parts)
    known_questions = earlier.questions
    met = (
        {name: len(seen_in_training(known_questions, parts[name])) for name in PARTS if name != "train"}
        if known_questions
        else {}
    )
    if is_main(config.cpu):
        warn_of_met(earlier, parts, met)
        logger.warning("data.target=%s: %s", config.data.target, labels)
        if config.sft.mix.steps:
            bare = sum(name not in targets for name in steps)
            logger.warning("%d rows have labelled steps, %d of them no other label", len(steps), bare)
        if any(shared.values()):
            logger.warning(
                "%d of %d test rows and %d of %d calibration rows have the question text of a training row, under another "
                "question id: where the text is the whole question, the run is measured on what it learned; give such rows "
                "one question_id",
                *(n for name in ("test", "calibration") for n in (shared[name], len(parts[name]))),
            )
        claim_folder(config, folder)
        write_whole(folder / "split.json", json.dumps(split, indent=1) + "\n")
        write_whole(folder / "data.json", json.dumps(digest) + "\n")
        write_whole(folder / KEPT, earlier.model_dump_json() + "\n")
    return TrainingRun(
        config, folder, parts, annotations, raters, targets, steps, labels, model, prompter, shared, met, earlier
    )
