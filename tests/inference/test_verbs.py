"""Verbs on strings: the network's results for any head, in little memory, never NaN,
and explained by words.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

import pytest
import torch

import litebert
from litebert.answers import Classification
from litebert.config import HeadConfig
from litebert.errors import DamagedError, LitebertError
from litebert.inference.model import MAX_CHARACTERS, Model
from litebert.metrics import named_entities
from litebert.nn import AlbertForPretraining, AlbertForTask, Batch
from litebert.plugins import VERBS as TABLE
from litebert.tokenizer import Tokenizer, train_tokenizer
from tests.contract import shell
from tests.memory import run_in_child
from tests.networks import (
    CHOICES,
    LABELS,
    SPANS,
    SPANS_OR_NONE,
    TAGS,
    config_for,
    save_random,
)

STEPS = 4
CONTEXT = "In the morning Anna walked to the house. There Anna found a red ball."
SCORE = LABELS.model_copy(update={"labels": ("score",), "problem_type": "regression"})
SEVERAL = LABELS.model_copy(
    update={"labels": ("a", "b", "c"), "problem_type": "multi_label_classification"}
)
Write = Callable[..., Path]


@pytest.fixture
def write_model(corpus: Path, tmp_path: Path) -> Write:
    """Return a function that writes a random model with a head, or the heads of
    pretraining.
    """
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    return partial(
        save_random,
        tmp_path,
        tokenizer,
        num_hidden_layers=STEPS,
        max_position_embeddings=48,
    )


@pytest.mark.parametrize(
    ("head", "read"), [(SCORE, lambda logits: logits), (SEVERAL, torch.sigmoid)]
)
def test_a_score_and_several_labels_are_read_as_trained(
    write_model: Write, head: HeadConfig, read: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    model = litebert.load(write_model(head))
    encoding = model.tokenizer.encode("Anna found it.", frame=True)
    with torch.no_grad():
        logits = model.network(Batch.from_lists([encoding.ids], [encoding.segments]))[0]
    answer = model.classify("Anna found it.")
    assert list(answer.values.values()) == pytest.approx(
        read(logits).tolist(), abs=1e-5
    )
    assert head is SCORE or answer.labels == tuple(
        name for name, value in answer.values.items() if value >= 0.5
    )


def test_a_network_may_have_more_word_vectors_than_pieces_and_never_fewer(
    write_model: Write,
) -> None:
    size = Tokenizer.load(write_model(None)).vocab_size
    assert (
        len(
            litebert.load(write_model(None, vocab_size=size + 7)).fill(
                "Anna [MASK].", top=3
            )
        )
        == 3
    )
    with pytest.raises(LitebertError, match="LB-677"):
        litebert.load(write_model(None, vocab_size=size - 1))


def test_a_wordpiece_that_continues_a_word_is_joined_to_it(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text(
        "\n".join(
            ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "seen", "##seen"]
        )
    )
    tokenizer = Tokenizer.load(tmp_path)
    network = AlbertForPretraining(config_for(tokenizer))
    with torch.no_grad():
        network.masked_lm.bias[tokenizer.id("##seen")] = 50
    best = Model(network, tokenizer).fill("An un[MASK] cat, [MASK].", top=1)[0]
    # one word, whatever it continues
    assert (best.text, best.words) == ("An unseen cat, seen.", ("seen", "seen"))


def test_a_model_of_pairs_refuses_a_text_without_its_second(write_model: Write) -> None:
    head = LABELS.model_copy(update={"compares_texts": True})
    model = Model.load(write_model(head))
    assert model.network.head_config.compares_texts  # in config.json
    assert model.classify(PHRASES[:1], PHRASES[1:2])
    for seconds in (None, [""]):
        with pytest.raises(LitebertError, match="LB-938"):
            model.classify(PHRASES[:1], seconds)


@pytest.mark.parametrize("kind", ["sequence-classification", "pair-classification"])
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("a.csv", 'text,second\nOne.,Two.\nThree.,\nFive.," "\nSix.,Seven.\n'),
        (
            "a.jsonl",
            '{"text": "One.", "second": "Two."}\n{"text": "Three.", "second": null}\n'
            '{"text": "Five."}\n{"text": "Six.", "second": "Seven."}\n',
        ),
    ],
)
def test_a_row_without_its_second_text_has_an_error_and_the_others_answers(
    write_model: Write, tmp_path: Path, kind: str, name: str, rows: str
) -> None:
    changes = {"kind": kind, "compares_texts": True}
    folder = write_model(LABELS.model_copy(update=changes))
    (tmp_path / name).write_text(rows)
    words = ("classify", tmp_path / name, "--model", folder, "--json")
    done = shell.litebert(*words).ok
    answered = ["answer" in row for row in done.rows]
    assert answered == [True, False, False, True]
    assert "no text in column second" in done.rows[1]["error"]


def test_lines_of_a_text_are_no_pairs(write_model: Write, tmp_path: Path) -> None:
    folder = write_model(LABELS.model_copy(update={"compares_texts": True}))
    (tmp_path / "a.txt").write_text("One.\nTwo.\n")
    done = shell.litebert("classify", tmp_path / "a.txt", "--model", folder)
    assert (done.code, done.stdout) == (1, "")
    assert "LB-944" in done.stderr
    assert "use a table" in done.stderr


def test_an_empty_second_text_is_no_pair(write_model: Write) -> None:
    model = litebert.load(write_model(LABELS))
    mixed = model.classify(["Anna walked.", "A"], ["", "It was quiet."])
    for beside, alone in zip(
        mixed,
        (model.classify("Anna walked."), model.classify("A", "It was quiet.")),
        strict=True,
    ):
        assert beside.values == pytest.approx(alone.values, abs=1e-5)


def test_tag_answers_every_word_of_texts_of_any_length_with_its_place(
    write_model: Write,
) -> None:
    model = litebert.load(write_model(TAGS))
    for text in (" Anna walked. ", "  " + " ".join([CONTEXT] * 12)):
        tagged = model.tag(text).words
        assert "".join(word.word for word in tagged) == text.replace(" ", "")
        assert [text[word.start : word.end] for word in tagged] == [
            word.word for word in tagged
        ]
    assert [word.word for word in model.tag("दिल्ली में Mu\u0308nchen, a.b").words] == [
        "दिल्ली",
        "में",
        "Mu\u0308nchen",
        ",",
        "a.b",
    ]


@pytest.mark.parametrize(
    ("labels", "tags"),
    [
        (("O", "B-LOC", "I-LOC", "B-PER"), "B-PER O B-LOC I-LOC"),
        (("O", "S-PER", "B-LOC", "E-LOC"), "S-PER O B-LOC E-LOC"),
        (("O", "U-PER", "B-LOC", "L-LOC"), "U-PER O B-LOC L-LOC"),
        (("O", "PER", "LOC"), "PER O LOC LOC"),
        (("NOUN", "VERB"), "NOUN VERB NOUN NOUN"),
    ],
)
def test_entities_join_their_words_in_every_scheme(
    labels: tuple[str, ...], tags: str
) -> None:
    wanted = [("PER", 0, 1), ("LOC", 2, 4)] if "O" in labels else []
    assert named_entities(tags.split(), labels) == wanted


def test_tag_gives_the_entities_of_a_text(write_model: Write) -> None:
    model = litebert.load(write_model(TAGS))
    text = "Anna walked. Bert found a ball."
    for tagging in model.tag([text, text]):
        for entity in tagging.entities:
            assert entity.text == text[entity.start : entity.end]
        tags = [tagged.tag for tagged in tagging.words]
        entities = named_entities(tags, model.network.head_config.labels)
        assert [entity.label for entity in tagging.entities] == [
            kind for kind, *_ in entities
        ]


def test_no_question_has_no_choice_and_every_choice_is_a_text(
    write_model: Write,
) -> None:
    model = litebert.load(write_model(CHOICES))
    assert model.choose_all([]) == []
    with pytest.raises(LitebertError, match="LB-611"):
        model.choose_all([("Who?", ["Anna", None], "")])


def test_a_conditional_head_can_answer_that_there_is_no_answer(
    write_model: Write,
) -> None:
    model = litebert.load(write_model(SPANS_OR_NONE))
    head = model.network.head
    for sign in (1, -1):
        with torch.no_grad():
            head.answer_hidden.weight.zero_()
            head.answer_hidden.bias.fill_(2.0)
            head.answer.weight.fill_(sign * 1.0)
        assert (model.answer("Who?", CONTEXT)[0].text == "") == (sign == 1)


def test_a_context_without_a_word_is_shown_to_have_no_answer(
    write_model: Write,
) -> None:
    answers = litebert.load(write_model(SPANS)).answer("Who?", "\u0301")
    assert (
        not answers
        and TABLE["answer"].line({"question": "Who?"}, answers)
        == "(no answer in this text)"
    )


@pytest.mark.parametrize("head", [SPANS, SPANS_OR_NONE], ids=lambda head: head.kind)
def test_several_documents_are_one_ranking(
    write_model: Write, head: HeadConfig
) -> None:
    documents = ["Bert slept. Nobody knew.", CONTEXT]
    # whose best spans all have a character
    model = litebert.load(write_model(head, seed=5))
    answers = model.answer("What did Anna find?", documents, top=200)
    assert {answer.document for answer in answers} == {0, 1}
    assert sum(answer.probability for answer in answers) == pytest.approx(1, abs=1e-4)
    spans = [answer for answer in answers if answer.text]
    assert all(documents[s.document][s.start : s.stop].strip() == s.text for s in spans)
    assert (answers[0].no_answer is None) == (head is SPANS)


VERBS: dict[str, tuple[HeadConfig | None, Callable[[Model], object]]] = {
    "fill": (None, lambda model: model.fill("Anna walked to the [MASK].")),
    "order": (None, lambda model: model.order("Anna walked.", "Bert slept.")),
    "embed": (None, lambda model: model.embed(["Anna walked."])),
    "classify": (LABELS, lambda model: model.classify(["Anna found it."])),
    "tag": (TAGS, lambda model: model.tag(["Anna found it."])),
    "choose": (
        CHOICES,
        lambda model: model.choose("Who?", ["Anna", "Bert"], context=CONTEXT),
    ),
    "answer": (SPANS, lambda model: model.answer("Who walked?", CONTEXT)),
    "answer or none": (
        SPANS_OR_NONE,
        lambda model: model.answer("Who walked?", CONTEXT),
    ),
}
ONE_MATRIX = "feed_forward.0.output"
HEADS = {"fill": "masked_lm.dense", "classify": "head.", "answer or none": "head."}


@pytest.mark.parametrize(
    ("verb", "weight"), [*((verb, ONE_MATRIX) for verb in VERBS), *HEADS.items()]
)
def test_every_verb_refuses_non_finite_outputs(
    write_model: Write, verb: str, weight: str
) -> None:
    head, call = VERBS[verb]
    model = litebert.load(write_model(head, far_too_large=weight))
    with pytest.raises(
        DamagedError, match=r"LB-472[\s\S]*3e\+38[\s\S]*weight"
    ) as caught:
        call(model)
    assert weight in str(caught.value) or weight in HEADS.values()


def test_control_without_the_check_such_outputs_are_given(
    write_model: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.folder.storage.refuse_non_finite", lambda _: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_every_verb_refuses_non_finite_outputs(write_model, "embed", ONE_MATRIX)


MEASURE = """
import torch
import litebert
from litebert.answers import Classification
from litebert.config import HeadConfig
from litebert.inference.model import Model
from litebert.nn import AlbertForTask
verb, kind, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
packaged = litebert.load()
sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 1}
config = packaged.network.config.model_copy(update=sizes | {"num_hidden_layers": 1})
torch.manual_seed(1)
model = Model(AlbertForTask(config, HeadConfig(kind=kind)), packaged.tokenizer)
text = "Anna walked to the house; there she found nothing but \\u201cballs\\u201d.\\n"
call = {"answer": lambda t: model.answer("Who?", t), "embed": model.embed}[verb]
call(text * 99)
long = text * (size // len(text))
forget_peak()
before = peak_memory()
call(long)
print(peak_memory() - before)
"""


LONG = [("embed", SPANS.kind, 10_000_000, 64), ("answer", SPANS.kind, 2_500_000, 64)]
LONG += [
    pytest.param("answer", h.kind, 10_000_000, 100, marks=pytest.mark.slow)
    for h in (SPANS, SPANS_OR_NONE)
]


@pytest.mark.parametrize(("verb", "kind", "size", "megabytes"), LONG)
def test_a_long_text_takes_little_memory_besides_itself(
    verb: str, kind: str, size: int, megabytes: int
) -> None:
    (more,) = run_in_child(MEASURE, verb, kind, size)
    assert int(more) < megabytes * 1_000_000


def test_verbs_whose_answer_grows_with_the_text_refuse_a_very_long_one() -> None:
    model = litebert.load()
    for verb in (model.fill, model.score, model.order):
        with pytest.raises(LitebertError, match=r"LB-935[\s\S]*1,000,001 characters"):
            verb("a" * (MAX_CHARACTERS + 1))
    with pytest.raises(LitebertError, match="LB-610"):  # the longest that is read
        model.fill("a" * MAX_CHARACTERS)


# ---- explanations --------------------------------------------------------------------

PHRASES = [
    "a small cat sat on a mat",
    "a fine film, a dull play",
    "who sat on the mat?",
]


@cache
def _model(head: HeadConfig | None) -> Model:
    tokenizer = Tokenizer.from_model(train_tokenizer(PHRASES * 20, vocab_size=38))
    config = config_for(tokenizer, max_position_embeddings=48, initializer_range=0.2)
    draws = torch.Generator().manual_seed(1)
    network = (
        AlbertForTask(config, head, generator=draws)
        if head
        else AlbertForPretraining(config, generator=draws)
    )
    return Model(network, tokenizer)


EXPLAINED = {
    "similar": (None, PHRASES[:2]),
    "classify": (LABELS, [PHRASES[1]]),
    "classify a pair": (LABELS, PHRASES[:2]),
    "classify with several labels": (SEVERAL, [PHRASES[1]]),
    "classify as a number": (SCORE, [PHRASES[1]]),
}


@pytest.mark.parametrize("case", EXPLAINED)
def test_attributions_add_up_and_name_every_word(case: str) -> None:
    (head, texts), verb = EXPLAINED[case], case.split()[0]
    model = _model(head)
    with torch.inference_mode():  # of a caller
        explanation = model.explain(verb, *texts)
    total = sum(word.attribution for word in explanation.words)
    assert total == pytest.approx(
        explanation.score - explanation.blank, abs=0.02 + abs(explanation.error)
    )
    assert abs(explanation.error) < 0.02
    assert any(abs(word.attribution) > 1e-4 for word in explanation.words)
    assert all(
        word.word and word.end - word.start == len(word.word)
        for word in explanation.words
    )
    assert explanation.verb == verb


def test_the_score_is_that_of_the_verbs_answer() -> None:
    model = _model(LABELS)
    explanation = model.explain("classify", PHRASES[1])
    answer = model.classify(PHRASES[1])
    assert explanation.answer == answer.labels[0] and explanation == model.explain(
        "classify", PHRASES[1], ""
    )
    assert math.exp(explanation.score) == pytest.approx(
        answer.values[explanation.answer], rel=1e-4
    )
    other = next(label for label in answer.values if label != explanation.answer)
    assert model.explain("classify", PHRASES[1], answer=other).score < explanation.score


def test_explaining_leaves_the_network_that_threads_share_unchanged() -> None:
    model = _model(None)
    before = model.embed(PHRASES)
    with ThreadPoolExecutor(3) as pool:
        assert (
            len(
                set(
                    pool.map(lambda _: model.explain("similar", *PHRASES[:2]), range(3))
                )
            )
            == 1
        )
    assert (model.embed(PHRASES) == before).all()
    assert all(parameter.grad is None for parameter in model.network.parameters())


UNEXPLAINED = [
    ("similer", PHRASES[:2], None, "LB-873"),
    ("similar", PHRASES[:1], None, "LB-874"),
    ("similar", PHRASES[:2], "nonsense", "LB-875"),
    ("order", PHRASES[:2], None, "LB-873"),
    ("classify", PHRASES[:1], None, "LB-615"),
    ("similar", ["a", 3], None, "LB-611"),
    (3, ["a"], None, "LB-611"),
    ("similar", ["a", "b"], ["swapped"], "LB-611"),
]


def test_what_cannot_be_explained_is_refused() -> None:
    for verb, texts, answer, code in UNEXPLAINED:
        with pytest.raises(LitebertError, match=code):
            _model(None).explain(verb, *texts, answer=answer)


@pytest.mark.parametrize(
    ("labels", "values", "line"),
    [
        (("stars",), {"stars": 3.434}, "stars 3.434       I love it"),
        (
            ("b",),
            {"a": 0.25, "b": 0.75},
            f"{'b':<18}{'I love it':<52}b 0.7500  a 0.2500",
        ),
        ((), {"toxic": 0.1}, f"{'no label':<18}{'I love it':<52}toxic 0.1000"),
        (
            ("a", "b"),
            {"a": 0.9, "b": 0.8},
            f"{'a, b':<18}{'I love it':<52}a 0.9000  b 0.8000",
        ),
        (("a\nb",), {"a\nb": 0.9}, f"{'a b 0.9':<18}I love it"),
    ],
)
def test_a_classification_is_a_line_without_repetition(
    labels: tuple[str, ...], values: dict[str, float], line: str
) -> None:
    shown = TABLE["classify"].line(
        {"text": "I  love it"}, Classification(labels, values)
    )
    assert shown == line
