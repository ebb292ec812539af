"""The pickle inside a PyTorch file, read as data: opcodes are interpreted here, nothing is run.

A state dict needs a dictionary, numbers, strings, and the few names of PyTorch that mean "this
tensor is in that storage". All other names and opcodes are refused. Nothing is imported: the
classes that a pickle names stay strings.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import BinaryIO

MOST_STEPS = 200_000
"""Opcodes in the longest pickle that is read; a state dict has about 25 per tensor."""

_STORAGES = (
    "torch BFloat16Storage",
    "torch DoubleStorage",
    "torch FloatStorage",
    "torch HalfStorage",
    "torch LongStorage",
)
_CALLED = ("collections OrderedDict", "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter")
_NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT")
_TEXTS = ("BINUNICODE", "SHORT_BINUNICODE", "SHORT_BINSTRING")
_FIXED = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_WITHOUT_VALUE = ("PROTO", "FRAME", "STOP")
_MARK = object()


class RefusedPickleError(Exception):
    """A pickle contains what no state dict needs."""


class DamagedPickleError(Exception):
    """A pickle is damaged: no pickler can have written it."""


@dataclass(frozen=True)
class Storage:
    """`size` numbers of one type, which the file has under `key`."""

    key: str
    kind: str
    size: int


@dataclass(frozen=True)
class View:
    """A tensor as a pickle describes it: its place in a storage, in numbers, and its shape."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class _Name:
    """A name that unpickling would import."""

    text: str


@dataclass
class PickleReader:
    """Read the pickles of one file; `storages` collects what they refer to."""

    storages: dict[str, Storage] = field(default_factory=dict)

    def read(self, stream: BinaryIO) -> object:
        """Return the value of the next pickle in a stream.

        Raises:
            RefusedPickleError: It contains more than a state dict.
            DamagedPickleError: It is not a valid pickle.
        """
        machine = _Machine(self.storages)
        try:
            for number, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
                if number >= MOST_STEPS:
                    raise RefusedPickleError(f"more than {MOST_STEPS:,} opcodes")
                machine.step(opcode.name, argument)
        except (ValueError, LookupError) as error:
            raise DamagedPickleError(f"its pickle makes no sense: {error}") from error
        return machine.result()


