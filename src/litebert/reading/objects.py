"""The rows in JSON that other programs write: tables of pandas, annotations of Label
Studio, prodigy and spaCy, questions in SQuAD's layout.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

# an object has other objects inside of it, so many deep at most
_DEPTH = 4


# ---- the rows of a whole value -------------------------------------------------------


def rows_in(value: object) -> list[object] | None:
    """Return the rows of a JSON value: a list, the only list in an object, or a table
    by columns, by rows or by labels; None if it has none.

    >>> rows_in({"text": {"0": "so good"}, "label": {"0": "pos"}})
    [{'text': 'so good', 'label': 'pos'}]
    >>> rows_in({"pos": ["so good", "fine"], "neg": ["so dull"]})[2]
    {'text': 'so dull', 'label': 'neg'}
    """
    if isinstance(value, list):
        return list(chain.from_iterable(map(_questions, value)))
    if not isinstance(value, dict) or not value:
        return None
    columns = value.get("columns")
    data = value.get("data")
    if isinstance(columns, list) and isinstance(data, list):  # pandas, "split"
        return [_named(columns, row) for row in data]
    parts = list(value.values())
    if all(isinstance(part, dict) for part in parts):
        return _of_objects(value)
    lists = [part for part in parts if isinstance(part, list)]
    if len(lists) > 1:  # names of labels stand beside the rows
        lists = [part for part in lists if not all(map(_is_scalar, part))]
    if len(lists) == 1:
        return rows_in(lists[0])
    if not lists and all(isinstance(part, list) for part in parts):
        return _of_lists(value)
    return None


def _named(columns: Sequence[object], row: object) -> object:
    if not isinstance(row, list):
        return row
    return dict(zip(map(str, columns), row, strict=False))


def _of_objects(value: Mapping[str, Any]) -> list[object]:
    """Return the rows of an object of objects: of rows by their names or, as pandas
    writes a table, of columns, in each of which rows have the same names.
    """
    parts = list(value.values())
    are_columns = all(part.keys() == parts[0].keys() for part in parts)
    are_numbered = all(name.isdecimal() for name in parts[0])
    if not (are_columns and are_numbered):
        return parts
    rows = list[object]()
    for name in parts[0]:
        rows.append({column: cells[name] for column, cells in value.items()})
    return rows


def _of_lists(value: Mapping[str, list[object]]) -> list[object]:
    """Return the rows of an object of lists: of columns that are equally long and
    differ, or of the texts of each label.
    """
    lengths = {len(cells) for cells in value.values()}
    are_texts = all(isinstance(cell, str) for cell in chain(*value.values()))
    have_spaces = all(any(" " in str(cell) for cell in part) for part in value.values())
    if len(lengths) == 1 and not (are_texts and have_spaces):
        columns = list(value)
        cells = zip(*value.values(), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in cells]
    rows = list[object]()
    for label, texts in value.items():
        rows.extend({"text": text, "label": label} for text in texts)
    return rows


def _questions(row: Any) -> Iterator[object]:
    """Yield the questions of a document in SQuAD's layout, with their contexts."""
    paragraphs = row.get("paragraphs") if isinstance(row, dict) else None
    for paragraph in paragraphs if isinstance(paragraphs, list) else [row]:
        questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
        if not isinstance(questions, list):
            yield paragraph
            continue
        for question in questions:
            if isinstance(question, dict):
                yield {**question, "context": paragraph.get("context")}
            else:
                yield question


def _is_scalar(value: object) -> bool:
    return not isinstance(value, list | dict)


# ---- one row -------------------------------------------------------------------------


def columns_of(value: Any) -> object:
    """Return a row as an object of columns, if it is one in any of the usual ways; what
    is inside of an object is a column, too, such as user.name.

    >>> columns_of(["so good", "pos"])
    {'1': 'so good', '2': 'pos'}
    >>> columns_of({"text": "so good", "label": {"name": "pos"}})["label.name"]
    'pos'
    """
    if isinstance(value, list):
        return _of_list(value)
    if not isinstance(value, dict):
        return value
    row = value
    if isinstance(value.get("data"), dict) and _ANNOTATED & value.keys():
        row = _of_label_studio(value)
    if isinstance(row.get("accept"), list) and isinstance(row.get("options"), list):
        row = _of_choice(row)
    return row | dict(_inner(row, "", _DEPTH))


def is_rejected(row: Mapping[str, object]) -> bool:
    """Return whether an annotator has rejected the entities of a row."""
    return "spans" in row and row.get("answer") in ("reject", "ignore")


def _of_list(cells: list[Any]) -> object:
    """Return cells as columns 1, 2, …; or a text and its entities, as in spaCy."""
    is_pair = len(cells) == 2 and isinstance(cells[0], str)
    if is_pair and isinstance(cells[1], dict):
        return {"text": cells[0], **cells[1]}
    if len(cells) < 2 or not all(map(_is_scalar, cells)):
        return cells
    return {str(place): cell for place, cell in enumerate(cells, 1)}


_ANNOTATED = {"annotations", "completions", "predictions"}


def _of_label_studio(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a task of Label Studio with its first annotation."""
    annotations = task.get("annotations") or task.get("completions") or []
    row = {**task["data"]}
    for annotation in annotations[:1] if isinstance(annotations, list) else ():
        results = annotation.get("result") if isinstance(annotation, dict) else None
        values = [result.get("value") for result in results or () if "value" in result]
        choices = [each["choices"] for each in values if "choices" in each]
        if choices:
            row["label"] = choices[0][0] if len(choices[0]) == 1 else choices[0]
        else:
            row["entities"] = values
    return row


def _of_choice(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task of prodigy, whose options are labels, with those that were
    accepted.
    """
    accepted = row["accept"]
    label = accepted[0] if len(accepted) == 1 else accepted
    rest = {
        key: value for key, value in row.items() if key not in ("accept", "options")
    }
    return {**rest, "label": label}


def _inner(
    value: Mapping[str, Any], prefix: str, depth: int
) -> Iterator[tuple[str, Any]]:
    """Yield the columns inside of objects, by their dotted names."""
    for name, part in value.items():
        if prefix and _is_scalar(part):
            yield f"{prefix}{name}", part
        elif isinstance(part, dict) and depth:
            yield from _inner(part, f"{prefix}{name}.", depth - 1)
