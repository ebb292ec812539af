"""The command `litebert`, also as `python -m litebert`.

Ctrl-C ends the process at once and without a word until the command line is there to say why it ends.
"""

import signal


def main() -> None:
    """Import the command line, and run it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from litebert.cli import main as run

    run()


if __name__ == "__main__":
    main()
