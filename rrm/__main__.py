"""`python -m rrm` (what `accelerate launch -m rrm` runs), and the program `rrm`."""

from rrm.data.earliest_signals import take_signals


def main() -> None:
    take_signals()  # before anything else is imported: by then they end the process in Python's own way, without an exit code
    from rrm.data.stop_signals import command

    command("rrm.cli")


if __name__ == "__main__":
    main()
