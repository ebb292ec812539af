"""Write WordNet's definitions and examples: `python -m benchmarks.distillation.wordnet DICT OUT`.

DICT holds WordNet 3.0's data.noun, data.verb, data.adj and data.adv (Debian: package wordnet-base).
OUT gets one sentence a line; a document is four neighbours, so of one subject mostly.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator
from pathlib import Path

from litebert.files import write_text

EXAMPLE = re.compile(r'"([^"]+)"')
SECTION, DOCUMENT = 60, 4


def main(database: Path, out: Path) -> None:
    """Shuffle sections of one subject, cut them into documents, and shuffle those."""
    sections = list(_sections(database))
    random.Random(0).shuffle(sections)
    lines = [line for section in sections for line in section if line]
    documents = [lines[i : i + DOCUMENT] for i in range(0, len(lines), DOCUMENT)]
    random.Random(1).shuffle(documents)
    write_text(out, "\n\n".join(map("\n".join, documents)) + "\n")


def _sections(database: Path) -> Iterator[list[str]]:
    """Yield lists of about 60 sentences from one file of WordNet's lexicographers."""
    for part in ("noun", "verb", "adj", "adv"):
        rows = (database / f"data.{part}").read_text("latin-1").splitlines()
        synsets = [row.split(" | ", 1) for row in rows if not row.startswith("  ")]
        subjects: dict[str, list[str]] = {}
        for head, gloss in synsets:
            subjects.setdefault(head.split()[1], []).append(gloss.strip())
        for glosses in subjects.values():
            section: list[str] = []
            for gloss in glosses:
                section += _sentences(gloss)
                if len(section) >= SECTION:
                    yield section
                    section = []
            if section:
                yield section


def _sentences(gloss: str) -> list[str]:
    """Return the definition as it stands, then each example of three words or more.

    >>> _sentences('select from a group; "She chose a red one"')
    ['select from a group', 'She chose a red one.']
    """
    without = re.sub(r"(;\s*)+", "; ", EXAMPLE.sub("", gloss)).strip()
    definition = re.sub(r"[;:,\s]+$", "", without)
    examples = (example.strip() for example in EXAMPLE.findall(gloss))
    return [definition, *(_finished(each) for each in examples if len(each.split()) > 2)]


def _finished(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", type=Path)
    parser.add_argument("out", type=Path)
    main(**vars(parser.parse_args()))
