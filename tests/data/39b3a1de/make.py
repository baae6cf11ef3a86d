"""Makes the files of this folder anew, with the code of commit 39b3a1de (README.md)."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors.torch import load_file

import reagent.cli
import rrm.cli


def run(line: str) -> None:
    """A command line, in this process.

    Raises:
        SystemExit: it ended with another code than 0 and 1 (1: some lines could not be read).
    """
    print("$", line, flush=True)
    sys.argv = shlex.split(line)
    try:
        {"rrm": rrm, "reagent": reagent}[sys.argv[0]].cli.main()
    except SystemExit as ended:
        if ended.code not in (None, 0, 1):
            raise


def lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines(keepends=True)


def policy(folder: str) -> None:
    """A tiny untrained policy."""
    from reagent.lab.demonstrations import demonstrations
    from reagent.lab.model import build_lab_model, build_lab_tokenizer
    from reagent.rollout.templates import LAB_TEMPLATE

    texts = [message["content"] for one in demonstrations("search", 24, 0, hops=1) for message in one.messages]
    tokenizer = build_lab_tokenizer(texts, 400)
    tokenizer.chat_template = LAB_TEMPLATE
    build_lab_model(tokenizer, hidden=8, layers=1, heads=2, intermediate=16, seed=0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def stopped_judge() -> None:
    """Take the judge out, and leave the folder of its training as a kill after the first update."""
    Path("judge-run/judge").rename("judge")
    for name in ("checkpoint-2", "model"):
        shutil.rmtree(f"judge-run/sft/{name}")
    for name in ("README.md", "done.json", "trainer_state.json"):
        Path(f"judge-run/sft/{name}").unlink()


def stopped_agent() -> None:
    """Leave the folder of an agent's training as a kill after the first update."""
    run_folder = Path("agent-run")
    for name in ("policy", "checkpoints/checkpoint-000002"):
        shutil.rmtree(run_folder / name)
    (run_folder / "curves.png").unlink()
    for path in run_folder.glob("*.jsonl"):
        first = [line for line in lines(str(path)) if json.loads(line)["update"] == 0]
        path.write_text("".join(first), encoding="utf-8")


def label() -> None:
    """What a rater says in the page of `rrm label`: outcomes, steps, and one action taken back."""
    from rrm.labelling.journal import open_journal
    from rrm.labelling.pool import Pool
    from rrm.labelling.said import CATEGORIES
    from rrm.labelling.server import Act, Labelling
    from rrm.trajectory import read_canonical

    runs = list(read_canonical(Path("transcripts.jsonl")))
    said: list[tuple[int, dict[str, Any]]] = [
        (0, {"field": "outcome", "value": "good"}),
        (0, {"field": "verdict", "step": 1, "value": "good"}),
        (1, {"field": "verdict", "step": 2, "value": "bad"}),
        (1, {"field": "category", "step": 2, "value": "wrong tool"}),
        (1, {"field": "step_comment", "step": 2, "value": "asked for the wrong friend"}),
        (1, {"field": "outcome", "value": "bad"}),
        (2, {"field": "comment", "value": "cannot tell"}),
        (2, {"field": "outcome", "value": "unsure"}),
        (3, {"field": "outcome", "value": "bad"}),
    ]
    with open_journal(Path("labels.jsonl"), "ann") as journal, Pool(runs) as pool:
        page = Labelling(pool, journal, "both", CATEGORIES)
        for number, (place, change) in enumerate(said):
            act = {"action": f"action-{number:04d}", "digest": pool.items[place].digest, "change": change}
            page.act(Act.model_validate(act))
        page.act(Act(action="action-undo", undo=True))


def answers() -> None:
    """What a rater's browser saves of the sheet."""
    from rrm.comparing.analysis import Answers, sum_of_answers

    key = json.loads(Path("sheet.key.json").read_text(encoding="utf-8"))
    choices = dict(zip(key["items"], ("left", "right", "tie", "left"), strict=False))
    given = Answers(sheet=key["sheet"], rater="ann", answers=choices)  # pyright: ignore[reportArgumentType]
    given.checksum = sum_of_answers(given)
    Path("answers-ann.json").write_text(given.model_dump_json(indent=1) + "\n", encoding="utf-8")


