"""Nothing leaves the machine unasked: telemetry of the packages that litebert uses is off.

Each of these variables is read when its package is imported, by litebert or by a library
that litebert calls. They are therefore set when litebert is imported. A variable that the
user has set keeps its value.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from litebert.errors import LitebertError

# Measured with onnxruntime 1.31: on import it makes a device id and a queue of events in
# ~/.cache/Microsoft, and looks up the host that receives the events.
# `onnxruntime.disable_telemetry_events()` comes too late to prevent that.
NO_TELEMETRY = {
    "ORT_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def cache_folder() -> Path:
    """Return litebert's folder in the user's cache, which XDG_CACHE_HOME may move."""
    cache = os.environ.get("XDG_CACHE_HOME")
    if cache:
        return Path(cache) / "litebert"
    try:
        return Path.home() / ".cache" / "litebert"
    except RuntimeError as error:  # HOME is not set, and the system knows no home
        raise LitebertError(
            "LB-256",
            "there is no folder for litebert's cache",
            received="HOME is not set, and this user has no home folder",
            next="export XDG_CACHE_HOME=/tmp/my-cache",
        ) from error


def turn_off_telemetry() -> None:
    """Tell the packages that litebert uses to send nothing."""
    for name, value in NO_TELEMETRY.items():
        os.environ.setdefault(name, value)


@contextmanager
def without_package(name: str) -> Iterator[None]:
    """Make imports of a package fail meanwhile, as if it were not installed.

    Importing openvino 2026.4 sends an event through openvino_telemetry, and writes an id
    to ~/intel. No variable of its own prevents that; without the package, openvino sends
    nothing.
    """
    if name in sys.modules:  # the user has imported it already
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


def keep_caches_in_ours() -> None:
    """Let matplotlib and torch keep their caches in ours, not in folders of their own.

    These are matplotlib's list of fonts and torch's folder of compiled code. Only the
    command line does so. In a Python program both packages may also serve the user, and
    matplotlib would no longer find a matplotlibrc.
    """
    try:
        folder = cache_folder()
    except LitebertError:  # there is none; the packages take temporary folders
        return
    os.environ.setdefault("MPLCONFIGDIR", str(folder / "matplotlib"))
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "torch"))
