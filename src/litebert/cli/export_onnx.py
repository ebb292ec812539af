"""litebert export onnx: one file that onnxruntime runs anywhere, in float32 or int8."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from litebert.cli.output import show, show_json

if TYPE_CHECKING:
    from litebert.interop.export.onnx import OnnxReport, OnnxRow


@click.command()
@click.argument("model")
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--int8", is_flag=True, help="Quantise all weights: a quarter of the size.")
@click.option("--head", metavar="NAME", help="`none` for the encoder alone; else the model's own.")
@click.option("--opset", type=int, help="Version of the ONNX operators, 18 to 24 [default: 20].")
@click.option("--texts", type=click.Path(path_type=Path), help="Compare on these: one per line.")
@click.option("--no-latency", is_flag=True, help="Do not measure times.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def onnx(
    model: str,
    output: Path,
    int8: bool,
    head: str | None,
    opset: int | None,
    texts: Path | None,
    no_latency: bool,
    as_json: bool,
) -> None:
    """Write one ONNX file, float32 or int8.

    \b
    litebert export onnx runs/mine exported/model.onnx
    litebert export onnx runs/mine small/model.onnx --int8 --texts my-sentences.txt

    OUTPUT ends in .onnx; config.json and the tokenizer of the folder MODEL are put beside it.
    The inputs are input_ids, attention_mask and token_type_ids: int64, of any batch size and
    length. Before anything is written, onnxruntime runs the model on a few sentences or on --texts
    (a tab separates a second text), and the export is refused if the outputs are not those of the
    network. The table shows the size, the largest difference, the correlation of outputs over the
    texts, how often the first choice is the same, and milliseconds per batch.
    """
    from litebert.hub import locate
    from litebert.interop.export.check import OUR_TEXTS, read_texts
    from litebert.interop.export.onnx import DEFAULT_OPSET, export_onnx

    report = export_onnx(
        locate(model),
        output,
        int8=int8,
        head=head,
        opset=DEFAULT_OPSET if opset is None else opset,
        texts=OUR_TEXTS if texts is None else read_texts(texts),
        has_latency=not no_latency,
    )
    if as_json:
        show_json(report, indent=2)
    else:
        show(_shown(report))


def _shown(report: OnnxReport) -> str:
    shapes = list(report.rows[0].milliseconds)
    headings = ("", "MB", "of weights", "max diff", "correlation", "same choice")
    table = [(*headings, *(f"{shape} ms" for shape in shapes)), *map(_cells, report.rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in table]
    products = report.products
    counted = f"{products.floating} products with weights in float, {products.integer} in int8"
    outputs = f"gives {', '.join(report.outputs)}; opset {report.opset}; {counted}"
    notes = [f"note: {note}" for note in report.notes]
    return "\n".join([f"{report.output} ({report.head})", outputs, "", *lines, *notes])


def _cells(row: OnnxRow) -> tuple[str, ...]:
    parity = row.parity
    near = (
        ("-", "-", "-")
        if parity is None
        else (
            f"{parity.max_difference:.1e}",
            f"{parity.correlation:.5f}",
            "-" if parity.same_choice is None else f"{parity.same_choice:.1%}",
        )
    )
    times = (f"{value:.1f}" for value in row.milliseconds.values())
    return (row.name, f"{row.bytes / 1e6:.1f}", f"{row.ratio:.0%}", *near, *times)
