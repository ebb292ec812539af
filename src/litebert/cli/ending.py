"""What long commands print at their end: a plan, the result with the next command, a study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from litebert.cli.output import Format, note, printed, show, show_json

if TYPE_CHECKING:
    from pydantic import BaseModel

    from litebert.api.plan import RunPlan
    from litebert.api.run import Run
    from litebert.metrics import Spread
    from litebert.report.study import Part
    from litebert.study.depth import Depths
    from litebert.study.layers import Layers


def show_plan(make: Callable[[], RunPlan], *, as_json: bool) -> None:
    """Print what a run would do."""
    if _is_silent():
        return
    plan = make()
    if as_json:
        show_json(plan.values, indent=2)
    else:
        show(str(plan))


def show_run(run: Run, command: str, *, as_json: bool) -> None:
    """Print where the model and the report are, what speaks against it, and the next command."""
    from litebert.report.pretraining.results import doubts
    from litebert.runs import read_record

    if _is_silent():
        return
    model, page = run.folder / "model", run.folder / "report.html"
    has_page = page.is_file()
    if as_json:
        show_json({"model": str(model), "report": str(page) if has_page else None})
        return
    show(f"model   {model}\nreport  {page if has_page else 'not written'}")
    for doubt in doubts(read_record(run.folder)):
        note(f"warning {doubt}: train longer, or lower optim.learning_rate")
    note(f"next    {command}")


def show_result(run: Run, *, as_json: bool) -> None:
    """Print the measures of a fine-tuning run, at the last step and at the best evaluation."""
    from litebert.report.seeds import spreads
    from litebert.runs import read_result

    if _is_silent():
        return
    parts = run.seeds or (run,)
    if as_json:
        results = [part.result for part in parts]
        show_json(results if run.seeds else results[0], indent=2)
        return
    found = [result for part in parts if (result := read_result(part.folder))]
    last, best = spreads([each.last for each in found]), spreads([each.best for each in found])
    _show_measures(last, best, found[0].baseline)
    for part in parts:
        show(f"model   {part.folder / 'model'}  (best evaluation: {part.folder / 'best'})")
    page = run.folder / "report.html"
    show(f"report  {page if page.is_file() else 'not written'}")
    for doubt in dict.fromkeys(doubt for result in found for doubt in result.doubts):
        note(f"warning {doubt}")
    note(f"next    litebert predict {parts[0].folder} --data FILE --output answers")


def show_study(
    part: Part, found: BaseModel | list[Layers] | list[Depths], written: Sequence[Path], written_as: Format
) -> None:
    """Print the tables of a study; its conclusion and the files that it wrote go to stderr."""
    if written_as == "json":
        show_json(found, indent=2)
    else:
        show(printed(part.tables[:1] if written_as == "csv" else part.tables, written_as))
    note(part.finding)
    for path in written:
        note(str(path))


def _is_silent() -> bool:
    """Return whether this process of a distributed run leaves the printing to rank 0."""
    from litebert.distributed.world import rank

    return rank() > 0


def _show_measures(last: dict[str, Spread], best: dict[str, Spread], baseline: dict[str, float]) -> None:
    """Print the last step, the best evaluation and the commonest label's measures side by side."""
    number = next(iter(last.values())).number
    head = f"{'':<24}{'last step':>12}{'best step':>12}{'commonest':>12}"
    show(head + ("  over seeds" * (number > 1)))
    for name, each in last.items():
        line = f"{name:<24}{each.median:>12.4f}{best[name].median:>12.4f}"
        line += f"{baseline[name]:>12.4f}" if name in baseline else f"{'':>12}"
        spread = f"  median of {number}; mean {each.mean:.4f} ± {each.spread:.4f} (last)"
        show(line + (spread if number > 1 else ""))
