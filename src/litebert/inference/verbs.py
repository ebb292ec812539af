"""litebert's own verbs, in the order in which a model lists them.

Everything that offers verbs reads these records: `litebert VERB` and its help, files of
texts, the routes of `litebert serve` with their schema and page, `Model.verbs`, cards
and reports. A plug-in adds a record to `litebert.plugins.VERBS` (docs/extending).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from litebert.answers import (
    Choice,
    Classification,
    Coherence,
    Cosine,
    Filling,
    Order,
    Results,
    Score,
    SpanFound,
    Tagging,
)
from litebert.inference.verb import TASK, Field, Form, Row, Verb, choices_of, column
from litebert.plugins import VERBS

if TYPE_CHECKING:
    from litebert.inference.model import Model

_FILMS = ["A fine film.", "A dull one."]
_NO_ANSWER = "(no answer in this text)"


# ---- pretrained models ---------------------------------------------------------------


def _fillings_line(_: Row, fillings: Sequence[Filling]) -> str:
    lines = [f"{filling.probability:6.1%}  {filling.text}" for filling in fillings]
    return "\n".join(lines)


_FILL = Verb(
    name="fill",
    function="litebert.inference.model:Model.fill",
    summary="fill [MASK] in a sentence",
    answer_type=list[Filling],
    example={"text": "The cat sat on the [MASK]."},
    needs="masked_lm",
    purpose="fills [MASK]",
    help="""Fill every [MASK] of a text; the best answers come first.

Blanks are filled independently: the probability of an answer is the product over its
blanks. In a long text only the part around the blanks is read. A text has at most a
million characters.""",
    commands=(
        'fill "The cat sat on the [MASK]."',
        "fill blanks.txt --output filled.jsonl",
    ),
    line=_fillings_line,
    form=Form(
        title="Fill blanks",
        lead="Leave out a word and the model suggests what could be there.",
        fields={
            "text": Field("A text with one or more blanks, written [MASK]", num_lines=3)
        },
        examples=(
            {"text": "London is the [MASK] of England."},
            {"text": "He opened the [MASK] and went into the [MASK]."},
            {"text": "The ship left the [MASK] in the morning."},
        ),
    ),
    exported="prediction_logits",
)


def _score_line(_: Row, score: Score) -> str:
    return f"{score.log_likelihood:9.2f}  {score.perplexity:9.2f}  {score.text[:70]}"


_SCORE = Verb(
    name="score",
    function="litebert.inference.model:Model.score",
    summary="compute how likely texts are",
    answer_type=Score,
    example={"text": "The cat sat on the mat."},
    needs="masked_lm",
    help="""Say how likely a text and each of its words are, in nats.

Every piece of a text is masked in turn and predicted from the rest (Salazar et al.
2020). In a long text only the part around a piece is read. A text has at most a million
characters.""",
    commands=(
        'score "The cat sat on the mat." "The mat sat on the cat."',
        "score reviews.csv --column text=body --output scores.jsonl",
    ),
    line=_score_line,
    is_slow=True,
    lists_one=True,
    form=Form(
        title="Score",
        lead=(
            "How likely is each word, given all the others? Each piece of the text is"
            " masked once; the darker a word, the less the model expected it."
        ),
        fields={"text": Field("A text of up to 128 tokens", num_lines=3)},
        examples=(
            {"text": "The ship left the harbour in the morning."},
            {"text": "The ship left the biscuit in the morning."},
        ),
    ),
)


def _answer_order(model: "Model", rows: Sequence[Row]) -> list[Order | Coherence]:
    """Answer pairs together; split a single text into its sentences."""
    pairs = [row for row in rows if "second" in row]
    orders = iter(model.order_pairs(column(pairs, "first"), column(pairs, "second")))
    answers = list[Order | Coherence]()
    for row in rows:
        if "second" in row:
            answers.append(next(orders))
        else:
            answers.append(model.order(row["first"]))
    return answers


def _order_line(_: Row, answer: Order | Coherence) -> str:
    if isinstance(answer, Order):
        verdict = "in order" if answer.is_in_order else "swapped"
        return f"{verdict}  (in order: {answer.probability:.1%})"
    lines = []
    for join in answer.joins:
        verdict = "break" if join.probability < 0.5 else ""
        lines.append(f"{join.probability:6.1%}  {verdict:<5}  {join.second}")
    return "\n".join(lines)


_ORDER = Verb(
    name="order",
    function="litebert.inference.model:Model.order",
    summary="say which of two sentences comes first, or where a text breaks",
    answer_type=Order | Coherence,
    example={"first": "She opened the door.", "second": "Then she went in."},
    needs="sentence_order",
    purpose="judges sentence order",
    help="""Say whether FIRST comes before SECOND; of one text, say where it breaks.