class _Machine:
    """A stack machine with only the opcodes that occur in state dicts."""

    def __init__(self, storages: dict[str, Storage]) -> None:
        self._storages = storages
        self._stack: list[object] = []
        self._memo: dict[int, object] = {}
        self._actions: dict[str, Callable[[], None]] = {
            "MARK": lambda: self._stack.append(_MARK),
            "EMPTY_TUPLE": lambda: self._stack.append(()),
            "EMPTY_DICT": lambda: self._stack.append({}),
            "EMPTY_LIST": lambda: self._stack.append([]),
            "TUPLE": lambda: self._stack.append(tuple(self._marked())),
            "TUPLE1": lambda: self._stack.append(self._last(1)),
            "TUPLE2": lambda: self._stack.append(self._last(2)),
            "TUPLE3": lambda: self._stack.append(self._last(3)),
            "STACK_GLOBAL": lambda: self._name(" ".join(map(_text, self._last(2)))),
            "MEMOIZE": lambda: self._remember(len(self._memo)),
            "SETITEM": lambda: self._set_items(self._last(2)),
            "SETITEMS": lambda: self._set_items(self._marked()),
            "APPEND": lambda: self._extend(self._last(1)),
            "APPENDS": lambda: self._extend(self._marked()),
            "REDUCE": self._call,
            "BUILD": self._ignore_attributes,
            "BINPERSID": self._persistent,
        }

    def step(self, opcode: str, argument: object) -> None:
        """Interpret one opcode."""
        if opcode in (*_NUMBERS, *_TEXTS):
            self._stack.append(argument)
        elif opcode in _FIXED:
            self._stack.append(_FIXED[opcode])
        elif opcode == "GLOBAL":
            self._name(_text(argument))
        elif opcode in ("BINPUT", "LONG_BINPUT"):
            self._remember(_whole(argument))
        elif opcode in ("BINGET", "LONG_BINGET"):
            self._stack.append(self._memo[_whole(argument)])
        elif opcode in self._actions:
            self._actions[opcode]()
        elif opcode not in _WITHOUT_VALUE:
            raise RefusedPickleError(f"the opcode {opcode}, which no state dict needs")

    def result(self) -> object:
        """Return the one value that is left at the end of a pickle."""
        if len(self._stack) != 1 or self._stack[0] is _MARK:
            raise DamagedPickleError("it does not leave one value")
        return self._stack[0]

    def _last(self, number: int) -> tuple[object, ...]:
        values = tuple(self._stack[-number:])
        if len(values) < number or any(value is _MARK for value in values):
            raise DamagedPickleError("its stack runs empty")
        del self._stack[-number:]
        return values

    def _marked(self) -> list[object]:
        """Take everything above the last mark."""
        values: list[object] = []
        while (value := self._stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def _remember(self, index: int) -> None:
        (value,) = self._last(1)
        self._stack.append(value)
        self._memo[index] = value

    def _name(self, text: str) -> None:
        if text not in (*_STORAGES, *_CALLED):
            raise RefusedPickleError(f"the name {text.replace(' ', '.', 1)[:100]}")
        self._stack.append(_Name(text))

    def _set_items(self, flat: Iterable[object]) -> None:
        values = iter(flat)
        (target,) = self._last(1)
        if not isinstance(target, dict):
            raise DamagedPickleError("items for what is no dictionary")
        for key, value in zip(values, values, strict=True):
            target[key if isinstance(key, int) else _text(key)] = value
        self._stack.append(target)

    def _extend(self, values: Iterable[object]) -> None:
        (target,) = self._last(1)
        if not isinstance(target, list):
            raise DamagedPickleError("entries for what is no list")
        target.extend(values)
        self._stack.append(target)

    def _ignore_attributes(self) -> None:
        """Drop the attributes of a state dict, which are the versions of its modules."""
        target, attributes = self._last(2)
        if not isinstance(target, dict) or not isinstance(attributes, dict):
            raise RefusedPickleError("the opcode BUILD on what is no dictionary")
        self._stack.append(target)

    def _call(self) -> None:
        name, arguments = self._last(2)
        called = name.text if isinstance(name, _Name) else ""
        match called, arguments:
            case "collections OrderedDict", ():
                self._stack.append({})
            case "torch._utils _rebuild_tensor_v2", (Storage(), _, _, _, bool(), dict(), *_):
                self._stack.append(_view(arguments))
            case "torch._utils _rebuild_parameter", (View() as view, bool(), dict()):
                self._stack.append(view)
            case _:
                raise RefusedPickleError(
                    f"a call of {called.replace(' ', '.') or 'what is no name'} with arguments that no state dict has"
                )

    def _persistent(self) -> None:
        """Read a reference to a storage; the stream format has a sixth entry that is not used."""
        (reference,) = self._last(1)
        match reference:
            case "storage", _Name(text), str(key), str(), size, *view if text in _STORAGES and view in ([], [None]):
                storage = Storage(key, text.removeprefix("torch "), _whole(size))
            case _:
                raise RefusedPickleError("a reference to what is no storage of numbers")
        if self._storages.setdefault(key, storage) != storage:
            raise RefusedPickleError(f"storage {key[:100]} with two sizes or types")
        self._stack.append(storage)


def _view(arguments: object) -> View:
    assert isinstance(arguments, tuple)
    storage, offset, shape, stride, _, _, *metadata = arguments
    if not isinstance(shape, tuple) or not isinstance(stride, tuple) or any(metadata):
        raise RefusedPickleError("a tensor of a kind that no state dict has")
    return View(storage, _whole(offset), tuple(map(_whole, shape)), tuple(map(_whole, stride)))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise DamagedPickleError("a name that is no text")
    return value


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise DamagedPickleError("a size that is no whole number")
    return value