def values() -> dict[str, Any]:
    """What must stay the same: hashes, seeds, samples."""
    from rrm.seeds import derive_seed

    from rrm import AgentRRM
    from rrm.engines.base import SamplingParams

    saved = json.loads(Path("judge/judge.json").read_text(encoding="utf-8"))
    settings: list[dict[str, Any]] = [
        saved,
        {"name": "bare"},
        {"base": "org/base", "base_revision": "v1", "engine": "openai", "opening": False, "prompt_version": "1"},
        {
            "threshold": 0.7,
            "max_windows": 3,
            "transcript_tokens": 900,
            "max_new_tokens": 77,
            "modes": ["full", "steps"],
        },
        {"request": {"temperature": 0.7, "reasoning_effort": "low"}, "default_mode": "score", "grid": [0.0, 0.5, 1.0]},
    ]
    parts: list[list[Any]] = [
        [0, "lab-train-5-0-0", 1], ["tasks", 0], ["heldout", "q1"], ["judge", 7], ["question", 3], ["sft", 0, 1], ["a\x1fb", None, 0.5],
        ["\u00e9\u4e2d\ud800", True],
    ]  # fmt: skip
    judge = AgentRRM.from_pretrained("judge", device="cpu")
    rows = [[5, 9, 14, 3, 200], [7] * 9]
    sampled = judge.engine.generate(rows, SamplingParams(24, 1.0, seed=11), ["a", "b"])  # pyright: ignore
    weights = load_file("agent-run/policy/model.safetensors")
    metrics = json.loads(lines("agent-run/metrics.jsonl")[-1])
    return {
        "settings_hash": [[one, served_hash(one)] for one in settings],
        "model_hash": judge.model_hash,
        "derive_seed": [[one, derive_seed(*one)] for one in parts],
        "sampled": {"rows": rows, "ids": [list(one.ids) for one in sampled], "stops": [one.stop_reason for one in sampled]},
        "digests": {json.loads(one)["id"]: digest(one) for one in lines("transcripts.jsonl")},
        "second_update": {name: value for name, value in metrics.items() if not name.startswith("time/")},
        "trained_policy": {name: round(float(value.double().abs().sum()), 6) for name, value in weights.items()},
    }  # fmt: skip


def served_hash(settings: dict[str, Any]) -> str | None:
    """The hash of a judge that a server has: of its settings alone."""
    from rrm import AgentRRM

    with TemporaryDirectory() as folder:
        Path(folder, "judge.json").write_text(json.dumps(settings), encoding="utf-8")
        return AgentRRM.from_pretrained("openai:http://127.0.0.1:9/v1#m", settings=folder).model_hash


def digest(line: str) -> str:
    from rrm import Trajectory

    return Trajectory.model_validate_json(line).digest


def main() -> None:
    run("reagent lab transcripts -o transcripts.jsonl --n 8 --seed 5 --hops 1,2 --annotations annotated.jsonl")
    Path("input.jsonl").write_text("".join([*lines("transcripts.jsonl")[:6], '{"id": "cut"\n']), encoding="utf-8")
    policy("policy")
    run("rrm train --config judge.yaml")
    stopped_judge()
    judge = "--model judge --device cpu"
    for mode in ("score", "steps", "full"):
        run(
            f"rrm score input.jsonl -o {mode}.jsonl --mode {mode} --samples {2 if mode == 'full' else 1} --seed 3 {judge}"
        )
    shutil.copy("score.jsonl.run.json", "half.jsonl.run.json")
    Path("half.jsonl").write_text("".join(lines("score.jsonl")[:2]) + lines("score.jsonl")[2][:40], encoding="utf-8")
    for shard in (1, 2):
        run(f"rrm score transcripts.jsonl -o shard{shard}.jsonl --mode score --shard {shard}/2 {judge}")
    run(f"rrm score transcripts.jsonl -o whole.jsonl --mode score {judge}")
    run("rrm score transcripts.jsonl -o lab.jsonl --mode full --model lab --device cpu")
    run("rrm score transcripts.jsonl -o lab2.jsonl --mode critique --model lab --device cpu")
    run("rrm annotate transcripts.jsonl -o rules.jsonl --annotator rules")
    run("rrm compare lab.jsonl lab2.jsonl --sheet sheet.html --seed 1 --transcripts transcripts.jsonl")
    answers()
    run("rrm compare --analyse sheet.key.json answers-ann.json -o compared.json --seed 1")
    run(f"rrm guard transcripts.jsonl --audit audit.jsonl --policy guard.yaml {judge}")
    label()
    passages = [
        {"id": f"p{n}", "title": f"Town {n}", "text": f"Town {n} lies on river {n % 3}. 東京 {n}"} for n in range(8)
    ]
    Path("passages.jsonl").write_text("".join(json.dumps(one) + "\n" for one in passages), encoding="utf-8")
    run("reagent corpus passages.jsonl -o corpus")
    run("reagent train --config agent.yaml")
    run(
        "reagent eval --config agent.yaml --policy policy -o played.json --transcripts played.jsonl eval.temperature=1.0 eval.samples=2"
    )
    for name in ("sheet.html", "lab2.jsonl", "lab2.jsonl.run.json"):
        Path(name).unlink()
    for lock in Path().rglob("*.lock"):
        lock.unlink()
    Path("values.json").write_text(json.dumps(values(), indent=1) + "\n", encoding="utf-8")
    stopped_agent()


main()
