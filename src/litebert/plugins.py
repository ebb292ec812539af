"""What can be added to litebert by name, and the plug-ins that add it.

A registry holds the records of one sort: optimizers, kinds of task, heads and so on.
litebert's own records are added by the module that a registry calls its home, which is
imported when a name is first looked up, since most homes need torch.

A plug-in is a Python module that adds records. It is loaded by `--plugin FILE`, by an
`import`, or, if its package declares an entry point in the group `litebert.plugins`,
when a name is not found. Runs and models record the plug-ins that they need by the name
of the module, because nothing can be computed without them.
"""

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from shlex import quote
from typing import Any, Generic, TypeVar

from litebert.errors import LitebertError, no_such_name

Record = TypeVar("Record")
ENTRY_POINTS = "litebert.plugins"


# ---- registries ----------------------------------------------------------------------


class Registry(Mapping[str, Record], Generic[Record]):
    """Records of one sort by name, with the module that added each.

    >>> colors = Registry[int]("color", home="litebert.plugins")
    >>> colors.add("red", 0xFF0000)
    >>> colors["red"], list(colors)
    (16711680, ['red'])
    """

    def __init__(self, noun: str, *, home: str, record: str = "") -> None:
        self.noun = noun  # what a record is called in messages
        self.home = home  # the module or package that adds litebert's own records
        # the place of the class that a record is an object, or a subclass, of
        self.record = record
        self._records = dict[str, Record]()
        self._modules = dict[str, str]()

    def add(self, name: str, record: Record) -> None:
        """Add a record; the module that calls this is the plug-in that it belongs to.

        A cell of a notebook may add a name again when it is run again, and so may a
        module that is reloaded; nobody may take a name that another module has.
        """
        module = _module_of_caller()
        owner = self._modules.get(name)
        if not module.startswith("litebert."):
            self._load_home()
            owner = self._modules.get(name)
            self._check(name, record)
        is_other = owner is not None and self._records[name] is not record
        if is_other and (owner != module or _is_being_imported(module)):
            raise LitebertError(
                "LB-109",
                f"there already is {self._article()} called {name}",
                received=f"another one, from {module}",
                expected=f"the one of {owner}",
                next="choose another name",
            )
        self._records[name] = record
        self._modules.setdefault(name, module)

    def _check(self, name: str, record: Record) -> None:
        """Raise LB-113 if a plug-in adds something that is no record of this sort."""
        problem = ""
        expected = resolve_name(self.record) if self.record else object
        is_record = isinstance(record, expected)
        if inspect.isclass(record):
            is_record = issubclass(record, expected)
        missing = sorted(getattr(record, "__abstractmethods__", ()))
        own_name = getattr(record, "name", name)
        if not is_record:
            problem = f"it is {record!r:.60}, not a {expected.__name__}"
        elif inspect.isclass(record) and missing:
            problem = f"its class lacks {', '.join(missing)}"
        elif isinstance(own_name, str) and own_name != name:
            problem = f"the record calls itself {own_name}"
        elif hasattr(record, "find_problem"):
            problem = record.find_problem()
        if problem:
            raise LitebertError(
                "LB-113",
                f"{name} cannot be added as {self._article()}",
                received=problem,
                next="correct the plug-in: see docs/extending",
            )

    def remove(self, name: str) -> None:
        """Remove a record that was added, as tests do after they have added one."""
        self._records.pop(name, None)
        self._modules.pop(name, None)

    def require(self, name: str, *, setting: str = "") -> Record:
        """Return the record of a name, or raise the error that suggests another one."""
        if name not in self:
            place = f" ({setting})" if setting else ""
            raise no_such_name(
                "LB-107",
                f"there is no {self.noun} of this name{place}",
                name,
                list(self),
                next=f"if a plug-in adds it, load the plug-in first: {LOADING}",
            )
        return self._records[name]

    def plugin_of(self, name: str) -> str | None:
        """Return the plug-in that added a name; None for litebert's own records."""
        module = self._modules.get(name)
        if module is None or module.startswith("litebert."):
            return None
        return module

    def from_plugins(self) -> dict[str, Record]:
        """Return the records that plug-ins have added, without loading the home."""
        return {
            name: record
            for name, record in self._records.items()
            if self.plugin_of(name) is not None
        }

    def __getitem__(self, name: str) -> Record:
        return self.require(name)

    def __contains__(self, name: object) -> bool:
        if name not in self._records:
            self._load_home()
        if name not in self._records:
            load_installed()
        return name in self._records

    def __iter__(self) -> Iterator[str]:
        self._load_home()
        load_installed()
        return iter(list(self._records))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _load_home(self) -> None:
        import_module(self.home)

    def _article(self) -> str:
        return f"an {self.noun}" if self.noun[0] in "aeiou" else f"a {self.noun}"

    def name_of(self, record: Record) -> str:
        """Return the name under which a record was added; an unnamed one is described
        by its sort.
        """
        for name, known in self.items():
            if known is record:
                return name
        return f"this {self.noun}"


