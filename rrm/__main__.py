"""`python -m rrm` (what `accelerate launch -m rrm` runs), and the program `rrm`."""

from rrm.stops import command


def main() -> None:
    """Entry point of `rrm`."""
    command("rrm.cli")


if __name__ == "__main__":
    main()
