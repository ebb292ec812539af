"""Write the texts that the better teacher reads, and its vectors of them.

`python -m benchmarks.pretraining.words.taught texts OUT` draws some 300,000 texts of
all kinds and lengths, in shards `0000.jsonl`, `0001.jsonl`, ..., each of which is a
mixture of all of them: sentences of everyday English, questions of SQuAD 1.1 train,
sentences, pairs of sentences and paragraphs of Wikipedia, and sentences of books.

`python -m benchmarks.pretraining.words.taught vectors TEACHER OUT` writes `0000.npy`
beside `0000.jsonl`, and so on: a float16 row of length one for each text. Run it again
to go on after a stop: whole shards are kept. A shard takes 41 seconds of processor
time where there are products in bf16.

`python -m benchmarks.pretraining.words.taught turn STUDENT OUT TURNED` writes the
vectors in as many directions as the student has, those in which they are largest,
turned so that they are nearest to the student's own vectors of the same texts.
"""

import io
import json
import random
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

import litebert
from benchmarks.texts import DATA, EVERYDAY, chapters, rows, squad
from litebert.corpus.text import TextSettings, split_sentences
from litebert.files import write_bytes, write_text
from litebert.objectives.taught import TaughtTexts

SHARD_TEXTS = 2_000
BATCH_TOKENS = 2_048  # padded tokens that the teacher reads at once
LONGEST = 256  # in the teacher's pieces

SENTENCE_WORDS = range(4, 41)
PARAGRAPH_WORDS = range(30, 161)
# of every Wikipedia article of 2015
ARTICLE_SENTENCES = 4
ARTICLE_PAIRS = 2
BOOK_SENTENCES = 30_000
PLACE_SENTENCES = 4  # at most, of one place in a book
PLACE_CHARACTERS = 4_000
SQUAD_QUESTIONS = 60_000
SQUAD_PARAGRAPHS = 9_000

TURNED_BY = 4_000  # texts that tell how to turn the vectors


# ---- the texts -----------------------------------------------------------------------


def write_texts(out: Path) -> None:
    """Draw the texts, shuffle them, and write them in shards."""
    draw = random.Random(57)
    lines = [" ".join(text.split()) for text in _texts(draw)]
    texts = list(dict.fromkeys(lines))
    draw.shuffle(texts)
    out.mkdir(parents=True)
    for number, start in enumerate(range(0, len(texts), SHARD_TEXTS)):
        shard = texts[start : start + SHARD_TEXTS]
        rows = [json.dumps({"text": text}, ensure_ascii=False) for text in shard]
        write_text(out / f"{number:04}.jsonl", "\n".join(rows) + "\n")
    num_words = sum(len(text.split()) for text in texts)
    print(f"{len(texts):,} texts, {num_words:,} words", flush=True)


def _texts(draw: random.Random) -> Iterator[str]:
    for row in rows(EVERYDAY):
        yield row["text"]
    yield from _of_squad(draw)
    for article in rows(DATA / "text" / "wiki_2015.jsonl.zst"):
        yield from _of_article(article["text"].splitlines(), draw)
    yield from _of_books(draw)


def _of_squad(draw: random.Random) -> Iterator[str]:
    """Yield questions, then paragraphs that are not too long."""
    questions = list[str]()
    paragraphs = list[str]()
    for article in squad("train"):
        for paragraph in article:
            questions += [qa["question"] for qa in paragraph["qas"]]
            paragraphs.append(paragraph["context"])
    yield from draw.sample(questions, SQUAD_QUESTIONS)
    short = [text for text in paragraphs if len(text.split()) in PARAGRAPH_WORDS]
    yield from draw.sample(short, SQUAD_PARAGRAPHS)


def _of_article(lines: Sequence[str], draw: random.Random) -> Iterator[str]:
    """Yield a paragraph, sentences and pairs of sentences from different lines."""
    usable = [line for line in lines if len(line.split()) in PARAGRAPH_WORDS]
    draw.shuffle(usable)
    yield from usable[:1]
    sentences = list[str]()
    pairs = list[str]()
    for line in usable[1:9]:
        split = list(split_sentences(line, TextSettings()))
        sentences += _with_fitting_length(split)
        pairs += [" ".join(pair) for pair in zip(split[::2], split[1::2], strict=False)]
    yield from draw.sample(sentences, min(ARTICLE_SENTENCES, len(sentences)))
    yield from draw.sample(pairs, min(ARTICLE_PAIRS, len(pairs)))


