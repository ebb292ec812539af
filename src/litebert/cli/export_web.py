"""litebert export web: a static folder in which a model answers inside the browser."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from litebert.cli.output import show, show_json


@click.command()
@click.argument("model")
@click.argument("output", type=click.Path(path_type=Path))
@click.option(
    "--runtime",
    type=click.Path(path_type=Path),
    help="The npm package onnxruntime-web as a file; otherwise downloaded once.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def web(model: str, output: Path, runtime: Path | None, as_json: bool) -> None:
    """Write a web page in which a model answers inside the browser, with no server behind it.

    \b
    litebert export web litebert page
    litebert export web runs/reviews page --runtime onnxruntime-web-1.30.0.tgz

    OUTPUT is a new folder for any static server: python -m http.server --directory page. MODEL is
    a folder with a SentencePiece vocabulary, or `litebert`, the packaged model. The model is written in eight
    bits, each shared weight once, and is checked against the network as by litebert export onnx.
    """
    from litebert.hub import locate
    from litebert.interop.export.web import export_web

    report = export_web(locate(model), output, runtime=runtime)
    if as_json:
        show_json(asdict(report) | {"output": str(output), "transfer": report.transfer})
        return
    for name, size in sorted(report.files.items(), key=lambda item: -item[1]):
        show(f"{size:>12,}  {name}")
    show(f"{report.transfer:>12,}  bytes that a browser fetches; {', '.join(report.verbs)}")
    show(f"int8 against the network: correlation {report.parity.correlation:.4f}")
    show(f"try it: python -m http.server --directory {output}")
