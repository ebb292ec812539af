"""Messages: what a user reads if something is wrong, and while something runs.

`error` has the errors that a user can cause, `system` turns failures of the system into
such errors, `advice` turns the shell's advice into Python's, and `terminal` writes
lines and progress bars.
"""

from litebert.errors.advice import (
    advice_in_python,
    in_python,
)
from litebert.errors.error import (
    DamagedError,
    LitebertError,
    NonFiniteError,
    NoVocabularyError,
    RequestError,
    ResourceError,
    did_you_mean,
    missing_package,
    no_such_name,
)
from litebert.errors.system import (
    as_litebert_error,
    disk_errors,
    free_bytes,
)
from litebert.errors.terminal import (
    escape_breaks,
    escape_control,
    format_count,
    format_duration,
    hide_passwords,
    is_terminal,
    say,
    show_status,
)

__all__ = [
    "DamagedError",
    "LitebertError",
    "NoVocabularyError",
    "NonFiniteError",
    "RequestError",
    "ResourceError",
    "advice_in_python",
    "as_litebert_error",
    "did_you_mean",
    "disk_errors",
    "escape_breaks",
    "escape_control",
    "format_count",
    "format_duration",
    "free_bytes",
    "hide_passwords",
    "in_python",
    "is_terminal",
    "missing_package",
    "no_such_name",
    "say",
    "show_status",
]
