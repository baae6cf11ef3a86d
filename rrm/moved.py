"""Imports by version 0.1's names: they load today's module with a warning, or name a replacement."""

import sys

# fmt: off
ROOMS = {
    "rrm.annotate": "annotators.llm>llm annotators.self_>self_ annotators.output>output labelling.address>label_address labelling.agreement>rater_agreement labelling.journal>label_journal labelling.pool>label_pool labelling.said>label labelling.sayings>label_store labelling.server>label_server comparing.analysis>comparison_analysis comparing.sheet>comparison_sheet",
    "rrm.cli": "doctor",
    "rrm.data": "annotation blocks csvlabels>csv_labels extras feedback folds>splits imports>extras jsonl jsonnumbers>jsonl labels nearest>printing output pacing>time_slices pictures plain_yaml printing progress provenance questions seeds sizes splits stops>stop_signals text trajectory usage verdicts evaluation.metrics.localisation>localisation readers.ours>own_entries publishing.secrets>secrets",
    "rrm.engines": "engines.vllm_session>sessions engines.vllm_wire>vllm_http engines.bodies>replies loops>async_runner money>cost engines.feed>async_runner engines.refusals>http_errors engines.clients>http",
    "rrm.engines.hf": "engines.hf.sampling>decoder models.base>base_model models.damage>base_model models.device>base_model models.hub>hub models.weights>weights",
    "rrm.evaluation": "calibrate judge.fitting>fit_calibration",
    "rrm.guard": "deadline>timeouts guard.absent>prefix guard.standing>state",
    "rrm.judge": "judge.streaming>windowed judge.sampling>capabilities judge.templated>local judge.slots>steps parts>abstention phantoms>hallucinated_steps integrations.asking>cached_judge judge.abilities>capabilities judge.abstaining>abstention judge.askers>backends judge.writers>backends judge.expected>expected_score judge.following>incremental_judge judge.form>transcript_form judge.heats>comparison_batches judge.said_score>score_text judge.shown>prompt_preview judge.unspoken>judge_request judge.wanted>judge_request",
    "rrm.prompt": "judge.cut>windows prompt.characters>rendering annotators.actions>actions annotators.answers>answers annotators.failures>failures annotators.rules>rules",
    "rrm.readers": "check writers.atif>atif_export writers.inspect_ai>exports writers.otel>exports writers.naming>exports writers>exports readers.edits>json_patch readers.repeats>responses readers.input_items>responses readers.call_chains>calls readers.claude_session>claude_code readers.retries>inspect_ai",
    "rrm.scoring": "coverage choose estimate judged>row_index ledger>row_index ranking score>run scored>row_matching sharding spending>usage_totals unshown>unsupported_media",
    "rrm.serve": "serve.bodies>app serve.wire>schemas",
    "rrm.train": "checkpoints fsdp run_folder models.adapter>adapter train.earlier>parent_judges annotators.given>given_labels",
}
# fmt: on
"""Package → modules that were elsewhere: `name` or `old>new`, names below the top package."""
PACKAGES = {
    "rrm.annotators": "rrm.annotate",
    "rrm.comparing": "rrm.annotate",
    "rrm.labelling": "rrm.annotate",
    "rrm.models": "rrm.engines.hf",
    "rrm.publishing": "rrm.report",
}
MOVED = dict(PACKAGES)  # old dotted name → new one

GONE = {
    f"{package}.{name}": f"examples/{example or name}.py"
    for package, names, example in (
        ("rrm.evaluation.metrics", "answer_leak auroc best_of_n brier ece format_validity length_correlation", "evaluate_metric"),
        ("rrm.evaluation.metrics", "pair_accuracy rerun_variance step_localisation step_ranking", "evaluate_metric"),
        ("rrm.integrations", "agentevals_evaluator art_group lighteval_metric scout_scanner verifiers_judge", None),
        ("rrm.integrations", "gymnasium_reward", "gymnasium_judge"),
        ("rrm.integrations", "langchain_tracer", "langchain_judge"),
        ("rrm.integrations", "openenv_rubric", "openenv_judge"),
        ("rrm.publishing", "card dataset", "push_dataset"),
    )
    for name in names.split()
}  # fmt: skip
"""Dotted name → what replaces it."""


class Forwarder:
    """Import finder of old names; it loads the new module once the name is imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Return a spec for an old name; raises `ImportError` where the module is gone."""
        if name in GONE:
            raise ImportError(f"{name} is {GONE[name]} now", name=name)
        if name not in MOVED:
            return None
        import warnings
        from importlib.machinery import ModuleSpec

        warnings.warn(
            f"{name} is {MOVED[name]} now: the old name goes with version 0.3", DeprecationWarning, stacklevel=2
        )
        return ModuleSpec(name, Forwarder)  # pyright: ignore[reportArgumentType]

    @staticmethod
    def create_module(spec):
        """Return None: Python makes an empty module, which `exec_module` replaces."""

    @staticmethod
    def exec_module(module):
        """Put the new module at the old name."""
        from importlib import import_module

        new_module = sys.modules[module.__name__] = import_module(MOVED[module.__name__])
        if any(old.startswith(f"{module.__name__}.") for old in MOVED):
            vars(new_module).setdefault(
                "__path__", []
            )  # it was a package, and its modules are asked for by their old names


def forward(rooms=ROOMS):
    """Install the finder before Python's own: an old package's new folder has files too."""
    for room, names in rooms.items():
        for name in names.split():
            old, _, new = name.partition(">")
            MOVED[f"{room.partition('.')[0]}.{old}"] = f"{room}.{new or old}"
    if Forwarder not in sys.meta_path:
        sys.meta_path.insert(0, Forwarder)
