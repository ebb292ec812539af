"""The command `litebert`, also as `python -m litebert`.

Until the command line is imported and handles Ctrl-C itself, Ctrl-C ends the process at
once, without a traceback.
"""

import signal


def main() -> None:
    """Import the command line and run it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from litebert.cli import main as run

    run()


if __name__ == "__main__":
    main()
