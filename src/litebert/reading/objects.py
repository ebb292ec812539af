"""The rows in JSON that other programs write: tables of pandas, annotations of Label
Studio, prodigy and spaCy, conversations, questions in SQuAD's layout.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# the names of lists that are the parts of a data set
_SPLITS = {"train", "dev", "val", "valid", "validation", "test"}


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
        return _rows_of_list(value)
    if not isinstance(value, dict) or not value:
        return None
    names = {name.lower() for name in value}
    if names <= _SPLITS:
        return _rows_of_splits(value)
    # what pandas writes with orient="split"
    columns = _list_in(value, "columns")
    data = _list_in(value, "data")
    if columns is not None and data is not None:
        return [_with_names(columns, row) for row in data]
    if all(isinstance(field, dict) for field in value.values()):
        return _rows_of_objects(value)
    return _rows_of_fields(value)


def _rows_of_fields(value: Mapping[str, object]) -> list[object] | None:
    """Return the rows of an object with lists in it: of the only list, or of the only
    list with more than texts and numbers; else, the lists are columns.
    """
    lists = [field for field in value.values() if isinstance(field, list)]
    if len(lists) == 1:
        return rows_in(lists[0])
    # the others may be the names of labels
    tables = [members for members in lists if not all(map(_is_scalar, members))]
    if len(tables) == 1:
        return rows_in(tables[0])
    if tables or len(lists) < len(value):
        return None
    return _rows_of_lists(value)


def _rows_of_list(documents: Sequence[object]) -> list[object]:
    """Return the rows of a list; of documents in SQuAD's layout, the questions with
    their contexts; of the intents of a chatbot, the texts with their tags.
    """
    rows = list[object]()
    for document in documents:
        for paragraph in _paragraphs(document):
            for question in _questions(paragraph):
                rows.extend(_patterns(question))
    return rows


def _paragraphs(document: object) -> list[object]:
    """Return the paragraphs of a document; a document without them is one paragraph."""
    paragraphs = _list_in(document, "paragraphs")
    return [document] if paragraphs is None else paragraphs


def _questions(paragraph: Any) -> Iterator[object]:
    """Yield the questions of a paragraph, each with the text of the paragraph; anything
    else is a row as it is.
    """
    questions = _list_in(paragraph, "qas")
    if questions is None:
        yield paragraph
        return
    for question in questions:
        if isinstance(question, dict):
            yield {**question, "context": paragraph.get("context")}
        else:
            yield question


def _patterns(intent: Any) -> Iterator[object]:
    """Yield the texts of an intent, each with the tag of the intent; anything else is a
    row as it is.
    """
    texts = _list_in(intent, "patterns")
    if texts is None:
        yield intent
        return
    for text in texts:
        yield {"text": text, "label": intent.get("tag")}


def _list_in(value: object, name: str) -> list[Any] | None:
    """Return the list that an object has under a name; None if it has none."""
    if not isinstance(value, Mapping):
        return None
    members = value.get(name)
    return members if isinstance(members, list) else None


def _rows_of_splits(value: Mapping[str, object]) -> list[object]:
    """Return the rows of all parts of a data set, with the name of the part of each."""
    rows = list[object]()
    for name, part in value.items():
        for row in rows_in(part) or []:
            columns = columns_of(row)
            if isinstance(columns, dict):
                rows.append({**columns, "split": name})
            else:
                rows.append(row)
    return rows


def _with_names(columns: Sequence[object], row: object) -> object:
    if not isinstance(row, list):
        return row
    names = map(str, columns)
    return dict(zip(names, row, strict=False))


def _rows_of_objects(value: Mapping[str, Any]) -> list[object]:
    """Return the rows of an object of objects: of rows by their names or, as pandas
    writes a table, of columns, in each of which rows have the same numbers.
    """
    objects = list(value.values())
    keys = objects[0].keys()
    have_same_keys = all(members.keys() == keys for members in objects)
    are_columns = have_same_keys and all(map(str.isdecimal, keys))
    if not are_columns:
        return objects
    rows = list[object]()
    for number in keys:
        rows.append({column: value[column][number] for column in value})
    return rows


def _rows_of_lists(value: Mapping[str, Any]) -> list[object]:
    """Return the rows of an object of lists: of columns, which are equally long and of
    which one has other things than texts; or of the texts of each label.
    """
    lists = list(value.values())
    lengths = set(map(len, lists))
    are_columns = len(lengths) == 1 and not all(map(_has_texts, lists))
    rows = list[object]()
    if are_columns:
        for cells in zip(*lists, strict=True):
            rows.append(dict(zip(value, cells, strict=True)))
        return rows
    for label, texts in value.items():
        for text in texts:
            rows.append({"text": text, "label": label})
    return rows


def _has_texts(cells: Sequence[object]) -> bool:
    """Return whether cells are texts, and one of them has several words."""
    texts = [cell for cell in cells if isinstance(cell, str)]
    return len(texts) == len(cells) and any(" " in text for text in texts)


def _is_scalar(value: object) -> bool:
    return not isinstance(value, list | dict)


# ---- one row -------------------------------------------------------------------------

# keys of a task of Label Studio beside its data
_ANNOTATED = {"annotations", "completions", "predictions"}
# how many levels of objects inside of objects become columns
_DEPTH = 4


def columns_of(value: Any) -> object:
    """Return a row as an object of columns, if it is one in any of the usual ways; what
    is inside of an object is a column, too, such as user.name.

    >>> columns_of(["so good", "pos"])
    {'1': 'so good', '2': 'pos'}
    >>> columns_of({"text": "so good", "label": {"name": "pos"}})["label.name"]
    'pos'
    """
    if isinstance(value, list):
        return _columns_of_list(value)
    if not isinstance(value, dict):
        return value
    row = value
    is_annotated = not _ANNOTATED.isdisjoint(value)
    if is_annotated and isinstance(value.get("data"), dict):
        row = _label_studio_row(value)
    if _list_in(value, "messages") is not None:
        row = _conversation_row(value)
    has_options = _list_in(row, "options") is not None
    if has_options and _list_in(row, "accept") is not None:
        row = _prodigy_row(row)
    inner = dict(_inner_columns(row, "", _DEPTH))
    return {**row, **inner}


def is_rejected(row: Mapping[str, object]) -> bool:
    """Return whether an annotator has rejected the entities of a row."""
    return "spans" in row and row.get("answer") in ("reject", "ignore")


def _columns_of_list(cells: list[Any]) -> object:
    """Return cells as columns 1, 2, …; or a text and its entities, as in spaCy."""
    if len(cells) == 2:
        text, entities = cells
        if isinstance(text, str) and isinstance(entities, dict):
            return {"text": text, **entities}
    if len(cells) < 2 or not all(map(_is_scalar, cells)):
        return cells
    return {str(number): cell for number, cell in enumerate(cells, 1)}


def _label_studio_row(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a task of Label Studio with its first annotation that was not
    cancelled.
    """
    for annotation in _objects(task.get("annotations") or task.get("completions")):
        if not annotation.get("was_cancelled"):
            return {**task["data"], **_annotated_columns(annotation)}
    return {**task["data"]}


