"""English prose that every machine with Python has: its documentation, as one sentence
per line.

    python examples/quickstart/python_prose.py OUT.txt

The language topics and the docstrings of the standard library and of all installed
packages are read as source, never imported. Each module is a document. Code, tables,
lists of parameters and sentences that many modules repeat are left out. The same
packages give the same file.
"""

import argparse
import ast
import gc
import inspect
import re
import sys
import sysconfig
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, groupby
from multiprocessing import get_context
from pathlib import Path
from pydoc_data.topics import topics

from litebert.corpus.text import TextSettings, split_sentences
from litebert.files import write_text

NUM_PROCESSES = 2
IGNORED_FOLDERS = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "lib2to3",
}
LEAST_DOCSTRING_SHARE = 0.05  # below it, parsing a module takes long and finds little
LEAST_SENTENCES = 4
LEAST_WORDS = 4
LONGEST_SENTENCE = 400
LONGEST_WORD = 30
LARGEST_ODD_SHARE = 1 / 8  # of words that are not plain English: names, symbols

_TABLE = (
    r"(?i:(?:other |keyword"
    r" )?(?:parameters|params|args|arguments)|kwargs|attributes|properties|"
    r"fields|methods|options|shape|inputs?|outputs?|returns?|yields?|receives|raises|throws|warns|"
    r"see also|references?|routine listings)"
)
_DEEPER = r"(?:\n(?:\1 +\S.*| *))*"  # lines below, indented more than the first group
_NOT_PROSE = [
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^ *(```|~~~)(?s:.*?)(?:^ *\1|\Z)",
        # a session up to the next blank line
        r"^ *(?:>>>|\.\.\. |In \[).*(?:\n.*\S.*)*",
        rf"^{_TABLE}:?\n[-=~^]{{3,}}\n(?s:.*?)(?=^\S.*\n[-=~^]{{3,}}$|\Z)",
        r"^.*\n *[-=~^]{3,}$",  # any other title
        rf"^( *)(?:{_TABLE}|(?i:examples?|usage)):{{1,2}} *{_DEEPER}",
        # name : type
        rf"^( *)[`*]*[a-z_][\w.]*[`*]*(?: ?\(.*\):| ?:|, .* : ).*{_DEEPER}",
        rf"^( *)\.\. (?!note|warning|tip|important|caution).*{_DEEPER}",
        rf"^( *)(?::\w[^:\n`]*:(?!`)|@\w+).*{_DEEPER}",  # :param name:
        rf"^( *)\S.*::$\n(?: *\n)*\1 +\S.*{_DEEPER}",  # code after a double colon
    )
]
_MARK = re.compile(r"^( *)([-*+•]|\d+[.)]|\.\. \w+::)(?=\s)", re.MULTILINE)
"""The start of a list item or an admonition, whose text is a separate paragraph."""

_PLAIN = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # a footnote; elsewhere it is used as a noun
        (r"(?<=[.,;])\s?\[[\w#*]+\]_", ""),
        (r":[\w:+-]+:`[~!](?:[\w.:]*[.:])?(\w+)`", r"\1"),  # :class:`~module.Name`
        (r":[\w:+-]+:(?=`)", ""),
        (r"\[`[~!]?([^`\]]*)`\]", r"\1"),
        (r"`([^`<]+?)\s*<[^`>]+>`_*", r"\1"),  # `text <address>`_
        (r"!?\[([^\[\]]+)\]\([^()\s]*\)", r"\1"),  # [text](address)
        (r"`+([^`]*)`+_*", r"\1"),
        (r"(?<![\w*])\*{1,3}(?=\w)|(?<=[\w.,:])\*{1,3}(?![\w*])", ""),
        (r"(?<![\w.])(?:[a-z_]\w*)?\.(?:\w+\.)*(?=[A-Z])", ""),  # module.Name
        (r"\\(?=[*_ ])|(?<=\w)\(\)", ""),
        (r"\s+", " "),
    )
]
_PROSE = re.compile(
    r"(?!.*(?://|TODO|FIXME| [.,;:?!]))"
    r"[\"'(]?[A-Z][^=<>{}|\\~^#@$*\[\]`\x00-\x1f\ufffd]*(?<![. ])[.!?][\"')]*"
)
_WORD = re.compile(
    r"[\"'(]*(?:[A-Za-z]?[a-z]*(?:['’-][A-Za-z]?[a-z]+)*|\d+|[A-Z]{2,5}|[ei]\.[ge])[\"').,;:!?]*"
)
_FUNCTION_WORD = re.compile(
    r"(?i)\b(?:the|an?|is|are|was|be|has|of|to|in|for|on|from|with|by|this|it|not|and|or|if|as)\b"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, help="the text file to write")
    collect(parser.parse_args().out)


