"""Which column of a table is what: by the names that people use, otherwise by what stands in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from litebert.errors import RequestError
from litebert.reading.tables import Row
from litebert.tasks.own.roles import CHOSEN, NAMES, PAIRS, Columns, Role, normal
from litebert.tasks.own.values import Contents

RowShape: TypeAlias = Literal["texts", "words", "choices", "spans"]
Names: TypeAlias = tuple[str, ...]
Found: TypeAlias = dict[Role, Names]

_SIGNS: Mapping[Role, RowShape] = {
    "choices": "choices",
    "tokens": "words",
    "tags": "words",
    "start": "spans",
    "answers": "spans",
    "text": "texts",
    "second": "texts",
}
"""A column chosen for one of these says what the rows are."""

_POSE: Mapping[RowShape, str] = {
    "texts": "texts with a label",
    "words": "words with tags",
    "choices": "questions with choices",
    "spans": "questions on a context",
}

_NUMBERED = re.compile(r"(.*?)[ _-]?([0-9]|[a-e])", re.IGNORECASE)
_FEWEST = {"": 3} | dict.fromkeys(
    ("choice", "option", "opt", "op", "ending", "answer", "ans", "sol", "solution", "candidate",
     "alternative"), 2
)  # fmt: skip
"""How many columns ending in a number or letter, by what is before it, are choices."""


def guess_columns(
    names: Sequence[str], sample: Sequence[Row], chosen: Columns, shape: RowShape | None
) -> tuple[RowShape, Columns]:
    """Return what the rows are and which column plays which role.

    What was chosen stays; `shape` None is guessed, too.

    Raises:
        LitebertError: LB-854, a role that the rows need cannot be given to one column; LB-841, a
            role was chosen that they do not have.

    >>> rows = [{"body": "It was good.", "stars": "5"}, {"body": "I fell asleep.", "stars": "1"}]
    >>> guess_columns(["body", "stars"], rows, Columns({}), None)[1].words()
    ('text=body', 'label=stars')
    """
    guess = _Guess(names, Contents(sample), chosen)
    shape = shape or guess.shape()
    find = {"texts": guess.texts, "words": guess.words, "choices": guess.choices, "spans": guess.spans}
    found = find[shape]()
    for role in chosen.names:
        if role not in found:
            raise RequestError(
                "LB-841",
                f"these rows have no {role}",
                received=f"{role}={','.join(chosen.all(role))}",
                expected=f"one of {', '.join(found)}, as these look like {_POSE[shape]}",
                next="omit this choice; or name the problem: --problem NAME",
            )
    return shape, Columns({role: columns for role, columns in found.items() if columns})


@dataclass(frozen=True)
class _Guess:
    names: Sequence[str]
    contents: Contents
    chosen: Columns

    def shape(self) -> RowShape:
        """Tell from chosen roles, then from names together with what stands in the columns."""
        for role, shape in _SIGNS.items():
            if self.chosen.all(role):
                return shape
        tokens = self._named("tokens")
        if tokens and (self._named("tags", *tokens) or self.contents.is_list(tokens[0])):
            return "words"
        if self._named("question") and self._named("context") and self._has_spans():
            return "spans"
        return "choices" if self._choices() else "texts"

    def texts(self) -> Found:
        """Find one or two texts with a label."""
        texts = self._texts()
        label = self._named("label", *texts) or self._like_label(texts)
        id_ = self._named("id", *texts, *label)
        return {"text": texts[:1], "second": texts[1:], "label": label, "id": id_}

    def words(self) -> Found:
        """Find words and their tags."""
        tokens = self._needed("tokens")
        tags = self._named("tags", *tokens)
        return {"tokens": tokens, "tags": tags, "id": self._named("id", *tokens, *tags)}

    def choices(self) -> Found:
        """Find choices, the question, and which choice is right."""
        choices = self._choices() or self._cannot_tell("choices", [])
        label = self.chosen.all("label") or self._first([*CHOSEN, *NAMES["label"]], *choices)
        taken = (*choices, *label)
        question = self._named("question", *taken)
        context = self._named("context", *taken, *question)
        if not question and not context:
            question = self._only(self._like_text(taken), "question")
        found: Found = {"question": question, "context": context, "choices": choices}
        return found | {"label": label, "id": self._named("id", *taken, *question, *context)}

    def spans(self) -> Found:
        """Find question, context and answers."""
        question = self._needed("question")
        context = self._needed("context", *question)
        answers, start = self._named("answers"), self._named("start")
        found: Found = {"question": question, "context": context, "answers": answers}
        return found | {"start": start, "id": self._named("id", *question, *context)}

    def _texts(self) -> Names:
        """Find a text, or a pair of texts by their usual names."""
        second = self.chosen.all("second")
        if text := self.chosen.all("text"):
            return text + second
        pairs = (tuple(self._by_normal.get(name, "") for name in pair) for pair in PAIRS)
        whole = (pair for pair in pairs if all(pair) and not set(pair) & set(self.chosen.used))
        if not second and (pair := next(whole, None)):
            return pair
        return (self._named("text") or self._only(self._like_text(()), "text")) + second

    def _choices(self) -> Names:
        """Find the column with the list of choices, or the columns with one choice each."""
        if named := self._named("choices"):
            if self.chosen.all("choices") or self.contents.is_list(named[0]):
                return named
            if self.contents.is_object(named[0]):
                return named
        stems: dict[str, list[str]] = {}
        for name in self.names:
            if numbered := _NUMBERED.fullmatch(name):
                stems.setdefault(normal(numbered[1]), []).append(name)
        alike = [group for stem, group in stems.items() if len(group) >= _FEWEST.get(stem, 99)]
        spelt = [tuple(group) for group in alike if not group[0].isdigit()]
        most = max(map(len, spelt), default=0)
        return next((group for group in spelt if len(group) == most), ())

    def _like_label(self, texts: Names) -> Names:
        """Return the only other column that looks like labels; none where there is none."""
        taken = (*texts, *self._named("id", *texts))
        like = [name for name in self.names if name not in taken and self.contents.is_label(name)]
        return self._only(like, "label") if like else ()

    def _like_text(self, taken: Names) -> list[str]:
        """Return columns of texts; else of texts that repeat; else of strings but no labels."""
        free = [name for name in self.names if name not in (*taken, *self.chosen.used)]
        if len(free) == 1:
            return free
        strings = [name for name in free if self.contents.strings(name)]
        return (
            [name for name in strings if self.contents.is_text(name)]
            or [name for name in strings if self.contents.is_worded(name)]
            or [name for name in strings if not self.contents.is_label(name)]
        )

    def _has_spans(self) -> bool:
        answers = self._named("answers")
        return bool(self._named("start") or (answers and self.contents.is_span(answers[0])))

    def _named(self, role: Role, *taken: str) -> Names:
        return self.chosen.all(role) or self._first(NAMES[role], *taken)

    def _needed(self, role: Role, *taken: str) -> Names:
        return self._named(role, *taken) or self._cannot_tell(role, [])

    def _first(self, names: Sequence[str], *taken: str) -> Names:
        """Return the first of some usual names that a free column has."""
        own = {*taken, *self.chosen.used}
        found = (self._by_normal[name] for name in names if name in self._by_normal)
        return next(((name,) for name in found if name not in own), ())

    def _only(self, candidates: Sequence[str], role: Role) -> Names:
        return tuple(candidates) if len(candidates) == 1 else self._cannot_tell(role, candidates)

    def _cannot_tell(self, role: Role, candidates: Sequence[str]) -> Names:
        which = f"{' and '.join(candidates)} could be it" if candidates else "none looks like it"
        raise RequestError(
            "LB-854",
            f"it is unclear which column is the {role}: {which}",
            received=f"columns {', '.join(self.names)}",
            expected="a usual name, or one column alone that looks like it",
            next=_advice(role, candidates),
        )

    @cached_property
    def _by_normal(self) -> dict[str, str]:
        """Return each column by its name as it is compared; the first of several counts."""
        return {normal(name): name for name in reversed(self.names)}


def _advice(role: Role, candidates: Sequence[str]) -> str:
    """Return flags that settle it: of two possible texts both may be meant."""
    if role == "text" and len(candidates) == 2:
        return pair_flags(candidates)
    return f"--column {shlex.quote(f'{role}={candidates[0]}' if candidates else f'{role}=NAME')}"


def pair_flags(names: Sequence[str]) -> str:
    """Return the flags that make two columns a pair of texts.

    >>> pair_flags(["premise", "my claim"])
    "--column text=premise --column 'second=my claim'"
    """
    pair = zip(("text", "second"), names, strict=True)
    return " ".join(f"--column {shlex.quote(f'{part}={name}')}" for part, name in pair)
