"""Fill a blank in twenty everyday sentences: how often the first word fits, how often
one of five, what is repeated.

    python -m benchmarks.pretraining.words.sentences litebert runs/words

A word fits if it is among those listed with the sentence, which were written down
before any model was asked.
"""

import sys

import litebert

SENTENCES = {
    "She drank a cup of [MASK].": "coffee tea water milk wine",
    "The dog barked at the [MASK].": "man cat door boy woman stranger moon",
    "He opened the [MASK] and went in.": "door gate window",
    "The sun rises in the [MASK].": "east morning sky",
    "Paris is the capital of [MASK].": "france",
    "She put the key in her [MASK].": "pocket hand bag purse",
    "We had dinner at the [MASK].": "restaurant hotel house table inn",
    "The ship left the [MASK] in the morning.": "harbour harbor port dock shore coast",
    "He read the [MASK] aloud.": "letter book paper words story note",
    "The children went to [MASK] by bus.": "school",
    "It was raining, so she took an [MASK].": "umbrella",
    "The bird sat in a [MASK].": "tree cage bush nest",
    "My father is a [MASK].": "doctor teacher man lawyer farmer soldier gentleman",
    "He has two brothers and one [MASK].": "sister",
    "The clock struck [MASK].": (
        "twelve one two three four five six seven eight nine ten eleven midnight"
    ),
    "In winter it is very [MASK].": "cold",
    "The river flows into the [MASK].": "sea ocean lake valley",
    "She played the [MASK] very well.": "piano violin game part guitar music",
    "The soldier was wounded in the [MASK].": (
        "arm leg head battle war shoulder back fight"
    ),
    "Please close the [MASK].": "door window gate book",
}


def main(paths: list[str]) -> None:
    for path in paths:
        num_first, num_among_five, num_repeated = count(litebert.load(path))
        print(
            f"{path}: first {num_first}, among five {num_among_five},"
            f" a word of the sentence {num_repeated}"
        )


def count(model: litebert.Model) -> tuple[int, int, int]:
    """Return in how many sentences the first word fits, one of five fits, and the first
    is already in the sentence.
    """
    num_first = 0
    num_among_five = 0
    num_repeated = 0
    answers = model.fill(list(SENTENCES), top=5)
    for (sentence, words), fillings in zip(SENTENCES.items(), answers, strict=True):
        fitting = words.split()
        filled = [filling.words[0].lower() for filling in fillings]
        num_first += filled[0] in fitting
        num_among_five += not set(filled).isdisjoint(fitting)
        num_repeated += filled[0] in sentence.lower().strip(".").split()
    return num_first, num_among_five, num_repeated


if __name__ == "__main__":
    main(sys.argv[1:])
