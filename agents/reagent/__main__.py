"""`python -m reagent`, and the program `reagent`."""

from rrm.stops import command


def main() -> None:
    """Entry point of `reagent`."""
    command("reagent.cli")


if __name__ == "__main__":
    main()