@dataclass(frozen=True)
class NameIn:
    """A note on a setting: its value is a name in this registry."""

    registry: Registry[Any]


def _is_being_imported(module: str) -> bool:
    """Whether a module is imported for the first time: then it adds each name once."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def _module_of_caller() -> str:
    """Return the name of the module that calls `Registry.add`.

    A script is called by the name of its file, since others would import it by that.
    """
    place = sys._getframe(2).f_globals
    name = str(place.get("__name__", "__main__"))
    if name == "__main__" and "__file__" in place:
        return Path(place["__file__"]).stem
    return name


ATTENTION_KINDS: Registry[Any] = Registry(
    "kind of attention",
    home="litebert.fast.attention",
    record="litebert.fast.attention:AttentionKind",
)
OPTIMIZERS: Registry[Any] = Registry(
    "optimizer", home="litebert.optim", record="litebert.optim:MomentOptimizer"
)
SENTENCE_OBJECTIVES: Registry[Any] = Registry(
    "sentence objective",
    home="litebert.objectives.sequences",
    record="litebert.objectives.sequences:SentenceObjective",
)
PRETRAINING_HEADS: Registry[Any] = Registry(
    "pretraining head",
    home="litebert.tasks.heads",
    record="litebert.tasks.heads:PretrainingHead",
)
TASK_HEADS: Registry[Any] = Registry(
    "head of a task", home="litebert.tasks.kinds", record="litebert.nn:TaskHead"
)
TASK_KINDS: Registry[Any] = Registry(
    "kind of task",
    home="litebert.tasks.kinds",
    record="litebert.tasks.kinds.family:Family",
)
DATASETS: Registry[Any] = Registry(
    "task", home="litebert.tasks.named", record="litebert.tasks.kinds.family:Dataset"
)
VERBS: Registry[Any] = Registry(
    "verb", home="litebert.inference.verbs", record="litebert.inference.verb:Verb"
)
REGISTRIES = (
    ATTENTION_KINDS,
    OPTIMIZERS,
    SENTENCE_OBJECTIVES,
    PRETRAINING_HEADS,
    TASK_HEADS,
    TASK_KINDS,
    DATASETS,
    VERBS,
)


# ---- settings of a record ------------------------------------------------------------


def checked_settings(
    values: Mapping[str, Any],
    types: Mapping[str, Any],
    *,
    table: str,
    owner: str,
    next: str | None = None,
) -> dict[str, Any]:
    """Return the settings of a record, each as its type has it.

    `table` is the setting that holds them, `optim.settings` for example; `types` has
    the settings of the record, which `owner` names; `next` is other advice than to omit
    a setting.
    """
    from pydantic import TypeAdapter, ValidationError

    checked = dict[str, Any]()
    for name, value in values.items():
        if name not in types:
            raise no_such_name(
                "LB-881",
                f"{owner} has no setting of this name in {table}",
                name,
                list(types),
                next=next or f"omit {table}.{name}",
            )
        try:
            checked[name] = TypeAdapter[Any](types[name]).validate_python(value)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]["msg"]
            raise LitebertError(
                "LB-882",
                f"{table}.{name} of {owner} cannot have this value",
                received=repr(value),
                expected=problem.removeprefix("Input should be "),
                next=next or f"omit {table}.{name}",
            ) from error
    return checked


def types_of(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the type of each setting, given their defaults."""
    return {name: type(default) for name, default in defaults.items()}


