"""vLLM's server on this machine's processors, started and stopped by a measurement that needs one.

    with serving(python, model, "--enable-lora") as url: ...

`python` is that of an environment which has vLLM's CPU build: `make test-vllm` makes one, `.venv-vllm/bin/python`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2

PYTHON = Path(".venv-vllm/bin/python")
START_S = 600.0
LORA = ("--enable-lora", "--max-lora-rank", "16", "--max-loras", "4")
WHOLE_PROMPTS = ("--no-enable-chunked-prefill", "--max-num-batched-tokens", "8192")
"""With a seed of its own a row whose prompt is split ends this CPU build ("CPU Generator does not use offset")."""

ALONE = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "MALLOC_MMAP_THRESHOLD_": str(256 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}
"""Two servers of one thread would bind themselves to the same core, and share it while another idles; and freed memory is kept
(`rrm.engines.hf.host_memory`): a sixth of the time went into fetching its pages anew."""


@contextmanager
def serving(
    python: Path,
    model: str,
    *options: str,
    dtype: str = "float32",
    context: int = 1024,
    cache_gib: int = 1,
    threads: int = 1,
    environment: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """A server of the folder `model` as `base` on a free port; yields its address, and ends it.

    Args:
        options: further ones of the command. context: tokens. cache_gib: of keys and values. environment: further variables.

    Raises:
        SystemExit: it did not start; the end of its log is said.
    """
    if not python.is_file():
        raise SystemExit(f"{python} is not there: make test-vllm builds an environment with vLLM, or name another one")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--served-model-name", "base",
        "--dtype", dtype, "--max-model-len", str(context), "--enforce-eager", "--logprobs-mode", "processed_logprobs",
        "--host", "127.0.0.1", "--port", str(port), "--disable-uvicorn-access-log", *WHOLE_PROMPTS, *options,
    ]  # fmt: skip
    own = ALONE | {"VLLM_CPU_KVCACHE_SPACE": str(cache_gib), "OMP_NUM_THREADS": str(threads)}
    variables = {**os.environ, **own, **(environment or {})}
    with tempfile.TemporaryFile() as log:
        # a session of its own: its workers are ended with it
        server = subprocess.Popen(command, stdout=log, stderr=log, env=variables, start_new_session=True)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(server, url, log)
            yield url
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait(server: subprocess.Popen[bytes], url: str, log) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and server.poll() is None:
        try:
            httpx2.get(f"{url}/health", timeout=5).raise_for_status()
            return
        except httpx2.HTTPError:
            time.sleep(1)
    log.seek(0)
    raise SystemExit(f"vLLM did not start:\n{log.read()[-3000:].decode(errors='replace')}")


def version_of(url: str) -> str:
    return str(httpx2.get(f"{url}/version", timeout=60).json()["version"])
