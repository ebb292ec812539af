"""Files as people have them: each layout is recognised, and read for what it means."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from litebert.cli.rows import Reading, find_source
from litebert.config import Splitting
from litebert.errors import LitebertError
from litebert.tasks.check import check_files
from litebert.tasks.kinds.spans import locate_answer
from litebert.tasks.kinds.splitting import divide
from litebert.tasks.own.cells import label_of
from litebert.tasks.own.dataset import table_dataset
from litebert.tasks.own.layouts import open_table

Write = Callable[[str, bytes | str], Path]


def jsonl(rows: Iterable[object]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def examples(path: Path, split: str = "train", **chosen: Any) -> list[Any]:
    """Return all examples of a file, or those of a split."""
    if split == "train":
        chosen.setdefault("dev", path)
    return table_dataset(path, **chosen).read(path, split)


def notes(path: Path, **chosen: Any) -> str:
    return "\n".join(table_dataset(path, **chosen).notes)


# ---- a word a line -------------------------------------------------------------------

SENTENCES = [
    [("Anna", "B-PER"), ("left", "O"), ("Rome", "B-LOC")],
    [("The", "O"), ("old", "O"), ("bridge", "O"), ("stands", "O")],
    [("Bert", "B-PER"), ("Brown", "I-PER"), ("sleeps", "O")],
]


def lines(form: str, *, between: str = "\n", first: str = "") -> str:
    """Write the sentences with a word a line: {n} is its number, from 1."""
    text = ""
    for number, sentence in enumerate(SENTENCES, 1):
        text += first.format(sentence=number)
        for n, (word, tag) in enumerate(sentence, 1):
            text += form.format(n=n, word=word, tag=tag, sentence=number) + "\n"
        text += between
    return text


MISC = "{n}\t{word}\t_\tNOUN\t_\t_\t0\troot\t_\tSpaceAfter=No|name={tag}"
UPOS = "{n}\t{word}\t_\t{tag}\t_\t_\t0\troot\t_\t_"
WORDS = {
    "word and tag": ("a.conll", lines("{word} {tag}")),
    "the tag last": ("a.conll", lines("{word} NNP B-NP {tag}")),
    "numbered": ("a.conll", lines("{n} {word} {tag}")),
    "a tag between": ("a.conll", lines("{n} {word} X {tag}")),
    "a sentence's number": ("a.conll", lines("{sentence} {n} {word} {tag}")),
    "the name of a document": ("a.conll", lines("d/{sentence} 0 {n} {word} {tag}")),
    "GermEval": (
        "a.tsv",
        lines("{n}\t{word}\t{tag}\tO", first="#\tsource {sentence}\n"),
    ),
    "GermEval, inner tags": (
        "a.tsv",
        lines("{n}\t{word}\t{tag}\tO").replace("B-LOC\tO", "B-LOC\tB-ORGpart"),
    ),
    "tsv": ("a.tsv", lines("{word}\t{tag}")),
    "txt": ("a.txt", lines("{word} {tag}")),
    "txt with tabs": ("a.txt", lines("{word}\t{tag}", between=" \n")),
    "comments": ("a.txt", lines("{word} {tag}", first="# sentence\n")),
    "CoNLL-U": ("a.conllu", lines(MISC, first="# sent_id = {sentence}\n")),
    "CoNLL-U by its shape": ("a.conll", lines(MISC, first="# text = one\n")),
    "CoNLL-U, spans of tokens": (
        "a.conllu",
        lines(MISC, first="1-2\tAnna's\t_\t_\t_\t_\t_\t_\t_\t_\n"),
    ),
    "CoNLL-U Plus": (
        "a.conllup",
        "# global.columns = ID FORM UPOS NER\n" + lines("{n}\t{word}\tX\t{tag}"),
    ),
    "parts of speech": ("a.conllu", lines(UPOS)),
    "Kaggle": (
        "a.csv",
        "Sentence #,Word,POS,Tag\n"
        + lines("Sentence: {sentence},{word},X,{tag}", between="")
        .replace("Sentence: 1,left", ",left")
        .replace("Sentence: 1,Rome", ",Rome"),
    ),
    "a row a word": (
        "a.jsonl",
        jsonl(
            {"sentence_id": number, "token": word, "ner": tag}
            for number, sentence in enumerate(SENTENCES)
            for word, tag in sentence
        ),
    ),
    "blank lines in a table": ("a.csv", "word,tag\n" + lines("{word},{tag}")),
    "no header": ("a.csv", lines("{word},{tag}")),
    "blank lines, tabs": ("a.tsv", "token\tlabel\n" + lines("{word}\t{tag}")),
    "other names": ("a.csv", "satz;mot;x\n" + lines("{sentence};{word};{tag}")),
    # the columns after the tags differ in number
    "CoNLL-2012": (
        "a.v4_gold_conll",
        "#begin document (d); part 000\n"
        + lines("d 0 {n} {word} X (TOP* - - - Ann {tag} (V*) -")
        .replace("Brown X (TOP* - - - Ann I-PER (V*)", "Brown X * - - - Ann *)")
        .replace("Bert X (TOP* - - - Ann B-PER", "Bert X * - - - Ann (PER*")
        .replace("B-PER", "(PER)")
        .replace("B-LOC", "(LOC)")
        .replace(" O ", " * ")
        + "#end document\n",
    ),
    "WebAnno TSV": (
        "a.tsv",
        "#FORMAT=WebAnno TSV 3.3\n#T_SP=x.NamedEntity|identifier|value\n\n\n"
        + lines("{sentence}-{n}\t0-4\t{word}\t_\t{tag}\t", first="#Text=some text\n")
        .replace("Bert\t_\tB-PER", "Bert\t_\tPER[1]|X[2]")
        .replace("Brown\t_\tI-PER\t\n", "Brown\t_\tPER[1]\t\n3-2.1\t0-2\tBr\t_\tX\t\n")
        .replace("\tB-", "\t")
        .replace("\tO\t", "\t_\t"),
    ),
}


@pytest.mark.parametrize("name", WORDS)
def test_a_word_a_line_is_read_however_it_is_laid_out(name: str, write: Write) -> None:
    path = write(*WORDS[name])
    dataset = table_dataset(path, path)
    read = dataset.read(path, "train")
    pairs = [
        list(zip(example.words, dataset.family.labels(example), strict=True))
        for example in read
    ]
    assert pairs == SENTENCES
    unlabelled = dataset.read(path, "test")
    assert [example.words for example in unlabelled] == [each.words for each in read]


TEXT = "Anna left New York, Ms. Brown"
PLACES = [(0, 4, "PER"), (10, 18, "LOC"), (24, 29, "PER")]
NAMED = [{"start": start, "end": end, "label": label} for start, end, label in PLACES]
OFFSETS = [
    {"id": 1, "start_offset": a, "end_offset": b, "label": c} for a, b, c in PLACES
]
STUDIO = [{"value": {"start": a, "end": b, "labels": [c]}} for a, b, c in PLACES]
SPANS: dict[str, tuple[str, object]] = {
    "doccano": ("a.jsonl", {"id": 7, "text": TEXT, "label": PLACES}),
    "doccano, relations": ("a.jsonl", {"text": TEXT, "entities": OFFSETS}),
    "objects": ("a.jsonl", {"text": TEXT, "entities": NAMED}),
    "prodigy": (
        "a.jsonl",
        {
            "text": TEXT,
            "spans": NAMED,
            "tokens": [{"text": "Anna"}],
            "answer": "accept",
        },
    ),
    "spaCy": ("a.json", [TEXT, {"entities": PLACES}]),
    "spaCy, a line each": ("a.jsonl", [TEXT, {"entities": PLACES}]),
    "Label Studio": (
        "a.json",
        {"id": 1, "data": {"text": TEXT}, "annotations": [{"id": 2, "result": STUDIO}]},
    ),
    "Label Studio, short": (
        "a.json",
        {
            "text": TEXT,
            "label": [{"start": a, "end": b, "labels": [c]} for a, b, c in PLACES],
        },
    ),
    "other names": ("a.jsonl", {"satz": TEXT, "marken": NAMED}),
    "a table": ("a.csv", None),
}


@pytest.mark.parametrize("name", SPANS)
def test_entities_by_character_become_tags_of_words(name: str, write: Write) -> None:
    file, row = SPANS[name]
    text = f'text,spans\n"{TEXT}","{PLACES}"\n' * 1
    if row is not None:
        text = json.dumps([row]) if file.endswith(".json") else jsonl([row])
    path = write(file, text)
    dataset = table_dataset(path, path)
    (example,) = dataset.read(path, "train")
    assert example.words == ("Anna", "left", "New", "York", ",", "Ms", ".", "Brown")
    tags = dataset.family.labels(example)
    assert tags == ("B-PER", "O", "B-LOC", "I-LOC", "O", "O", "O", "B-PER")
    (unlabelled,) = dataset.read(path, "test")
    assert unlabelled.words == example.words


@pytest.mark.parametrize(
    "spans", [[(0, 4, "GPE(x)")], [{"start": 0, "end": 4, "label": "it's"}]]
)
def test_entities_in_a_cell_may_be_written_as_python_writes_them(
    spans: list[object], write: Write
) -> None:
    text = f'text,spans\n"{TEXT}","{spans!r}"\n'.replace('"it\'s"', '""it\'s""')
    path = write("a.csv", text)
    (first, *_) = table_dataset(path, path).family.head.labels
    assert first in ("B-GPE(x)", "B-it's")


def test_texts_with_entities_of_brat_are_read(tmp_path: Path) -> None:
    entities = [f"T{a}\t{label} {a} {b}\tx\n" for a, b, label in PLACES]
    parts = "T10\tLOC 10 13;14 18\tNew York\n"
    (tmp_path / "one.txt").write_text(TEXT, "utf-8")
    (tmp_path / "one.ann").write_text(
        entities[0] + parts + entities[2] + "R1\tLives Arg1:T0 Arg2:T10\n", "utf-8"
    )
    (tmp_path / "two.txt").write_text("Nobody left", "utf-8")
    (tmp_path / "two.ann").touch()
    dataset = table_dataset(tmp_path, tmp_path)
    first, second = dataset.read(tmp_path, "train")
    tags = dataset.family.labels(first)
    assert tags == ("B-PER", "O", "B-LOC", "I-LOC", "O", "O", "O", "B-PER")
    assert dataset.family.labels(second) == ("O", "O")
    assert "2 texts with entities of brat" in dataset.notes[0]


def test_words_with_tags_evaluate_what_entities_by_character_trained(
    write: Write,
) -> None:
    trained = write("a.jsonl", jsonl([{"text": TEXT, "label": PLACES}] * 2))
    dataset = table_dataset(trained, trained)
    words = write("b.conll", "Ada B-PER\nleft O\n\n")
    (example,) = dataset.read(words, "dev")
    assert dataset.family.labels(example) == ("B-PER", "O")


def test_entities_that_are_no_words_are_counted_or_refused(write: Write) -> None:
    rows = [
        {"text": "Annas hat", "entities": [[0, 4, "PER"], [0, 2, "X"], [6, 9, "HAT"]]}
    ]
    path = write("a.jsonl", jsonl(rows))
    assert "1 end inside of one" in notes(path, dev=path)
    assert "left out: 1 without a word" in notes(path, dev=path)
    beyond = write(
        "b.jsonl", jsonl([rows[0], {"text": "a", "entities": [[0, 9, "PER"]]}])
    )
    with pytest.raises(LitebertError, match=r"LB-868: .*line 2"):
        examples(beyond)
    rejected = rows[0] | {"spans": [], "answer": "reject"}
    assert len(examples(write("c.jsonl", jsonl([rows[0], rejected])))) == 1


WAYS = [
    ("words", "He left, Mr Brown .", ["He", "left", ",", "Mr", "Brown", "."]),
    ("spaces", "He left, Mr Brown.", ["He", "left,", "Mr", "Brown."]),
    ("ideographs", "去北京 by U1，", ["去", "北", "京", "by", "U1", "，"]),
    ("characters", "去U1", ["去", "U", "1"]),
]


@pytest.mark.parametrize(("splitting", "text", "words"), WAYS)
def test_a_text_is_divided_as_the_training_texts_were(
    splitting: Splitting, text: str, words: list[str], write: Write
) -> None:
    assert [text[a:b] for a, b in divide(text, splitting)] == words
    tags = ["B-X", *["O"] * (len(words) - 1)]
    path = write("a.jsonl", jsonl([{"tokens": words, "tags": tags}] * 2))
    dataset = table_dataset(path, path)
    assert dataset.family.head.splitting == splitting
    assert dataset.settled.get("splitting", "words") == splitting
    new = write("b.jsonl", jsonl([{"tokens": text}]))
    recalled = table_dataset(path, settled=dataset.settled)
    assert recalled.read(new, "test")[0].words == tuple(words)


def test_a_column_of_words_alone_has_no_tags(write: Write) -> None:
    table = open_table(
        write("a.conllup", "# global.columns = FORM\nAnna\nleft\n\nShe\n")
    )
    assert table.columns == ("tokens", "1")
    assert [row["tokens"] for _, row in table.rows()] == [["Anna", "left"], ["She"]]


def test_other_columns_of_words_are_chosen_by_number_or_name(write: Write) -> None:
    path = write("a.conll", lines("{n} x{word} {tag} {word} O"))
    chosen = table_dataset(path, path, columns=("tokens=4", "tags=3"))
    assert chosen.read(path, "train")[0].words == ("Anna", "left", "Rome")
    assert chosen.settled["columns"] == ["tokens=4", "tags=3"]
    path = write("b.conllu", lines(MISC))
    chosen = table_dataset(path, path, columns=("tags=upos",), labels=("NOUN", "X"))
    assert chosen.family.head.labels == ("NOUN", "X")
    assert "words in form, tags in name" in notes(path)


def test_rows_of_words_without_sentences_are_refused_with_the_flag(
    write: Write,
) -> None:
    head = "word,document,tag\n"
    text = lines("{word},d,{tag}", between="")
    with pytest.raises(LitebertError, match="LB-866") as caught:
        open_table(write("a.csv", head + text))
    assert caught.value.next == "--column sentence=NAME"
    numbered = write(
        "b.csv", "word,s,tag\n" + lines("{word},{sentence}{n},{tag}", between="")
    )
    with pytest.raises(LitebertError, match="LB-866"):
        open_table(numbered)
    assert len(examples(numbered, columns=("sentence=s",))) == 10


def test_text_that_is_no_table_is_refused_with_the_layouts(write: Write) -> None:
    with pytest.raises(LitebertError, match=r"LB-304(.|\n)*\.conll") as caught:
        open_table(write("a.txt", "A line of text.\n\nAnother one, longer.\n"))
    assert "litebert pretrain" in str(caught.value.next)
    with pytest.raises(LitebertError, match=r"LB-304(.|\n)*convert it to \.csv"):
        open_table(write("a.yml", "nlu:\n- intent: greet\n"))


# ---- delimited files -----------------------------------------------------------------


def reviews(form: str, labels: Iterable[str], number: int = 24) -> str:
    """Write rows with labels in turn."""
    names = [*labels]
    rows = [form.format(n=n, label=names[n % len(names)]) for n in range(number)]
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize(
    "labels", [("0", "1", "0.0", "1.0"), ("true", "False", "TRUE", "false")]
)
def test_a_label_has_one_spelling(labels: tuple[str, ...], write: Write) -> None:
    path = write("a.csv", "text,label\n" + reviews("row number {n},{label}", labels))
    names = table_dataset(path).family.head.labels
    assert names == tuple(sorted({str(label_of(label)) for label in labels}))
    assert len(names) == 2


def test_labels_are_the_same_in_all_kinds_of_file(write: Write) -> None:
    rows = [{"text": f"row number {n}", "label": n % 2} for n in range(24)]
    other = [row | {"label": float(row["label"])} for row in rows]  # type: ignore[arg-type]
    train = write("a.jsonl", jsonl(rows))
    dataset = table_dataset(train)
    for path in (
        write("b.jsonl", jsonl(other)),
        write(
            "b.csv", "text,label\n" + reviews("row number {n},{label}", ("0.0", "1.0"))
        ),
    ):
        read = dataset.read(path, "dev")
        assert [example.label for example in read] == [0, 1] * 12


HEADS = {
    "empty cells": ("v1,v2,,,\n", 'spam,"so it is, {n}",,,'),
    "too few cells": ("v1,v2,,\n", 'spam,"so it is, {n}"'),
    "empty cells below": ("label,text\n", 'spam,"so it is, {n}",'),
    "sep=": ("sep=;\nlabel;text\n", "spam;so it is, {n}"),
    "sep=,": ('"sep=,"\nlabel,text\n', '{n},"so it is, {n}"'),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_header_with_empty_cells_is_one_and_sep_is_none(
    name: str, write: Write
) -> None:
    head, form = HEADS[name]
    table = open_table(write("a.csv", head + reviews(form, "x")))
    number, row = next(table.rows())
    assert (table.has_header, number) == (True, 1 + head.count("\n"))
    assert "so it is, 0" in row.values()


@pytest.mark.parametrize("form", ['"text {n}","{label}"', "text {n};{label}"])
def test_decimal_commas_are_numbers(form: str, write: Write) -> None:
    text = form.format(n="text", label="rating").replace("text text", "text") + "\n"
    text += reviews(form, ("1,5", "3,5", "2,0"))
    dataset = table_dataset(write("a.csv", text))
    assert dataset.settled["problem"] == "regression"


def test_ids_with_commas_stay_as_they_are(write: Write) -> None:
    text = "id;text;label\n" + reviews("{n},7;text {n};{label}", ("good", "bad"))
    (_, row), *_ = open_table(write("a.csv", text)).rows()
    assert row["id"] == "0,7"


def test_two_labels_between_quotes_are_no_number(write: Write) -> None:
    form = '"text {n}","{label}"'
    text = '"text","labels"\n' + reviews(form, ("1", "2", "1,2", "3"))
    dataset = table_dataset(write("a.csv", text), problem="multi-label")
    assert dataset.family.head.labels == ("1", "2", "3")


# ---- labels and splits ---------------------------------------------------------------


def test_a_dash_is_a_doubtful_label_and_missing_on_request(write: Write) -> None:
    rows = [
        {"gold_label": label, "sentence1": f"one {n}", "sentence2": f"two {n}"}
        for n, label in enumerate(["entailment", "neutral", "-"] * 12)
    ]
    path = write("a.jsonl", jsonl(rows))
    assert "- may mean that there is no label" in notes(path)
    doubts = [
        each for each in check_files(path).findings if each.kind == "doubtful label"
    ]
    assert [each.count for each in doubts] == [12]
    skipping = table_dataset(path, path, skips_unlabelled=True)
    assert skipping.family.head.labels == ("entailment", "neutral")
    assert len(skipping.read(path, "train")) == 24
    assert any("omitted 12 rows" in note for note in skipping.notes)


@pytest.mark.parametrize("names", [("train", "test"), ("Training", "PublicTest")])
def test_a_column_of_splits_is_used(names: tuple[str, str], write: Write) -> None:
    text = "text,label,split\n"
    text += reviews("row {n},{label}," + names[0], "ab", 30)
    text += reviews("new {n},{label}," + names[1], "ab", 6)
    path = write("a.csv", text)
    dataset = table_dataset(path)
    assert len(dataset.read(path, "train")) == 30
    held_out = dataset.read(path, "dev")
    assert [example.first for example in held_out] == [f"new {n}" for n in range(6)]
    assert any("rows by column split" in note for note in dataset.notes)
    assert any("chosen on the test rows" in note for note in dataset.notes)
    # other files need no such column
    other = write("b.csv", "text,label\nrow,a\n")
    assert len(dataset.read(other, "dev")) == 1


def test_rows_for_development_are_evaluated_on_before_those_for_the_test(
    write: Write,
) -> None:
    splits = ["train"] * 8 + ["validation"] * 2 + ["test"] * 2
    rows = [f"row {n},{'ab'[n % 2]},{split}" for n, split in enumerate(splits)]
    path = write("a.csv", "text,label,set\n" + "\n".join(rows))
    read = table_dataset(path).read(path, "dev")
    assert [example.first for example in read] == ["row 8", "row 9"]


def test_a_column_of_other_values_is_no_split(write: Write) -> None:
    path = write("a.csv", "text,label,set\n" + reviews("row {n},{label},new", "ab", 30))
    assert len(table_dataset(path).read(path, "train")) == 27


# ---- answers in a context ------------------------------------------------------------

EMOJI = "😀🎉 Room 7 of the hotel costs 40 euros a night, not 40 euros a day."


@pytest.mark.parametrize(
    ("context", "text", "start", "place"),
    [
        ("The 40 rooms cost 4 euros.", "4", None, 18),
        ("The artist sold art.", "art", None, 16),
        ("In 1990 Ann met An.", "An", None, 16),
        ("東京は大きい。", "大き", None, 3),
        (EMOJI, "40 euros", 31, 29),  # in units of UTF-16
        (EMOJI, "40 euros", len(EMOJI[:29].encode()), 29),  # in bytes
        (EMOJI, "40 euros", 54, 51),
        ("one two", "two", -1, 4),
    ],
)
def test_answers_are_located_by_their_text(
    context: str, text: str, start: float | None, place: int
) -> None:
    assert locate_answer(context, text, start).start == place


def test_doubtful_places_of_answers_are_counted(write: Write) -> None:
    rows = [
        {"question": "?", "context": f"{n} is one of two, {n}.", "answer": str(n)}
        for n in range(10, 14)
    ]
    path = write("a.jsonl", jsonl(rows))
    assert "4 answers without a start in several places" in notes(path)
    rows = [row | {"answer_start": 1} for row in rows]
    assert "4 answers not where the start says" in notes(write("b.jsonl", jsonl(rows)))


def test_a_damaged_row_does_not_end_its_sentence(write: Write) -> None:
    table = "word,tag\nAnna,B-PER\nsaw,O,too,many\nRome,B-LOC\n\nThe,O\nbridge,O\n"
    path = write("a.csv", table)
    _, rows = zip(*open_table(path).scan(), strict=True)
    errors = [row for row in rows if isinstance(row, LitebertError)]
    sentences = [row for row in rows if not isinstance(row, LitebertError)]
    assert len(errors) == 1
    assert [row["tokens"] for row in sentences] == [["Anna", "Rome"], ["The", "bridge"]]


# ---- files of new texts to be tagged -------------------------------------------------


def test_texts_to_be_tagged_stand_in_the_column_of_the_training(write: Write) -> None:
    path = write("a.csv", "satz;id\nAnna left.;1\n")
    reading = Reading(("text",), ("text",), trained={"tokens": "satz", "tags": "t"})
    rows = list(reading.rows([find_source(str(path))]))
    assert rows == [(1, {"text": "Anna left.", "id": "1"})]


def test_the_texts_of_a_pair_stand_in_the_columns_of_the_training(
    write: Write,
) -> None:
    path = write("a.csv", "satz,zweiter,label\nAnna left.,Bert came.,1\n")
    trained = {"text": "satz", "second": "zweiter"}
    reading = Reading(("first", "second"), ("first", "second"), trained=trained)
    rows = list(reading.rows([find_source(str(path))]))
    assert rows == [(1, {"first": "Anna left.", "second": "Bert came."})]


def test_words_to_be_tagged_are_for_predict(write: Write) -> None:
    path = write("a.conll", lines("{word} {tag}"))
    reading = Reading(("text",), ("text",))
    with pytest.raises(LitebertError, match=r"LB-944(.|\n)*litebert.predict"):
        list(reading.rows([find_source(str(path))]))


def test_a_file_without_the_column_is_told_the_likely_one(write: Write) -> None:
    path = write("a.csv", "id,Review,sentiment\n1,so good,pos\n2,so dull,neg\n")
    reading = Reading(("text",), ("text",))
    with pytest.raises(LitebertError, match="LB-944") as caught:
        list(reading.rows([find_source(str(path))]))
    assert caught.value.next == "add --column text=Review"
    path = write("b.csv", "so good it was,pos\nso dull it is,neg\n" * 3)
    with pytest.raises(LitebertError, match="LB-944") as caught:
        list(reading.rows([find_source(str(path))]))
    assert caught.value.next == "add --column text=1"
