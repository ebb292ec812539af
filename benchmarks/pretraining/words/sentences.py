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

if __name__ == "__main__":
    for name in sys.argv[1:]:
        first = among_five = repeated = 0
        fillings = litebert.load(name).fill(list(SENTENCES), top=5)
        for (sentence, fitting), found in zip(SENTENCES.items(), fillings, strict=True):
            words = [filling.words[0].lower() for filling in found]
            first += words[0] in fitting.split()
            among_five += not set(words).isdisjoint(fitting.split())
            repeated += words[0] in sentence.lower().strip(".").split()
        print(
            f"{name}: first {first}, among five {among_five}, a word of the sentence"
            f" {repeated}"
        )
