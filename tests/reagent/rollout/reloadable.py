"""vLLM's CPU build, made to load whole weights in place: `--worker-extension-cls reloadable.Reloadable`.

It packs the weights of linear layers for its kernels and frees them, so there is nothing to load into; with torch's own kernel, which
it falls back to where it has no other, layers keep their weights. A GPU needs none of this. Imported in vLLM's environment alone.
"""

from __future__ import annotations

from vllm.model_executor.layers import utils  # pyright: ignore[reportMissingImports]

utils.ops._supports_onednn = False
utils.check_cpu_sgl_kernel = lambda *shape: False


class Reloadable:
    """Nothing more: what counts is that this module is imported before the model is built."""
