"""Write docs/errors.md from the errors in the code: `python docs/write_errors.py`."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from litebert.files import write_text

ROOT = Path(__file__).parents[1]
HEADER = """# Errors

An error of litebert has up to four lines: what is wrong, with a code; what was received; what
is expected; and the command or the setting that helps. This page has the first line of each
error by its code: names in braces are filled in, and a slash separates alternatives.

Exit codes: 1 user error, 2 usage, 3 damaged data or checkpoint, 4 out of memory or disk,
5 training that is not finite, 128 plus the signal's number after a signal (130 is Ctrl-C,
143 SIGTERM), 141 if the reader of a pipe has closed it.

| code | what is wrong |
|---|---|
"""


def page() -> str:
    """Return docs/errors.md as it should be: a row per code."""
    messages = dict[str, list[str]]()
    for path in sorted((ROOT / "src").rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for function in _functions(tree):
            for code, message in _errors(function):
                texts = messages.setdefault(code, [])
                if message not in texts:
                    texts.append(message)
    rows = list[str]()
    for code, texts in sorted(messages.items()):
        cell = " / ".join(texts).replace("|", "\\|")
        rows.append(f"| {code} | {cell} |\n")
    return HEADER + "".join(rows)


def _functions(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the outermost functions and classes of a module, and its other statements."""
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            yield from statement.body
        else:
            yield statement


def _errors(function: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the code and the first line of every error that a function makes.

    Where that line is a name, it is what was last assigned to it before.
    """
    nodes = [node for node in ast.walk(function) if hasattr(node, "lineno")]
    texts = dict[str, str]()
    for node in sorted(nodes, key=lambda node: node.lineno):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            texts[node.targets[0].id] = _text(node.value)
        if not isinstance(node, ast.Call):
            continue
        # The code comes first, or second in a partial call; the line follows it.
        for argument, message in pairwise(node.args[:3]):
            code = _code(argument)
            if code is None:
                continue
            if isinstance(message, ast.Name) and message.id in texts:
                yield code, texts[message.id]
            else:
                yield code, _text(message)


def _code(node: ast.expr) -> str | None:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return None
    return node.value if re.fullmatch(r"LB-\d{3}", node.value) else None


def _text(node: ast.expr) -> str:
    """Return a string as it reads, with the names that are filled in in braces."""
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(_text(part) for part in node.values)
        case ast.FormattedValue(value) if not isinstance(value, ast.Constant):
            return _text(value)
        case ast.Call(args=[value, *_]) | ast.Subscript(value):
            return _text(value)
        case ast.BinOp(left, ast.Add(), right):
            return _text(left) + _text(right)
        case ast.IfExp(body=first, orelse=second):
            return f"{_text(first)} / {_text(second)}"
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return f"{{{name.strip('_')}}}"
    return "…"


if __name__ == "__main__":
    write_text(ROOT / "docs" / "errors.md", page())