Sentences that are longer than the model can read are cut at their end. A single text
has at most a million characters.""",
    commands=(
        'order "He opened the door." "Nobody was there." --model runs/mine',
        "order pairs.csv --column first=before --column second=after --model runs/mine",
    ),
    answers=_answer_order,
    line=_order_line,
    form=Form(
        title="Sentence order",
        lead=(
            "ALBERT was trained to judge whether two sentences are in the right order."
            " Over a whole text this gives a curve of coherence: where it falls, the"
            " text breaks."
        ),
        fields={"first": Field("A text of two or more sentences", num_lines=7)},
        examples=(
            {
                "first": "She opened the door. Then she went into the room."
                " It was dark there. So she lit a candle."
            },
            {
                "first": "So she lit a candle. She opened the door."
                " It was dark there. Then she went into the room."
            },
        ),
    ),
)


# ---- fine-tuned models ---------------------------------------------------------------


MOST_VALUES = 5  # of a text with many labels, those that are shown


def _on_one_line(text: str) -> str:
    """Return a text whose line breaks and runs of spaces are single spaces."""
    return " ".join(text.split())


def _labels_line(row: Row, answer: Classification) -> str:
    """Return the labels, the beginning of the text, and the likeliest values; for a
    score, only its name, its value and the text.
    """
    labels = _on_one_line(", ".join(answer.labels)) or "no label"
    beginning = _on_one_line(row["text"])[:50]
    if answer.labels and len(answer.values) == 1:
        [score] = answer.values.values()
        named_score = f"{labels} {score:.4g}"
        return f"{named_score:<16}  {beginning}"
    likeliest = sorted(answer.values, key=lambda name: -answer.values[name])
    values = list[str]()
    for name in likeliest[:MOST_VALUES]:
        values.append(f"{_on_one_line(name)} {answer.values[name]:.4f}")
    if len(likeliest) > MOST_VALUES:
        values.append("…")
    joined = "  ".join(values)
    return f"{labels:<16}  {beginning:<50}  {joined}"


_CLASSIFY = Verb(
    name="classify",
    function="litebert.inference.model:Model.classify",
    summary="predict the labels of texts",
    answer_type=Classification,
    example={"texts": _FILMS},
    needs=TASK,
    help="""Predict the label of each text, or of each text with its pair; a regression
model gives a score.

What is longer than the model can read is read in overlapping windows; the answer is the
mean of theirs. An empty second text counts as none.""",
    commands=(
        'classify "A fine film." "Dull." --model runs/sst2',
        'classify "It rains." --pair "It is wet." --model runs/rte --json',
        "classify reviews.csv --column body --model runs/sst2 --output answers.jsonl",
    ),
    line=_labels_line,
    question="litebert.inference.questions:classify",
    form=Form(
        title="Classify",
        lead="One text per line; each gets a label.",
        fields={
            "texts": Field("Texts, one per line", num_lines=4),
            "pairs": Field(
                "Second texts, one per line, if the task compares pairs",
                num_lines=2,
                is_optional=True,
            ),
        },
        examples=(
            {
                "texts": "A fine film, warm and funny.\n"
                "Dull from the first minute to the last."
            },
            {"texts": "A man plays a guitar.", "pairs": "Somebody makes music."},
        ),
    ),
    exported="logits",
)


def _tags_line(_: Row, answer: Tagging) -> str:
    words = [f"{tagged.word}/{tagged.tag}" for tagged in answer.words]
    entities = [f"  {entity.text} ({entity.label})" for entity in answer.entities]
    return "\n".join(["  ".join(words), *entities])


_TAG = Verb(
    name="tag",
    function="litebert.inference.model:Model.tag",
    summary="tag every word of a text",
    answer_type=Tagging,
    example={"texts": ["Ada Lovelace lived in London."]},
    needs=TASK,
    help="""Tag every word of each text, and show the entities that the tags mark.

