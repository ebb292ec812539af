"""The command line: one module per verb, and nothing heavy imported before it is needed."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from keyword import iskeyword

import click

from litebert.errors import did_you_mean

VERBS = {
    "answer": "answer a question with a span of a text",
    "choose": "choose among several answers",
    "classify": "say which label a text has",
    "completion": "complete verbs and options in your shell",
    "config": "list every setting, or show one run's with the origin of each value",
    "corpus": "build a corpus from text; check a text or a corpus",
    "data": "check examples before a long run",
    "doctor": "check this machine, with a self-test of a few seconds",
    "distil": "distil a teacher into a small model, with text",
    "embed": "compute vectors of texts",
    "evaluate": "measure fine-tuned models, an ensemble, or a prediction file",
    "explain": "say how much each word adds to an answer",
    "export": "write a model for Google's code, for ONNX, for torch.export",
    "fill": "fill [MASK] in a sentence",
    "finetune": "fine-tune a model on a task, or on your own examples",
    "glue": "fine-tune on every GLUE task in a folder, and print the table",
    "help": "show the help of a verb",
    "hub": "fetch a model from the Hugging Face Hub, or put one there",
    "import": "read Google's checkpoints, and Hugging Face's old ones",
    "order": "say which of two sentences comes first, or where a text breaks",
    "predict": "answer a complete split or file, in the form that a leaderboard wants",
    "pretrain": "pretrain an ALBERT from text or from a corpus",
    "quantize": "write an eight-bit copy of a model, for inference on a CPU",
    "recipes": "list, show or copy the packaged recipes",
    "report": "write a run's report.html again",
    "runs": "list, compare, follow, resume, average and clean runs",
    "score": "say how likely texts are",
    "search": "find the texts nearest to a query",
    "similar": "say how near two texts are",
    "serve": "answer over HTTP, with a page to try the model at /",
    "sizes": "parameters, bytes and compute of every preset",
    "study": "repeat the paper's experiments: layers, ablations, costs",
    "tag": "tag every word of a text",
    "tokenizer": "train a vocabulary; encode a text",
}


class LazyGroup(click.Group):
    """Import a verb's module when the verb is called, and not before."""

    def list_commands(self, _: click.Context) -> list[str]:
        """Name the verbs."""
        return sorted(VERBS)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb."""
        if cmd_name not in VERBS:
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command = getattr(importlib.import_module(f"litebert.cli.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a verb, or say which one was meant."""
        if args and not args[0].startswith("-") and args[0] not in VERBS:
            ctx.fail(f"no such verb: {args[0]} ({did_you_mean(args[0], VERBS)})")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run a verb; Ctrl-C ends it with 130, wherever it is."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            from litebert.cli.output import note

            note("interrupted")
            sys.exit(128 + signal.SIGINT)

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs with their summaries, without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl(sorted(VERBS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "-V", "--version", package_name="litebert")
@click.option("--debug", is_flag=True, help="Show the traceback of an error; allowed anywhere.")
def cli(debug: bool) -> None:
    """ALBERT from raw text to answers: tokenizer, corpus, pretraining, fine-tuning and inference.

    \b
    litebert fill "The cat sat on the [MASK]."
    litebert pretrain my-text.txt --preset mini --minutes 30 --name mine
    litebert finetune reviews.csv --model runs/mine
    litebert classify "A fine film." --model runs/reviews
    """


def main() -> None:
    """Run the command line; a user's mistake is a message and an exit code, never a traceback."""
    # Threads that spin while they wait cost 3.7 times the processor time where a core is busy.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from litebert.cli.boundary import run

    sys.exit(run(cli, sys.argv[1:]))
