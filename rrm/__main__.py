"""`python -m rrm` (what `accelerate launch -m rrm` runs)."""

from rrm.cli import main

main()