A text is divided as the texts were that the model was trained on; Chinese or Thai words
need spaces between them unless it was trained on characters. A text has at most a
million characters.""",
    commands=(
        'tag "Ada Lovelace lived in London." --model runs/names',
        'tag "He left." "She stayed." --model runs/names --json',
    ),
    line=_tags_line,
    form=Form(
        title="Tag",
        lead="Every word and punctuation mark gets a tag.",
        fields={"texts": Field("Texts, one per line", num_lines=4)},
        examples=({"texts": "Ada Lovelace lived in London ."},),
    ),
)


def _answer_questions(
    model: "Model", rows: Sequence[Row], **options: Any
) -> list[Results[SpanFound]]:
    asked = [(row["question"], [row["context"]]) for row in rows]
    return model.answer_all(asked, **options)


def _spans_line(_: Row, spans: Sequence[SpanFound]) -> str:
    lines = [f"{span.probability:6.1%}  {span.text or _NO_ANSWER}" for span in spans]
    return "\n".join(lines or [_NO_ANSWER])


_ANSWER = Verb(
    name="answer",
    function="litebert.inference.model:Model.answer",
    summary="answer a question with a span of a text",
    answer_type=list[SpanFound],
    example={"question": "When did Ada leave?", "context": "Ada left at noon."},
    needs=TASK,
    help="""Find the spans of a text that answer a question, the likeliest first.

A model that was trained on SQuAD 2.0 may find no answer: then an empty text comes
first, and `no_answer` of each span is the probability that there is none. The text may
be of any length; it is read in overlapping windows.""",
    commands=(
        'answer "Who left?" "Ada left at noon." --model runs/squad',
        "answer questions.csv --file report.txt --model runs/squad"
        " --output answers.jsonl",
    ),
    answers=_answer_questions,
    line=_spans_line,
    title="question",
    form=Form(
        title="Answer",
        lead="Give a passage and ask about it: the answer is a span of the passage.",
        fields={
            "question": Field("Question"),
            "context": Field("Passage", num_lines=7),
        },
        examples=(
            {
                "question": "When did Ada leave?",
                "context": "Ada packed her books in the morning."
                " She left the house at noon and took the train.",
            },
        ),
    ),
)


def _answer_choices(model: "Model", rows: Sequence[Row]) -> list[Choice]:
    asked = []
    for row in rows:
        asked.append((row["question"], choices_of(row), row.get("context", "")))
    return model.choose_all(asked)


def _choice_line(row: Row, answer: Choice) -> str:
    lines = []
    shares = zip(answer.probabilities, choices_of(row), strict=True)
    for number, (share, choice) in enumerate(shares):
        mark = "*" if number == answer.index else " "
        lines.append(f"{mark} {share:6.1%}  {choice}")
    return "\n".join(lines)


_CHOOSE = Verb(
    name="choose",
    function="litebert.inference.model:Model.choose",
    summary="choose among several answers",
    answer_type=Choice,
    example={
        "question": "Who left?",
        "choices": ["Ada", "Bert"],
        "context": "Ada left at noon.",
    },
    needs=TASK,
    help="""Say which of several choices answers a question about a text.

