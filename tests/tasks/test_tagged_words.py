"""Files with a word a line and its tag: each layout is recognized and read."""

import pytest

from litebert.config import Splitting
from litebert.errors import LitebertError
from litebert.tasks.kinds.splitting import divide
from litebert.tasks.tables.dataset import table_dataset
from litebert.tasks.tables.layouts import open_table
from tests.tables import Write, jsonl

SENTENCES = [
    [("Anna", "B-PER"), ("left", "O"), ("Rome", "B-LOC")],
    [("The", "O"), ("old", "O"), ("bridge", "O"), ("stands", "O")],
    [("Bert", "B-PER"), ("Brown", "I-PER"), ("sleeps", "O")],
]


def lines(form: str, *, between: str = "\n", first: str = "") -> str:
    """Write the sentences with a word a line: {n} is its number, from 1.

    `first` stands before each sentence, `between` after it.
    """
    text = ""
    for number, sentence in enumerate(SENTENCES, 1):
        text += first.format(sentence=number)
        for n, (word, tag) in enumerate(sentence, 1):
            text += form.format(n=n, word=word, tag=tag, sentence=number) + "\n"
        text += between
    return text


# ---- layouts -------------------------------------------------------------------------

# the columns of CoNLL-U: the tag as the name of an entity, or as the part of speech
WITH_NAMES = "{n}\t{word}\t_\tNOUN\t_\t_\t0\troot\t_\tSpaceAfter=No|name={tag}"
WITH_PARTS_OF_SPEECH = "{n}\t{word}\t_\t{tag}\t_\t_\t0\troot\t_\t_"


def conll_2012() -> str:
    """Write tags in parentheses; the columns after them differ in number."""
    text = lines("d 0 {n} {word} X (TOP* - - - Ann {tag} (V*) -")
    text = text.replace("Brown X (TOP* - - - Ann I-PER (V*)", "Brown X * - - - Ann *)")
    text = text.replace("Bert X (TOP* - - - Ann B-PER", "Bert X * - - - Ann (PER*")
    text = text.replace("B-PER", "(PER)").replace("B-LOC", "(LOC)")
    text = text.replace(" O ", " * ")
    return f"#begin document (d); part 000\n{text}#end document\n"


def webanno() -> str:
    """Write entities that are numbered where they overlap, and a part of a word."""
    head = "#FORMAT=WebAnno TSV 3.3\n#T_SP=x.NamedEntity|identifier|value\n\n\n"
    text = lines("{sentence}-{n}\t0-4\t{word}\t_\t{tag}\t", first="#Text=some text\n")
    text = text.replace("Bert\t_\tB-PER", "Bert\t_\tPER[1]|X[2]")
    part = "3-2.1\t0-2\tBr\t_\tX\t\n"
    text = text.replace("Brown\t_\tI-PER\t\n", f"Brown\t_\tPER[1]\t\n{part}")
    return head + text.replace("\tB-", "\t").replace("\tO\t", "\t_\t")


def kaggle() -> str:
    """Write a table that names a sentence at its first word only."""
    text = lines("Sentence: {sentence},{word},X,{tag}", between="")
    text = text.replace("Sentence: 1,left", ",left")
    text = text.replace("Sentence: 1,Rome", ",Rome")
    return "Sentence #,Word,POS,Tag\n" + text


def row_a_word() -> str:
    rows: list[object] = []
    for number, sentence in enumerate(SENTENCES):
        for word, tag in sentence:
            rows.append({"sentence_id": number, "token": word, "ner": tag})
    return jsonl(rows)


def germeval_with_inner_tags() -> str:
    text = lines("{n}\t{word}\t{tag}\tO")
    return text.replace("B-LOC\tO", "B-LOC\tB-ORGpart")


