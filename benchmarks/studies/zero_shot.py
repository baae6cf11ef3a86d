"""What an instruct model does at GSM8K before any training: with our prompts, and with a plain one of a few words.

    python -m benchmarks.studies.zero_shot MODEL --runs runs/zero_shot [--questions 500] [--minutes 60]

Three arms answer the same test questions (Cobbe et al. 2021, arXiv 2110.14168), greedily, 400 tokens a turn: `plain`, transformers' own
`generate` on the question and one sentence, without our environment; `alone`, `environment.name=gsm8k` without tools; `tools`, the
same as it is shipped, with the calculator. They go through the questions in pieces, so that a run that is stopped has all three on what it
has, and goes on where it was. Primary figures: success of `alone` and of `tools` minus `plain`, paired by question; the bar is ≥ −0.05,
and a lower bound of success above 0.20. Written down before the run: 0.33 for each.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks import record
from benchmarks.models.sources import DATA
from benchmarks.studies.study import ROOT, begin
from reagent.env.task import Task
from reagent.rollout.attempts import plan
from reagent.rollout.episode import Episode
from reagent.tasks.environments import held_out_tasks
from reagent.tasks.gsm8k import GSM8K, final_number
from reagent.train.config import AgentConfig
from reagent.train.engine import close
from reagent.train.evaluate import EpisodeRunner, load_player, mean_interval
from rrm.engines.hf.weights import sha256

NEW_TOKENS = GSM8K.limits.new_tokens
PLAIN = "{question}\n\nReason step by step, and write the final number after ####."
PIECE = 40
"""Questions of one piece."""
COLUMNS = ("id", "success", "tokens", "cut", "turns", "status", "malformed")
"""Of a row, what the record keeps; texts stay in the folder, as they hold the questions."""
Row = dict[str, Any]


def config_of(model: str, dtype: str, questions: int, options: dict[str, Any]) -> AgentConfig:
    """The defaults, with nothing said but the model, the task and how many questions."""
    data = {"path": str(DATA / "gsm8k" / "test.jsonl.gz")}
    return AgentConfig.model_validate(
        {
            "environment": {"name": "gsm8k", "options": options, "eval": data, "eval_tasks": questions},
            "policy": {"base": model, "dtype": dtype},
        }
    )


def plainly(model: str, dtype: str) -> Callable[[Sequence[Task]], list[Row]]:
    """Answers questions by `generate`, longest questions first, each piece in one batch."""
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    network: Any = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).eval()
    if torch.cuda.is_available():
        network = network.cuda()

    def answers(tasks: Sequence[Task]) -> list[Row]:
        chats = [[{"role": "user", "content": PLAIN.format(question=task.question)}] for task in tasks]
        texts = [tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False) for chat in chats]
        batch = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(network.device)
        with torch.inference_mode():
            made = network.generate(**batch, max_new_tokens=NEW_TOKENS, do_sample=False, repetition_penalty=1.0)
        rows = []
        for task, ids in zip(tasks, made[:, batch["input_ids"].shape[1] :], strict=True):
            text = tokenizer.decode(ids, skip_special_tokens=True)
            tokens = int((ids != tokenizer.pad_token_id).sum())
            cut = tokenizer.eos_token_id not in ids.tolist()
            rows.append(
                {"id": task.id, "success": final_number(task, text), "tokens": tokens, "cut": cut, "text": text}
            )
        return rows

    return answers


def played(player: EpisodeRunner) -> Callable[[Sequence[Task]], list[Row]]:
    """Answers questions as `reagent eval` plays them."""
    return lambda tasks: [row_of(episode) for episode in player(plan(tasks))]


def row_of(episode: Episode) -> Row:
    """One episode's figures and its messages."""
    calls = [turn.info for turn in episode.turns]
    return {
        "id": episode.task.id, "success": float(episode.success or 0), "status": episode.status, "turns": len(episode.turns),
        "tokens": sum(len(turn.output_ids) for turn in episode.turns), "answer": episode.answer,
        "cut": any(turn.stop_reason == "length" for turn in episode.turns),
        "malformed": sum(bool(info.get("malformed")) for info in calls),
        "messages": [message.model_dump(mode="json", exclude_none=True) for message in episode.trajectory.messages],
    }  # fmt: skip


def done(path: Path) -> list[Row]:
    """An arm's rows so far; a last line that was cut off is made again."""
    if not path.is_file():
        return []
    complete_lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    path.write_text("".join(complete_lines))
    return [json.loads(line) for line in complete_lines]


