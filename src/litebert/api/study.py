"""The studies of the paper as tables, figures and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from pydantic import BaseModel

from litebert.files import write_json, write_text
from litebert.inference import Model
from litebert.nn import AlbertForPretraining
from litebert.reading.lines import read_lines
from litebert.reading.source import find_file
from litebert.report.page import Part, study_page, write_pictures
from litebert.study.layers import BEYOND, Layers, measure_layers
from litebert.study.local import lengthened
from litebert.train.run import write_model

MOST_TEXTS = 32


def study_layers(
    models: Sequence[str | Path | None],
    texts: str | Path,
    *,
    depths: Sequence[int] = BEYOND,
    most_texts: int = MOST_TEXTS,
    say: Callable[[str], None] = lambda _: None,
) -> list[Layers]:
    """Measure the steps of each model on the first lines of a text file.

    Raises:
        LitebertError: LB-749, there is no text; LB-761, no depth is beyond the trained one.
    """
    lines = study_texts(texts, most_texts)
    found = []
    for path in models:
        model = Model.load(path)
        say(model.source)
        found.append(measure_layers(model, lines, depths=sorted(depths)))
    return found


def study_texts(path: str | Path, most: int | None = None) -> list[str]:
    """Return the lines of a file that are not blank, or the first of them."""
    lines = (line for _, line in read_lines(find_file(Path(path))) if line.strip())
    return list(islice(lines, most))


def write_lengthened(
    model: Model, folder: Path, positions: int, window: int | None, *, trained: int | None = None
) -> Path:
    """Write a model with more positions and, with a window, local attention.

    Further training can start from it (`litebert pretrain --from`).
    """
    assert isinstance(model.network, AlbertForPretraining)
    longer = lengthened(model.network, positions, window=window, trained=trained)
    write_model(folder, longer, model.tokenizer)
    return folder


def write_study(
    parts: Sequence[Part],
    *,
    metrics: Mapping[str, BaseModel] | None = None,
    output: Path | None = None,
    html: Path | None = None,
) -> list[Path]:
    """Write metrics files, figures and the page of studies; return what was written."""
    written = []
    if output is not None:
        for name, value in (metrics or {}).items():
            written.append(output / f"{name}.json")
            write_json(written[-1], value.model_dump(mode="json"))
        written += write_pictures(output, parts)
    if html is not None:
        write_text(html, study_page("What the paper found, and what we found", parts).html())
        written.append(html)
    return written
