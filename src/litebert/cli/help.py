"""The commands about litebert itself: help, the schemas of --json output, shell
completion, and the doctor.
"""

import platform
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from click.shell_completion import get_completion_class
from pydantic import JsonValue, TypeAdapter
from typing_extensions import TypedDict

from litebert import cpu
from litebert.answers import Shown
from litebert.cli import HOMES, cli, function_of
from litebert.cli.command import show, show_json
from litebert.errors import free_bytes, no_such_name
from litebert.files import format_bytes
from litebert.inference.verb import Verb
from litebert.plugins import VERBS


def help(  # noqa: A001
    *verb: str,
    schema: Annotated[bool, "The JSON Schema of what VERB prints with --json."] = False,
) -> None:
    """Show the help of a verb, like VERB --help.

    litebert help corpus build
    litebert help --schema fill
    """
    if schema:
        show_json(schema_of(" ".join(verb)), indent=2)
    else:
        cli.main([*verb, "--help"], prog_name="litebert", standalone_mode=False)


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print a script for completion of verbs and options in SHELL.

    litebert completion bash >> ~/.bashrc
    litebert completion fish > ~/.config/fish/completions/litebert.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    show(kind(cli, {}, "litebert", "_LITEBERT_COMPLETE").source())


# ---- schemas -------------------------------------------------------------------------


class AnsweredRow(TypedDict):  # a row of a file with its answer; one object per line
    row: int
    id: NotRequired[str]
    answer: JsonValue


class SkippedRow(TypedDict):  # a row of a file without an answer, and why
    row: int
    id: NotRequired[str]
    error: str


def schema_of(command: str) -> dict[str, JsonValue]:
    """Return the JSON Schema of a command's `--json` output, from the return type of
    its function or `as_json`; for a verb, from the type of its answers.
    """
    printed = list[Any]()
    if command in HOMES:
        hints = get_type_hints(function_of(command), include_extras=True)
        printed = _printed_types(hints.get("return"))
    elif command in VERBS:
        printed = [*_typed_answers(VERBS[command]), AnsweredRow, SkippedRow]
    if not printed:
        raise no_such_name(
            "LB-887",
            f"litebert {command} prints no JSON",
            command,
            list(VERBS),
            next="litebert help --schema fill",
        )
    any_of: Any = Union[tuple(printed)]  # noqa: UP007
    adapter: TypeAdapter[object] = TypeAdapter(any_of)
    return adapter.json_schema(mode="serialization")


def _typed_answers(verb: Verb) -> list[Any]:
    """Return what a verb prints for typed texts: one answer, a list, or either."""
    any_of: Any = Union[tuple(_printed_types(verb.answer_type))]  # noqa: UP007
    if verb.takes_list or verb.lists_one:
        return [list[any_of]]
    if "text" in verb.inputs:
        return [any_of, list[any_of]]
    return [any_of]


def _printed_types(returned: Any) -> list[Any]:
    """Return the types of the JSON that is printed for values of a type."""
    is_union = get_origin(returned) in (Union, UnionType)
    alternatives = get_args(returned) if is_union else [returned]
    printed = list[Any]()
    for alternative in alternatives:
        convert = getattr(alternative, "as_json", None)
        if convert is None:
            if alternative not in (NoneType, None, str):
                printed.append(alternative)
            continue
        converted = get_type_hints(convert)["return"]
        if isinstance(converted, TypeVar):  # for Shown[Built], Built
            converted = get_args(alternative)[0]
        printed.append(converted)
    return printed


# ---- litebert doctor -----------------------------------------------------------------

OPTIONAL = (
    "google_crc32c",
    "huggingface_hub",
    "matplotlib",
    "onnx",
    "pyarrow",
    "ray",
    "starlette",
    "tokenizers",
)


def doctor() -> Shown[dict[str, str]]:
    """Show what a report of a bug needs to say of this machine: the versions, the
    device, threads, memory, disk, and the optional packages that are missing.

    litebert doctor
    litebert doctor --json
    """
    import torch

    from litebert.device import choose_device

    device = choose_device()
    memory = format_bytes(cpu.usable_memory())
    if cpu.find_memory_limit() is not None:
        memory += ", the container's limit"
    missing = [name for name in OPTIONAL if find_spec(name) is None]
    facts = {
        "litebert": version("litebert"),
        "python": f"{platform.python_version()}, {platform.platform()}",
        "torch": torch.__version__,
        "device": "CPU only" if device.is_cpu else device.name,
        "threads": cpu.explain_threads(torch.get_num_threads()),
        "memory": memory,
        "disk": f"{format_bytes(free_bytes(Path.cwd()))} free here",
        "missing": ", ".join(missing) or "no optional package",
    }
    return Shown(facts, "\n".join(f"{name:<10} {fact}" for name, fact in facts.items()))
