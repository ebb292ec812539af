"""`python -m litebert` is the command `litebert`."""

from litebert.cli import main

if __name__ == "__main__":
    main()