def restore(runs: Path, record_of: dict[str, Any] | None, weights: str, dtype: str) -> None:
    """Write the rows that a record of the same weights in the same precision holds, where this folder has none: a study that another machine began goes on."""
    if record_of is None or (record_of["weights"], record_of["dtype"]) != (weights, dtype):
        return
    for arm, rows in record_of["rows"].items():
        if not (path := runs / f"{arm}.jsonl").is_file():
            path.write_text(
                "".join(json.dumps(dict(zip(record_of["columns"], row, strict=True))) + "\n" for row in rows)
            )


def figures(arms: dict[str, list[Row]]) -> dict[str, Any]:
    """Success of each arm on the questions that all have, and paired differences to `plain`."""
    shared = set.intersection(*({row["id"] for row in rows} for rows in arms.values()))
    by_arm = {arm: {row["id"]: row for row in rows if row["id"] in shared} for arm, rows in arms.items()}
    ids = sorted(shared)
    study_record: dict[str, Any] = {"questions": len(ids)}
    for arm, rows in by_arm.items():
        chosen = [rows[i] for i in ids]
        study_record[arm] = {
            "success": mean_interval([row["success"] for row in chosen], len(ids), seed=0),
            "tokens": sum(row["tokens"] for row in chosen) / max(1, len(ids)),
            "cut": sum(row["cut"] for row in chosen) / max(1, len(ids)),
        }
        if arm != "plain":
            differences = [rows[i]["success"] - by_arm["plain"][i]["success"] for i in ids]
            study_record[arm]["against_plain"] = mean_interval(differences, len(ids), seed=0)
            study_record[arm]["statuses"] = dict(Counter(row["status"] for row in chosen))
            study_record[arm]["malformed_episodes"] = sum(row["malformed"] > 0 for row in chosen) / max(1, len(ids))
            study_record[arm]["turns"] = sum(row["turns"] for row in chosen) / max(1, len(ids))
    return study_record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder or hub id with a chat template")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "zero_shot")
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument(
        "--minutes", type=float, default=1e9, help="begin no piece after so long, and record what there is"
    )
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--output", default="zero_shot", help="name of the results file")
    args = parser.parse_args()
    runs = args.runs.resolve()
    weights = Path(args.model) / "model.safetensors"
    hashed = sha256(weights) if weights.is_file() else args.model
    target = record.RESULTS / f"{args.output}.json"
    begin(runs, model=hashed, dtype=args.dtype, questions=args.questions, new_tokens=NEW_TOKENS)
    restore(runs, record.load(args.output), hashed, args.dtype)
    without, shipped = (config_of(args.model, args.dtype, args.questions, o) for o in ({"tools": []}, {}))
    tasks = held_out_tasks(shipped.environment)
    players = [load_player(config) for config in (without, shipped)]
    answer = dict(
        zip(("plain", "alone", "tools"), (plainly(args.model, args.dtype), *map(played, players)), strict=True)
    )
    seconds = dict.fromkeys(answer, 0.0)
    commits = set((record.load(args.output) or {}).get("commits", []))
    end = time.monotonic() + 60 * args.minutes
    for start in range(0, len(tasks), PIECE):
        if time.monotonic() >= end:
            break
        piece = tasks[start : start + PIECE]
        for arm, answers in answer.items():
            path = runs / f"{arm}.jsonl"
            has = {row["id"] for row in done(path)}
            if all(task.id in has for task in piece):
                continue
            began = time.monotonic()
            rows = answers([task for task in piece if task.id not in has])
            seconds[arm] += time.monotonic() - began
            commits.add(str(record.commit()))
            with open(path, "a") as out:
                out.writelines(json.dumps(row) + "\n" for row in rows)
            print(
                arm, start, round(sum(row["success"] for row in rows) / len(rows), 3), round(seconds[arm]), flush=True
            )
    for player in players:
        close(player.engine)
    arms = {arm: done(runs / f"{arm}.jsonl") for arm in answer}
    study_record = figures(arms)
    study_record |= {
        "columns": COLUMNS,
        "rows": {arm: [[row.get(name) for name in COLUMNS] for row in rows] for arm, rows in arms.items()},
    }
    study_record |= {"model": Path(args.model).name, "weights": hashed, "dtype": args.dtype, "seconds": seconds}
    study_record |= {
        "command": record.command("studies.zero_shot"),
        "commits": sorted(commits),
        **record.made_with("torch", "transformers"),
    }
    record.write(target, study_record)
    print(json.dumps({name: value for name, value in study_record.items() if name != "rows"}, indent=1))


if __name__ == "__main__":
    main()