# ---- loading plug-ins ----------------------------------------------------------------

LOADING = "--plugin FILE (in Python: import it)"


def load_plugin(path: str) -> None:
    """Load a plug-in: a file, or a module that can be imported.

    Its folder comes first in `sys.path`, as that of a script does: so the processes
    that prepare batches import the same file by the same name.
    """
    if not path:
        raise LitebertError(
            "LB-110", "--plugin needs a file", next="add its path: --plugin FILE"
        )
    num_records = _count_records()
    if not path.endswith(".py"):
        is_loaded = path in sys.modules
        _import(path, path)
    else:
        is_loaded = Path(path).stem in sys.modules
        _import_file(path)
    if not is_loaded and _count_records() == num_records:
        raise LitebertError(
            "LB-114",
            f"the plug-in {path} adds nothing to litebert",
            expected="a module that calls OPTIMIZERS.add, VERBS.add or the like",
            next="give the file of the plug-in: --plugin FILE",
        )


def _count_records() -> int:
    """Count the records that plug-ins have added."""
    return sum(len(registry.from_plugins()) for registry in REGISTRIES)


def _import_file(path: str) -> None:
    """Import a file by its name; refuse one whose name another module has."""
    file = Path(path).resolve()
    if not file.is_file():
        raise LitebertError(
            "LB-110", f"there is no plug-in {path}", next=f"ls {file.parent}"
        )
    sys.path.insert(0, str(file.parent))
    module = _import(file.stem, path)
    loaded_from = getattr(module, "__file__", None)
    if loaded_from is None or Path(loaded_from).resolve() != file:
        raise LitebertError(
            "LB-111",
            f"the plug-in {path} has the name of another module",
            received=loaded_from or f"{file.stem}, a module of Python",
            next="rename the file",
        )


def _import(name: str, path: str) -> Any:
    try:
        return import_module(name)
    except LitebertError:
        raise
    except (Exception, SystemExit) as error:
        words = quote(path) if path.endswith(".py") else f'-c "import {name}"'
        raise LitebertError(
            "LB-112",
            f"the plug-in {path} cannot be imported",
            received=f"{type(error).__name__}: {error}",
            next=f"python {words}",
        ) from error


@cache
def load_installed() -> None:
    """Load the plug-ins of installed packages, once in a process."""
    for point in entry_points(group=ENTRY_POINTS):
        _import(point.value, point.name)


# ---- the plug-ins that a run or a model needs ----------------------------------------


def plugins_used(names: Iterable[tuple[Registry[Any], str]]) -> tuple[str, ...]:
    """Return the plug-ins that added these names, sorted."""
    plugins = {registry.plugin_of(name) for registry, name in names}
    return tuple(sorted(plugin for plugin in plugins if plugin is not None))


def file_of_plugin(name: str) -> str:
    """Return the file of a loaded plug-in; its name if it is a package."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return str(file) if file and Path(file).stem == name else name


def with_plugins(command: str, files: Iterable[str]) -> str:
    """Return a command of the shell that also loads plug-ins, given their files."""
    options = [f" --plugin {quote(file)}" for file in files]
    return command + "".join(options)


def require_plugins(
    needed: Iterable[str], source: object, files: Mapping[str, str] | None = None
) -> None:
    """Check that the plug-ins that a model or a run needs are loaded.

    `files` are those that the run was begun with, by the name of the plug-in.
    """
    missing = _not_loaded(needed)
    if missing:
        load_installed()
        missing = _not_loaded(missing)
    if missing:
        name = missing[0]
        file = (files or {}).get(name, f"{name}.py")
        raise LitebertError(
            "LB-108",
            f"{source} needs the plug-in {name}",
            received="it is not loaded",
            next=f"add --plugin {file} (in Python: import {name} first)",
        )


def _not_loaded(names: Iterable[str]) -> list[str]:
    loaded = set[str]()
    for registry in REGISTRIES:
        loaded.update(registry._modules.values())
    return [name for name in names if name not in loaded]
