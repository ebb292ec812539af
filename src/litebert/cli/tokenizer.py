"""litebert tokenizer: train a vocabulary, and show how it splits a text."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.loading import vocabulary_option, vocabulary_path
from litebert.cli.output import show, show_json


@click.group()
def tokenizer() -> None:
    """Train a vocabulary; encode a text.

    \b
    litebert tokenizer train my-text.txt --vocab-size 16000 --output vocabularies/mine
    litebert tokenizer encode "The cat sat." --tokenizer vocabularies/mine
    """


@tokenizer.command("train")
@click.argument("inputs", nargs=-1, required=True)
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option("--vocab-size", default=30_000, show_default=True, help="Pieces, specials included.")
@click.option("--column", default="text", show_default=True, help="Text column of JSONL or Parquet files.")
@click.option("--cased", is_flag=True, help="Keep upper case.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def train(inputs: tuple[str, ...], output: Path, vocab_size: int, column: str, cased: bool, as_json: bool) -> None:
    """Train a SentencePiece vocabulary with the official settings.

    \b
    litebert tokenizer train my-text.txt --vocab-size 16000 --output vocabularies/mine
    litebert tokenizer train wiki.parquet --output vocabularies/wiki --cased
    """
    from litebert.api.corpus import train_vocabulary

    trained = train_vocabulary(inputs, output, vocab_size=vocab_size, column=column, cased=cased)
    if as_json:
        show_json({"folder": str(output), "vocab_size": trained.vocab_size})
        return
    show(f"{trained.vocab_size:,} pieces in {output}")


@tokenizer.command("encode")
@click.argument("text")
@vocabulary_option
@click.option("--pair", help="A second text.")
@click.option("--special-tokens", is_flag=True, help="Read special tokens such as [MASK] in the text as such.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def encode(text: str, tokenizer: str | None, pair: str | None, special_tokens: bool, as_json: bool) -> None:
    """Show the ids, pieces and offsets of a text.

    \b
    litebert tokenizer encode "The cat sat." --tokenizer vocabularies/mine
    litebert tokenizer encode "The [MASK] sat." --tokenizer models/mine --special-tokens --json
    """
    from litebert.tokenizer import Tokenizer

    encoding = Tokenizer.load(vocabulary_path(tokenizer)).encode(text, pair, special_tokens=special_tokens)
    if as_json:
        names = ("ids", "segments", "pieces", "offsets")
        values = {name: getattr(encoding, name) for name in names}
        show_json(values)
        return
    for id_, piece, span in zip(encoding.ids, encoding.pieces, encoding.offsets, strict=True):
        show(f"{id_:>7}  {piece}  {span[0]}-{span[1]}")