def _of_books(draw: random.Random) -> list[str]:
    """Return sentences, at most four from one place of a chapter."""
    texts = list(chapters())
    sentences = list[str]()
    while len(sentences) < BOOK_SENTENCES:
        chapter = draw.choice(texts)
        start = draw.randrange(max(1, len(chapter) - PLACE_CHARACTERS))
        place = chapter[start : start + PLACE_CHARACTERS]
        split = list(split_sentences(place, TextSettings()))
        whole = _with_fitting_length(split[1:-1])  # the first and the last may be cut
        sentences += draw.sample(whole, min(PLACE_SENTENCES, len(whole)))
    return sentences


def _with_fitting_length(sentences: Sequence[str]) -> list[str]:
    return [text for text in sentences if len(text.split()) in SENTENCE_WORDS]


# ---- the vectors ---------------------------------------------------------------------


def write_vectors(teacher: Path, out: Path) -> None:
    """Write the vectors of each shard that has none yet."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(teacher)
    model = transformers.AutoModel.from_pretrained(teacher, dtype=_fastest_dtype())
    model.eval()
    for path in sorted(out.glob("*.jsonl")):
        vectors_path = path.with_suffix(".npy")
        if vectors_path.exists():
            continue
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        texts = [json.loads(line)["text"] for line in lines]
        started = time.process_time()
        vectors, tokens = encode(model, tokenizer, texts)
        seconds = time.process_time() - started
        array = io.BytesIO()
        np.save(array, vectors)
        write_bytes(vectors_path, array.getvalue())
        print(
            f"{vectors_path.name}: {len(texts):,} texts, {tokens:,} pieces,"
            f" {tokens / seconds:,.0f} pieces per second of processor time",
            flush=True,
        )


def _fastest_dtype() -> torch.dtype:
    """Return bf16 where the processor has products in it, else float32."""
    if torch.backends.mkldnn.is_available() and torch.cpu._is_avx512_bf16_supported():
        return torch.bfloat16
    return torch.float32


@torch.inference_mode()
def encode(
    model: Any, tokenizer: Any, texts: Sequence[str]
) -> tuple[NDArray[np.float16], int]:
    """Return the vectors of the texts, (texts, hidden), and how many pieces they have.

    Mean pooling and length one, as the teacher's sentence-transformers folder says.
    """
    ids = tokenizer(list(texts), truncation=True, max_length=LONGEST)["input_ids"]
    order = sorted(range(len(ids)), key=lambda index: len(ids[index]))  # by length
    vectors = np.empty((len(ids), model.config.hidden_size), np.float16)
    while order:
        longest = len(ids[order[-1]])
        size = max(1, BATCH_TOKENS // longest)
        batch = order[-size:]
        order = order[:-size]
        sequences = [ids[index] for index in batch]
        padded = tokenizer.pad({"input_ids": sequences}, return_tensors="pt")
        states = model(**padded).last_hidden_state.float()  # (texts, tokens, hidden)
        mask = padded["attention_mask"][:, :, None]
        mean = (states * mask).sum(1) / mask.sum(1)
        vectors[batch] = F.normalize(mean, dim=1).numpy()
    return vectors, sum(map(len, ids))


# ---- turned towards a student --------------------------------------------------------


def turn_vectors(student: Path, out: Path, turned: Path) -> None:
    """Write texts and turned vectors; `TURNED-axes.npy` has the directions.

    The largest directions hold the cosines of texts; within them, the orthogonal matrix
    that brings the teacher's vectors nearest to the student's (Procrustes) saves the
    student from learning it. 1 - cosine begins at .38 instead of 1.00.
    """
    taught = TaughtTexts(out, num_held_out=SHARD_TEXTS)
    directions = _directions(taught, litebert.load(student))
    turned.mkdir(parents=True, exist_ok=True)
    for path, shard in zip(taught.files, taught.shards, strict=True):
        shutil.copy(shard.texts, turned)
        rows = shard.vectors.astype(np.float32) @ directions
        np.save(turned / path.name, rows.astype(np.float16))
    # last: it tells that the others are complete
    np.save(turned.with_name(f"{turned.name}-axes.npy"), directions)


def _directions(taught: TaughtTexts, student: litebert.Model) -> NDArray[np.float32]:
    """Return the directions in which to write the vectors: (teacher's width, hidden)."""
    every = max(1, taught.num_training // TURNED_BY)
    sample = [taught.row(row) for row in range(0, taught.num_training, every)]
    targets = np.array(student.embed([text for text, _ in sample]))  # (texts, hidden)
    targets /= np.linalg.norm(targets, axis=1, keepdims=True)
    axes = taught.axes(targets.shape[1])  # (teacher's width, hidden)
    vectors = np.array([vector for _, vector in sample], np.float32) @ axes
    left, _, right = np.linalg.svd(vectors.T @ targets)
    return axes @ (left @ right)


VERBS = {"texts": write_texts, "vectors": write_vectors, "turn": turn_vectors}

if __name__ == "__main__":
    verb, *paths = sys.argv[1:]
    VERBS[verb](*map(Path, paths))
