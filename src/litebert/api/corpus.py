"""Make vocabularies and corpora from texts, and check them."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge
from typing_extensions import TypedDict

from litebert.answers import Shown
from litebert.api.settings import Paths, Quiet, paths
from litebert.corpus import build_corpus, check_corpus, check_text
from litebert.corpus.build import CorpusSummary
from litebert.corpus.progress import BuildProgress
from litebert.corpus.shards import MANIFEST, PLAN
from litebert.corpus.text import TextSettings, read_texts
from litebert.errors import LitebertError, format_duration, say
from litebert.files import read_capped, staged_folder
from litebert.hub import PACKAGED_NAME, locate
from litebert.reading.findings import CheckReport
from litebert.tokenizer import TOKENIZER_FILES, Tokenizer, train_tokenizer
from litebert.tokenizer.text import Normalizer
from litebert.tokenizer.unknown import UnknownPieces

NUM_NOTED = 1_000  # texts of which a note tells what the vocabulary drops
_MOST_SYMBOL_BYTES = 1 << 20
Texts = Annotated[Paths, "Text files or URLs."]
Sentences = Annotated[
    Literal["segment", "line"], "Find sentences in free text, or take one per line."
]
Documents = Annotated[
    Literal["blank-line", "file"], "Where documents of .txt files end."
]
Column = Annotated[str, "Text column of JSONL or Parquet files."]
Language = Annotated[
    str, "Language of the text, used to split sentences: de, el, en, ru, ..."
]
KeepAccents = Annotated[
    bool, "Keep accents and other marks in a vocabulary made from texts."
]
Vocabulary = Annotated[
    str | None,
    "A vocabulary or its folder, or a model; by default, the packaged model's.",
]


def vocabulary_path(tokenizer: str | None) -> Path:
    """Return the path of a vocabulary file, or of a folder with one; by default, the
    packaged model's.
    """
    path = Path(tokenizer or PACKAGED_NAME)
    is_file = path.suffix in (".model", ".txt")
    return path if is_file or path.exists() else locate(path)


# ---- vocabularies --------------------------------------------------------------------


def train_vocabulary(
    texts: Paths,
    folder: Path,
    rules: Normalizer,
    vocab_size: int,
    *,
    column: str,
    is_limit: bool = False,
    symbols: Sequence[str] = (),
) -> Tokenizer:
    """Train a vocabulary, but never replace another one: a model may need it.
    `is_limit`: a small text gives fewer. `symbols` become whole pieces.
    """
    model = train_tokenizer(
        read_texts(paths(texts), column=column),
        vocab_size=vocab_size,
        is_limit=is_limit,
        symbols=symbols,
        **asdict(rules),
    )
    tokenizer = Tokenizer.from_model(model, **asdict(rules))
    exists = (folder / "tokenizer_config.json").exists()
    if exists and Tokenizer.load(folder).hash != tokenizer.hash:
        raise LitebertError(
            "LB-105",
            f"{folder} has another vocabulary",
            received=f"--vocab-size {vocab_size}, or other texts or options",
            next="choose another --output, or --name of a run",
        )
    with staged_folder(folder, known_files=TOKENIZER_FILES) as staged:
        tokenizer.save(staged)
    dropped = marks_dropped(tokenizer, texts, column=column)
    if dropped:
        say(f"note: {dropped}; --keep-accents keeps them")
    return tokenizer


def marks_dropped(tokenizer: Tokenizer, texts: Texts, *, column: str) -> str:
    """Say which accents and marks of the first texts a vocabulary drops; "" if none."""
    unknown = UnknownPieces(tokenizer)
    for text in islice(read_texts(paths(texts), column=column), NUM_NOTED):
        unknown.add(text, ())
    return unknown.dropped or ""


def read_symbols(path: Path) -> list[str]:
    """Return the lines of a file of words that a vocabulary never splits."""
    data = read_capped(path, _MOST_SYMBOL_BYTES)
    lines = data.decode("utf-8", "replace").splitlines()
    symbols = [line.strip() for line in lines if line.strip()]
    for symbol in symbols:
        if symbol.split() != [symbol]:
            raise LitebertError(
                "LB-222",
                f"a symbol in {path} has a space inside",
                received=symbol,
                next="write one word per line; pieces never cross a space",
            )
    return symbols


class TrainedVocabulary(TypedDict):
    folder: str
    vocab_size: int


def tokenizer_train(
    inputs: Texts,
    *,
    output: Annotated[Path, "Folder to write."],
    vocab_size: Annotated[
        int, Ge(1), "Vocabulary size, including special tokens."
    ] = 30_000,
    column: Column = "text",
    cased: Annotated[bool, "Keep upper case."] = False,
    keep_accents: KeepAccents = False,
    symbols: Annotated[
        Path | None, "File of words that are never split, one per line."
    ] = None,
) -> Shown[TrainedVocabulary]:
    """Train a SentencePiece vocabulary with the official settings.

    litebert tokenizer train wiki.parquet --output vocabularies/wiki --cased
    litebert tokenizer train my-text.txt --vocab-size 16000 --output vocabularies/mine
    litebert tokenizer train posts.csv --symbols handles.txt --output vocabularies/posts
    """
    whole_words = [] if symbols is None else read_symbols(symbols)
    trained = train_vocabulary(
        inputs,
        output,
        Normalizer(not cased, keep_accents),
        vocab_size,
        column=column,
        symbols=whole_words,
    )
    record = TrainedVocabulary(folder=str(output), vocab_size=trained.vocab_size)
    return Shown(record, f"{trained.vocab_size:,} pieces in {output}")


class Encoded(TypedDict):
    ids: list[int]
    segments: list[int]
    pieces: list[str]
    offsets: list[tuple[int, int]]


def tokenizer_encode(
    text: str,
    *,
    tokenizer: Vocabulary = None,
    pair: Annotated[str | None, "A second text."] = None,
    special_tokens: Annotated[
        bool, "Treat [MASK] and other special tokens in the text as such."
    ] = False,
) -> Shown[Encoded]:
    """Show the ids, pieces and offsets of a text.

    litebert tokenizer encode "The cat sat." --tokenizer vocabularies/mine
    litebert tokenizer encode "The [MASK] sat." --tokenizer models/mine --special-tokens
    """
    loaded = Tokenizer.load(vocabulary_path(tokenizer))
    encoding = loaded.encode(text, pair, special_tokens=special_tokens)
    lines = list[str]()
    rows = zip(encoding.ids, encoding.pieces, encoding.offsets, strict=True)
    for number, piece, (start, end) in rows:
        lines.append(f"{number:>7}  {piece}  {start}-{end}")
    tokens = Encoded(
        ids=encoding.ids,
        segments=encoding.segments,
        pieces=encoding.pieces,
        offsets=encoding.offsets,
    )
    return Shown(tokens, "\n".join(lines))


# ---- corpora -------------------------------------------------------------------------


def corpus_build(
    inputs: Texts,
    *,
    tokenizer: Annotated[str, "A vocabulary or its folder, or a model."],
    output: Annotated[Path, "Folder to write."],
    sentences: Sentences = "segment",
    documents: Documents = "blank-line",
    column: Column = "text",
    language: Language = "en",
    held_out: Annotated[
        float, "Share of documents kept for evaluation, at least one."
    ] = 0.01,
    workers: Annotated[int | None, "Processes; default: all cores."] = None,
    cluster: Annotated[bool, "Map over a Ray cluster instead."] = False,
    quiet: Quiet = False,
) -> CorpusSummary:
    """Tokenize INPUTS (.txt, .jsonl, .parquet, also .gz or .zst). Rerun the command to
    resume.

    litebert corpus build stories.jsonl --tokenizer vocabularies/mine --output corpora/mine
    litebert corpus build wiki.parquet --tokenizer models/mine --output corpora/wiki --held-out 0.02
    """
    report = None if quiet else _say_progress
    return build_corpus(
        paths(inputs),
        tokenizer=vocabulary_path(tokenizer),
        output=output,
        sentences=sentences,
        documents=documents,
        column=column,
        language=language,
        held_out=held_out,
        workers=workers,
        cluster=cluster,
        report=report,
    )


def _say_progress(progress: BuildProgress) -> None:
    seconds = progress.seconds_left
    is_done = progress.parts_done == progress.num_parts
    line = (
        f"part {progress.parts_done}/{progress.num_parts}  {progress.tokens:,} tokens"
    )
    if progress.tokens_per_second >= 1:
        line += f"  {progress.tokens_per_second:,.0f} tok/s"
    if seconds is not None and not is_done:
        line += f"  left {format_duration(seconds)}"
    say(line)


def corpus_check(
    inputs: Texts,
    *,
    tokenizer: Annotated[str | None, "Also count unknown tokens."] = None,
    sentences: Sentences = "segment",
    documents: Documents = "blank-line",
    column: Column = "text",
    language: Language = "en",
    verify: Annotated[
        bool, "Only compare every file of a corpus with its hash."
    ] = False,
) -> CheckReport:
    """Report what is wrong with texts, or with a corpus folder, and what to do about
    it.

    The exit code is 3 if something is damaged or cannot be read.

    litebert corpus check my-text.txt --tokenizer vocabularies/mine
    litebert corpus check corpora/mine --verify
    """
    places = paths(inputs)
    folder = Path(places[0])
    is_corpus = (folder / MANIFEST).exists() or (folder / PLAN).exists()
    if len(places) == 1 and is_corpus:
        return check_corpus(folder, verify_only=verify)
    if verify:
        raise LitebertError(
            "LB-218",
            "only a corpus has hashes to verify",
            received=", ".join(places),
            next="omit --verify to check texts",
        )
    vocabulary = None if tokenizer is None else vocabulary_path(tokenizer)
    settings = TextSettings(sentences, documents, column, language)
    return check_text(places, settings, tokenizer=vocabulary)
