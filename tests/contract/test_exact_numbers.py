"""Checkpoints compared with transformers in both directions, update rules with the
papers' formulas; measures.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.utils.rnn import pad_sequence

import litebert as package
from litebert import optim

from .shell import litebert
from .tiny import Desk, Random

transformers = pytest.importorskip("transformers")

TEXTS = [
    "Anna walked to the garden.",
    "Nobody at the river knew where it came from.",
    "Bert.",
]
PAIR = "There Bert found a red ball."
CLASSES = dict.fromkeys(
    ("AlbertModel", "AlbertForPreTraining", "AlbertForMaskedLM"), "base"
)
CLASSES |= {
    "AlbertForSequenceClassification": "reviews",
    "AlbertForTokenClassification": "tags",
}
CLASSES |= {"AlbertForQuestionAnswering": "spans", "AlbertForMultipleChoice": "choices"}
"""Each class, and the run on the desk that has its heads."""


def theirs(folder: Path, architecture: str) -> torch.nn.Module:
    model, report = getattr(transformers, architecture).from_pretrained(
        folder, output_loading_info=True
    )
    unknown = {
        name: found
        for name, found in report.items()
        if found and architecture != "AlbertModel"
    }
    assert not unknown
    return model.eval()


def padded(
    model: package.Model, texts: list[str], pairs: list[str] | None = None
) -> dict[str, torch.Tensor]:
    both = zip(texts, pairs or [None] * len(texts), strict=True)
    encoded = [model.tokenizer.encode(*each, frame=True) for each in both]
    columns = {
        "input_ids": [each.ids for each in encoded],
        "token_type_ids": [each.segments for each in encoded],
    }
    columns["attention_mask"] = [[1] * len(each.ids) for each in encoded]
    return {
        name: pad_sequence(list(map(torch.tensor, rows)), batch_first=True)
        for name, rows in columns.items()
    }


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize(
    "changes",
    [{}, {"num_hidden_groups": 2}, {"inner_group_num": 2, "hidden_act": "gelu"}],
)
@torch.no_grad()
def test_pretrained_transformers_folders_give_equal_answers(
    random_model: Random, changes: dict[str, object]
) -> None:
    folder = random_model("AlbertForPreTraining", **changes)
    ours = package.load(folder)
    other = theirs(folder, "AlbertForPreTraining")
    hidden = other.albert(**padded(ours, TEXTS)).last_hidden_state
    mask = padded(ours, TEXTS)["attention_mask"]
    means = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    np.testing.assert_allclose(
        ours.embed(TEXTS, pooling="mean", normalize=False), means, atol=2e-5
    )
    order = other(**padded(ours, TEXTS[:1], [PAIR])).sop_logits.softmax(-1)[0, 0]
    assert ours.order(TEXTS[0], PAIR).probability == pytest.approx(
        float(order), abs=1e-5
    )
    inputs = padded(ours, TEXTS[:1])
    ids = inputs["input_ids"][0].clone()
    total = 0.0
    # the score of a text: each piece is masked in turn
    for place in range(1, len(ids) - 1):
        masked = ids.clone()
        masked[place] = ours.tokenizer.mask_id
        logits = other(**{**inputs, "input_ids": masked[None]}).prediction_logits
        total += float(logits.log_softmax(-1)[0, place, ids[place]])
    assert ours.score(TEXTS[0]).log_likelihood == pytest.approx(total, abs=1e-3)


@torch.no_grad()
def test_fine_tuned_transformers_folders_give_equal_answers(
    random_model: Random,
) -> None:
    folder = random_model(
        "AlbertForSequenceClassification",
        id2label={0: "no", 1: "yes"},
        label2id={"no": 0, "yes": 1},
    )
    ours = package.load(folder)
    other = theirs(folder, "AlbertForSequenceClassification")
    expected = other(**padded(ours, TEXTS)).logits.softmax(-1)
    found = [list(each.values.values()) for each in ours.classify(TEXTS)]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert [each.labels for each in ours.classify(TEXTS)] == [
        (("no", "yes")[int(row.argmax())],) for row in expected
    ]
    expected = other(**padded(ours, TEXTS, [PAIR] * 3)).logits.softmax(-1)
    found = [list(each.values.values()) for each in ours.classify(TEXTS, [PAIR] * 3)]
    np.testing.assert_allclose(found, expected, atol=1e-5)

    ours = package.load(random_model("AlbertForMultipleChoice", num_labels=1))
    # shapes: (choices, pieces)
    inputs = padded(ours, [TEXTS[0]] * 2, ["Who left? Anna", "Who left? Bert"])
    model = theirs(Path(ours.source), "AlbertForMultipleChoice")
    logits = model(**{name: each[None] for name, each in inputs.items()}).logits
    chosen = ours.choose("Who left?", ["Anna", "Bert"], context=TEXTS[0])
    np.testing.assert_allclose(chosen.probabilities, logits.softmax(-1)[0], atol=1e-5)

    ours = package.load(random_model("AlbertForQuestionAnswering"))
    context = TEXTS[1]
    (best,) = ours.answer("Who knew?", context)
    encoding = ours.tokenizer.encode("Who knew?", context)
    # the pieces of the context
    first = encoding.segments.index(1)
    last = len(encoding.ids) - 1
    found = theirs(Path(ours.source), "AlbertForQuestionAnswering")(
        **padded(ours, ["Who knew?"], [context])
    )
    sums = (
        found.start_logits[0, first:last, None] + found.end_logits[0, None, first:last]
    )
    start, end = divmod(
        int(
            sums.masked_fill(~torch.ones_like(sums).triu().bool(), -torch.inf).argmax()
        ),
        last - first,
    )
    assert best.start == encoding.offsets[first + start][0]
    assert best.stop == encoding.offsets[first + end][1]


@pytest.mark.parametrize(
    ("architecture", "run"),
    [each for each in CLASSES.items() if each[0] != "AlbertForMaskedLM"],
)
def test_our_folders_are_as_transformers_writes_them(
    desk: Desk, tmp_path: Path, architecture: str, run: str
) -> None:
    folder = getattr(desk, run) / "model"
    model = theirs(folder, architecture)
    model.save_pretrained(tmp_path / "again")
    ours, again = (
        {name.removeprefix("albert."): each for name, each in tensors(path).items()}
        for path in (folder, tmp_path / "again")
    )
    assert again.keys() <= ours.keys()
    assert all(torch.equal(ours[name], each) for name, each in again.items())


@pytest.mark.parametrize("architecture", CLASSES)
def test_what_transformers_wrote_is_imported_exactly(
    random_model: Random, tmp_path: Path, architecture: str
) -> None:
    folder = random_model(
        architecture, num_labels=1 if architecture == "AlbertForMultipleChoice" else 2
    )
    done = litebert(
        "import", "huggingface", folder, "--output", tmp_path / "ours", "--json"
    )
    assert done.ok.json["architecture"] == architecture
    theirs(tmp_path / "ours", architecture).save_pretrained(tmp_path / "again")
    before = tensors(folder)
    after = tensors(tmp_path / "again")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


# ---- update rules --------------------------------------------------------------------

RATE = 0.02
DECAY = 0.01
BETA1 = 0.9
BETA2 = 0.999
EPSILON = 1e-6
SHAPES = {
    "dense.weight": (5, 3),
    "dense.bias": (5,),
    "norm.weight": (3,),
    "word.weight": (7, 2),
}


def drawn(seed: int) -> dict[str, np.ndarray]:
    generator = np.random.Generator(np.random.PCG64(seed))
    return {name: generator.normal(size=shape) for name, shape in SHAPES.items()}


def is_decayed(name: str) -> bool:
    return "bias" not in name and "norm" not in name


def formula(kind: str, steps: int) -> dict[str, np.ndarray]:
    """Compute some steps of LAMB (You et al., algorithm 2, without bias correction, as
    upstream) or of AdamW.
    """
    values = drawn(0)
    first = {name: np.zeros_like(value) for name, value in values.items()}
    second = {name: np.zeros_like(value) for name, value in values.items()}
    for step in range(steps):
        for name, gradient in drawn(step + 1).items():
            first[name] = BETA1 * first[name] + (1 - BETA1) * gradient
            second[name] = BETA2 * second[name] + (1 - BETA2) * gradient**2
            update = first[name] / (np.sqrt(second[name]) + EPSILON)
            ratio = 1.0
            if is_decayed(name):
                update = update + DECAY * values[name]
                if kind == "Lamb":
                    ratio = np.linalg.norm(values[name]) / np.linalg.norm(update)
            values[name] = values[name] - RATE * ratio * update
    return values


@pytest.mark.parametrize("kind", ["Lamb", "AdamW"])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_an_update_is_that_of_the_formula(kind: str, steps: int) -> None:
    parameters = {
        name: torch.nn.Parameter(torch.tensor(value))
        for name, value in drawn(0).items()
    }
    groups = optim.parameter_groups(list(parameters.items()), weight_decay=DECAY)
    optimizer = getattr(package, kind)(
        groups, lr=RATE, betas=(BETA1, BETA2), eps=EPSILON
    )
    for step in range(steps):
        for name, gradient in drawn(step + 1).items():
            parameters[name].grad = torch.tensor(gradient)
        optimizer.step()
    for name, expected in formula(kind, steps).items():
        np.testing.assert_allclose(
            parameters[name].detach().numpy(), expected, rtol=1e-12, atol=1e-12
        )


def test_a_matrix_of_zeros_or_without_a_gradient_is_moved_as_upstream_does() -> None:
    zeros = torch.nn.Parameter(torch.zeros(3, 2))
    still = torch.nn.Parameter(torch.ones(3, 2))
    optimizer = package.Lamb([zeros, still], lr=RATE, weight_decay=0.0)
    zeros.grad = torch.ones(3, 2)
    still.grad = torch.zeros(3, 2)
    optimizer.step()
    expected = -RATE * (1 - 0.9) / (np.sqrt(1 - 0.999) + 1e-6)  # the trust ratio is 1
    np.testing.assert_allclose(zeros.detach().numpy(), expected, rtol=1e-5)
    np.testing.assert_array_equal(still.detach().numpy(), 1)


# ---- measures ------------------------------------------------------------------------


PUBLISHED = [("v1.1-bert-ensemble", 86.20624408703878, 92.19557978351129)]
PUBLISHED += [("v1.1-albert-base-pohanchi", 78.27814569536424, 86.90508361514442)]


@pytest.mark.parametrize(("file", "exact", "f1"), PUBLISHED)
def test_published_predictions_have_their_official_scores(
    real_data: Path, file: str, exact: float, f1: float
) -> None:
    squad = real_data / "squad"
    predictions = ("--predictions", squad / "predictions" / f"{file}.json.gz")
    done = litebert(
        "evaluate", *predictions, "--data", squad / "dev-v1.1.json.gz", "--json"
    )
    expected = {"exact": exact, "f1": f1, "total": 10_570, "unanswered": 0}
    assert done.ok.json == {"predictions": pytest.approx(expected, rel=1e-14)}


MEASURED = {
    "reviews.csv": "accuracy",
    "tags.conll": "accuracy",
    "choices.csv": "accuracy",
    "spans.jsonl": "f1",
}


@pytest.mark.parametrize("name", MEASURED)
def test_measures_of_a_run_are_those_of_its_answers(
    desk: Desk, tmp_path: Path, name: str
) -> None:
    run = getattr(desk, name.partition(".")[0])
    data = tmp_path / name
    # not the file trained on, so that no row is held out
    data.write_text(f"{desk.table(name).read_text()}\n")
    found = package.evaluate(run, data=data, quiet=True).measures["dev"]
    rows = package.predict(run, data=data, split="dev", quiet=True).rows["dev"]
    assert len(rows) == 20
    scale = 100 if MEASURED[name] == "f1" else 1
    assert found[MEASURED[name]] == pytest.approx(
        scale * np.mean([row.score for row in rows]), abs=1e-6
    )
