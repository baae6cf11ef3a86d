"""`python -m reagent`, and the program `reagent`."""

from rrm.data.earliest_signals import take_signals


def main() -> None:
    take_signals()  # before anything else is imported: by then they end the process in Python's own way, without an exit code
    from rrm.data.stop_signals import command

    command("reagent.cli")


if __name__ == "__main__":
    main()
