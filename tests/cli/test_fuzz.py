"""Commands with bad paths and values: four lines and an exit code, never a traceback."""

import os
from pathlib import Path

import click
import pytest

from litebert import rng
from tests.contract.shell import leaves, litebert
from tests.contract.tiny import Desk

LEAVES = leaves()
LONG = {"doctor", "serve", "study cost"}
"""What works for minutes, or until it is stopped, whatever it is told."""
EXIT_CODES = {0, 1, 2, 3, 4, 5}


@pytest.fixture
def bad(tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give paths and values that commands do not expect, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)) * 9)
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "one.jsonl").write_text('{"text": "Anna"}\n{"text": 3}\nnot json\n')
    (tmp_path / "folder").mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.json").write_text("{}")
    return [
        *("nowhere", "nowhere.txt", "nowhere.csv", "folder", "config", "binary.csv", "empty.txt"),
        *("one.jsonl", "", " ", ".", "..", "/", "/dev/null", "/dev/full", "/proc/self/mem"),
        *("x" * 300, "x" * 5_000, "a/../../b", "\x1b[31m", "\udc80", "naïve.txt", "a\nb", "*"),
        *("-1", "0", "1e999", "nan", "train.steps=-1", "train.sed=1", "=", "a=b", "--", "--json"),
        *("[MASK]", "mrpc", "text=body", str(desk.stories), str(desk.base / "model"), "http://[", "s3://x/y"),
    ]


def check(number: int, seed: int, bad: list[str]) -> None:
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
                words += [parameter.opts[0]] if parameter.is_flag else [parameter.opts[0], value]
        try:
            done = litebert(*words)
        except Exception as error:
            raise AssertionError(f"seed {seed}: litebert {words!r}") from error
        assert done.code in EXIT_CODES, (seed, words)
        assert "Traceback" not in done.stderr, (seed, words)
        assert not done.code or "LB-" in done.stderr or done.stdout, (seed, words, done)
        assert "\x1b" not in done.stdout + done.stderr, (seed, words)
        os.chdir(home)


def test_bad_commands_are_messages(bad: list[str]) -> None:
    check(40, 2_026, bad)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_bad_commands_are_messages(bad: list[str], seed: int) -> None:
    check(100, seed, bad)
