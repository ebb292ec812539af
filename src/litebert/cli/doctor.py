"""litebert doctor: what this machine has, and whether litebert works on it."""

from __future__ import annotations

import click

from litebert.cli.output import show, show_json, stop


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Check Python, torch, device, disk and threads; train and answer for a few seconds.

    The exit code is 1 if something is wrong.

    \b
    litebert doctor
    litebert doctor --json
    """
    from litebert.api.doctor import examine

    checks = examine()
    if as_json:
        show_json(checks, indent=2)
    else:
        for check in checks:
            show(f"{'ok' if check.is_good else 'BAD':<4} {check.name:<10} {check.found}")
            if not check.is_good:
                show(f"     {'next':<10} {check.advice}")
    stop(0 if all(check.is_good for check in checks) else 1)
