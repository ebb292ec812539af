"""The roles of columns, the usual names of each, and how a user assigns them: role=name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from litebert.errors import RequestError, did_you_mean

Role: TypeAlias = Literal[
    "id", "text", "second", "label", "tokens", "tags", "context", "question", "choices", "answers",
    "start",
]  # fmt: skip
ROLES: tuple[Role, ...] = get_args(Role)
SYNONYMS = {"pair": "second"}
"""Other names of roles, which commands may use."""
SEVERAL: tuple[Role, ...] = ("label", "choices")
"""Roles that several columns can share: a column for each label, or for each choice."""

PAIRS = (
    ("sentence1", "sentence2"), ("sentencea", "sentenceb"), ("text1", "text2"),
    ("texta", "textb"), ("premise", "hypothesis"), ("question1", "question2"),
    ("question", "passage"), ("question", "sentence"), ("question", "context"),
    ("query", "passage"), ("query", "document"), ("first", "second"),
)  # fmt: skip

NAMES: Mapping[Role, tuple[str, ...]] = {
    "id": ("id", "idx", "index", "guid", "uid", "uuid", "pairid", "exampleid", "questionid", "qid",
           "docid", "rowid", "sentenceid", "sentid"),
    "text": ("text", "sentence", "review", "reviewtext", "reviewbody", "content", "comment",
             "commenttext", "tweet", "utterance", "message", "body", "document", "description",
             "query", "sentence1", "premise", "question", "passage", "title", "input"),
    "second": ("second", "sentence2", "text2", "textb", "hypothesis", "textpair", "pair"),
    "label": ("label", "labels", "goldlabel", "class", "classindex", "target", "category",
              "categories", "sentiment", "topic", "intent", "emotion", "score", "similarity",
              "similarityscore", "relatednessscore", "entailmentjudgment", "rating", "stars",
              "isduplicate", "quality", "output", "answer", "y"),
    "tokens": ("tokens", "words", "token"),
    "tags": ("nertags", "tags", "tag", "labels", "ner", "iobtags", "biotags", "wordlabels",
             "postags", "pos", "chunktags"),
    "context": ("context", "passage", "article", "paragraph", "story", "ctx", "premise", "sent1",
                "text", "document"),
    "question": ("question", "questionstem", "query", "prompt", "goal", "sent2", "sentence"),
    "choices": ("choices", "options", "candidates", "endings", "alternatives"),
    "answers": ("answers", "answer", "answertext"),
    "start": ("answerstart", "startposition", "answeroffset", "start"),
}  # fmt: skip

CHOSEN = ("answerkey", "correct", "correctanswer", "correctanswerid", "gold")
"""More names of the label column if it says which choice is right."""

KNOWN_NAMES = frozenset(
    [*CHOSEN, *(name for names in NAMES.values() for name in names)] + [name for pair in PAIRS for name in pair]
)


@dataclass(frozen=True)
class Columns:
    """The columns of each role; most roles have one column."""

    names: Mapping[Role, tuple[str, ...]]

    def one(self, role: Role) -> str | None:
        """Return the column of a role, the first of several; None if it has none."""
        names = self.names.get(role, ())
        return names[0] if names else None

    def all(self, role: Role) -> tuple[str, ...]:
        """Return the columns that share a role."""
        return self.names.get(role, ())

    @property
    def used(self) -> tuple[str, ...]:
        """The columns that have a role."""
        return tuple(name for names in self.names.values() for name in names)

    def without(self, roles: Collection[Role]) -> Columns:
        """Return the columns without those of some roles."""
        kept = {role: names for role, names in self.names.items() if role not in roles}
        return Columns(kept)

    def words(self) -> tuple[str, ...]:
        """Return the assignments that a user would type for these columns.

        >>> Columns({"text": ("body",), "choices": ("a", "b")}).words()
        ('text=body', 'choices=a,b')
        """
        return tuple(f"{role}={','.join(names)}" for role, names in self.names.items())


def normal(name: str) -> str:
    """Return a column's name normalised for comparison: letters and digits, in lower case.

    >>> normal("Review Text"), normal("sentence_A")
    ('reviewtext', 'sentencea')
    """
    return "".join(filter(str.isalnum, name)).lower()


def chosen_header(words: Iterable[str]) -> bool | None:
    """Return True or False for header=yes or header=no among the words, None for neither."""
    headers = {"header=yes": True, "header=no": False}
    return next((headers[word] for word in words if word in headers), None)


def chosen_columns(words: Iterable[str], columns: Sequence[str] | None) -> Columns:
    """Read assignments as a user types them: role=name, or role=name,name for several columns.

    Names must be among `columns`, if these are known.

    Raises:
        RequestError: LB-850, this is not role=name; LB-851, there is no such column.
    """
    names: dict[Role, tuple[str, ...]] = {}
    for word in words:
        if chosen_header([word]) is not None:
            continue
        role, equals, name = word.partition("=")
        role = SYNONYMS.get(role, role)
        if role not in ROLES or not equals or not name:
            raise RequestError(
                "LB-850",
                "this does not say what a column is",
                received=word,
                expected=f"ROLE=NAME, with a role of {', '.join(ROLES)}; or header=no",
                next=f"--column text=NAME ({did_you_mean(role, ROLES)})",
            )
        is_one = role not in SEVERAL or name in (columns or ())
        names[role] = (name,) if is_one else tuple(name.split(","))
    if columns is not None:
        require_columns(Columns(names), columns)
    return Columns(names)


def require_columns(wanted: Columns, columns: Sequence[str], *, where: str = "") -> None:
    """Check that a table has the columns of all roles.

    Raises:
        RequestError: LB-851, there is no such column.
    """
    for role, names in wanted.names.items():
        for name in names:
            if name not in columns:
                raise RequestError(
                    "LB-851",
                    f"there is no column {name}{where}",
                    received=f"{role}={name}",
                    expected=f"one of {', '.join(columns)}",
                    next=f"--column {role}=NAME ({did_you_mean(name, columns)})",
                )
