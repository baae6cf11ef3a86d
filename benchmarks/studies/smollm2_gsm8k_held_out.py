"""A policy of `smollm2_gsm8k` on a file of questions, greedily or as `eval.temperature` says, a row a question:

python -m benchmarks.studies.smollm2_gsm8k_held_out --policy DIR --output rows.json [a.b=c …]        (config: smollm2)
"""

from __future__ import annotations

from benchmarks.studies.smollm2 import answer_held_out
from benchmarks.studies.smollm2_gsm8k import row

if __name__ == "__main__":
    answer_held_out(__doc__, row, ("correct", "calls", "tokens"))