def _annotated_columns(annotation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the label that an annotator of Label Studio chose, or the entities."""
    results = _objects(annotation.get("result"))
    values = _objects([result.get("value") for result in results])
    for value in values:
        if value.get("choices"):
            return {"label": _one_or_several(value["choices"])}
    return {"entities": values}


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; none if it is no list."""
    if not isinstance(value, list):
        return []
    return [member for member in value if isinstance(member, dict)]


def _conversation_row(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return a conversation in OpenAI's layout as a text and its label: what the user
    and the assistant said last.
    """
    contents = dict[object, object]()  # of the last message of each role
    for message in _objects(task["messages"]):
        contents[message.get("role")] = message.get("content")
    row = {**task, "text": contents.get("user"), "label": contents.get("assistant")}
    del row["messages"]
    return row


def _prodigy_row(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task of prodigy whose options are labels, with those that were
    accepted.
    """
    row = {**task, "label": _one_or_several(task["accept"])}
    del row["accept"]
    del row["options"]
    return row


def _one_or_several(labels: list[Any]) -> object:
    return labels[0] if len(labels) == 1 else labels


def _inner_columns(
    value: Mapping[str, Any], prefix: str, depth: int
) -> Iterator[tuple[str, Any]]:
    """Yield the columns inside of objects, by their dotted names."""
    for name, part in value.items():
        if name == "choices" and isinstance(part, list):
            yield f"{prefix}{name}", _choice_lists(part)
        elif isinstance(part, dict) and depth:
            yield from _inner_columns(part, f"{prefix}{name}.", depth - 1)
        elif prefix and _is_scalar(part):
            yield f"{prefix}{name}", part


def _choice_lists(members: list[Any]) -> object:
    """Return choices that are objects of a text and a label, as in ARC, as lists."""
    for member in members:
        if not isinstance(member, dict) or not {"text", "label"} <= member.keys():
            return members
    return {
        "label": [member["label"] for member in members],
        "text": [member["text"] for member in members],
    }
