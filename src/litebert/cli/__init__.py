"""The command line: a table of commands, each made from a function when it is used, and
the error handling around them.

`litebert --help` imports neither these functions nor torch. An error becomes four lines
and an exit code: 1 user error, 2 wrong usage, 3 damaged data, 4 memory or disk, 5
training that is not finite, 130 Ctrl-C, 141 a closed pipe, 128 + N for signal N.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from litebert.errors import LitebertError, as_litebert_error, say
from litebert.plugins import LOADING, VERBS, load_plugin, with_plugins
from litebert.privacy import keep_caches_in_ours
from litebert.system import (
    BROKEN_PIPE,
    end_on_next_signal,
    existing_signals,
    unignored,
)

if TYPE_CHECKING:
    from types import FrameType

# Signals that stop a command, as far as it does not handle them itself.
UNWINDING = existing_signals("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")

COMMANDS = {
    "completion": "complete verbs and options in your shell",
    "config": (
        "list every setting, or show those of a run with the origin of each value"
    ),
    "corpus": "build a corpus from text; check a text or a corpus",
    "data": "check examples before a long run",
    "distil": "distil a teacher into a small model, using text",
    "doctor": "check this machine, including a self-test of a few seconds",
    "evaluate": "evaluate models, an ensemble, or a prediction file",
    "explain": "show how much each word adds to an answer",
    "export": "write a model as an ONNX file, or as a web page",
    "finetune": "fine-tune a model on a task, or on your own examples",
    "glue": "fine-tune on every GLUE task in a folder, and print the table",
    "help": "show the help of a verb",
    "hub": "fetch a model from the Hugging Face Hub, or publish one",
    "import": "convert checkpoints from Google and from Hugging Face",
    "predict": "answer a complete split or file, in the format of a leaderboard",
    "pretrain": "pretrain an ALBERT from text or from a corpus",
    "quantize": "write an eight-bit copy of a model, for inference on a CPU",
    "recipes": "list or show the packaged recipes",
    "report": "write a run's report.html again",
    "runs": "list, compare and average runs",
    "search": "find the texts nearest to a query",
    "serve": "answer over HTTP, with a page to try the model at /",
    "sizes": "show parameters, bytes and compute of every preset",
    "tokenizer": "train a vocabulary; encode a text",
}
"""What each command does that has a function of its own, or is a group of such; the
summaries of verbs are in their records.
"""

MODULES = {
    "api.corpus": "corpus build, corpus check, tokenizer encode, tokenizer train",
    "api.evaluation": "evaluate",
    "api.glue": "glue",
    "api.predictions": "predict",
    "api.formats": (
        "export onnx, export web, hub pull, hub push, import google,"
        " import huggingface, quantize"
    ),
    "api.runs": "report, runs average",
    "api.settings": "config list, config show, recipes list, recipes show",
    "api.sizes": "sizes",
    "api.training": "data check, distil, finetune, pretrain",
    "cli.help": "completion, doctor, help",
    "cli.verbs": "explain, search",
    "corpus.filter": "corpus filter",
    "corpus.storage": "corpus push",
    "report.listing": "runs compare, runs list",
    "serve": "serve",
}
HOMES = dict[str, str]()
for _module, _names in MODULES.items():
    HOMES |= dict.fromkeys(_names.split(", "), _module)
"""The module of each command's function, which has the command's name: `corpus_build`
is "corpus build".
"""


def function_of(name: str) -> Callable[..., object]:
    """Import the function of a command."""
    module = import_module(f"litebert.{HOMES[name]}")
    function: Callable[..., object] = getattr(module, name.replace(" ", "_"))
    return function


class Commands(click.Group):
    """All commands, whose functions are imported on first use: those of `COMMANDS`, and
    the verbs of a model.
    """

    def list_commands(self, _: click.Context) -> list[str]:
        return sorted({*COMMANDS, *VERBS})

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in HOMES:
            from litebert.cli.command import command_of

            return command_of(function_of(cmd_name), cmd_name)
        if cmd_name in COMMANDS:
            return Group(cmd_name)
        if cmd_name not in VERBS:
            # click suggests one of these
            names: Any = dict.fromkeys([*COMMANDS, *VERBS])
            self.commands = names
            return None
        from litebert.cli.verbs import verb_command

        return verb_command(cmd_name)

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their summaries, without importing their functions."""
        rows = {name: verb.summary for name, verb in VERBS.items()} | COMMANDS
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows.items()))


