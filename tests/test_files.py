"""Files are written whole or not at all."""

import errno
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from litebert.errors import (
    DamagedError,
    LitebertError,
    ResourceError,
    as_litebert_error,
)
from litebert.files import (
    read_capped,
    read_json,
    staged_folder,
    staging,
    write_bytes,
    write_json,
    write_stream,
)


def test_a_folder_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    final = tmp_path / "final"
    with staged_folder(final) as staged:
        write_bytes(staged / "a", b"old")
        assert not final.exists()
    with pytest.raises(RuntimeError), staged_folder(final) as staged:
        write_bytes(staged / "a", b"new")
        raise RuntimeError
    assert (final / "a").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


def test_a_full_disk_is_named_and_leaves_no_partial_file(tmp_path: Path) -> None:
    """In a child process whose files are limited to 1,000 bytes."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            write_bytes(tmp_path / "big", b"x" * 10_000)
        except ResourceError as error:
            os._exit(0 if error.code == "LB-001" and error.exit_code == 4 else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(tmp_path.iterdir()) == []


def test_json_objects_round_trip_and_anything_else_is_refused(tmp_path: Path) -> None:
    value = {"a": ["é", "\u2028", "\udce9", 1.5, None]}
    path = tmp_path / "x.json"
    write_json(path, value)
    assert read_json(path, command="ls") == value
    assert "é" in path.read_text("utf-8")  # as people wrote it
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    for text in ('{"a": NaN}', "[1", "[" * 100_000, "[1]", "\xff"):
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(DamagedError):
            read_json(path, command="ls")


def test_a_stream_that_breaks_off_leaves_the_old_file_and_nothing_else(
    tmp_path: Path,
) -> None:
    def broken() -> Iterator[bytes]:
        yield b"new"
        raise RuntimeError

    write_stream(tmp_path / "a", (bytes([number]) * 3 for number in range(3)))
    with pytest.raises(RuntimeError):
        write_stream(tmp_path / "a", broken())
    assert (tmp_path / "a").read_bytes() == b"\0\0\0\1\1\1\2\2\2"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


SYSTEM = {
    "LB-001": "ENOSPC EFBIG",
    "LB-007": "ENOMEM",
    "LB-250": "EACCES EROFS",
    "LB-251": "ENOENT",
}
SYSTEM |= {"LB-254": "EMFILE", "LB-255": "ENOTDIR EISDIR ENAMETOOLONG EIO"}


@pytest.mark.parametrize(
    ("code", "name"),
    [(code, name) for code, names in SYSTEM.items() for name in names.split()],
)
def test_system_errors_become_messages(code: str, name: str) -> None:
    number = getattr(errno, name)
    for arguments in (
        (number, os.strerror(number), "a" * 400),
        (number, os.strerror(number)),
    ):
        converted = as_litebert_error(OSError(*arguments))
        assert converted and converted.code == code and len(str(converted)) < 1_000
        assert converted.exit_code == (
            4 if code in ("LB-001", "LB-007", "LB-254") else 1
        )


def test_a_limit_on_the_size_of_files_is_not_called_a_full_disk() -> None:
    converted = as_litebert_error(OSError(errno.EFBIG, "File too large", "a.bin"))
    assert converted and converted.what == "a.bin may not become larger"
    assert converted.received == "File too large"


def test_a_failed_allocation_is_reported_as_out_of_memory() -> None:
    with pytest.raises(MemoryError) as numpy_error:
        np.empty(1 << 60, np.uint8)
    with pytest.raises(RuntimeError) as torch_error:
        torch.empty(1 << 60, dtype=torch.uint8)
    for error in (MemoryError(), numpy_error.value, torch_error.value):
        converted = as_litebert_error(error)
        assert converted and (converted.code, converted.exit_code) == ("LB-007", 4)


def test_bugs_are_not_converted_and_litebert_errors_pass_unchanged() -> None:
    assert not any(
        map(
            as_litebert_error, (RuntimeError("a bug"), KeyError("a"), BrokenPipeError())
        )
    )
    error = LitebertError("LB-000", "what", received="a", expected="b", next="c")
    assert as_litebert_error(error) is error


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a" * 300, "LB-255"),
        ("file/child", "LB-255"),
        ("folder", "LB-008: .* is a folder"),
        ("pipe", "LB-008: .* is a device or pipe"),
    ],
)
def test_paths_that_cannot_be_written_are_refused(
    tmp_path: Path, name: str, code: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LitebertError, match=code):
        write_bytes(tmp_path / name, b"x")


@pytest.mark.parametrize(
    ("name", "code"), [("file", "LB-008: .* is a file"), ("file/child", "LB-255")]
)
def test_paths_that_cannot_become_a_folder_are_refused(
    tmp_path: Path, name: str, code: str
) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(LitebertError, match=code),
        staged_folder(tmp_path / name),
    ):
        pass


def test_only_regular_files_of_a_bounded_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    (tmp_path / "large").write_bytes(b"x" * 100)
    for name in ("pipe", "zero", "folder", "large", "none", "a\0b"):
        with pytest.raises(LitebertError, match="LB-004"):
            read_capped(tmp_path / name, 50, command="ls")


def test_control_a_file_that_is_written_in_place_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_NEW", "../a")
    with pytest.raises((AssertionError, FileNotFoundError)):
        test_a_stream_that_breaks_off_leaves_the_old_file_and_nothing_else(tmp_path)
