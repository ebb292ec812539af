"""The commands about litebert itself: help, the schemas of --json output, shell
completion, and the doctor.
"""

import platform
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
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
from litebert.config import AlbertConfig
from litebert.errors import as_litebert_error, free_bytes, no_such_name
from litebert.files import format_bytes
from litebert.inference.verb import Verb
from litebert.plugins import VERBS

if TYPE_CHECKING:  # it imports torch
    from litebert.device import Device


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


@dataclass(frozen=True)
class Check:
    """The result of one check, and what to do if it failed."""

    name: str
    is_good: bool
    found: str
    advice: str = ""

    def __str__(self) -> str:
        if self.is_good:
            return f"ok   {self.name:<10} {self.found}"
        advice = f"     {'next':<10} {self.advice}"
        return f"BAD  {self.name:<10} {self.found}\n{advice}"


def doctor() -> Shown[list[Check]]:
    """Check Python, torch, device, disk and threads; test training and answering for a
    few seconds.

    The exit code is 1 if something is wrong.

    litebert doctor
    litebert doctor --json
    """
    import torch

    from litebert.device import choose_device

    device = choose_device()
    free = free_bytes(Path.cwd())
    major, minor, *_ = torch.__version__.split(".")
    missing = [name for name in OPTIONAL if find_spec(name) is None]
    extras = f"not installed: {', '.join(missing)}" if missing else "all"
    checks = [
        Check(
            "python",
            sys.version_info >= (3, 11),
            platform.python_version(),
            "install Python 3.11 or newer",
        ),
        Check(
            "torch",
            (int(major), int(minor)) >= (2, 9),
            torch.__version__,
            "pip install -U torch",
        ),
        Check("device", True, _name_of(device)),
        Check("threads", True, cpu.explain_threads(torch.get_num_threads())),
        Check("memory", True, _memory()),
        Check(
            "disk",
            free >= 2 << 30,
            f"{free / 2**30:.1f} GiB free here",
            "free some space, or work in another folder",
        ),
        Check("extras", True, extras),
        _test_itself(),
    ]
    text = "\n".join(map(str, checks))
    exit_code = 0 if all(check.is_good for check in checks) else 1
    return Shown(checks, text, exit_code=exit_code)


def _name_of(device: "Device") -> str:
    return "CPU only" if device.is_cpu else device.name


def _test_itself() -> Check:
    """Train and answer; whatever is broken is reported, not raised."""
    started = time.monotonic()
    try:
        _train_and_answer()
    except Exception as error:  # noqa: BLE001
        message = str(as_litebert_error(error) or error)
        first_line, _, _ = message.partition("\n")
        fault = f"{type(error).__name__}: {first_line}"
        return Check("self-test", False, fault, "litebert --debug ...")
    seconds = time.monotonic() - started
    return Check("self-test", True, f"passed in {seconds:.1f} s")


def _memory() -> str:
    """Say how much memory this process may use, and whether a container limits it."""
    usable = format_bytes(cpu.usable_memory())
    if cpu.find_memory_limit() is None:
        return usable
    return f"{usable}, the container's limit"


def _train_and_answer() -> None:
    """Check that training lowers the loss of a tiny network, and fill a blank with the
    packaged model.
    """
    import torch

    from litebert.inference.model import Model
    from litebert.nn import AlbertForPretraining, Batch

    config = AlbertConfig(
        vocab_size=30,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
    )
    network = AlbertForPretraining(config, generator=torch.Generator().manual_seed(1))
    batch = Batch.from_lists([[2, *range(5, 15), 3]])
    places = torch.arange(1, 5)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        logits = network(batch, places).masked_lm  # (places, vocab)
        losses.append(torch.nn.functional.cross_entropy(logits, batch.ids[places]))
        optimizer.zero_grad()
        losses[-1].backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    if not losses[-1] < losses[0]:
        raise ArithmeticError(
            f"training does not lower the loss on this machine: {losses[0]:.3f} ->"
            f" {losses[-1]:.3f}"
        )
    Model.load().fill("A small [MASK] sat on a mat.")
