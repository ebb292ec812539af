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
NUM_WORDS = range(6, 21)  # of a sentence
FREQUENT_WORDS = """
the a an of in to and is was for on with as by at from that it he she his her their its
be are were this
"""
FREQUENT = frozenset(FREQUENT_WORDS.split())


def main(models: list[str]) -> None:
    """Print, for each model and kind of text, the share of right answers and of
    repeated words.
    """
    sentences = kinds()
    for path in models:
        model = litebert.load(path)
        for name, of_kind in sentences.items():
            right, repeats = shares(model, with_one_hidden(of_kind))
            print(
                f"{path} {name} right {100 * right:.1f} %,"
                f" wrong and already there {100 * repeats:.1f} %",
                flush=True,
            )


def kinds() -> dict[str, list[str]]:
    return {"captions": _captions(), "squad": _squad_sentences()}


def _captions() -> list[str]:
    return sorted({row["premise"] for row in rows(DATA / "nli/snli_dev.jsonl.gz")})


def _squad_sentences() -> list[str]:
    sentences = list[str]()
    for article in squad("dev"):
        for paragraph in article:
            sentences += re.split(r"(?<=[.!?]) (?=[A-Z])", paragraph["context"])
    return sentences


def with_one_hidden(sentences: list[str]) -> list[tuple[str, str]]:
    """Hide one word of each sentence of 6 to 20 words; return the texts and the
    words.
    """
    draw = random.Random(1)
    shuffled = list(sentences)
    draw.shuffle(shuffled)
    hidden = list[tuple[str, str]]()
    for sentence in shuffled:
        words = list(re.finditer(r"[A-Za-z]+", sentence))
        if len(words) not in NUM_WORDS:
            continue
        word = draw.choice(words)
        if len(word[0]) == 1:
            continue
        before = sentence[: word.start()]
        after = sentence[word.end() :]
        hidden.append((f"{before}[MASK]{after}", word[0].lower()))
        if len(hidden) == NUM_SENTENCES:
            break
    return hidden


def shares(model: litebert.Model, hidden: list[tuple[str, str]]) -> tuple[float, float]:
    """Return the shares of right answers, and of wrong ones that repeat a word of the
    sentence.
    """
    num_right = 0
    num_repeats = 0
    answers = model.fill([text for text, _ in hidden], top=1)
    for (text, word), fillings in zip(hidden, answers, strict=True):
        answer = fillings[0].words[0].lower()
        visible = re.findall(r"[a-z]+", text.replace("[MASK]", "").lower())
        if answer == word:
            num_right += 1
        elif answer in {*visible} - FREQUENT:
            num_repeats += 1
    return num_right / len(hidden), num_repeats / len(hidden)


if __name__ == "__main__":
    main(sys.argv[1:])
