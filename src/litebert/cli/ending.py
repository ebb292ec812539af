"""How the training verbs end: the plan of a dry run, or the result and what to type next."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from litebert.cli.output import note, show, show_json

if TYPE_CHECKING:
    from litebert.api import Plan, Run
    from litebert.metrics.spread import Spread


def show_plan(make: Callable[[], Plan], *, as_json: bool) -> None:
    """Print what a run would do."""
    if _is_silent():
        return
    plan = make()
    if as_json:
        show_json(plan.values, indent=2)
    else:
        show(str(plan))


def show_run(run: Run, command: str, *, as_json: bool) -> None:
    """Print where the model and the report are, and the next command."""
    if _is_silent():
        return
    model, page = run.folder / "model", run.folder / "report.html"
    has_page = page.is_file()
    if as_json:
        show_json({"model": str(model), "report": str(page) if has_page else None})
        return
    show(f"model   {model}\nreport  {page if has_page else 'not written'}")
    note(f"next    {command}")


def show_result(run: Run, *, as_json: bool) -> None:
    """Print the measures of a fine-tuning run, last step beside best evaluation."""
    from litebert.runs import read_result
    from litebert.train.seeds import summarise

    if _is_silent():
        return
    parts = run.seeds or (run,)
    if as_json:
        results = [part.result for part in parts]
        show_json(results if run.seeds else results[0], indent=2)
        return
    found = [result for part in parts if (result := read_result(part.folder))]
    _show_measures(summarise([part.folder for part in parts]), found[0].baseline)
    for part in parts:
        show(f"model   {part.folder / 'model'}  (best evaluation: {part.folder / 'best'})")
    page = run.folder / "report.html"
    show(f"report  {page if page.is_file() else 'not written'}")
    for doubt in dict.fromkeys(doubt for result in found for doubt in result.doubts):
        note(f"warning {doubt}")
    note(f"next    litebert predict {parts[0].folder} --data FILE --output answers")


def _is_silent() -> bool:
    """Return whether another process of the run prints."""
    from litebert.distributed import rank

    return rank() > 0


def _show_measures(summary: dict[str, dict[str, Spread]], baseline: dict[str, float]) -> None:
    """Print last step and best evaluation side by side, and what the commonest label gets."""
    number = next(iter(summary["last"].values())).number
    head = f"{'':<24}{'last step':>12}{'best step':>12}{'commonest':>12}"
    show(head + ("  over seeds" * (number > 1)))
    for name, last in summary["last"].items():
        line = f"{name:<24}{last.median:>12.4f}{summary['best'][name].median:>12.4f}"
        line += f"{baseline[name]:>12.4f}" if name in baseline else f"{'':>12}"
        spread = f"  median of {number}; mean {last.mean:.4f} ± {last.spread:.4f} (last)"
        show(line + (spread if number > 1 else ""))
