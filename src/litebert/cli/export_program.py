"""litebert export program: a .pt2 file for torch.export.load."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.output import show, show_json


@click.command()
@click.argument("model")
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--head", metavar="NAME", help="`none` for the encoder alone; else the model's own.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def program(model: str, output: Path, head: str | None, as_json: bool) -> None:
    """Write a torch program (.pt2).

    \b
    litebert export program runs/mine exported/model.pt2
    litebert export program runs/mine exported/encoder.pt2 --head none

    OUTPUT runs without litebert; config.json and the tokenizer of the folder MODEL are put beside
    it. Load it with torch.export.load(PATH).module(); its inputs are input_ids, attention_mask and
    token_type_ids, int64, of any batch size and length. Where there is no torch, use litebert
    export onnx.
    """
    from litebert.hub import locate
    from litebert.interop.export.program import export_program

    report = export_program(locate(model), output, head=head)
    if as_json:
        show_json(report, indent=2)
        return
    show(
        f"{report.output} ({report.head}): {report.bytes / 1e6:.1f} MB, gives "
        f"{', '.join(report.outputs)}; max difference {report.max_difference:.1e}"
    )
