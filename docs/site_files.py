"""Add to the site what pages link to outside docs/, so that links work on GitHub and
there: a hook of mkdocs.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()((?:\.\./)*)\.\./(?=benchmarks/|Dockerfile)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages and figures of benchmarks/, and the Dockerfile."""
    found = (ROOT / "benchmarks").rglob("*.*")
    for path in [
        *(each for each in found if each.suffix in (".md", ".svg")),
        ROOT / "Dockerfile",
    ]:
        files.append(
            File.generated(
                config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)
            )
        )
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Let links from docs/ lead to the copies, and those of a copy into docs/."""
    is_ours = not page.file.src_uri.startswith("benchmarks/")
    return LINK.sub(r"\1", markdown) if is_ours else markdown.replace("../docs/", "../")
