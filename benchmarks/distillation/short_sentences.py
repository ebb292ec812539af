"""How well a model finds one hidden word of a short sentence, as people type it into
`fill`.

`python -m benchmarks.distillation.short_sentences MODEL...`; needs LITEBERT_TEST_DATA
(nli, squad).
"""

import random
import re
import sys

import litebert
from benchmarks.texts import DATA, rows, squad

NUM_SENTENCES = 800
FREQUENT = {
    "the",
    "a",
    "an",
    "of",
    "in",
    "to",
    "and",
    "is",
    "was",
    "for",
    "on",
    "with",
    "as",
    "by",
}
FREQUENT |= {
    "at",
    "from",
    "that",
    "it",
    "he",
    "she",
    "his",
    "her",
    "their",
    "its",
    "be",
    "are",
}
FREQUENT |= {"were", "this"}


def main(models: list[str]) -> None:
    """Print, for each model and kind of text, the share of right answers and of
    repeated words.
    """
    captions = sorted({row["premise"] for row in rows(DATA / "nli/snli_dev.jsonl.gz")})
    contexts = [
        paragraph["context"] for article in squad("dev") for paragraph in article
    ]
    cut = [
        part
        for context in contexts
        for part in re.split(r"(?<=[.!?]) (?=[A-Z])", context)
    ]
    for path in models:
        model = litebert.load(path)
        for name, sentences in (("captions", captions), ("squad", cut)):
            hidden = with_one_hidden(sentences)
            right = repeats = 0
            answers = model.fill([text for text, _ in hidden], top=1)
            for (text, word), found in zip(hidden, answers, strict=True):
                first = found[0].words[0].lower()
                seen = (
                    set(re.findall(r"[a-z]+", text.replace("[MASK]", "").lower()))
                    - FREQUENT
                )
                right += first == word
                repeats += first != word and first in seen
            shares = (
                f"{100 * count / len(hidden):.1f} %" for count in (right, repeats)
            )
            print(
                path,
                name,
                "right {}, wrong and already there {}".format(*shares),
                flush=True,
            )


def with_one_hidden(sentences: list[str]) -> list[tuple[str, str]]:
    """Hide one word of each sentence of 6 to 20 words; return the texts and the
    words.
    """
    draw = random.Random(1)
    sentences = list(sentences)
    hidden = list[tuple[str, str]]()
    draw.shuffle(sentences)
    for sentence in sentences:
        words = list(re.finditer(r"[A-Za-z]+", sentence))
        if (
            len(hidden) < NUM_SENTENCES
            and 6 <= len(words) <= 20
            and len((word := draw.choice(words))[0]) > 1
        ):
            hidden.append(
                (
                    f"{sentence[: word.start()]}[MASK]{sentence[word.end() :]}",
                    word[0].lower(),
                )
            )
    return hidden


if __name__ == "__main__":
    main(sys.argv[1:])
