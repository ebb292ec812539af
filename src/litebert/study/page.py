"""`litebert study page`: all studies of a folder on one page."""

from pathlib import Path
from typing import Annotated, Any

from litebert.answers import Shown
from litebert.errors import LitebertError
from litebert.files import require_new, write_text
from litebert.report.page import Page, Section
from litebert.study.ablation import Ablation, read_grids
from litebert.study.costs import Costs, report_costs
from litebert.study.layers import Layers, report_layers
from litebert.study.study import Study, read_findings
from litebert.study.tables import report_ablation


def study_page(
    folder: Path,
    *,
    html: Annotated[Path, "The page to write."],
    force: Annotated[bool, "Replace the page."] = False,
) -> Shown[dict[str, str | dict[str, str]]]:
    """Write one page of all studies that have metrics files in FOLDER, and print its
    path.

    litebert study page study --html study.html
    litebert study page study --html study.html --force
    """
    require_new(html, force=force)
    studies = _studies_in(folder)
    if not studies:
        raise LitebertError(
            "LB-764",
            f"there is no metrics file of a study in {folder}",
            expected="the --output folder of a study",
            next="litebert study layers --help",
        )
    page = Page(
        name="What the paper found, and what we found",
        kind="Study",
        sections=[_section(study) for study in studies],
        sources="the metrics files of the studies. The paper is arXiv 1909.11942",
    )
    write_text(html, page.html(), force=force)
    findings = {study.name: study.finding for study in studies}
    return Shown({"page": str(html), "findings": findings}, str(html))


def _studies_in(folder: Path) -> list[Study[Any]]:
    studies = list[Study[Any]]()
    if layers := read_findings(Layers, folder, "layers-*"):
        studies.append(report_layers(layers))
    for name in read_grids().tables:
        for ablation in read_findings(Ablation, folder, name):
            studies.append(report_ablation(ablation))
    for costs in read_findings(Costs, folder, "cost"):
        studies.append(report_costs(costs))
    return studies


def _section(study: Study[Any]) -> Section:
    words = [f"The paper: {study.paper}", f"Here: {study.finding}"]
    return Section(study.title, words, study.figures, study.tables)
