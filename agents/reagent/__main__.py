"""`python -m reagent`."""

from reagent.cli import main

main()
