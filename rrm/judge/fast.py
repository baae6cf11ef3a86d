"""int8 on a CPU, for judges of mode `steps` alone, with the extra `fast` (`rrm.engines.int8`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrm.data.extras import needs
from rrm.data.progress import progress_log
from rrm.engines.hf.weights import cache_dir
from rrm.errors import ConfigError, EngineError, MissingExtra
from rrm.judge.judge_dir import content_hash

if TYPE_CHECKING:
    from rrm.engines.hf.engine import HFEngine
    from rrm.engines.int8 import Int8Engine

INT8 = "int8"


def takes_int8(dtype: str | None, device: str, modes: Sequence[str], attention: str | None) -> bool:
    """Return whether to load in int8 if available; `dtype` and `attention` as requested.

    Raises ConfigError if int8 is requested and does not fit this judge or device.
    """
    fits = device.startswith("cpu") and list(modes) == ["steps"] and attention is None
    if dtype == INT8 and not fits:
        raise ConfigError(
            "dtype int8 is for a judge that says verdicts alone (mode steps), on a CPU, without --attn-implementation"
        )
    return fits and dtype in (None, INT8)


def int8_engine(
    folders: Sequence[Path],
    tokenizer: Any,
    model: Callable[[], Any],
    in_float: Callable[[], HFEngine],
    *,
    required: bool,
) -> tuple[Int8Engine, str] | None:
    """Return (engine, hash over the folders); None, with a logged notice, where float32 is used instead.

    Args:
        folders: the judge's, and its base's.
        model: loads the float32 model, adapter merged; called if its graph is not cached.
        in_float: loads the engine for everything but verdicts.
        required: raise MissingExtra, EngineError or OSError instead of returning None.
    """
    try:
        needs("fast", "reading steps in int8, three times as fast,", "openvino")
        from rrm.engines.int8 import Int8Engine, graph_file, multiplies_exactly

        if not multiplies_exactly():
            raise EngineError("this processor's int8 products overflow")
        hashed = content_hash(*folders)
        return Int8Engine(graph_file(cache_dir(), hashed, model), tokenizer.eos_token_id, in_float), hashed
    except (MissingExtra, EngineError, OSError) as error:
        if required:
            raise
        progress_log.info("steps are read in float32: %s", error)
        return None
