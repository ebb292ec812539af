"""The few pieces of HTML a report is made of; plain text is escaped here."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import NewType

Html = NewType("Html", str)
"""Text that is already markup; mypy refuses a plain string in its place."""


def escaped(text: str) -> Html:
    """Return plain text as markup.

    >>> escaped("<b>&")
    '&lt;b&gt;&amp;'
    """
    # A file name may contain bytes that are not UTF-8; the page must still be UTF-8.
    return Html(html.escape(text.encode("utf-8", "replace").decode("utf-8")))


def joined(parts: Iterable[Html]) -> Html:
    """Return pieces of markup joined, each on a line of its own."""
    return Html("\n".join(parts))


def paragraph(text: str, *, kind: str = "") -> Html:
    """Return a paragraph, of the CSS class `kind`."""
    return Html(f"<p{_class(kind)}>{escaped(text)}</p>")


def heading(text: str) -> Html:
    """Return the main heading of the page."""
    return Html(f"<h1>{escaped(text)}</h1>")


def commands(lines: Sequence[str]) -> Html:
    """Return a block of commands."""
    return Html(f'<pre tabindex="0"><code>{escaped(chr(10).join(lines))}</code></pre>')


def facts(values: Mapping[str, str]) -> Html:
    """Return a list of names with their values."""
    pairs = (f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>" for name, value in values.items())
    return Html(f"<dl>{''.join(pairs)}</dl>")


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]], *, kind: str = "") -> Html:
    """Return a table whose first column names its rows; it scrolls if it is too wide."""
    head = "".join(f'<th scope="col">{escaped(heading)}</th>' for heading in headings)
    body = "\n".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    return _scrolling(caption, head, body, kind=kind)


def shaded_table(
    caption: str, headings: Sequence[str], rows: Iterable[tuple[str, Sequence[tuple[str, float]]]]
) -> Html:
    """Return a table of numbers whose cells are the darker the greater their share, 0 to 1."""
    head = "".join(f'<th scope="col">{escaped(heading)}</th>' for heading in headings)
    body = "\n".join(
        f'<tr><th scope="row">{escaped(name)}</th>'
        + "".join(f'<td style="--share:{share:.2f}">{escaped(text)}</td>' for text, share in cells)
        + "</tr>"
        for name, cells in rows
    )
    return _scrolling(caption, head, body, kind="shaded")


def figure(title: str, drawing: Html, caption: str) -> Html:
    """Return a drawing under its title, with a caption."""
    return Html(f"<figure><h3>{escaped(title)}</h3>\n{drawing}\n<figcaption>{escaped(caption)}</figcaption></figure>")


def figures(drawn: Iterable[Html]) -> Html:
    """Return figures side by side where there is room."""
    return Html(f'<div class="figures">\n{joined(drawn)}\n</div>')


def details(summary: str, content: Html) -> Html:
    """Return content that is folded until the reader opens it."""
    return Html(f"<details><summary>{escaped(summary)}</summary>\n{content}\n</details>")


def section(title: str, *parts: Html) -> Html:
    """Return a part of the page under its heading."""
    return Html(f"<section>\n<h2>{escaped(title)}</h2>\n{joined(parts)}\n</section>")


def document(title: str, *, style: str, header: Html, main: Html, footer: Html) -> str:
    """Return a complete page; its content policy forbids loading anything from a network."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escaped(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
{header}
</header>
<main>
{main}
</main>
<footer>
{footer}
</footer>
</body>
</html>
"""


def _scrolling(caption: str, head: str, body: str, *, kind: str) -> Html:
    return Html(
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escaped(caption)}">'
        f"<table{_class(kind)}><caption>{escaped(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _cells(row: Sequence[str]) -> str:
    first, *others = map(escaped, row)
    return f'<th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in others)


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