A text that is longer than the model can read is cut at its end.""",
    commands=(
        'choose "The sky is _ ." blue green --context "A clear day." --model runs/race',
        "choose questions.csv --column choice1=A --column choice2=B --model runs/race",
    ),
    answers=_answer_choices,
    line=_choice_line,
    title="question",
    is_cut=True,
    form=Form(
        title="Choose",
        lead="Which of several answers fits?",
        fields={
            "context": Field("Context", num_lines=4, is_optional=True),
            "question": Field("Question"),
            "choices": Field("Choices, one per line", num_lines=4),
        },
        examples=(
            {
                "context": "Ada packed her books and went to the station.",
                "question": "What will she do next?",
                "choices": "take a train\nbake a cake\nfall asleep",
            },
        ),
    ),
)


# ---- vectors, which every model has --------------------------------------------------


def _vector_line(row: Row, vector: Sequence[float]) -> str:
    text = " ".join(row["text"].split())[:40]
    numbers = [f"{value:.3f}" for value in vector[:6]]
    return f"{text:<40}  {len(vector)} numbers: {' '.join(numbers)} …"


_EMBED = Verb(
    name="embed",
    function="litebert.inference.model:Model.embed",
    summary="compute vectors of texts",
    answer_type=list[float],
    example={"texts": _FILMS},
    help="""Compute one vector for each text: the mean or maximum of its tokens, or
[CLS].

Texts that are longer than the model can read are cut at their end. All options default
to the sentence-transformers settings of the model, or to the mean of all tokens, not
normalized; --max-length counts [CLS] and [SEP]. A model that was pretrained without a
teacher gives poor vectors.""",
    commands=(
        'embed "a cat" "a dog"',
        "embed reviews.csv --column body --output vectors.npy",
    ),
    line=_vector_line,
    is_cut=True,
    form=Form(
        title="Map and search",
        lead=(
            "Each text becomes a vector. Texts close together on the map are similar"
            " to the model; the search box ranks your texts by cosine."
        ),
        fields={
            "texts": Field("Your texts, one per line", num_lines=8),
            "query": Field("Search them for", is_optional=True),
        },
        examples=(
            {
                "texts": "The ship sailed into the harbour.\n"
                "The boat reached the shore at night.\n"
                "Captain and crew were lost at sea.\n"
                "The king raised an army.\n"
                "The soldiers marched to war.\n"
                "The general won the battle.\n"
                "She baked bread in the kitchen.\n"
                "They had soup and cheese for dinner.\n"
                "The apples in the garden were ripe.",
                "query": "a storm on the ocean",
            },
        ),
    ),
)


def _answer_similar(model: "Model", rows: Sequence[Row]) -> Iterator[Cosine]:
    from litebert.inference.inputs import compare

    firsts = model.embed(column(rows, "first"))
    seconds = model.embed(column(rows, "second"))
    for first, second in zip(firsts, seconds, strict=True):
        similarity = compare(first[None], second[None], model.vectors.similarity)
        yield Cosine(cosine=float(similarity[0, 0]))


def _cosine_line(_: Row, answer: Mapping[str, float]) -> str:
    return f"similarity {answer['cosine']:.4f}"


_SIMILAR = Verb(
    name="similar",
    function="litebert.inference.model:Model.similar",
    summary="compute how similar two texts are",
    answer_type=Cosine,
    example={"first": "a cat", "second": "a kitten"},
    help="""Compute the similarity of two texts.

It is the cosine of their vectors, unless the model names another similarity.""",
    commands=(
        'similar "a cat" "a kitten"',
        "similar pairs.csv --column first=before --column second=after",
    ),
    answers=_answer_similar,
    line=_cosine_line,
    question="litebert.inference.questions:similar",
    use_of="embed",
)


def _add(verbs: Iterable[Verb]) -> None:
    for verb in verbs:
        VERBS.add(verb.name, verb)


_add(
    (
        _FILL,
        _SCORE,
        _ORDER,
        _CLASSIFY,
        _TAG,
        _ANSWER,
        _CHOOSE,
        _EMBED,
        _SIMILAR,
    )
)
