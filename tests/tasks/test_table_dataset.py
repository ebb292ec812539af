"""Files of one's own as data sets: every problem from file to answers; splits; refusals."""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.config import AlbertConfig, OptimConfig, TrainConfig
from litebert.errors import LitebertError
from litebert.nn import AlbertForTask
from litebert.optim import build_optimizer
from litebert.tasks.finetuning import Finetuning, answer
from litebert.tasks.kinds.choice import ChoiceExample, MultipleChoice
from litebert.tasks.kinds.spans import ConditionalSpanAnswering, SpanAnswering
from litebert.tasks.kinds.tagging import TagExample, TokenClassification
from litebert.tasks.kinds.text import MultiLabel, Regression, Scores, SingleLabel, TextExample
from litebert.tasks.own.dataset import TableDataset, drawn, table_dataset
from litebert.tokenizer import Tokenizer, train_tokenizer
from litebert.train.loop import training_step

Write = Callable[[str, str], Path]
STORY = "Anna took a red ball to the river in the morning."


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Give a writer of files."""

    def write_file(name: str, content: str) -> Path:
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return path

    return write_file


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """Give a tokenizer of a few words."""
    return Tokenizer.from_model(train_tokenizer(STORY.split() * 20, vocab_size=30))


def jsonl(rows: Sequence[object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def reviews(number: int = 40) -> str:
    texts = (f"{'good' if n % 2 else 'bad'} ball {n}" for n in range(number))
    rows = "".join(f"{text},{'pos' if 'good' in text else 'neg'}\n" for text in texts)
    return f"text,label\n{rows}"


def questions(*, is_impossible: bool = False) -> list[object]:
    found = {"text": ["red ball"], "answer_start": [12]}
    none: dict[str, list[object]] = {"text": [], "answer_start": []}
    return [
        {
            "id": f"q{n}",
            "question": f"What {n}?",
            "context": f"{STORY} {n // 2}",
            "answers": none if is_impossible and n % 2 else found,
        }
        for n in range(20)
    ]


CHOICES = [
    {"question": f"Where {n}?", "choices": ["river", "morning", "ball"][: 2 + n % 2], "label": n % 2} for n in range(20)
]
TAGGED = "\n".join(f"Anna B-PER\ntook O\nball{n} O\n" for n in range(20))
PROBLEMS: dict[str, tuple[str, str, type[Any], str, int]] = {
    "classification": ("r.csv", reviews(), SingleLabel, "accuracy", 2),
    "multi-label": (
        "m.jsonl",
        jsonl([{"text": f"ball {n}", "tags": [["red"], ["red", "old"], []][n % 3]} for n in range(30)]),
        MultiLabel,
        "micro_f1",
        2,
    ),
    "regression": (
        "s.tsv",
        "sentence1\tsentence2\tscore\n" + "".join(f"a {n}\tb\t{n / 8}\n" for n in range(30)),
        Regression,
        "pearson",
        1,
    ),
    "token-classification": ("t.conll", TAGGED, TokenClassification, "f1", 2),
    "multiple-choice": ("c.jsonl", jsonl(CHOICES), MultipleChoice, "accuracy", 3),
    "question-answering": ("q.json", json.dumps(questions()), SpanAnswering, "f1", 0),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_problem_goes_from_file_to_answers(problem: str, write: Write, tokenizer: Tokenizer) -> None:
    name, content, family, key, num_labels = PROBLEMS[problem]
    path = write(name, content)
    dataset = table_dataset(path, held_out=0.2)
    assert (dataset.problem, dataset.key_measure, type(dataset.family)) == (problem, key, family)
    assert len(dataset.labels) == num_labels
    train, dev = dataset.read(path, "train"), dataset.read(path, "dev")
    assert 0 < len(dev) < len(train)
    network, task = prepared(dataset, tokenizer, train)
    optimizer = build_optimizer(OptimConfig(name="adamw"), network.named_parameters())
    for step, works in enumerate(task.batches(0, 2)):
        training_step(task, works, optimizer, step=step, learning_rate=1e-3, clip_norm=1.0, seed=1)
    answers = answered(dataset, network, tokenizer, dev)
    assert key in dataset.family.measures(dev, answers)
    files = dataset.submission("dev", dev, answers)
    lines = list(csv.reader(io.StringIO(files["dev.csv"])))
    assert lines[0][:2] == ["id", "prediction"]
    assert [line[0] for line in lines[1:]] == [example.id for example in dev]


def prepared(
    dataset: TableDataset[Any, Any], tokenizer: Tokenizer, examples: Sequence[Any]
) -> tuple[AlbertForTask, Finetuning[Any, Any]]:
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    generator = torch.Generator().manual_seed(0)
    network = AlbertForTask(config, dataset.family.head, generator=generator)
    features = dataset.family.features(examples, tokenizer, max_length=64, training=True)
    train = TrainConfig(steps=2, batch_size=4)
    return network, Finetuning(network, dataset.family, features=features, held_out={}, train=train)


def answered(
    dataset: TableDataset[Any, Any], network: AlbertForTask, tokenizer: Tokenizer, examples: Sequence[Any]
) -> list[Any]:
    features = dataset.family.features(examples, tokenizer, max_length=64, training=False)
    return answer(network, dataset.family, examples, features)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_was_settled_reads_new_files_without_the_training_file(problem: str, write: Write) -> None:
    name, content, *_ = PROBLEMS[problem]
    path = write(name, content)
    dataset = table_dataset(path)
    recalled = table_dataset(None, columns=dataset.columns, problem=dataset.problem, labels=dataset.labels)
    assert recalled.family == dataset.family
    parts = [*dataset.read(path, "train"), *dataset.read(path, "dev")]
    assert set(recalled.read(path, "dev")) == set(parts)


def test_guesses_are_said(write: Write) -> None:
    path = write("my.csv", "when;review;stars\n" + "1999;so good;5\n2001;so bad;1\n" * 9)
    assert table_dataset(path).notes == (
        f"{path}: semicolons between cells, names in the first line",
        "columns: text=review label=stars; not used: when",
        "problem: classification; 2 labels: 1 (9), 5 (9)",
        "evaluated on: 10 % of the rows, the same share of each label",
    )


def test_a_text_that_is_not_used_is_a_warning(write: Write) -> None:
    rows = "".join(f"A man is asleep,He dreams of {n},{'yn'[n % 2]}\n" for n in range(20))
    path = write("pairs.csv", f"a,b,label\n{rows}")
    assert (
        "warning: not used, though it looks like text: a; for pairs: --column text=a --column second=b"
    ) in table_dataset(path).notes
    for columns in (["text=b"], ["text=a", "second=b"]):
        assert not any("warning" in note for note in table_dataset(path, columns=columns).notes)


def test_labels_are_numbers_by_their_own_order(write: Write) -> None:
    path = write("r.csv", "text,label\nten,10\nnine,9\nnine again,9\nten,10\n")
    dataset = table_dataset(path, path)
    assert dataset.labels == ("9", "10")
    assert [example.label for example in dataset.read(path, "train")] == [1, 0, 0, 1]


def test_dev_file_is_read_whole_and_so_is_the_training_file(write: Write) -> None:
    train, dev = write("train.csv", reviews(20)), write("dev.csv", reviews(6))
    dataset = table_dataset(train, dev)
    assert len(dataset.read(train, "train")) == 20
    assert len(dataset.read(train, "dev")) == len(dataset.read(dev, "dev")) == 6


def test_label_that_training_lacks_is_refused_with_its_line(write: Write) -> None:
    train, dev = write("train.csv", reviews()), write("dev.csv", "text,label\nso,pos\nno,negg\n")
    with pytest.raises(LitebertError, match=r"dev\.csv, line 3: the training data has no label") as caught:
        table_dataset(train, dev).read(train, "dev")
    assert "did you mean neg?" in caught.value.next


def test_row_without_a_label_is_refused_for_training_only(write: Write) -> None:
    train = write("train.csv", reviews() + "nothing said,\n")
    dataset = table_dataset(train)
    with pytest.raises(LitebertError, match="line 42: there is no label"):
        dataset.read(train, "train")
    assert dataset.read(train, "test")[-1] == TextExample("42", "nothing said")


def test_file_to_be_answered_needs_no_labels_and_no_ids(write: Write) -> None:
    dataset = table_dataset(write("train.csv", "id,text,label\n" + "1,ja,a\n2,no,b\n" * 9))
    new = write("new.csv", "text\nso, and so\nwell\n")
    assert dataset.read(new, "test") == [TextExample("2", "so, and so"), TextExample("3", "well")]


def test_file_without_the_text_is_refused(write: Write) -> None:
    dataset = table_dataset(write("train.csv", reviews()))
    with pytest.raises(LitebertError, match=r"LB-851: there is no column text in .*new\.csv"):
        dataset.read(write("new.csv", "txt,label\na b,pos\n"), "test")


def test_files_after_one_without_a_header_have_none(write: Write) -> None:
    dataset = table_dataset(write("train.csv", "a fine film,pos\na dull film,neg\n" * 9))
    assert dataset.columns == ("text=1", "label=2", "header=no")
    assert len(dataset.read(write("new.csv", "text,label\nan odd film,pos\n"), "test")) == 2


def test_ids_that_repeat_give_way_to_lines(write: Write) -> None:
    path = write("r.csv", "id,text,label\nx,a,pos\nx,b,neg\n")
    dataset = table_dataset(path, path)
    assert [example.id for example in dataset.read(path, "train")] == ["2", "3"]


def test_nothing_in_a_text_column_is_an_empty_text(write: Write) -> None:
    path = write("r.jsonl", jsonl([{"text": None, "label": 1}, {"text": "a", "label": 0}]))
    assert table_dataset(path, path).read(path, "train")[0].first == ""


def test_problem_can_be_chosen(write: Write) -> None:
    path = write("r.csv", "text,label\n" + "".join(f"row {n},{n % 5}\n" for n in range(40)))
    assert table_dataset(path).problem == "classification"
    assert table_dataset(path, problem="regression").read(path, "dev")[0].label in range(5)
    with pytest.raises(LitebertError, match="LB-855") as caught:
        table_dataset(path, problem="regresion")
    assert "did you mean regression?" in caught.value.next


def test_label_sets_in_one_cell_are_split_when_asked(write: Write) -> None:
    path = write("r.csv", "text,label\none,red|old\ntwo,\nthree,old\n")
    dataset = table_dataset(path, path, problem="multi-label")
    assert dataset.labels == ("old", "red")
    assert [example.label for example in dataset.read(path, "train")] == [(0, 1), (), (0,)]


def test_column_for_each_label_is_read_as_marks(write: Write) -> None:
    path = write("r.csv", "text,toxic,rude\none,1,0\ntwo,0,0\nthree,1,1\n")
    dataset = table_dataset(path, path, columns=["label=toxic,rude"])
    assert (dataset.problem, dataset.labels) == ("multi-label", ("toxic", "rude"))
    assert [example.label for example in dataset.read(path, "train")] == [(0,), (), (0, 1)]
    with pytest.raises(LitebertError, match=r"LB-860: .*line 2: column toxic"):
        bad = write("bad.csv", "text,toxic,rude\none,maybe,0\n")
        dataset.read(bad, "dev")


@pytest.mark.parametrize(
    ("content", "columns", "code"),
    [
        ("text\none day\nso be it\n", (), "LB-861"),
        ("text,label\nso good,pos\nso bad,pos\n", (), "LB-856"),
        ("text,label\n" + "".join(f"so good,{n}x\n" for n in range(99)), (), "LB-862"),
        ("text,score\nso good,1.5\nso bad,none\n", ("label=score",), "LB-859"),
    ],
)
def test_labels_that_cannot_be_learnt_are_refused(
    content: str, columns: tuple[str, ...], code: str, write: Write
) -> None:
    path = write("r.csv", content)
    problem = "regression" if columns else None
    with pytest.raises(LitebertError, match=code):
        table_dataset(path, columns=columns, problem=problem).read(path, "train")


def test_tags_and_words_must_be_as_many(write: Write) -> None:
    rows = [{"tokens": ["a", "b"], "tags": ["O", "B-X"]}, {"tokens": ["a"], "tags": ["O", "O"]}]
    path = write("t.jsonl", jsonl(rows))
    with pytest.raises(LitebertError, match=r"LB-863: .*line 2: .*\n.*1 words, 2 tags"):
        table_dataset(path, path).read(path, "train")


def test_words_are_lists_or_texts_with_spaces(write: Write) -> None:
    wanted = TagExample("2", ("Anna", "took"), (0, 1))
    for words, tags in (("Anna took", "B-PER O"), ("\"['Anna', 'took']\"", "\"['B-PER', 'O']\"")):
        path = write("t.csv", f"words,tags\n{words},{tags}\n")
        assert table_dataset(path, path).read(path, "train") == [wanted]


def test_tags_without_entities_are_judged_by_accuracy(write: Write) -> None:
    path = write("t.jsonl", jsonl([{"tokens": ["a", "b"], "tags": [3, 12]}]))
    dataset = table_dataset(path, path)
    assert (dataset.key_measure, dataset.labels) == ("accuracy", ("3", "12"))


@pytest.mark.parametrize(
    ("labels", "numbers"),
    [
        ([0, 2, 1], [0, 2, 1]),
        (["1", "3", "2"], [0, 2, 1]),
        (["A", "C", "B"], [0, 2, 1]),
        (["a", "c", "b"], [0, 2, 1]),
        (["ball", "river", "map"], [0, 2, 1]),
    ],
)
def test_right_choice_is_called_by_number_letter_or_text(
    labels: list[object], numbers: list[int], write: Write
) -> None:
    rows = [{"question": f"What {label}?", "options": ["ball", "map", "river"], "answer": label} for label in labels]
    path = write("c.jsonl", jsonl(rows))
    dataset = table_dataset(path, path)
    assert [example.label for example in dataset.read(path, "train")] == numbers


def test_choices_may_have_names_of_their_own(write: Write) -> None:
    choices = {"text": ["ball", "map"], "label": ["x", "y"]}
    path = write("c.jsonl", jsonl([{"question": "What?", "choices": choices, "answerKey": "y"}]))
    (example,) = table_dataset(path, path).read(path, "train")
    assert example == ChoiceExample("1", "", "What?", ("ball", "map"), 1)


def test_choices_in_columns_may_be_fewer(write: Write) -> None:
    path = write("c.csv", "question,A,B,C,answer\nWhat?,ball,map,river,C\nWho?,Anna,Bert,,B\n")
    second = table_dataset(path, path).read(path, "train")[1]
    assert second == ChoiceExample("3", "", "Who?", ("Anna", "Bert"), 1)


@pytest.mark.parametrize(("row", "code"), [("Who?,Anna,,,A", "LB-864"), ("Who?,Anna,Bert,,C", "LB-865")])
def test_question_that_cannot_be_answered_is_refused(row: str, code: str, write: Write) -> None:
    path = write("c.csv", f"question,A,B,C,answer\nWhat?,ball,map,river,C\n{row}\n")
    with pytest.raises(LitebertError, match=f"{code}: .*line 3"):
        table_dataset(path, path).read(path, "train")


def test_questions_without_an_answer_make_it_squad_2(write: Write) -> None:
    path = write("q.json", json.dumps(questions(is_impossible=True)))
    dataset = table_dataset(path, path)
    assert isinstance(dataset.family, ConditionalSpanAnswering)
    assert [example.is_impossible for example in dataset.read(path, "train")[:2]] == [False, True]


ANSWERS = [
    {"answers": [{"text": "red ball", "answer_start": 12}]},
    {"answers": {"text": "red ball", "answer_start": 12}},
    {"answers": json.dumps({"text": ["red ball"], "answer_start": [12]})},
    {"answer": "red ball", "answer_start": "12"},
    {"answers": ["red ball"], "answer_start": [12]},
]


@pytest.mark.parametrize("answers", ANSWERS)
def test_answers_are_read_however_they_are_laid_out(answers: dict[str, object], write: Write) -> None:
    path = write("q.jsonl", jsonl([{"question": "What?", "context": STORY, **answers}]))
    (example,) = table_dataset(path, path).read(path, "train")
    assert [(one.text, one.start) for one in example.answers] == [("red ball", 12)]


def test_answer_without_a_start_stands_where_it_is_found_first(write: Write) -> None:
    path = write("q.csv", f"question,context,answer\nWhat?,{STORY},the\n")
    (example,) = table_dataset(path, path, problem="question-answering").read(path, "train")
    assert example.answers[0].start == STORY.index("the")


@pytest.mark.parametrize("start", [11, 13, -1, 10**9])
def test_answer_that_stands_elsewhere_is_refused(start: int, write: Write) -> None:
    answers = [{"text": "red ball", "answer_start": start}]
    path = write("q.jsonl", jsonl([{"question": "?", "context": STORY, "answers": answers}]))
    with pytest.raises(LitebertError, match=r"LB-866: .*line 1: the answer is not in the context"):
        table_dataset(path, path).read(path, "train")


def test_unknown_split_is_refused(write: Write) -> None:
    path = write("r.csv", reviews())
    with pytest.raises(LitebertError, match="LB-867"):
        table_dataset(path).read(path, "validation")


@pytest.mark.parametrize(
    ("columns", "problem", "labels"),
    [((), "classification", ("a", "b")), (("text=a",), None, ("a", "b")), (("text=a",), "classification", ())],
)
def test_without_a_training_file_all_must_be_said(
    columns: tuple[str, ...], problem: str | None, labels: tuple[str, ...]
) -> None:
    with pytest.raises(LitebertError, match="LB-868"):
        table_dataset(None, columns=columns, problem=problem, labels=labels)


def test_held_out_rows_do_not_depend_on_order_or_on_copies(write: Write) -> None:
    lines = [f"row {n},{'ab'[n % 2]}\n" for n in range(60)]
    path = write("one.csv", "text,label\n" + "".join(lines))
    other = write("two.csv", "text,label\n" + "".join(reversed(lines)))
    chosen = [{e.first for e in table_dataset(p).read(p, "dev")} for p in (path, other)]
    assert chosen[0] == chosen[1]
    assert len(chosen[0]) == 6


def test_held_out_rows_have_the_same_share_of_each_label(write: Write) -> None:
    labels = ["rare"] * 20 + ["common"] * 180
    path = write("r.csv", "text,label\n" + "".join(f"row {n},{x}\n" for n, x in enumerate(labels)))
    dev = table_dataset(path).read(path, "dev")
    assert Counter(example.label for example in dev) == {0: 18, 1: 2}


def test_one_bad_score_among_many_is_refused_by_its_line_and_makes_no_classes(write: Write) -> None:
    scores = [f"{n % 10 / 2}" for n in range(60)]
    scores[17] = "nan"
    path = write("s.csv", "text,score\n" + "".join(f"row {n},{x}\n" for n, x in enumerate(scores)))
    dataset = table_dataset(path)
    assert dataset.problem == "regression"
    with pytest.raises(LitebertError, match="LB-859") as caught:
        dataset.read(path, "train")
    assert "line 19" in caught.value.what


def test_nan_among_numbered_classes_is_no_class(write: Write) -> None:
    cells = [str(n % 3) for n in range(30)] + ["NaN"]
    path = write("c.csv", "text,label\n" + "".join(f"row {n},{x}\n" for n, x in enumerate(cells)))
    dataset = table_dataset(path)
    assert dataset.labels == ("0", "1", "2")
    with pytest.raises(LitebertError, match="LB-857"):
        dataset.read(path, "train")


@pytest.mark.parametrize("missing", ["", "nan"])
def test_rows_without_a_label_are_omitted_and_counted_on_request(missing: str, write: Write) -> None:
    cells = [f"{n % 4}.5" for n in range(30)] + [missing]
    path = write("c.csv", "text,score\n" + "".join(f"row {n},{x}\n" for n, x in enumerate(cells)))
    dataset = table_dataset(path, skips_unlabelled=True)
    assert f"{path.name}: 1 rows without a label are omitted" in dataset.notes
    assert len(dataset.read(path, "train")) + len(dataset.read(path, "dev")) == 30


@settings(deadline=None)
@given(keys=st.lists(st.text(max_size=3), min_size=1), share=st.floats(0.01, 0.99))
def test_equal_keys_are_held_out_together(keys: list[str], share: float) -> None:
    is_drawn = drawn(keys, share)
    assert is_drawn.any()
    if len(set(keys)) > 1:
        sides = [{bool(d) for key, d in zip(keys, is_drawn, strict=True) if key == one} for one in keys]
        assert all(len(side) == 1 for side in sides)
    elif len(keys) > 1:
        assert is_drawn.sum() == max(1, round(share * len(keys)))


def test_contexts_are_held_out_with_all_their_questions(write: Write) -> None:
    path = write("q.json", json.dumps(questions()))
    dataset = table_dataset(path, held_out=0.3)
    train, dev = ({example.context for example in dataset.read(path, s)} for s in ("train", "dev"))
    assert train
    assert dev
    assert not train & dev


def test_answers_are_written_with_all_probabilities(write: Write) -> None:
    path = write("r.csv", "id,text,label\nx,a,pos\ny,b,neg\n")
    dataset = table_dataset(path, path)
    examples = dataset.read(path, "test")
    files = dataset.submission("test", examples, [Scores((0.25, 0.75)), Scores((0.9, 0.1))])
    assert files == {"test.csv": "id,prediction,neg,pos\nx,pos,0.25,0.75\ny,neg,0.9,0.1\n"}


def test_choices_are_written_by_number_also_where_there_are_fewer(write: Write) -> None:
    path = write("c.csv", "question,A,B,C,answer\nWhat?,ball,map,river,C\nWho?,Anna,Bert,,B\n")
    dataset = table_dataset(path, path)
    answers = [Scores((0.1, 0.2, 0.7)), Scores((0.6, 0.4))]
    written = dataset.submission("test", dataset.read(path, "test"), answers)["test.csv"]
    assert written.splitlines() == [
        "id,prediction,choice 1,choice 2,choice 3",
        "2,river,0.1,0.2,0.7",
        "3,Anna,0.6,0.4,",
    ]