def collect(out: Path) -> None:
    """Write the prose of this machine to a file."""
    start = time.perf_counter()
    names = ("stdlib", "purelib", "platlib")
    folders = [Path(sysconfig.get_path(name)) for name in names]
    documents = list(read_prose(dict.fromkeys(folders)))
    text = "\n\n".join("\n".join(document) for document in documents) + "\n"
    write_text(out, text)
    num_sentences = sum(map(len, documents))
    seconds = time.perf_counter() - start
    print(
        f"{out}: {len(text) / 1e6:.1f} MB, {len(documents):,} documents, "
        f"{num_sentences:,} sentences, {len(text.split()):,} words in {seconds:.0f} s",
        file=sys.stderr,
    )


def read_prose(folders: Iterable[Path]) -> Iterator[list[str]]:
    """Yield the sentences of each language topic and each module, none of them
    twice.
    """
    paths = list[Path]()
    for folder in folders:
        paths += _modules(folder)
    seen = set[str]()
    pool = ProcessPoolExecutor(
        NUM_PROCESSES, mp_context=get_context("spawn"), initializer=gc.disable
    )
    with pool:
        of_modules = pool.map(module_sentences, paths, chunksize=64)
        of_topics = (list(find_sentences(topics[name])) for name in sorted(topics))
        for sentences in chain(of_topics, of_modules):
            by_skeleton = {_skeleton(sentence): sentence for sentence in sentences}
            fresh = [text for key, text in by_skeleton.items() if key not in seen]
            if len(fresh) >= LEAST_SENTENCES:
                seen.update(by_skeleton)
                yield fresh


def module_sentences(path: Path) -> list[str]:
    """Return the prose in the docstrings of a module, in order; nothing if it is not
    Python.
    """
    with warnings.catch_warnings(action="ignore"):
        try:
            source = path.read_bytes()
            documented = sum(map(len, source.split(b'"""')[1::2]))
            if documented < LEAST_DOCSTRING_SHARE * len(source):
                return []
            module = ast.parse(source)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return []
    sentences = list[str]()
    for docstring in _docstrings(module.body):
        valid = docstring.encode(errors="ignore").decode()  # without surrogates
        sentences += find_sentences(valid)
    return sentences


def find_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a docstring that read as English prose, without markup."""
    prose = "\n\n".join(_paragraphs(inspect.cleandoc(text)))
    return filter(is_prose, split_sentences(prose, TextSettings()))


def is_prose(sentence: str) -> bool:
    """Check that a sentence reads as English, and is not a fragment, a formula or a
    line of code.
    """
    words = sentence.split()
    if len(words) < LEAST_WORDS or len(sentence) > LONGEST_SENTENCE:
        return False
    if _PROSE.fullmatch(sentence) is None:
        return False
    has_pairs = sentence.count("(") == sentence.count(")")
    has_even_quotes = sentence.count('"') % 2 == 0
    if not has_pairs or not has_even_quotes:
        return False
    if _FUNCTION_WORD.search(sentence) is None:
        return False
    odd = [word for word in words if _WORD.fullmatch(word) is None]
    if len(odd) > LARGEST_ODD_SHARE * len(words):
        return False
    return max(map(len, words)) <= LONGEST_WORD


def _modules(folder: Path) -> list[Path]:
    modules = list[Path]()
    for path in sorted(folder.rglob("*.py")):
        if IGNORED_FOLDERS.isdisjoint(path.relative_to(folder).parts):
            modules.append(path)
    return modules


def _docstrings(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the strings that are statements or arguments of a call (as in numpy and
    torch).
    """
    for statement in body:
        match statement:
            case ast.Expr(ast.Constant(str(text))):
                yield text
            case ast.Expr(ast.Call()):
                for node in ast.walk(statement):
                    value = getattr(node, "value", None)
                    if isinstance(value, str):
                        yield value
            case ast.ClassDef() | ast.If() | ast.Try():
                yield from _docstrings(statement.body)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield ast.get_docstring(statement) or ""


def _paragraphs(text: str) -> Iterator[str]:
    for pattern in _NOT_PROSE:
        text = pattern.sub("\n", text)
    text = _MARK.sub(lambda mark: f"\n{mark[1]}{' ' * len(mark[2])}", text)
    for _, lines in groupby(text.split("\n"), key=_indentation):
        paragraph = " ".join(lines)
        for pattern, replacement in _PLAIN:
            paragraph = pattern.sub(replacement, paragraph)
        yield paragraph.strip()


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip()) if line.strip() else -1


def _skeleton(sentence: str) -> str:
    """Return the common part of sentences that were made from the same template."""
    words = f"{sentence[0].lower()}{sentence[1:]}".split()
    return " ".join(word if word.islower() else "#" for word in words)


if __name__ == "__main__":
    main()
