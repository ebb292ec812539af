"""Text on this machine -> vocabulary -> corpus -> ALBERT -> answers, in about eight
minutes.

Run it as `make quickstart`. Everything it does is one command you can repeat on your
own text: `litebert pretrain my-text.txt --preset mini --minutes 30 --name mine`.
"""

import math
import sys
from pathlib import Path

from python_prose import collect

import litebert
from litebert import Model, Run
from litebert.runs import read_metrics

ROOT = Path(__file__).parents[2]
RUN = ROOT / "runs" / "quickstart"
PROSE = ROOT / "runs" / "quickstart-prose.txt"
BLANKS = (
    "If the argument is not a [MASK], a TypeError is raised.",
    "Return the [MASK] of elements in the list.",
    "This function returns a new [MASK].",
    "The default [MASK] is None.",
    "Raises an exception if the file does not [MASK].",
)


def main() -> None:
    """Make the text, pretrain on it, and show what was learned."""
    if not PROSE.exists():
        _say("collecting the English prose that comes with Python and its packages")
        collect(PROSE)
    _say("pretraining for about five minutes (run again: resumes)")
    run = litebert.pretrain(
        PROSE,
        sentences="line",
        held_out=0.1,
        recipe="quickstart",
        name=RUN.name,
        runs=RUN.parent,
    )
    if run.exit_code:
        sys.exit(run.exit_code)
    _show_table(run)
    _show_answers(run.model())
    _show_next()


def _show_table(run: Run) -> None:
    evaluations = [row for row in read_metrics(run.folder) if row["kind"] == "eval"]
    before = evaluations[0]
    after = evaluations[-1]
    lines = [
        ("masked-LM loss", "masked_lm_loss", "{:.3f}", ""),
        (
            "masked-LM accuracy",
            "masked_lm_accuracy",
            "{:.1%}",
            f"{after['masked_lm_baseline']:.1%}",
        ),
        ("at [MASK] positions", "mask_token_accuracy", "{:.1%}", ""),
        ("sentence-order loss", "sentence_order_loss", "{:.3f}", "0.693"),
        ("sentence-order accuracy", "sentence_order_accuracy", "{:.1%}", "50.0%"),
    ]
    print(f"\n{'on held-out documents':<26}{'before':>10}{'after':>10}{'baseline':>12}")
    for title, name, form, baseline in lines:
        cells = form.format(before[name]), form.format(after[name]), baseline
        print(f"{title:<26}{cells[0]:>10}{cells[1]:>10}{cells[2]:>12}")
    print("baseline: always the most common token; a coin flip")
    accuracy = float(str(after["sentence_order_accuracy"]))
    print(_order_verdict(accuracy, float(str(after["sentence_order_pairs"]))))


def _order_verdict(accuracy: float, num_pairs: float) -> str:
    """Return a plain sentence on whether sentence order was learned: it comes later than
    the words.
    """
    errors_above = (accuracy - 0.5) / math.sqrt(0.25 / num_pairs)
    if errors_above < 2:
        return (
            "sentence order: not distinguishable from chance yet; it is learned later"
            " than words"
        )
    return (
        f"sentence order: {errors_above:.0f} standard errors above chance on"
        f" {num_pairs:,.0f} pairs; it is learned later than words and keeps rising in"
        " longer runs"
    )


def _show_answers(model: Model) -> None:
    print()
    for text in BLANKS:
        fillings = model.fill(text, top=3)
        words = ", ".join(
            f"{filling.words[0]} {filling.probability:.0%}" for filling in fillings
        )
        print(f"{text}  ->  {words}")


def _show_next() -> None:
    model = (RUN / "model").relative_to(ROOT)
    print(
        f"\nreport   {RUN / 'report.html'}\n\nnext\n"
        f'  .venv/bin/litebert fill "The value must be [MASK]." --model {model}\n'
        f'  .venv/bin/litebert order "Open the file." "Then read it." --model {model}\n'
        f"  .venv/bin/litebert pretrain my-text.txt --preset mini --minutes 30 --name"
        f" mine\n"
        f"  .venv/bin/litebert recipes list"
    )


def _say(text: str) -> None:
    print(f"\n== {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
