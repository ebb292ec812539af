"""The commands: the examples of their help, escaped output, errors instead of
tracebacks, and files of answers.
"""

import os
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest

from litebert import rng
from litebert.cli import cli
from litebert.cli.command import command_of
from litebert.errors import LitebertError
from litebert.plugins import VERBS
from tests.contract.shell import leaves, litebert
from tests.contract.tiny import Desk

LEAVES = leaves()


@pytest.mark.parametrize("name", LEAVES)
def test_the_examples_of_every_command_parse(name: str) -> None:
    for line in re.findall(r"(?m)^ *litebert ([^>\n]+)", str(LEAVES[name].help)):
        words = shlex.split(line, comments=True)
        command = cli
        context = click.Context(cli, info_name="litebert")
        while isinstance(command, click.Group):
            command = command.get_command(context, words.pop(0))
            assert command is not None, line
        command.make_context(command.name or "", words)


@pytest.mark.parametrize("name", LEAVES)
def test_help_never_explains_what_python_does(name: str) -> None:
    assert "in Python" not in str(LEAVES[name].help).replace("In", "in")


def test_the_help_of_explain_names_the_verbs_that_it_explains() -> None:
    explained = [name for name, verb in VERBS.items() if verb.question]
    assert f"VERB is {' or '.join(explained)}," in str(LEAVES["explain"].help)


# ---- the terminal --------------------------------------------------------------------


def test_control_labels_that_are_not_escaped_steer_the_terminal(
    desk: Desk, tmp_path: Path, monkeypatch
) -> None:
    """The contract's tests check that labels are escaped."""
    model = Path(shutil.copytree(desk.reviews / "model", tmp_path / "m"))
    config = model / "config.json"
    config.write_text(config.read_text().replace('"bad"', '"\\u001b[31mbad\\u009b0m"'))
    assert "\x9b" not in litebert("classify", "Anna", "--model", model).stdout
    monkeypatch.setattr("litebert.cli.command.escape_control", str)
    assert "\x9b" in litebert("classify", "Anna", "--model", model).stdout


@pytest.mark.parametrize(
    ("size", "rank", "prints"),
    [
        ("2", "0", True),
        ("2", "1", False),
        ("2", "", True),
        ("", "", True),
        ("1", "a name of somebody else", True),
        ("01", "1", True),
    ],
)
def test_of_several_processes_the_first_one_prints(
    monkeypatch: pytest.MonkeyPatch, size: str, rank: str, prints: bool
) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.setenv("RANK", rank)
    assert bool(litebert("recipes", "list").ok.stdout) == prints


def test_a_number_of_processes_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "many")
    assert "LB-262" in litebert("recipes", "list").stderr


# ---- mistakes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "text"),
    [(("sizes",), "- no."), (("runs", "list"), "-5"), (("sizes",), "-5 of - 3")],
)
def test_a_dashed_text_too_many_is_shown_as_it_was_typed(
    words: tuple[str, ...], text: str
) -> None:
    done = litebert(*words, text)
    assert (done.code, f"extra argument ({text})\n" in done.stderr) == (2, True), done


def test_a_positional_number_may_be_negative() -> None:
    def add(first: int, *others: float) -> None:
        sums.append(first + sum(others))

    sums = list[float]()
    command_of(add, "add").main(["-5", "-0.5", "2"], standalone_mode=False)
    assert sums == [-3.5]


def test_control_without_the_boundary_a_mistake_is_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("litebert.cli.as_litebert_error", lambda *_, **__: None)
    with pytest.raises((LitebertError, OSError)):
        litebert("corpus", "build", "x.txt", "--tokenizer", "x" * 300, "--output", "c")


LONG = {"doctor", "serve"}
"""Commands that run for minutes, or until they are stopped, whatever their arguments.
"""


@pytest.fixture
def bad(tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return paths and values that commands do not expect, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)) * 9)
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "one.jsonl").write_text('{"text": "Anna"}\n{"text": 3}\nnot json\n')
    for name in ("folder", "config"):
        (tmp_path / name).mkdir()
    (tmp_path / "config" / "config.json").write_text("{}")
    return [
        *(
            "nowhere",
            "nowhere.txt",
            "nowhere.csv",
            "folder",
            "config",
            "binary.csv",
            "empty.txt",
        ),
        *(
            "one.jsonl",
            "",
            " ",
            ".",
            "..",
            "/",
            "/dev/null",
            "/dev/full",
            "/proc/self/mem",
        ),
        *(
            "x" * 300,
            "x" * 5_000,
            "a/../../b",
            "\x1b[31m",
            "\udc80",
            "naïve.txt",
            "a\nb",
            "*",
        ),
        *(
            "-1",
            "0",
            "1e999",
            "nan",
            "train.steps=-1",
            "train.sed=1",
            "=",
            "a=b",
            "--",
            "--json",
        ),
        *(
            "[MASK]",
            "mrpc",
            "text=body",
            str(desk.stories),
            str(desk.base / "model"),
            "http://[",
            "s3://x/y",
        ),
    ]


@pytest.mark.parametrize(
    ("number", "seed"),
    [
        (40, 2_026),
        *(pytest.param(100, seed, marks=pytest.mark.slow) for seed in range(10)),
    ],
)
def test_bad_commands_give_errors_without_a_traceback(
    bad: list[str], number: int, seed: int
) -> None:
    home = Path.cwd()
    for place in range(number):
        generator = rng.stream(seed, "fuzz", 0, place)
        name = str(generator.choice(sorted(set(LEAVES) - LONG)))
        words = name.split()
        for parameter in LEAVES[name].params:
            value = bad[int(generator.integers(len(bad)))]
            if isinstance(parameter, click.Argument):
                words.append(value)
            elif generator.random() < 0.4:
                words += (
                    [parameter.opts[0]]
                    if parameter.is_flag
                    else [parameter.opts[0], value]
                )
        try:
            done = litebert(*words)
        except Exception as error:
            raise AssertionError(f"seed {seed}: litebert {words!r}") from error
        assert 0 <= done.code <= 5, (seed, words)
        assert "Traceback" not in done.stderr, (seed, words)
        assert not done.code or "LB-" in done.stderr or done.stdout, (seed, words, done)
        assert "\x1b" not in done.stdout + done.stderr, (seed, words)
        os.chdir(home)


# ---- files of answers ----------------------------------------------------------------


def test_a_corrected_command_reuses_an_output_without_rows(
    desk: Desk, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("body\nAnna left.\n")
    words = (
        "embed",
        tmp_path / "t.csv",
        "--model",
        desk.base,
        "--output",
        tmp_path / "v.npy",
    )
    (tmp_path / "v.npy.unfinished").write_text("of\nsomeone else\n")
    assert "LB-943" in litebert(*words, "--column", "body").stderr
    (tmp_path / "v.npy.unfinished").unlink()
    assert litebert(*words).code == 1
    assert litebert(*words, "--column", "body").code == 0


def _fail(*_: object, **__: object) -> None:
    raise ZeroDivisionError


def test_rows_without_an_answer_are_not_repeated_when_the_command_is_rerun(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.jsonl").write_text(
        '{"text": "Anna left."}\n{"text": " "}\n{"text": null}\n'
    )
    words = (
        "embed",
        tmp_path / "t.jsonl",
        "--model",
        desk.base,
        "--output",
        tmp_path / "v.npy",
    )
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr("litebert.cli.answer_file.write_stream", _fail)
        litebert(*words)
    done = litebert(*words)
    assert (done.code, "resuming after 3 rows" in done.stderr) == (0, True), done.stderr
