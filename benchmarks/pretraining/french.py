"""French help and manual pages of Debian packages as plain text.

python -m benchmarks.pretraining.french FOLDER... > french.txt

A FOLDER is an unpacked package (`dpkg -x`): libreoffice-help-fr, gimp-help-fr, debian-reference-fr
(HTML), manpages-fr, manpages-fr-dev (gzipped man pages). A page is a document, a paragraph a line;
short paragraphs that were there before are omitted.
"""

from __future__ import annotations

import gzip
import html
import re
import sys
from collections.abc import Iterator
from pathlib import Path

LEAST_PARAGRAPH, LEAST_PAGE, LONG = 20, 300, 200
CHROME = re.compile(r"(?is)<(script|style|nav|header|footer).*?</\1>")
PARAGRAPH = re.compile(r"(?is)<(p|h[1-6]|li|td|dd|dt)\b[^>]*>(.*?)</\1>")
TAG = re.compile(r"<[^>]+>")
BREAK = re.compile(r"[.']\s*(SH|SS|PP|P|TP|IP|LP|br|sp|RS|RE|nf|fi|EX|EE)\b")
STYLED = re.compile(r"\.\s*([BIR]|BR|BI|IR|RB|RI|IB)\s+")
ESCAPES = {r"\\f[BIRP]|\\f\(..|\\s[-+]?\d|\\[&c/,]": "", r"\\\((aq|oq|cq)": "'", r"\\[ ~]": " ", r"\\-": "-"}
ESCAPES |= {r"\\e": r"\\"}


def paragraphs(path: Path) -> Iterator[str]:
    """Yield the paragraphs of a page, and nothing of another file."""
    if path.suffix == ".html":
        for match in PARAGRAPH.finditer(CHROME.sub("", path.read_text("utf-8", "replace"))):
            yield html.unescape(TAG.sub("", match.group(2)))
    elif path.suffix == ".gz" and "man" in path.parts:
        lines: list[str] = []
        for line in gzip.decompress(path.read_bytes()).decode("utf-8", "replace").split("\n"):
            if BREAK.match(line):
                yield " ".join(lines)
                lines = []
            text = STYLED.sub("", line)
            if not text.startswith((".", "'")):
                for pattern, plain in ESCAPES.items():
                    text = re.sub(pattern, plain, text)
                lines.append(text)
        yield " ".join(lines)


if __name__ == "__main__":
    seen: set[str] = set()
    for path in (path for folder in sys.argv[1:] for path in sorted(Path(folder).rglob("*"))):
        if path.is_file() and not path.is_symlink():
            found = [" ".join(text.split()) for text in paragraphs(path)]
            new = [x for x in found if len(x) > LEAST_PARAGRAPH and (len(x) >= LONG or x not in seen)]
            seen.update(new)
            if sum(map(len, new)) > LEAST_PAGE:
                print("\n".join(new) + "\n")
