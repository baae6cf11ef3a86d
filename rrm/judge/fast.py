"""int8 for a judge that says verdicts alone, on a CPU where the extra `fast` is installed (`rrm.engines.int8`)."""

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
"""The dtype's name."""


def takes_int8(dtype: str | None, device: str, modes: Sequence[str], attention: str | None) -> bool:
    """Whether a judge is to be read in int8 if that can be had: it says verdicts alone, on a CPU, and no other dtype is asked for.

    Args:
        dtype: as asked for; None: the best there is.
        attention: an implementation of it that is asked for.

    Raises:
        ConfigError: int8 is asked for, and is not for this judge or device.
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
    """(the engine, hash over the folders). None, and a notice that says why, where float32 is to do.

    Args:
        folders: the judge's, and its base's.
        model: loads the float32 model, an adapter merged; called where its graph is not in the cache.
        in_float: loads the engine for all but verdicts.
        required: raise instead.

    Raises:
        MissingExtra, EngineError, OSError: it is required and the library is absent or fails, the processor or the model does not fit,
            or the cache cannot be written.
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
