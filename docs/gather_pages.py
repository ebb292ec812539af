"""Gather the pages of the site in build/pages: `python docs/gather_pages.py`.

Pages of docs/ link to files outside of it, so that the links work on GitHub. On the
site, which has one folder of pages, copies of these files stand in it. Zensical does
not run hooks of MkDocs, so this is a script.
"""

import re
import shutil
from pathlib import Path

from litebert.files import write_text

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"
OUTSIDE = re.compile(r"(?<=\]\()((?:\.\./)*)\.\./(?=benchmarks/|Dockerfile)")
"""A link from docs/ to a file that has a copy."""


def gather(pages: Path) -> None:
    """Write the pages into a new folder."""
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("*.py"))
    for page in pages.rglob("*.md"):
        write_text(page, OUTSIDE.sub(r"\1", page.read_text("utf-8")))
    shutil.copy(ROOT / "Dockerfile", pages)
    for file in sorted((ROOT / "benchmarks").rglob("*")):
        if file.suffix not in (".md", ".svg"):
            continue
        copy = pages / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".svg":
            shutil.copy(file, copy)
            continue
        text = file.read_text("utf-8")
        write_text(copy, text.replace("../docs/", "../"))


if __name__ == "__main__":
    shutil.rmtree(PAGES, ignore_errors=True)
    gather(PAGES)
