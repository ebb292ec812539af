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


@dataclass(frozen=True)
class Entry(Generic[Record]):
    """A record in a registry, and the name of the module that added it first."""

    record: Record
    module: str

    @property
    def is_of_plugin(self) -> bool:
        return not self.module.startswith("litebert.")


class Registry(Mapping[str, Record], Generic[Record]):
    """Records of one sort by name.

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
        self._entries = dict[str, Entry[Record]]()

    # ---- adding and removing -----------------------------------------------------

    def add(self, name: str, record: Record) -> None:
        """Add a record; the module that calls this is the plug-in that it belongs to.

        A cell of a notebook may add a name again when it is run again, and so may a
        module that is reloaded; nobody may take a name that another module has.
        """
        added = Entry(record, _module_of_caller())
        if added.is_of_plugin:
            self._load_home()  # whose names are taken
            self._require_record(name, record)
        former = self._entries.get(name)
        if former is not None:
            self._require_same_owner(name, former, added)
            added = Entry(record, former.module)
        self._entries[name] = added

    def _require_same_owner(
        self, name: str, former: Entry[Record], added: Entry[Record]
    ) -> None:
        """Raise LB-109 if a name that is taken gets another record, unless its module
        is run again.
        """
        module = added.module
        is_run_again = former.module == module and not _is_being_imported(module)
        if former.record is added.record or is_run_again:
            return
        raise LitebertError(
            "LB-109",
            f"there already is {self.noun_with_article()} called {name}",
            received=f"another one, from {module}",
            expected=f"the one of {former.module}",
            next="choose another name",
        )

    def _require_record(self, name: str, record: Record) -> None:
        """Raise LB-113 if a plug-in adds something that is no record of this sort."""
        problem = self._find_problem(name, record)
        if problem:
            raise LitebertError(
                "LB-113",
                f"{name} cannot be added as {self.noun_with_article()}",
                received=problem,
                next="correct the plug-in: see docs/extending",
            )

    def _find_problem(self, name: str, record: Record) -> str:
        """Return what is wrong with a record of a plug-in; empty if nothing is."""
        expected = resolve_name(self.record) if self.record else object
        if inspect.isclass(record):
            is_record = issubclass(record, expected)
            missing = sorted(getattr(record, "__abstractmethods__", ()))
        else:
            is_record = isinstance(record, expected)
            missing = []
        if not is_record:
            return f"it is {record!r:.60}, not a {expected.__name__}"
        if missing:
            return f"its class lacks {', '.join(missing)}"
        # some records know their name
        name_in_record = getattr(record, "name", name)
        if isinstance(name_in_record, str) and name_in_record != name:
            return f"the record calls itself {name_in_record}"
        if hasattr(record, "find_problem"):  # of records with conditions of their own
            return str(record.find_problem())
        return ""

    def remove(self, name: str) -> None:
        """Remove a record that was added, as tests do after they have added one."""
        self._entries.pop(name, None)

    # ---- looking up --------------------------------------------------------------

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
        return self._entries[name].record

    def __getitem__(self, name: str) -> Record:
        return self.require(name)

    def __contains__(self, name: object) -> bool:
        # Installed plug-ins are loaded last: most names are found without them.
        if name not in self._entries:
            self._load_home()
        if name not in self._entries:
            load_installed()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self._load_home()
        load_installed()
        return iter(list(self._entries))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def name_of(self, record: Record) -> str:
        """Return the name under which a record was added; an unnamed one is described
        by its sort.
        """
        for name, known in self.items():
            if known is record:
                return name
        return f"this {self.noun}"

    def plugin_of(self, name: str) -> str | None:
        """Return the plug-in that added a name; None for litebert's own records."""
        entry = self._entries.get(name)
        if entry is None or not entry.is_of_plugin:
            return None
        return entry.module

    def from_plugins(self) -> dict[str, Record]:
        """Return the records that plug-ins have added, without loading the home."""
        records = dict[str, Record]()
        for name, entry in self._entries.items():
            if entry.is_of_plugin:
                records[name] = entry.record
        return records

    def modules(self) -> set[str]:
        """Return the modules that have added records so far."""
        return {entry.module for entry in self._entries.values()}

    def _load_home(self) -> None:
        import_module(self.home)

    def noun_with_article(self) -> str:
        return f"an {self.noun}" if self.noun[0] in "aeiou" else f"a {self.noun}"


def _module_of_caller() -> str:
    """Return the name of the module that calls `Registry.add`.

    A script is called by the name of its file, since others would import it by that.
    """
    place = sys._getframe(2).f_globals
    name = str(place.get("__name__", "__main__"))
    if name == "__main__" and "__file__" in place:
        return Path(place["__file__"]).stem
    return name


def _is_being_imported(module: str) -> bool:
    """Whether a module is imported for the first time: then it adds each name once."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


@dataclass(frozen=True)
class NameIn:
    """A note on a setting: its value is a name in this registry."""

    registry: Registry[Any]


# ---- what can be added ---------------------------------------------------------------

# how a block attends: `model.attention`
ATTENTION_KINDS: Registry[Any] = Registry(
    "kind of attention",
    home="litebert.fast.attention",
    record="litebert.fast.attention:AttentionKind",
)
# update rules: `optim.name`
OPTIMIZERS: Registry[Any] = Registry(
    "optimizer", home="litebert.optim", record="litebert.optim:MomentOptimizer"
)
# how the two segments of a sequence are chosen and labeled: `objective.sentence`
SENTENCE_OBJECTIVES: Registry[Any] = Registry(
    "sentence objective",
    home="litebert.objectives.sentences",
    record="litebert.objectives.sentences:SentenceObjective",
)
# heads that are trained together in pretraining: `objective.heads`
PRETRAINING_HEADS: Registry[Any] = Registry(
    "pretraining head",
    home="litebert.tasks.heads",
    record="litebert.tasks.heads:PretrainingHead",
)
# layers that fine-tuning puts on the encoder: `kind` in a model's head
TASK_HEADS: Registry[Any] = Registry(
    "head of a task", home="litebert.tasks.kinds", record="litebert.nn:TaskHead"
)
# classification, regression, spans and so on: how a head learns and answers
TASK_KINDS: Registry[Any] = Registry(
    "kind of task",
    home="litebert.tasks.kinds",
    record="litebert.tasks.kinds.family:Family",
)
# named data sets for fine-tuning: `task.name`
DATASETS: Registry[Any] = Registry(
    "task", home="litebert.tasks.named", record="litebert.tasks.kinds.family:Dataset"
)
# what a model can be asked: a method, a command and an address of the server
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
        loaded |= registry.modules()
    return [name for name in names if name not in loaded]
