"""What to type next: use the model, or go on with the run."""

from __future__ import annotations

import shlex

from litebert.runs import Record


def shell_lines(record: Record) -> list[str]:
    """Return the commands that use a finished model, the verbs it was trained for."""
    model = shlex.quote(str(record.folder / "model"))
    lines = [f'litebert fill "The cat sat on the [MASK]." --model {model}']
    if record.trains_sentences and record.settings.get("objective.sentence") != "next":
        lines.append(f'litebert order "He opened the door." "Nobody was there." --model {model}')
    return [*lines, f'litebert embed "A sentence." --model {model}']


def python_lines(record: Record) -> list[str]:
    """Return the same in Python."""
    return [
        "import litebert",
        f"model = litebert.load({str(record.folder / 'model')!r})",
        'print(model.fill("The cat sat on the [MASK]."))',
    ]
