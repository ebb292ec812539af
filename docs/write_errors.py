"""Write docs/errors.md from the raise sites: `python docs/write_errors.py`."""

import ast
import re
from pathlib import Path

from litebert.files import write_text

ROOT = Path(__file__).parents[1]
HEADER = """# Errors

An error of litebert has up to four lines: what is wrong (with a code that never changes), what was
received, what is expected, and the command or the setting that helps. Names in braces are filled
in, a slash separates alternatives, and … is computed. Exit codes: 1 user error, 2 usage, 3 damaged
data or checkpoint, 4 out of memory or disk, 5 training that is not finite, 128 plus the signal's
number after a signal (130 is Ctrl-C, 143 SIGTERM), 141 if the reader of a pipe has closed it.

| code | what is wrong | what is expected | next |
|---|---|---|---|
"""
NEAREST = "the nearest known name, or one of all"
AS_SAID = "as the message says"
UNKNOWN = "…"


def page() -> str:
    """Return docs/errors.md as it should be."""
    trees = [
        ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "src").rglob("*.py"))
    ]
    calls = [
        (tree, node)
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.args
    ]
    return HEADER + "".join(
        sorted(
            {_row(call, [tree, *trees]) for tree, call in calls if _code(call.args[0])}
        )
    )


def _row(call: ast.Call, trees: list[ast.Module]) -> str:
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    # short forms give it as the last argument
    last = call.args[-1] if len(call.args) > 2 else ast.Constant("")
    if getattr(call.func, "id", "") == "damaged_model" and len(call.args) < 4:
        last = ast.Constant("")  # it was not said what is expected
    expected = named.get("expected", last)
    if getattr(call.func, "id", "") == "no_such_name":
        expected = ast.Constant(NEAREST)
    next_step = named.get("next") or _next_of(call, trees)
    values = _values_before(call, trees[0].body)
    cells = [
        " / ".join(
            dict.fromkeys(
                _text(value) for value in values.get(getattr(node, "id", ""), [node])
            )
        )
        for node in (call.args[1], expected, next_step)
    ]
    cells = [AS_SAID if re.fullmatch(r"…|\{\w+\}", cell) else cell for cell in cells]
    return (
        f"| {_code(call.args[0])} | "
        + " | ".join(c.replace("|", "\\|") for c in cells)
        + " |\n"
    )


def _values_before(
    call: ast.Call, statements: list[ast.stmt]
) -> dict[str, list[ast.expr]]:
    """Return what each name may have been set to when a call is reached."""
    values: dict[str, list[ast.expr]] = {}
    for each in statements:
        if each.lineno > call.lineno:
            break
        is_around = call.lineno <= (each.end_lineno or 0)
        if isinstance(each, ast.Assign) and not is_around:
            target = each.targets[0]
            value = each.value
            are_pairs = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            pairs = (
                zip(target.elts, value.elts, strict=True)
                if are_pairs
                else [(target, value)]
            )
            values |= {
                name.id: [one] for name, one in pairs if isinstance(name, ast.Name)
            }
        parts = [each, *getattr(each, "handlers", ()), *getattr(each, "cases", ())]
        for suite in (
            getattr(part, name, [])
            for part in parts
            for name in ("body", "orelse", "finalbody")
        ):
            has_call = suite and suite[0].lineno <= call.lineno <= suite[-1].end_lineno
            is_passed = (
                suite
                and not is_around
                and not isinstance(each, ast.FunctionDef | ast.ClassDef)
            )
            goes_on = is_passed and not isinstance(
                suite[-1], ast.Return | ast.Raise | ast.Continue
            )
            inner = _values_before(call, suite) if has_call or goes_on else {}
            values |= (
                inner
                if has_call
                else {name: values.get(name, []) + more for name, more in inner.items()}
            )
    return values


def _next_of(call: ast.Call, trees: list[ast.Module]) -> ast.expr:
    """Return the next step that the short form called here, of this module or another,
    gives to all its errors.
    """
    name = getattr(call.func, "id", "")
    found = [
        (tree, each)
        for tree in trees
        for each in tree.body
        if getattr(each, "name", "") == name
    ]
    for tree, function in found[:1]:
        sets = [each for each in tree.body if isinstance(each, ast.Assign)]
        constants = {
            target.id: each.value
            for each in sets
            for target in each.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(function):
            for keyword in node.keywords if isinstance(node, ast.Call) else ():
                if keyword.arg == "next":
                    value = keyword.value
                    is_named = isinstance(value, ast.Name) and value.id in constants
                    return constants[value.id] if is_named else value
    return ast.Constant(AS_SAID)


def _code(node: ast.expr) -> str:
    value = node.value if isinstance(node, ast.Constant) else ""
    return value if isinstance(value, str) and re.fullmatch(r"LB-\d{3}", value) else ""


def _text(node: ast.expr) -> str:
    """Return a string literal, with names that are filled in in braces, and
    alternatives.
    """
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(_text(part) for part in node.values)
        case ast.BinOp(left, ast.Add(), right) if "1" not in (
            ast.unparse(left),
            ast.unparse(right),
        ):
            return _text(left) + _text(right)
        case (
            ast.IfExp(body=first, orelse=second)
            | ast.BoolOp(op=ast.Or(), values=[first, second])
        ):
            return " / ".join(filter(None, [_text(first), _text(second)]))
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return f"{{{name.strip('_')}}}"
        case ast.Call(func=ast.Name("did_you_mean")):
            return NEAREST
        case ast.FormattedValue(value) | ast.Subscript(value) | ast.Call(args=[value]):
            return UNKNOWN if isinstance(value, ast.Constant) else _text(value)
    return UNKNOWN


if __name__ == "__main__":
    write_text(ROOT / "docs" / "errors.md", page())
