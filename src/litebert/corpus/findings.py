"""What a check of texts or of a corpus looks for, how grave each kind is, and what to do."""

from litebert.reading.findings import Advice

ADVICE: Advice = {
    "unreadable": ("error", "correct this place: the rest of the file was not read"),
    "damaged": ("error", "build the corpus again"),
    "held-out overlap": ("error", "build again with --held-out, which keeps duplicates together"),
    "mojibake": ("warning", "text was decoded wrongly before; repair it, for instance with ftfy"),
    "replacement character": ("warning", "U+FFFD stands for lost bytes; reconvert the text"),
    "control character": ("warning", "remove them; NUL on every other place means UTF-16"),
    "duplicate document": ("warning", "remove all but one: training would see them more often"),
    "repeated line": ("warning", "probably boilerplate, such as a header or a licence; remove it"),
    "few documents": (
        "warning",
        "held-out documents may be none, and there is nothing to evaluate on: add text, set "
        "--held-out higher, or name data.eval_corpus",
    ),
    "unknown token": (
        "warning",
        "above 1 % another vocabulary is better: litebert tokenizer train",
    ),
    "empty document": ("note", "omitted from a corpus"),
    "empty sentence": ("note", "omitted from a corpus"),
    "single-sentence document": ("note", "teaches no sentence order; join such documents"),
    "long sentence": ("note", "cut in training; does --sentences suit this text?"),
    "short sentence": ("note", "often a heading or a number; does --sentences suit this text?"),
}
"""How grave each kind is, and what to do; in the order in which they are reported."""
