"""Python as on Windows, as far as Linux can show it: used as a program, it hides what
Windows lacks and then runs a command of litebert.

`python windows.py WORDS` runs `litebert WORDS`; `python windows.py -c CODE` runs code.
What is hidden is only what litebert could use: packages have their own versions for
Windows, so they are imported before.
"""

import asyncio
import builtins
import errno
import multiprocessing.popen_spawn_posix
import multiprocessing.resource_tracker  # noqa: F401
import os
import shutil
import signal
import stat
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
from pathlib import Path
from types import ModuleType

import sklearn  # noqa: F401
import torch  # noqa: F401
import uvicorn  # noqa: F401

MODULES = ("fcntl", "grp", "pwd", "resource", "termios")
# what signal of Windows has, and SIGKILL, with which the packages end processes here
SIGNALS = {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM", "SIGKILL"}
FUNCTIONS = (
    "chown",
    "fchown",
    "fork",
    "forkpty",
    "geteuid",
    "getloadavg",
    "getpgid",
    "getuid",
    "killpg",
    "mkfifo",
    "nice",
    "pread",
    "sched_getaffinity",
    "setsid",
    "sysconf",
)
CONSTANTS = ("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK")


def hide() -> None:
    """Remove what Windows lacks from the standard library."""
    for name in MODULES:
        sys.modules[name] = None
    for name in dir(signal):
        is_number = name.startswith("SIG") and name[3:].isalnum()
        if is_number and name not in SIGNALS:
            delattr(signal, name)
    for name in (*FUNCTIONS, *CONSTANTS):
        if hasattr(os, name):
            delattr(os, name)


def change_files() -> None:
    """Give os.rename, os.replace, os.open and os.fsync the rules of Windows."""
    rename, replace, open_file, sync = os.rename, os.replace, os.open, os.fsync

    def rename_to_new(source: object, target: object, **how: object) -> None:
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "the target exists", target)
        rename(source, target, **how)

    def replace_file(source: object, target: object, **how: object) -> None:
        if Path(os.fsdecode(target)).is_dir():
            raise PermissionError(errno.EACCES, "the target is a folder", target)
        replace(source, target, **how)

    def open_no_folder(path: object, flags: int, *more: object, **how: object) -> int:
        if Path(os.fsdecode(path)).is_dir():
            raise PermissionError(errno.EACCES, "it is a folder", path)
        return open_file(path, flags, *more, **how)

    def sync_written(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "a folder")
        sync(descriptor)

    shutil._use_fd_functions = False  # on Windows, rmtree opens no folders
    os.rename = rename_to_new
    os.replace = replace_file
    os.open = open_no_folder
    os.fsync = sync_written


def change_signals() -> None:
    """Refuse handlers for signals that Windows lacks, and asyncio's handlers."""
    set_handler = signal.signal

    def set_known(number: int, handler: object) -> object:
        if number not in [getattr(signal, name) for name in SIGNALS]:
            raise ValueError("invalid signal value")
        return set_handler(number, handler)

    def refuse(*_: object) -> None:
        raise NotImplementedError

    signal.signal = set_known
    asyncio.SelectorEventLoop.add_signal_handler = refuse


class Renamed:
    """A module that has another value under one name."""

    def __init__(self, module: ModuleType, name: str, value: str) -> None:
        self.__dict__["_module"] = module
        self.__dict__[name] = value

    def __getattr__(self, name: str) -> object:
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._module, name, value)


def rename_system() -> None:
    """Say to litebert, and to nothing else, that the system is Windows."""
    real_import = builtins.__import__
    renamed = {
        "os": Renamed(os, "name", "nt"),
        "sys": Renamed(sys, "platform", "win32"),
    }

    def find(name: str, names: object = None, *more: object, **how: object) -> object:
        importer = (names or {}).get("__name__", "")
        if name in renamed and importer.startswith("litebert"):
            return renamed[name]
        return real_import(name, names, *more, **how)

    builtins.__import__ = find


if __name__ == "__main__":
    hide()
    rename_system()
    change_files()
    change_signals()
    if sys.argv[1] == "-c":
        exec(sys.argv[2])
        sys.exit()
    from litebert.cli import main

    main()