class Group(click.Group):
    """The commands with the same first word, such as those of a corpus."""

    def __init__(self, name: str) -> None:
        names: Any = {}  # the commands themselves are made when they are needed
        for command in HOMES:
            first, _, second = command.partition(" ")
            if first == name:
                names[second] = None
        summary = COMMANDS[name]
        help_text = f"{summary[0].upper()}{summary[1:]}."
        super().__init__(name, commands=names, help=help_text)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        name = f"{self.name} {cmd_name}"
        if name not in HOMES:
            return None
        from litebert.cli.command import command_of

        return command_of(function_of(name), cmd_name)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """List the commands with the whole first sentence of each."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            assert command is not None
            rows.append((name, command.get_short_help_str(limit=200)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(
    "litebert", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(None, "-V", "--version", package_name="litebert")
@click.option(
    "--debug", is_flag=True, help="Show the traceback of an error; allowed anywhere."
)
@click.option(
    "--plugin",
    metavar="FILE",
    multiple=True,
    help="Load what a Python file adds to litebert; allowed anywhere.",
)
def cli(debug: bool, plugin: tuple[str, ...]) -> None:
    """Pretrain, fine-tune and serve ALBERT models.

    \b
    litebert fill "The cat sat on the [MASK]."
    litebert pretrain my-text.txt --preset mini --minutes 30 --name mine
    litebert finetune reviews.csv --model runs/mine
    litebert classify "A fine film." --model runs/reviews
    """


class UsageError(LitebertError):
    """A command line that cannot be parsed."""

    exit_code = 2


def main() -> None:
    """Run the command line; a user's mistake gives a message and an exit code, never a
    traceback.
    """
    _unwind_on_signals()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell, as with >&-
            nowhere = os.open(os.devnull, os.O_WRONLY)
            setattr(sys, name, os.fdopen(nowhere, "w"))
        _take_any_text(getattr(sys, name))
    keep_caches_in_ours()
    sys.exit(run(sys.argv[1:]))


def _take_any_text(stream: TextIO) -> None:
    """Let a stream take every character: files and pipes get UTF-8, a terminal that is
    not in UTF-8 gets escapes.

    Windows writes to pipes in a code page of 256 characters.
    """
    if not isinstance(stream, TextIOWrapper):  # replaced by a Python program
        return
    if stream.isatty():
        stream.reconfigure(errors="backslashreplace")
    else:
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _unwind_on_signals() -> None:
    """Let a signal to stop raise an exception that Python code can catch, so that
    unfinished files are removed; a second signal ends the process at once.
    """
    previous = unignored(UNWINDING)

    def interrupt(number: int, _: "FrameType | None") -> None:
        end_on_next_signal(previous)
        raise KeyboardInterrupt(number)

    for number in previous:
        signal.signal(number, interrupt)


def run(words: Sequence[str]) -> int:
    """Run a command and return its exit code; only a bug in litebert prints a
    traceback.
    """
    typed, plugins, is_debugged = _take_global_options(words)
    try:
        _require_current_folder()
        for plugin in plugins:
            load_plugin(plugin)
        code = _invoke(typed)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe
        _discard_stdout()
        return 128 + BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort) as stop:
        say("interrupted")
        number = stop.args[0] if stop.args else signal.SIGINT
        return 128 + int(number)
    except Exception as error:
        if isinstance(error, click.ClickException):
            readable: LitebertError | None = _usage_error(error, typed)
        else:
            readable = as_litebert_error(error, unnamed=_unnamed_file())
        if readable is None or is_debugged:
            raise
        _discard_stdout()
        readable.next = _with_plugins(readable.next, plugins)
        say(readable.for_shell())
        return readable.exit_code
    return code


def _require_current_folder() -> None:
    """Raise if the current folder was deleted: torch ends the process without it."""
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise LitebertError(
            "LB-010",
            "the current folder does not exist any more",
            received="it was deleted or moved",
            next="cd ~",
        ) from error


def _invoke(typed: list[str]) -> int:
    """Run the command that was typed, or show its help; return the exit code."""
    try:
        if "_LITEBERT_COMPLETE" in os.environ:
            cli.main(args=typed, prog_name="litebert")
        with cli.make_context("litebert", typed) as context:
            cli.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as shown:
        print(shown.format_message())
    return 0


def _with_plugins(advice: str, plugins: Sequence[str]) -> str:
    """Return advice that, if it is a command, loads the plug-ins of this one."""
    has_marks = any(mark in advice for mark in ",;")  # of a sentence
    is_command = advice.startswith("litebert ") and not has_marks
    return with_plugins(advice, plugins) if is_command else advice


def _usage_error(error: click.ClickException, typed: Sequence[str]) -> UsageError:
    """Return click's error about the typed words as an error of litebert, with four
    lines.
    """
    command = "litebert"
    if isinstance(error, click.UsageError) and error.ctx is not None:
        command = error.ctx.command_path
    advice = f"{command} --help"
    expected = None
    if isinstance(error, click.NoSuchOption):
        advice = _advise_on_option(error, advice)
    elif not isinstance(error, click.BadParameter):
        expected = "a verb, its arguments and its options"
    if error.format_message().startswith("No such command"):
        advice += f"; or if a plug-in adds the verb: {LOADING}"
    return UsageError(
        "LB-939",
        error.format_message().rstrip("."),
        received=" ".join(typed) or "nothing",
        expected=expected,
        next=advice,
    )


def _advise_on_option(error: click.NoSuchOption, advice: str) -> str:
    """Return what to write instead of an option that a command lacks: a setting of a
    run, such as optim.learning_rate, has none.
    """
    from litebert.config import FinetuneConfig, PretrainConfig
    from litebert.settings import fields_of
    from litebert.tasks.tables.columns import roles

    schemas: dict[str | None, type[PretrainConfig] | type[FinetuneConfig]] = {
        "pretrain": PretrainConfig,
        "distil": PretrainConfig,
        "finetune": FinetuneConfig,
    }
    command = error.ctx.info_name if error.ctx else None
    name = error.option_name.lstrip("-").replace("-", "_")
    options = error.ctx.command.params if error.ctx else ()
    if name in roles() and any(param.name == "columns" for param in options):
        return f"name the column so: --column {name}=NAME"
    if command in schemas:
        for field in fields_of(schemas[command]):
            if field.rpartition(".")[2] == name:
                return f"write {field}=VALUE: settings of a run are words without --"
    return f"{advice}, or -- before a text that looks like an option"


def _take_global_options(words: Sequence[str]) -> tuple[list[str], list[str], bool]:
    """Return the words without the options that may be anywhere before `--`, the
    plug-ins that are named, and whether `--debug` is there.
    """
    end = words.index("--") if "--" in words else len(words)
    typed = list[str]()
    plugins = list[str]()
    before = iter(words[:end])
    for word in before:
        if word.startswith("--plugin="):
            plugins.append(word.removeprefix("--plugin="))
        elif word == "--plugin":
            plugins.append(next(before, ""))
        elif word != "--debug":
            typed.append(word)
    is_debugged = "--debug" in words[:end]
    return typed + list(words[end:]), plugins, is_debugged


def _unnamed_file() -> str:
    """Return what an error is about that names no file: standard output, if it still
    does not take what was printed.
    """
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        return "standard output"
    return "the file"


def _discard_stdout() -> None:
    """Keep the interpreter from failing again on a stdout that cannot be written to."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        number = 1
        if sys.__stdout__:
            number = sys.__stdout__.fileno()
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
