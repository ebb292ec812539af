"""French help and manual pages of Debian packages as plain text.

python -m benchmarks.pretraining.french FOLDER... > french.txt

A FOLDER is an unpacked package (`dpkg -x`): libreoffice-help-fr, gimp-help-fr, debian-reference-fr
(HTML), manpages-fr, manpages-fr-dev (gzipped man pages). A page is a document, a paragraph a line;
short paragraphs that were there before are omitted.
"""

from __future__ import annotations

import argparse
import gzip
import html
import re
from collections.abc import Iterator
from pathlib import Path

LEAST_PARAGRAPH, LEAST_PAGE, LONG = 20, 300, 200
CHROME = re.compile(r"(?is)<(script|style|nav|header|footer).*?</\1>")
PARAGRAPH = re.compile(r"(?is)<(p|h[1-6]|li|td|dd|dt)\b[^>]*>(.*?)</\1>")
TAG = re.compile(r"<[^>]+>")
BREAK = re.compile(r"[.']\s*(SH|SS|PP|P|TP|IP|LP|br|sp|RS|RE|nf|fi|EX|EE)\b")
STYLED = re.compile(r"\.\s*([BIR]|BR|BI|IR|RB|RI|IB)\s+")
ESCAPES = (
    (re.compile(r"\\f[BIRP]|\\f\(..|\\s[-+]?\d|\\[&c/,]"), ""),
    (re.compile(r"\\\((aq|oq|cq)"), "'"),
    (re.compile(r"\\[ ~]"), " "),
    (re.compile(r"\\-"), "-"),
    (re.compile(r"\\e"), r"\\"),
)


def main(folders: list[str]) -> None:
    """Print the pages of all folders."""
    seen: set[str] = set()
    for folder in folders:
        for path in sorted(Path(folder).rglob("*")):
            new = [x for x in paragraphs(path) if len(x) >= LONG or x not in seen]
            seen.update(new)
            if sum(map(len, new)) > LEAST_PAGE:
                print("\n".join(new) + "\n")


def paragraphs(path: Path) -> list[str]:
    """Return the paragraphs of a page, or nothing of another file."""
    if path.is_symlink() or not path.is_file():
        return []
    if path.suffix == ".html":
        found = _of_html(path.read_text("utf-8", "replace"))
    elif path.suffix == ".gz" and "man" in path.parts:
        found = _of_manual(gzip.decompress(path.read_bytes()).decode("utf-8", "replace"))
    else:
        return []
    joined = (" ".join(text.split()) for text in found)
    return [text for text in joined if len(text) > LEAST_PARAGRAPH]


def _of_html(page: str) -> Iterator[str]:
    for match in PARAGRAPH.finditer(CHROME.sub("", page)):
        yield html.unescape(TAG.sub("", match.group(2)))


def _of_manual(page: str) -> Iterator[str]:
    lines: list[str] = []
    for line in page.split("\n"):
        if BREAK.match(line):
            yield " ".join(lines)
            lines = []
        text = STYLED.sub("", line)
        if text.startswith((".", "'")):
            continue
        for pattern, plain in ESCAPES:
            text = pattern.sub(plain, text)
        lines.append(text)
    yield " ".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+")
    main(**vars(parser.parse_args()))
