"""The error for an optional package that is not installed."""

from litebert.errors import LitebertError


def missing_package(package: str, *, extra: str, needed_for: str) -> LitebertError:
    """Return the error that names the pip extra to install.

    >>> print(missing_package("ray", extra="cluster", needed_for="--cluster").next)
    pip install 'litebert[cluster]'
    """
    return LitebertError(
        "LB-305",
        f"{needed_for} needs the package {package}",
        received="not installed",
        expected=f"{package}, which comes with the extra [{extra}]",
        next=f"pip install 'litebert[{extra}]'",
    )
