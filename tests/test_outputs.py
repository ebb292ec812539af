"""No file is lost: not what stands under an output's name, not what appears there
while a command runs, and not what is only named like an unfinished output.
"""

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from litebert.errors import LitebertError, say, show_status
from litebert.files import (
    IfExists,
    append_line,
    clear_stale,
    locked,
    open_log,
    remove_folder,
    renaming,
    require_new,
    staged_folder,
    write_bytes,
    write_stream,
)
from tests.kills import begin, operations

PRECIOUS = "years of work"


@pytest.fixture(params=["renameat2", "link", "no links"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A system that can exchange two names, and file systems that cannot."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "this file system has no links")

    if request.param != "renameat2":
        monkeypatch.setattr(renaming, "_renameat2", lambda: None)
    if request.param == "no links":
        monkeypatch.setattr(os, "link", refuse)
    return request.param


def everything(folder: Path) -> dict[str, str]:
    """Return the files below a folder, with their contents."""
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write(path: Path, text: str = PRECIOUS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def model(folder: Path, text: str, *, if_exists: IfExists = "replace") -> None:
    """Write a folder that looks like a model of litebert."""
    known_files = ("vocab.txt",)
    with staged_folder(folder, if_exists=if_exists, known_files=known_files) as staged:
        write(staged / "model.safetensors", f'{{"sha256":"{text}"}}')
        write(staged / "config.json", text)


def leftover(final: Path) -> Path:
    """Return what a process leaves that is killed while it makes `final`."""

    def work() -> None:
        with staged_folder(final) as staged:
            write(staged / "half", "half")
            os.kill(os.getpid(), signal.SIGKILL)

    assert operations(*begin(work, final.parent)) is None
    # a long name is shortened
    (path,) = final.parent.glob(f"{final.name[:200]}.partial-*")
    return path


# ---- what killed processes leave -----------------------------------------------------


def test_a_rerun_removes_what_a_killed_process_left_of_the_same_name(
    tmp_path: Path,
) -> None:
    stale = leftover(tmp_path / "a")
    other = leftover(tmp_path / "b")
    require_new(tmp_path / "a")
    assert (stale.exists(), other.exists()) == (False, True)
    write_bytes(tmp_path / "b", b"")
    assert not other.exists()


def test_unfinished_outputs_whose_long_names_begin_alike_are_told_apart(
    tmp_path: Path,
) -> None:
    beginning = "a" * 200
    stale = leftover(tmp_path / f"{beginning}1")
    require_new(tmp_path / f"{beginning}2")
    assert stale.exists()
    require_new(tmp_path / f"{beginning}1")
    assert not stale.exists()


@pytest.mark.parametrize("note", [None, "", '{"litebert": "unfin'])
def test_a_folder_of_a_process_killed_before_its_note_was_whole_is_removed(
    tmp_path: Path, note: str | None
) -> None:
    stale = tmp_path / "b.partial-0123456789ab"
    stale.mkdir()
    if note is not None:
        write(stale / "litebert", note)
    require_new(tmp_path / "a")
    assert stale.exists()
    require_new(tmp_path / "b")
    assert not stale.exists()


FOREIGN: dict[str, Callable[[Path], object]] = {
    "a file": write,
    "a folder": lambda path: write(path / "thesis.txt"),
    "with a note and more": lambda path: [
        write(path / "litebert", '{"litebert": "unfinished output", "name": "a"}'),
        write(path / "thesis.txt"),
    ],
    "with a note of its own": lambda path: write(path / "litebert"),
    "without a note": lambda path: write(path / "new" / "thesis.txt"),
    "a link": lambda path: path.symlink_to(write(path.parent / "x" / "y").parent),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_only_named_like_an_unfinished_output_stays(
    tmp_path: Path, kind: str
) -> None:
    FOREIGN[kind](tmp_path / "a.partial-0123456789ab")
    write(tmp_path / "a.partial-1.txt")
    before = everything(tmp_path)
    require_new(tmp_path / "a")
    clear_stale(tmp_path)
    with staged_folder(tmp_path / "a"):
        pass
    assert everything(tmp_path) == before


def test_what_a_running_process_is_making_stays(tmp_path: Path) -> None:
    with staged_folder(tmp_path / "a", if_exists="refuse") as staged:
        write(staged / "b")
        clear_stale(tmp_path)
        require_new(tmp_path / "a")
        assert (staged / "b").exists()
    assert everything(tmp_path) == {"a/b": PRECIOUS}


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("is_folder", [False, True])
def test_a_process_killed_at_any_moment_leaves_the_old_or_the_new_output(
    tmp_path: Path, is_folder: bool
) -> None:
    kill_at = 0
    is_whole = False
    results = set[str]()
    while not is_whole:
        kill_at += 1
        place = tmp_path / str(kill_at)
        output = place / "a"
        if is_folder:
            model(output, "old")
            write(output / "thesis.txt")
            work = lambda: model(output, "new")  # noqa: B023, E731
        else:
            write_bytes(output, b"old")
            work = lambda: write_bytes(output, b"new")  # noqa: B023, E731
        is_whole = operations(*begin(work, place, kill_at)) is not None
        clear_stale(place)
        assert [path.name for path in place.iterdir()] == ["a"], kill_at
        if is_folder:
            assert (output / "thesis.txt").read_text() == PRECIOUS
        results.add((output / "config.json" if is_folder else output).read_text())
    assert results == {"old", "new"}
    assert kill_at > 5


# ---- what appears while a command runs -----------------------------------------------

APPEARS: dict[str, Callable[[Path], object]] = {
    "a file": write,
    "a folder": lambda path: write(path / "thesis.txt"),
    "a link": lambda path: path.symlink_to(write(path.parent / "target")),
    "a dead link": lambda path: path.symlink_to(path.parent / "nowhere"),
    "a link to a folder": lambda path: path.symlink_to(
        write(path.parent / "x" / "y").parent
    ),
    "a pipe": os.mkfifo,
}


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("kind", APPEARS)
@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize("if_exists", get_args(IfExists))
def test_what_appears_under_the_name_of_an_output_stays(
    tmp_path: Path, kind: str, is_folder: bool, if_exists: IfExists
) -> None:
    output = tmp_path / "a"
    if if_exists == "replace" and not is_folder and kind == "a file":
        pytest.skip("--force replaces a file")

    def chunks() -> object:
        APPEARS[kind](output)
        yield b"new"

    with pytest.raises(LitebertError) as raised:
        if is_folder:
            with staged_folder(output, if_exists=if_exists) as staged:
                write(staged / "thesis.txt", "another")
                APPEARS[kind](output)
        else:
            write_stream(output, chunks(), if_exists=if_exists)
    assert raised.value.code in ("LB-619", "LB-008")
    assert not list(tmp_path.glob("a.*"))
    assert set(everything(tmp_path).values()) <= {PRECIOUS}
    assert os.path.lexists(output)


@pytest.mark.parametrize("output", [".", "..", "", "full"])
def test_the_current_folder_and_those_around_it_are_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    current = tmp_path / "current"
    current.mkdir()
    monkeypatch.chdir(current)
    path = current if output == "full" else Path(output)
    with (
        pytest.raises(LitebertError, match=r"LB-008: .* the current folder"),
        staged_folder(path),
    ):
        pass
    assert list(tmp_path.iterdir()) == [current]


@pytest.mark.usefixtures("system")
def test_of_several_writers_of_one_new_output_one_succeeds(tmp_path: Path) -> None:
    done = list[str]()
    refused = list[str]()
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        try:
            with staged_folder(tmp_path / "a", if_exists="refuse") as staged:
                write(staged / "b", str(number))
                barrier.wait()
            done.append(str(number))
        except LitebertError as error:
            refused.append(error.code)

    writers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert (len(done), refused) == (1, ["LB-619"] * 7)
    assert everything(tmp_path) == {"a/b": done[0]}


def test_one_of_several_files_of_a_killed_command_may_be_there(tmp_path: Path) -> None:
    write(tmp_path / "a", "same")
    write_bytes(tmp_path / "a", b"same", if_exists="refuse", accepts_same=True)
    with pytest.raises(LitebertError, match="LB-619"):
        write_bytes(tmp_path / "a", b"more", if_exists="refuse", accepts_same=True)
    assert everything(tmp_path) == {"a": "same"}
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(LitebertError, match="LB-619"):
        write_bytes(tmp_path / "link", b"same", if_exists="refuse", accepts_same=True)
    assert (tmp_path / "link").is_symlink()


@pytest.mark.skipif(sys.platform != "linux", reason="renameat2 is a call of Linux")
def test_two_names_are_exchanged_in_one_step_on_linux(tmp_path: Path) -> None:
    """Thus a reader always finds a folder that is being replaced."""
    write(tmp_path / "a", "one")
    write(tmp_path / "b" / "c", "two")
    assert renaming.exchange_names(tmp_path / "a", tmp_path / "b")
    assert everything(tmp_path) == {"a/c": "two", "b": "one"}


# ---- what --force replaces -----------------------------------------------------------


@pytest.mark.usefixtures("system")
def test_what_litebert_did_not_write_stays_in_a_replaced_folder(tmp_path: Path) -> None:
    output = tmp_path / "a"
    model(output, "old")
    write(output / "vocab.txt", "old")
    odd = "thèse\n \udcff.txt"
    for name in ("thesis.txt", "notes/1/2.txt", odd):
        write(output / name)
    (output / "link").symlink_to(tmp_path)
    model(output, "new")
    files = everything(output)
    assert (output / "link").is_symlink()
    assert files.pop("config.json") == "new" and files.pop("model.safetensors")
    assert files == dict.fromkeys(("thesis.txt", "notes/1/2.txt", odd), PRECIOUS)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


FOLDERS = {
    "of somebody": {"thesis.txt": PRECIOUS},
    "of another tool": {"model.safetensors": '{"a":[]}', "config.json": "{}"},
    "with a run.json of another tool": {"run.json": "{}", "checkpoints/a": "b"},
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_force_refuses_folders_that_do_not_say_they_are_ours(
    tmp_path: Path, kind: str
) -> None:
    output = tmp_path / "a"
    for name, text in FOLDERS[kind].items():
        write(output / name, text)
    with pytest.raises(LitebertError, match="LB-619"):
        require_new(output, if_exists="replace")
    if kind == "of another tool":
        with pytest.raises(LitebertError, match="LB-619"):
            model(output, "new")
    assert everything(output) == FOLDERS[kind]


def test_force_is_needed_to_replace_what_litebert_wrote(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    require_new(tmp_path / "empty")
    model(tmp_path / "model", "old")
    write_bytes(tmp_path / "file", b"old")
    refusals: tuple[IfExists, ...] = ("refuse", "offer force")
    for name in ("model", "file"):
        for if_exists in refusals:
            with pytest.raises(LitebertError, match="LB-619") as refused:
                require_new(tmp_path / name, if_exists=if_exists)
            names_force = "--force" in refused.value.expected
            assert names_force == (if_exists == "offer force")
        require_new(tmp_path / name, if_exists="replace")


@pytest.mark.parametrize(
    "kind", ["a link", "a dead link", "a link to a folder", "a pipe"]
)
def test_force_refuses_links_and_pipes(tmp_path: Path, kind: str) -> None:
    APPEARS[kind](tmp_path / "a")
    with pytest.raises(LitebertError, match="LB-619"):
        require_new(tmp_path / "a", if_exists="replace")


def test_force_refuses_the_current_folder_and_those_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(tmp_path / "a", "old")
    write(tmp_path / "a" / "notes" / "1.txt")
    for folder in ("a", "a/notes"):
        monkeypatch.chdir(tmp_path / folder)
        with pytest.raises(LitebertError, match="LB-619"):
            require_new(tmp_path / "a", if_exists="replace")
    monkeypatch.chdir(tmp_path)
    require_new(tmp_path / "a", if_exists="replace")


def test_a_folder_that_is_removed_is_gone_and_a_killed_removal_is_finished(
    tmp_path: Path,
) -> None:
    for kill_at in range(1, 4):
        write(tmp_path / "a" / "b")
        begin_removal = begin(lambda: remove_folder(tmp_path / "a"), tmp_path, kill_at)
        assert operations(*begin_removal) is None
        clear_stale(tmp_path)
        assert not list(tmp_path.glob("a.*"))
    if (tmp_path / "a").exists():
        remove_folder(tmp_path / "a")
    assert not list(tmp_path.iterdir())


# ---- names ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["本" * 85, "a" * 255, "-rf", "a\nb", "*", "[a]", "\udcff", " ", "…"]
)
def test_every_name_that_a_file_may_have_can_be_an_output(
    tmp_path: Path, name: str
) -> None:
    stale = tmp_path / name
    with pytest.raises(RuntimeError), staged_folder(stale):
        raise RuntimeError
    write_bytes(tmp_path / name, b"x", if_exists="refuse")
    with pytest.raises(LitebertError):
        write_bytes(tmp_path / name, b"y", if_exists="refuse")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"x"]


def test_the_folders_around_an_output_are_made(tmp_path: Path) -> None:
    write_bytes(tmp_path / "1" / "2" / "file", b"x")
    with staged_folder(tmp_path / "3" / "4" / "folder"):
        pass
    open_log(tmp_path / "5" / "6" / "log", FIRST).close()
    append_line(tmp_path / "7" / "8" / "lines", "x")
    assert sorted(everything(tmp_path)) == ["1/2/file", "5/6/log", "7/8/lines"]
    assert (tmp_path / "3" / "4" / "folder").is_dir()


def test_outputs_have_the_permissions_that_the_umask_leaves(tmp_path: Path) -> None:
    """Thus the other users of a cluster can read a model, if its owner wants that."""
    umask = os.umask(0o022)
    try:
        write_bytes(tmp_path / "file", b"x")
        with staged_folder(tmp_path / "folder") as staged:
            write_bytes(staged / "file", b"x")
        open_log(tmp_path / "log", FIRST).close()
    finally:
        os.umask(umask)
    modes = {}
    for path in tmp_path.rglob("*"):
        modes[path.relative_to(tmp_path).as_posix()] = path.stat().st_mode & 0o777
    assert modes == {
        "file": 0o644,
        "folder": 0o755,
        "folder/file": 0o644,
        "log": 0o644,
    }


# ---- locks and logs ------------------------------------------------------------------

FIRST = b'{"litebert": "log"'
NOT_OURS: dict[str, Callable[[Path], object]] = {
    **APPEARS,
    "one letter": lambda path: write(path, "{"),
    "zeros": lambda path: write(path, "\0" * 100),
}


@pytest.mark.parametrize("kind", NOT_OURS)
def test_a_log_of_somebody_else_is_refused_and_unchanged(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "log"
    NOT_OURS[kind](path)
    before = everything(tmp_path)
    with pytest.raises(LitebertError, match="LB-943"):
        open_log(path, FIRST)
    assert everything(tmp_path) == before


def test_a_log_is_locked_until_it_is_closed(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", FIRST) as log:
        log.write(FIRST + b', "pid": 7}\n')
        log.flush()
        with pytest.raises(LitebertError, match="process 7"):
            open_log(tmp_path / "log", FIRST)
    open_log(tmp_path / "log", FIRST).close()


def test_a_locked_folder_is_refused_to_others_and_gets_no_new_file(
    tmp_path: Path,
) -> None:
    def busy() -> Exception:
        return LitebertError("LB-009", "busy", next="wait")

    with (
        locked(tmp_path / "a", busy),
        pytest.raises(LitebertError, match="LB-009"),
        locked(tmp_path / "a", busy),
    ):
        pass
    with locked(tmp_path / "a", busy):
        assert list(tmp_path.rglob("*")) == [tmp_path / "a"]


def test_a_system_without_locks_runs_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with locked(tmp_path / "a"), open_log(tmp_path / "log", FIRST) as log:
        log.write(FIRST + b"}\n")
        write_bytes(tmp_path / "b", b"x")
        # a second writer is not kept out
        with locked(tmp_path / "a"):
            pass
    assert (tmp_path / "log").read_bytes() == FIRST + b"}\n"
    assert (tmp_path / "b").read_bytes() == b"x"


# ---- progress when nobody can read it ------------------------------------------------


def _read_end_closed() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def _terminal_gone() -> int:
    master, slave = os.openpty()
    os.close(master)
    return slave


@pytest.mark.parametrize(
    "open_stderr",
    [_read_end_closed, _terminal_gone, lambda: os.open("/dev/full", os.O_WRONLY)],
)
def test_work_goes_on_when_stderr_cannot_be_written(
    open_stderr: Callable[[], int],
) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(open_stderr(), 2)
            stream = open(2, "w", closefd=False)  # noqa: SIM115
            sys.stderr = stream
            for number in range(3):
                say("a line")
                show_status(number, 3, "a bar")
            stream.flush()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
