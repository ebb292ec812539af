"""Checkpoints and answers compared with transformers in both directions; measures
compared with published ones and with the answers.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

import litebert as package

from .shell import litebert
from .tiny import Desk, Random

transformers = pytest.importorskip("transformers")

GARDEN = "Anna walked to the garden."
RIVER = "Nobody at the river knew where it came from."
TEXTS = [GARDEN, RIVER, "Bert."]
BALL = "There Bert found a red ball."

# each class, and the run on the desk that has its heads
RUN_OF = {
    "AlbertModel": "base",
    "AlbertForPreTraining": "base",
    "AlbertForMaskedLM": "base",
    "AlbertForSequenceClassification": "reviews",
    "AlbertForTokenClassification": "tags",
    "AlbertForQuestionAnswering": "spans",
    "AlbertForMultipleChoice": "choices",
}


def load_with_transformers(folder: Path, architecture: str) -> torch.nn.Module:
    """Load a folder; nothing may be missing from it or left over."""
    model, report = getattr(transformers, architecture).from_pretrained(
        folder, output_loading_info=True
    )
    if architecture != "AlbertModel":  # leaves the heads over
        assert not any(report.values()), report
    return model.eval()


def padded(
    model: package.Model, texts: list[str], seconds: list[str] | None = None
) -> dict[str, Tensor]:
    """Return the inputs of transformers for texts or pairs: (texts, pieces) each."""
    ids = []
    segments = []
    masks = []
    for number, text in enumerate(texts):
        second = None if seconds is None else seconds[number]
        encoding = model.tokenizer.encode(text, second, frame=True)
        ids.append(torch.tensor(encoding.ids))
        segments.append(torch.tensor(encoding.segments))
        masks.append(torch.ones(len(encoding.ids), dtype=torch.long))
    return {
        "input_ids": pad_sequence(ids, batch_first=True),
        "token_type_ids": pad_sequence(segments, batch_first=True),
        "attention_mask": pad_sequence(masks, batch_first=True),
    }


# ---- answers of a pretrained model ---------------------------------------------------


@pytest.fixture(
    scope="module",
    params=[
        pytest.param({}, id="albert"),
        pytest.param({"num_hidden_groups": 2}, id="two groups"),
        pytest.param({"inner_group_num": 2, "hidden_act": "gelu"}, id="two inner"),
    ],
)
def pretrained(request: pytest.FixtureRequest, random_model: Random) -> Path:
    """Return a folder that transformers wrote."""
    return random_model("AlbertForPreTraining", **request.param)


@torch.no_grad()
def test_vectors_are_the_means_of_the_states_of_transformers(pretrained: Path) -> None:
    ours = package.load(pretrained)
    theirs = load_with_transformers(pretrained, "AlbertForPreTraining")
    inputs = padded(ours, TEXTS)
    states = theirs.albert(**inputs).last_hidden_state  # (texts, pieces, hidden)
    mask = inputs["attention_mask"]
    means = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    vectors = ours.embed(TEXTS, pooling="mean", normalize=False)
    np.testing.assert_allclose(vectors, means, atol=2e-5)


@torch.no_grad()
def test_the_order_of_sentences_has_the_probability_of_transformers(
    pretrained: Path,
) -> None:
    ours = package.load(pretrained)
    theirs = load_with_transformers(pretrained, "AlbertForPreTraining")
    logits = theirs(**padded(ours, [GARDEN], [BALL])).sop_logits
    expected = float(logits.softmax(-1)[0, 0])
    probability = ours.order(GARDEN, BALL).probability
    assert probability == pytest.approx(expected, abs=1e-5)


@torch.no_grad()
def test_the_score_of_a_text_masks_one_piece_after_another(pretrained: Path) -> None:
    ours = package.load(pretrained)
    theirs = load_with_transformers(pretrained, "AlbertForPreTraining")
    inputs = padded(ours, [GARDEN])
    ids = inputs["input_ids"][0]
    total = 0.0
    for place in range(1, len(ids) - 1):  # between [CLS] and [SEP]
        masked = ids.clone()
        masked[place] = ours.tokenizer.mask_id
        logits = theirs(**(inputs | {"input_ids": masked[None]})).prediction_logits
        total += float(logits.log_softmax(-1)[0, place, ids[place]])
    assert ours.score(GARDEN).log_likelihood == pytest.approx(total, abs=1e-3)


# ---- answers of fine-tuned models ----------------------------------------------------


@pytest.mark.parametrize("seconds", [None, [BALL] * 3], ids=["single texts", "pairs"])
@torch.no_grad()
def test_labels_have_the_probabilities_of_transformers(
    seconds: list[str] | None, random_model: Random
) -> None:
    architecture = "AlbertForSequenceClassification"
    folder = random_model(
        architecture, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1}
    )
    ours = package.load(folder)
    theirs = load_with_transformers(folder, architecture)
    expected = theirs(**padded(ours, TEXTS, seconds)).logits.softmax(-1)
    answers = ours.classify(TEXTS) if seconds is None else ours.classify(TEXTS, seconds)
    for answer, probabilities in zip(answers, expected, strict=True):
        assert list(answer.values) == ["no", "yes"]
        np.testing.assert_allclose(
            list(answer.values.values()), probabilities, atol=1e-5
        )
        assert answer.labels == (("no", "yes")[int(probabilities.argmax())],)


@torch.no_grad()
def test_choices_have_the_probabilities_of_transformers(random_model: Random) -> None:
    folder = random_model("AlbertForMultipleChoice", num_labels=1)
    ours = package.load(folder)
    theirs = load_with_transformers(folder, "AlbertForMultipleChoice")
    choices = padded(ours, [GARDEN] * 2, ["Who left? Anna", "Who left? Bert"])
    # (questions, choices, pieces)
    inputs = {name: rows[None] for name, rows in choices.items()}
    expected = theirs(**inputs).logits.softmax(-1)[0]
    answer = ours.choose("Who left?", ["Anna", "Bert"], context=GARDEN)
    np.testing.assert_allclose(answer.probabilities, expected, atol=1e-5)


@torch.no_grad()
def test_an_answer_is_the_span_with_the_largest_sum_of_logits(
    random_model: Random,
) -> None:
    folder = random_model("AlbertForQuestionAnswering")
    ours = package.load(folder)
    theirs = load_with_transformers(folder, "AlbertForQuestionAnswering")
    outputs = theirs(**padded(ours, ["Who knew?"], [RIVER]))

    encoding = ours.tokenizer.encode("Who knew?", RIVER, frame=True)
    in_context = range(encoding.segments.index(1), len(encoding.ids) - 1)
    best_sum = -np.inf
    for first in in_context:
        for last in in_context[first - in_context.start :]:
            logits = outputs.start_logits[0, first] + outputs.end_logits[0, last]
            if logits > best_sum:
                best_sum = float(logits)
                start = encoding.offsets[first][0]
                stop = encoding.offsets[last][1]

    (answer,) = ours.answer("Who knew?", RIVER)
    assert answer.start == start
    assert answer.stop == stop


# ---- checkpoints ---------------------------------------------------------------------


def tensors(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def without_prefix(folder: Path) -> dict[str, Tensor]:
    """Return tensors by the names that the bare encoder and a model with a head share."""
    renamed = {}
    for name, tensor in tensors(folder).items():
        renamed[name.removeprefix("albert.")] = tensor
    return renamed


@pytest.mark.parametrize("architecture", sorted(RUN_OF.keys() - {"AlbertForMaskedLM"}))
def test_our_folders_are_as_transformers_writes_them(
    desk: Desk, tmp_path: Path, architecture: str
) -> None:
    folder = getattr(desk, RUN_OF[architecture]) / "model"
    load_with_transformers(folder, architecture).save_pretrained(tmp_path / "again")
    ours = without_prefix(folder)
    again = without_prefix(tmp_path / "again")
    assert again
    for name, tensor in again.items():
        assert torch.equal(ours[name], tensor), name


@pytest.mark.parametrize("architecture", RUN_OF)
def test_what_transformers_wrote_is_imported_exactly(
    random_model: Random, tmp_path: Path, architecture: str
) -> None:
    num_labels = 1 if architecture == "AlbertForMultipleChoice" else 2
    folder = random_model(architecture, num_labels=num_labels)
    imported = tmp_path / "ours"
    done = litebert("import", "huggingface", folder, "--output", imported, "--json")
    assert done.ok.json["architecture"] == architecture

    load_with_transformers(imported, architecture).save_pretrained(tmp_path / "again")
    before = tensors(folder)
    after = tensors(tmp_path / "again")
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert torch.equal(after[name], tensor), name


# ---- measures ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "exact", "f1"),
    [
        ("v1.1-bert-ensemble", 86.20624408703878, 92.19557978351129),
        ("v1.1-albert-base-pohanchi", 78.27814569536424, 86.90508361514442),
    ],
)
def test_published_predictions_have_their_official_scores(
    real_data: Path, name: str, exact: float, f1: float
) -> None:
    predictions = real_data / "squad" / "predictions" / f"{name}.json.gz"
    dev = real_data / "squad" / "dev-v1.1.json.gz"
    done = litebert("evaluate", "--predictions", predictions, "--data", dev, "--json")
    expected = {"exact": exact, "f1": f1, "total": 10_570, "unanswered": 0}
    assert done.ok.json == {"predictions": pytest.approx(expected, rel=1e-14)}


@pytest.mark.parametrize(
    ("table", "measure", "scale"),
    [
        ("reviews.csv", "accuracy", 1),
        ("tags.conll", "accuracy", 1),
        ("choices.csv", "accuracy", 1),
        ("spans.jsonl", "f1", 100),
    ],
)
def test_the_measure_of_a_run_is_the_mean_score_of_its_answers(
    desk: Desk, tmp_path: Path, table: str, measure: str, scale: int
) -> None:
    run = getattr(desk, table.partition(".")[0])
    # not the file trained on, of which rows are held out
    data = tmp_path / table
    data.write_text(desk.table(table).read_text() + "\n")
    measures = package.evaluate(run, data=data, quiet=True).measures["dev"]
    rows = package.predict(run, data=data, split="dev", quiet=True).rows["dev"]
    assert len(rows) == 20
    mean_score = np.mean([row.score for row in rows])
    assert measures[measure] == pytest.approx(scale * mean_score, abs=1e-6)
