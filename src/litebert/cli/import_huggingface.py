"""litebert import huggingface: convert a transformers model, of any year, to a model folder."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.output import note, show, show_json


@click.command("huggingface")
@click.argument("path_or_name")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="New folder.")
@click.option(
    "--legacy-pickle",
    is_flag=True,
    help="Also read pytorch_model.bin. Pickles can carry programs; nothing of them is run, and everything but tensors "
    "is refused.",
)
@click.option(
    "--activation",
    type=click.Choice(["gelu", "gelu_new"]),
    help="Override hidden_act: gelu is the erf form; gelu_new, the tanh form, is Google's.",
)
@click.option("--heads", type=int, help="Override num_attention_heads (xlarge: 16 or 32).")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16", "bfloat16"]),
    default="float32",
    show_default=True,
    help="Of the weights that are written.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def huggingface(
    path_or_name: str,
    output: Path,
    legacy_pickle: bool,
    activation: str | None,
    heads: int | None,
    dtype: str,
    as_json: bool,
) -> None:
    """Convert a model of transformers, in a folder or OWNER/NAME on the Hub, to a model folder.

    \b
    litebert import huggingface albert/albert-base-v1 --activation gelu_new --output models/v1
    litebert import huggingface downloads/albert_chinese --legacy-pickle --output models/chinese
    """
    import torch

    from litebert.interop.huggingface import import_model

    report = import_model(
        path_or_name,
        output,
        legacy_pickle=legacy_pickle,
        activation="gelu" if activation == "gelu" else "gelu_new" if activation else None,
        heads=heads,
        dtype={"float32": torch.float32, "float16": torch.float16}.get(dtype, torch.bfloat16),
    )
    if as_json:
        show_json(report)
        return
    show(f"{output}: {report.architecture}, {report.num_parameters:,} parameters")
    for word, names in (("missing", report.missing), ("not used", report.unused)):
        for name in names:
            show(f"{word}: {name}")
    for remark in report.notes:
        note(f"note: {remark}")
