"""Modules by the names that version 0.1 gave them: imported under one of these, a module's new self comes, and a warning says where it is."""

import sys

# fmt: off
ROOMS = {
    "rrm.annotate": "annotators.llm>llm annotators.self_>self_ annotators.output>output labelling.address>label_address labelling.agreement>rater_agreement labelling.journal>label_journal labelling.pool>label_pool labelling.said>label labelling.sayings>label_store labelling.server>label_server comparing.analysis>comparison_analysis comparing.sheet>comparison_sheet",
    "rrm.cli": "doctor",
    "rrm.data": "annotation blocks csvlabels>csv_labels extras feedback folds imports>import_paths jsonl jsonnumbers>json_numbers labels nearest output pacing>time_slices pictures plain_yaml printing progress provenance questions seeds sizes splits stops>stop_signals text trajectory usage verdicts evaluation.metrics.localisation>localisation readers.ours>own_entries publishing.secrets>secrets",
    "rrm.engines": "loops>async_runner money>cost engines.feed>prefetch engines.refusals>http_errors",
    "rrm.engines.hf": "models.base>base_model models.damage>damage models.device>device models.hub>hub models.weights>weights",
    "rrm.evaluation": "calibrate judge.fitting>fit_calibration",
    "rrm.guard": "deadline>timeouts guard.absent>failing_judge guard.standing>state",
    "rrm.judge": "parts>step_aggregation phantoms>hallucinated_steps integrations.asking>cached_judge judge.abilities>capabilities judge.abstaining>abstention judge.askers>backends judge.writers>text_backends judge.expected>expected_score judge.following>incremental_judge judge.form>transcript_form judge.heats>comparison_batches judge.said_score>score_text judge.shown>prompt_preview judge.unspoken>empty_transcripts judge.wanted>judge_request",
    "rrm.prompt": "annotators.actions>actions annotators.answers>answers annotators.failures>failures annotators.rules>rules",
    "rrm.readers": "check writers.atif>atif_export writers.inspect_ai>inspect_ai_export writers.otel>otel_export writers.naming>export_names writers>exports readers.edits>json_patch",
    "rrm.report": "publishing.card>dataset_card publishing.dataset>dataset",
    "rrm.scoring": "coverage choose estimate judged>row_index ledger ranking score>run scored>row_matching sharding spending>usage_totals unshown>unsupported_media",
    "rrm.serve": "serve.wire>schemas",
    "rrm.train": "checkpoints fsdp run_folder models.adapter>adapter train.earlier>parent_judges annotators.given>given_labels",
}
# fmt: on
"""Package → its modules that were elsewhere: `name`, or `name>new name`, the name below the top package."""
PACKAGES = {
    "rrm.annotators": "rrm.annotate",
    "rrm.comparing": "rrm.annotate",
    "rrm.labelling": "rrm.annotate",
    "rrm.models": "rrm.engines.hf",
    "rrm.publishing": "rrm.report",
}
MOVED = dict(PACKAGES)
"""Old dotted name → new one."""


class Forwarder:
    """Finds a module of an old name: the module that has its place now, once the name is imported and not before."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """A spec that loads the new module in the old one's place; None for every other name."""
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
        """None: Python makes an empty module, which `exec_module` replaces."""

    @staticmethod
    def exec_module(module):
        """Put the new module at the old name."""
        from importlib import import_module

        sys.modules[module.__name__] = import_module(MOVED[module.__name__])


def forward(rooms=ROOMS):
    """Let imports of old names find their modules. It stands before Python's own finders: an old package's new folder has files too."""
    for room, names in rooms.items():
        for name in names.split():
            old, _, new = name.partition(">")
            MOVED[f"{room.partition('.')[0]}.{old}"] = f"{room}.{new or old}"
    if Forwarder not in sys.meta_path:
        sys.meta_path.insert(0, Forwarder)
