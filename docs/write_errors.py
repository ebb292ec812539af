"""Write docs/errors.md from the raise sites: `python docs/write_errors.py`."""

import ast
import re
from pathlib import Path

from litebert.files import write_text

ROOT = Path(__file__).parents[1]
HEADER = """# Errors

An error of litebert has up to four lines: what is wrong (with a code that never changes), what was
received, what is expected, and the command or the setting that helps. Names in braces are filled
in. Exit codes: 1 user error, 2 usage, 3 damaged data or checkpoint, 4 out of memory or disk, 5
training that is not finite, 130 and 143 interrupted after a clean checkpoint.

| code | what is wrong | what is expected | next |
|---|---|---|---|
"""


def page() -> str:
    """Return docs/errors.md as it should be."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "src").rglob("*.py"))]
    rows = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args and _code(node.args[0]):
                rows[_code(node.args[0])] = _row(node, [tree, *trees])
    return HEADER + "".join(rows[code] for code in sorted(rows))


def _row(call: ast.Call, trees: list[ast.Module]) -> str:
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    last = call.args[-1] if len(call.args) > 2 else ast.Constant("")  # short forms give it as the last argument
    if getattr(call.func, "id", "") == "damaged_model" and len(call.args) < 4:
        last = ast.Constant("")  # it was not said what is expected
    expected = named.get("expected", last)
    if getattr(call.func, "id", "") == "no_such_name":
        expected = ast.Constant("the nearest known name, or one of all")
    next_step = named.get("next") or _next_of(call, trees)
    values = _values_before(call, trees[0])
    cells = [
        _text(values.get(node.id, node) if isinstance(node, ast.Name) else node)
        for node in (call.args[1], expected, next_step)
    ]
    return f"| {_code(call.args[0])} | " + " | ".join(c.replace("|", "\\|") for c in cells) + " |\n"


def _values_before(call: ast.Call, tree: ast.Module) -> dict[str, ast.expr]:
    """Return what the names of the innermost function around a call were last set to before it."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= call.lineno <= (node.end_lineno or 0)
    ]
    values: dict[str, ast.expr] = {}
    sets = [each for node in around[-1:] for each in ast.walk(node) if isinstance(each, ast.Assign)]
    for each in sorted(sets, key=lambda each: each.lineno):
        if each.lineno < call.lineno:
            target, value = each.targets[0], each.value
            if isinstance(target, ast.Name):
                values[target.id] = value
            elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = zip(target.elts, value.elts, strict=True)
                values |= {name.id: one for name, one in pairs if isinstance(name, ast.Name)}
    return values


def _next_of(call: ast.Call, trees: list[ast.Module]) -> ast.expr:
    """Return the next step that the short form called here, of this module or another, gives to all its errors."""
    name = getattr(call.func, "id", "")
    found = [(tree, each) for tree in trees for each in tree.body if getattr(each, "name", "") == name]
    for tree, function in found[:1]:
        sets = [each for each in tree.body if isinstance(each, ast.Assign)]
        constants = {target.id: each.value for each in sets for target in each.targets if isinstance(target, ast.Name)}
        for node in ast.walk(function):
            for keyword in node.keywords if isinstance(node, ast.Call) else ():
                if keyword.arg == "next":
                    value = keyword.value
                    is_named = isinstance(value, ast.Name) and value.id in constants
                    return constants[value.id] if is_named else value
    return ast.Constant("as the message says")


def _code(node: ast.expr) -> str:
    value = node.value if isinstance(node, ast.Constant) else ""
    return value if isinstance(value, str) and re.fullmatch(r"LB-\d{3}", value) else ""


def _text(node: ast.expr) -> str:
    """Return a string literal, with what is computed in braces."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return f"{{{ast.unparse(node.value)}}}"
    return f"{{{ast.unparse(node)}}}"


if __name__ == "__main__":
    write_text(ROOT / "docs" / "errors.md", page())
