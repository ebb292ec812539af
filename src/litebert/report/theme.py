"""The style of the page: its light and dark colours and its style sheet."""

from __future__ import annotations

# name: (light, dark). Text reaches a contrast of 4.5, lines of figures 3 (WCAG 2.2 AA).
PALETTE = {
    "paper": ("#fcfbf8", "#17191d"),
    "panel": ("#f4f2ed", "#1f2227"),
    "ink": ("#24272c", "#e3e5e9"),
    "quiet": ("#5b616b", "#a4abb6"),
    "grid": ("#e0ddd5", "#33373e"),
    "train": ("#2a69ac", "#7db3ec"),
    "held-out": ("#b04a12", "#f2a065"),
    "rule": ("#6d6a63", "#98968f"),
}


def variable(name: str) -> str:
    """Return the CSS reference to a colour.

    >>> variable("ink")
    'var(--ink)'
    """
    return f"var(--{name})"


def style_sheet() -> str:
    """Return the CSS of the page; it is always printed in the light colours."""
    light = "".join(f"--{name}:{colors[0]};" for name, colors in PALETTE.items())
    dark = "".join(f"--{name}:{colors[1]};" for name, colors in PALETTE.items())
    return (
        f":root{{color-scheme:light dark;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{_RULES}"
    )


_RULES = """\
*{box-sizing:border-box}
body{margin:0 auto;padding:2.5rem 1.25rem 4rem;max-width:66rem;background:var(--paper);
  color:var(--ink);font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
header{border-bottom:1px solid var(--grid);padding-bottom:1.25rem}
h1{margin:.1rem 0 .5rem;font-size:2rem;line-height:1.2;overflow-wrap:anywhere}
h2{margin:2.75rem 0 .75rem;font-size:1.3rem}
h3{margin:0 0 .4rem;font-size:1rem}
p{margin:.5rem 0;max-width:46rem}
.quiet,figcaption,caption{color:var(--quiet)}
.quiet{font-size:.9rem}
.status{font-weight:600}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(13rem,100%),1fr));gap:1rem 1.5rem;
  margin:1.5rem 0 0}
dt{color:var(--quiet);font-size:.85rem}
dd{margin:0;font-weight:600;overflow-wrap:anywhere}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.92rem}
caption{text-align:left;padding:.9rem 0 .4rem;font-size:.85rem}
th,td{padding:.4rem 1.25rem .4rem 0;text-align:left;vertical-align:top;
  border-bottom:1px solid var(--grid)}
thead th{color:var(--quiet);font-size:.85rem;font-weight:600;vertical-align:bottom}
tbody th{font-weight:500}
td{overflow-wrap:anywhere;min-width:7rem}
.results td:nth-child(-n+3){white-space:nowrap}
.results td{font-variant-numeric:tabular-nums}
.results td:nth-child(3){font-weight:600}
.results td:nth-child(4){color:var(--quiet)}
.names th[scope=row],.names td:nth-child(2){font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,
  monospace;font-size:.85rem}
.names td:nth-child(3){white-space:nowrap;min-width:0}
.shaded{width:auto}
.shaded td{background:color-mix(in srgb,var(--train) calc(var(--share,0)*35%),transparent)}
.shaded th,.shaded td,.numbers td{font-variant-numeric:tabular-nums}
.shaded td,.shaded thead th+th{padding-left:.6rem}
.texts td{unicode-bidi:plaintext}
.texts td:nth-child(2){min-width:0;white-space:nowrap}
.texts td:nth-child(3),.texts td:nth-child(4){overflow-wrap:break-word}
.texts td:last-child{min-width:18rem}
.figures>figure:only-child{max-width:31rem}
code,pre{font:.85rem/1.6 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{background:var(--panel);padding:.9rem 1.1rem;border-radius:.4rem;overflow-x:auto;
  white-space:pre-wrap;overflow-wrap:anywhere}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(26rem,100%),1fr));
  gap:2rem 2.5rem;margin-top:1.25rem}
figure{margin:0;break-inside:avoid}
figcaption{font-size:.85rem;margin-top:.25rem}
svg{display:block;width:100%;height:auto}
svg *{stroke-linejoin:round}
svg text{font-family:inherit!important}
details{margin:1.25rem 0}
summary{cursor:pointer;font-weight:600;padding:.25rem 0}
summary:focus-visible,.scroll:focus-visible,pre:focus-visible{outline:2px solid var(--train);
  outline-offset:2px}
footer{margin-top:3.5rem;border-top:1px solid var(--grid);padding-top:1rem}
@media print{
  :root{--paper:#fff;--panel:#fff;font-size:9.5pt}
  body{max-width:none;padding:0}
  pre{border:1px solid var(--grid)}
  h2{break-after:avoid}
  .figures{grid-template-columns:1fr 1fr}
  .scroll,pre{overflow:visible}
  tr{break-inside:avoid}
}
"""