COLUMNS_OF_PLUS = "# global.columns = ID FORM UPOS NER\n"
TOKENS_1_AND_2 = "1-2\tAnna's" + 8 * "\t_" + "\n"
LAYOUTS = {
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
    "GermEval, inner tags": ("a.tsv", germeval_with_inner_tags()),
    "tsv": ("a.tsv", lines("{word}\t{tag}")),
    "txt": ("a.txt", lines("{word} {tag}")),
    "txt with tabs": ("a.txt", lines("{word}\t{tag}", between=" \n")),
    "comments": ("a.txt", lines("{word} {tag}", first="# sentence\n")),
    "CoNLL-U": ("a.conllu", lines(WITH_NAMES, first="# sent_id = {sentence}\n")),
    "CoNLL-U by its shape": ("a.conll", lines(WITH_NAMES, first="# text = one\n")),
    "CoNLL-U, spans of tokens": ("a.conllu", lines(WITH_NAMES, first=TOKENS_1_AND_2)),
    "CoNLL-U Plus": ("a.conllup", COLUMNS_OF_PLUS + lines("{n}\t{word}\tX\t{tag}")),
    "parts of speech": ("a.conllu", lines(WITH_PARTS_OF_SPEECH)),
    "Kaggle": ("a.csv", kaggle()),
    "a row a word": ("a.jsonl", row_a_word()),
    "blank lines in a table": ("a.csv", "word,tag\n" + lines("{word},{tag}")),
    "no header": ("a.csv", lines("{word},{tag}")),
    "blank lines, tabs": ("a.tsv", "token\tlabel\n" + lines("{word}\t{tag}")),
    "other names": ("a.csv", "satz;mot;x\n" + lines("{sentence};{word};{tag}")),
    "CoNLL-2012": ("a.v4_gold_conll", conll_2012()),
    "WebAnno TSV": ("a.tsv", webanno()),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_words_and_tags_are_read_however_they_are_laid_out(
    layout: str, write: Write
) -> None:
    name, content = LAYOUTS[layout]
    path = write(name, content)
    dataset = table_dataset(path, path)
    sentences = []
    for example in dataset.read(path, "train"):
        tags = dataset.family.labels(example)
        sentences.append(list(zip(example.words, tags, strict=True)))
    assert sentences == SENTENCES


@pytest.mark.parametrize("layout", LAYOUTS)
def test_words_are_read_without_their_tags(layout: str, write: Write) -> None:
    name, content = LAYOUTS[layout]
    path = write(name, content)
    examples = table_dataset(path, path).read(path, "test")
    assert len(examples) == len(SENTENCES)
    for example, sentence in zip(examples, SENTENCES, strict=True):
        assert example.words == tuple(word for word, _ in sentence)


def test_a_damaged_row_does_not_end_its_sentence(write: Write) -> None:
    table = "word,tag\nAnna,B-PER\nsaw,O,too,many\nRome,B-LOC\n\nThe,O\nbridge,O\n"
    num_errors = 0
    sentences = []
    for _, row in open_table(write("a.csv", table)).scan():
        if isinstance(row, LitebertError):
            num_errors += 1
        else:
            sentences.append(row["tokens"])
    assert num_errors == 1
    assert sentences == [["Anna", "Rome"], ["The", "bridge"]]


# ---- columns -------------------------------------------------------------------------


def test_a_column_of_words_alone_has_no_tags(write: Write) -> None:
    content = "# global.columns = FORM\nAnna\nleft\n\nShe\n"
    table = open_table(write("a.conllup", content))
    assert table.columns == ("tokens", "1")
    assert [row["tokens"] for _, row in table.rows()] == [["Anna", "left"], ["She"]]


def test_other_columns_of_words_are_chosen_by_their_numbers(write: Write) -> None:
    path = write("a.conll", lines("{n} x{word} {tag} {word} O"))
    dataset = table_dataset(path, path, columns=("tokens=4", "tags=3"))
    assert dataset.settled["columns"] == ["tokens=4", "tags=3"]
    assert dataset.read(path, "train")[0].words == ("Anna", "left", "Rome")


def test_the_columns_of_conll_u_are_chosen_by_their_names(write: Write) -> None:
    path = write("a.conllu", lines(WITH_NAMES))
    assert "words in form, tags in name" in "\n".join(table_dataset(path).notes)

    labels = ("NOUN", "X")
    dataset = table_dataset(path, path, columns=("tags=upos",), labels=labels)
    assert dataset.family.head.labels == labels


@pytest.mark.parametrize(
    ("heading", "form"),
    [
        pytest.param("word,document,tag\n", "{word},d,{tag}", id="one document"),
        pytest.param("word,s,tag\n", "{word},{sentence}{n},{tag}", id="other numbers"),
    ],
)
def test_words_without_sentences_are_refused_with_the_option(
    heading: str, form: str, write: Write
) -> None:
    path = write("a.csv", heading + lines(form, between=""))
    with pytest.raises(LitebertError, match="LB-866") as raised:
        open_table(path)
    assert raised.value.next == "--column sentence=NAME"


def test_the_column_of_sentences_can_be_chosen(write: Write) -> None:
    table = "word,s,tag\n" + lines("{word},{sentence}{n},{tag}", between="")
    path = write("a.csv", table)
    dataset = table_dataset(path, path, columns=("sentence=s",))
    assert len(dataset.read(path, "train")) == 10  # a word each


# ---- how new texts are divided -------------------------------------------------------

WAYS: list[tuple[Splitting, str, list[str]]] = [
    ("words", "He left, Mr Brown .", ["He", "left", ",", "Mr", "Brown", "."]),
    ("spaces", "He left, Mr Brown.", ["He", "left,", "Mr", "Brown."]),
    ("ideographs", "去北京 by U1，", ["去", "北", "京", "by", "U1", "，"]),
    ("characters", "去U1", ["去", "U", "1"]),
]
every_way = pytest.mark.parametrize(("splitting", "text", "words"), WAYS)


@every_way
def test_a_text_is_divided_into_words(
    splitting: Splitting, text: str, words: list[str]
) -> None:
    assert [text[start:stop] for start, stop in divide(text, splitting)] == words


@every_way
def test_new_texts_are_divided_as_the_training_texts_were(
    splitting: Splitting, text: str, words: list[str], write: Write
) -> None:
    tags = ["B-X"] + ["O"] * (len(words) - 1)
    path = write("a.jsonl", jsonl([{"tokens": words, "tags": tags}] * 2))
    dataset = table_dataset(path, path)
    assert dataset.family.head.splitting == splitting

    new = write("b.jsonl", jsonl([{"tokens": text}]))
    run = table_dataset(path, settled=dataset.settled)
    (example,) = run.read(new, "test")
    assert example.words == tuple(words)
