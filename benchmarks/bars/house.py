"""The house: files at the roots, imports one way, names of the field, few names twice, old files still read, bytes and lines."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.bars.bar import Bar, suite_bars
from benchmarks.bars.words import total, words_below
from benchmarks.record import ROOT

PACKAGES = {"rrm": "rrm", "reagent": "agents/reagent"}
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx")
LINES = {"rrm": 46_000, "agents": 25_000, "benchmarks": 14_000}
ROOT_FILES, TWICE, MEGABYTES = 6, 10, 12
GRPO_LINES, LOOP_LINES, README_TABLES, POLICY_MEGABYTES = 60, 200, 1, 5
DOCSTRING_PERCENT, VAGUE_VARIABLES, DOCS_KB, README_KB, TEST_LINES = 11, 100, 180, 6, 36_000
OLD_FILES = "tests/test_old_files.py"
# fmt: off
BANNED = {
    "module": "phantoms=hallucinated_steps unspoken=empty_transcripts unshown=unsupported_media wanted=judge_request askers=backends "
              "writers=backends abilities=capabilities following=incremental_judge stored=json_model shown=prompt_preview "
              "rrm/judged=row_index scored=row_matching spending=usage_totals pacing=time_slices loops=async_runner deadline=timeouts "
              "earlier=parent_judges absent=failing_judge feed=prefetch refusals=http_errors wire=schemas edits=json_patch "
              "checks=monitor_conditions stopping=signals refine=second_attempt_prompt potentials=potential_shaping "
              "wanderers=faulty_agents drills=pretraining_rows grading=gradability reagent/row=active_episode parts=step_aggregation "
              "heats=comparison_batches falls=monitor watch=monitor said=labels sayings=labels shape=memory_model "
              "padding=padding_estimate numbers=config_types",
    "class": "Wanted=JudgeRequest Purse=CostTracker rrm/Plan=WindowPlan Reading=Window Chain=JudgeState Ask=WindowRequest "
             "Standing=GuardState Watch=Counter|JudgeMonitor Said=Label Sayings=LabelStore Falls=DropDetector Dynamic=DynamicSampler "
             "Drawn=SamplingStats Ahead=RolloutPrefetcher reagent/Reduce=all_reduce reagent/Rows=AlgoBatch reagent/Options=AlgoConfig "
             "Credit=AlgoOutput TextRow=SFTRow Beside=ExtraContext ByReading=CalibrationByLength Marker=DomainFlagger "
             "Domain=OutOfDomainDetector Meetings=ComparisonGraph Read=StepScores Unread=UnreadableTranscript Seen=VisibleImages "
             "Unfolding=AttachmentBudget Gate=ConcurrencyLimiter|RequestLimits _Line=ConnectionPool _Way=Client _Form=RequestSpec "
             "Pauses=Backoff Asking=CachedJudge _Taking=RowWriter Band=CalibrationInterval Sifted=TruncatedText Player=EpisodeRunner "
             "Imitator=SFTLearner Sharing=PrefixSharing Pack=PackedRows Layout=PackedTensors _Spell=ConsecutiveCount "
             "reagent/Adapter=FeedbackMode Disarm=SpecialTokenEscaper",
    "function": "rrm/settled=branch_logprobs rrm/look=judge_now glance=judge_if_new reagent/idle=dummy_forward deal=split_minibatches "
                "local_only=no_reduce told=summary hear=run_requests wobble=noise_std joint=welch_df let_go=reshard "
                "bring_home=gather_weights carried=forward_fill unpaid=zero_reward_row met_before=seen_in_training "
                "worth_learning=select_demonstrations reagent/whole=consistent",
    "key": "outside=out_of_domain outside_distance=domain_distance place=position among=n_compared heats=n_batches "
           "not_text=unsupported_media unblended_score=model_score mark_noise=finding_noise injection=claim_injection_share "
           "short_first=short_first_share follow=consistency_rows max_paid=max_rewarded_steps hurried=low_effort_share "
           "pair_accuracy_same_turns_failures_half=pair_accuracy_same_length reagent/whole=consistent reagent/wrapped=ddp_model "
           "reagent/stepper=ddp_optimizer",
}
# fmt: on
"""Kind → names that were, each with the field's own; `rrm/` or `reagent/` before one: in that package alone. A key is a field of a class,
or an attribute that its methods set."""


@dataclass(frozen=True)
class Name:
    """What a file defines: `module`, `class`, `function` or `key`, in the package `rrm` or `reagent`."""

    kind: str
    text: str
    package: str
    file: str


def bars(run: bool = True) -> Iterator[Bar]:
    """The bars of the house.

    Args:
        run: whether the tests of old files are run.
    """
    for package, place in PACKAGES.items():
        files = sorted((ROOT / place).glob("*.py"))
        yield counted(f".py files at the root of {package}", len(files), ROOT_FILES)
    yield exceptions()
    found = [name for package, place in PACKAGES.items() for name in names(package, ROOT / place)]
    for kind, table in BANNED.items():
        met = banned(kind, table, found)
        yield counted(f"names that were, of a {kind}", len(met), 0, ", ".join(met))
    twice = [f"{text} ×{n}" for text, n in Counter(n.text for n in found if n.kind == "class").most_common() if n > 1]
    yield counted("class names used twice or more in rrm and reagent", len(twice), TWICE, ", ".join(twice))
    what = "files of 39b3a1de are read and resumed"
    if (ROOT / OLD_FILES).is_file():
        yield from suite_bars({what: OLD_FILES}, run)
    else:
        yield Bar(what, f"not measured: no {OLD_FILES}", "passes", False)
    sizes = sum((ROOT / file).stat().st_size for file in tracked() if not file.endswith(WEIGHTS))
    yield counted("tracked megabytes without weights", round(sizes / 1e6, 2), MEGABYTES)
    for folder, most in LINES.items():
        files = [file for file in tracked() if file.startswith(f"{folder}/") and file.endswith(".py")]
        yield counted(f"lines of {folder}", sum(map(lines, files)), most)
    yield counted("lines of the file of grpo's advantage", lines("agents/reagent/algorithms/grpo.py"), GRPO_LINES)
    yield counted("lines of a whole multi-turn GRPO loop", lines("examples/grpo_from_parts.py"), LOOP_LINES)
    yield from words_bars()
    tables = (ROOT / "README.md").read_text(encoding="utf-8").count("\n|---")
    yield counted("tables of the README", tables, README_TABLES)
    policy = (ROOT / "agents/reagent/lab/assets/policy/model.safetensors").stat().st_size
    yield counted("megabytes of the lab's policy", round(policy / 1e6, 1), POLICY_MEGABYTES)


def words_bars() -> Iterator[Bar]:
    """Docstrings, variables, documents and tests."""
    code = total(words_below(list(PACKAGES.values())))
    share = round(code.docstring_share * 100, 1)
    yield counted("per cent of rrm's and reagent's lines that are docstrings", share, DOCSTRING_PERCENT)
    yield counted("variables that say nothing", code.vague.total(), VAGUE_VARIABLES)
    pages = [path.stat().st_size for path in (ROOT / "docs").rglob("*.md")]
    yield counted("kB of docs", round(sum(pages) / 1000, 1), DOCS_KB)
    yield counted("kB of README.md", round((ROOT / "README.md").stat().st_size / 1000, 1), README_KB)
    tests = [file for file in tracked() if file.startswith("tests/") and file.endswith(".py")]
    filled = sum(
        bool(line.strip()) for file in tests for line in (ROOT / file).read_text(encoding="utf-8").splitlines()
    )
    yield counted("lines of tests without blank ones", filled, TEST_LINES)


def counted(what: str, number: float, most: float, shown: str = "") -> Bar:
    """A bar of a number that may be no larger; `shown`: what was counted."""
    return Bar(what, f"{number:,}{': ' * bool(shown)}{shown}", f"≤ {most:,}", number <= most)


def exceptions(path: Path = ROOT / "tests" / "test_architecture.py") -> Bar:
    """How many imports the test of imports lets go the other way: the entries of its `EXCEPTIONS`."""
    what = "exceptions in the test of imports"
    if path.is_file():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(one, ast.Name) and one.id == "EXCEPTIONS" for one in targets):
                    entries = ast.literal_eval(node.value)
                    return counted(what, _entries(entries), 0)
    return Bar(what, f"not measured: no EXCEPTIONS in tests/{path.name}", "≤ 0", False)


def _entries(held: object) -> int:
    if isinstance(held, dict):
        return sum(map(_entries, held.values()))
    return len(held) if isinstance(held, list | tuple | set | frozenset) else 1


def names(package: str, place: Path) -> Iterator[Name]:
    """Every name that the files of a package define."""
    for path in sorted(place.rglob("*.py")):
        file = str(path.relative_to(place.parent))
        yield Name("module", path.stem, package, file)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield Name("class", node.name, package, file)
                fields = (one.target for one in node.body if isinstance(one, ast.AnnAssign))
                yield from (Name("key", one.id, package, file) for one in fields if isinstance(one, ast.Name))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield Name("function", node.name, package, file)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield Name("key", node.attr, package, file)


def banned(kind: str, table: str, found: Sequence[Name]) -> list[str]:
    """Names of the table that are still there: `old in file → new`."""
    renamed = dict(entry.split("=") for entry in table.split())
    met: dict[str, None] = {}
    for name in found:
        new = renamed.get(name.text) or renamed.get(f"{name.package}/{name.text}")
        if name.kind == kind and new:
            met[f"{name.text} in {name.file} → {new}"] = None
    return list(met)


@cache
def tracked() -> list[str]:
    """Files that git tracks.

    Raises:
        SystemExit: this is no checkout.
    """
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the bars of the house need a git checkout: {done.stderr.strip()}")
    return [file for file in done.stdout.split("\0") if file and (ROOT / file).is_file()]


def lines(file: str) -> int:
    """Of a file of the repository, blank ones too; 10⁹ where it is gone, so that its bar is missed."""
    path = ROOT / file
    return len(path.read_text(encoding="utf-8").splitlines()) if path.is_file() else 10**9
