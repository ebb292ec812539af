"""Checkpoints both ways: what transformers and Google's code write is computed alike here, and ours there."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.utils.rnn import pad_sequence

import litebert as package

from .shell import litebert
from .tiny import Desk, Random, weights

transformers = pytest.importorskip("transformers")

TEXTS = ["Anna walked to the garden.", "Nobody at the river knew where it came from.", "Bert."]
PAIR = "There Bert found a red ball."
CLASSES = dict.fromkeys(("AlbertModel", "AlbertForPreTraining", "AlbertForMaskedLM"), "base")
CLASSES |= {"AlbertForSequenceClassification": "reviews", "AlbertForTokenClassification": "tags"}
CLASSES |= {"AlbertForQuestionAnswering": "spans", "AlbertForMultipleChoice": "choices"}
"""Each class, and the run on the desk that has its heads."""


def theirs(folder: Path, architecture: str) -> torch.nn.Module:
    """Load a folder with transformers, which must find all weights of the class and no others."""
    model, report = getattr(transformers, architecture).from_pretrained(folder, output_loading_info=True)
    unknown = {name: found for name, found in report.items() if found and architecture != "AlbertModel"}
    assert not unknown
    return model.eval()


def padded(model: package.Model, texts: list[str], pairs: list[str] | None = None) -> dict[str, torch.Tensor]:
    """Return the inputs of transformers, of shape (texts, pieces)."""
    encoded = [
        model.tokenizer.encode(*both, frame=True) for both in zip(texts, pairs or [None] * len(texts), strict=True)
    ]
    columns = {"input_ids": [each.ids for each in encoded], "token_type_ids": [each.segments for each in encoded]}
    columns["attention_mask"] = [[1] * len(each.ids) for each in encoded]
    return {name: pad_sequence(list(map(torch.tensor, rows)), batch_first=True) for name, rows in columns.items()}


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("changes", [{}, {"num_hidden_groups": 2}, {"inner_group_num": 2, "hidden_act": "gelu"}])
@torch.no_grad()
def test_a_pretrained_folder_of_transformers_answers_as_there(random_model: Random, changes: dict[str, object]) -> None:
    folder = random_model("AlbertForPreTraining", **changes)
    ours, other = package.load(folder), theirs(folder, "AlbertForPreTraining")
    hidden = other.albert(**padded(ours, TEXTS)).last_hidden_state
    mask = padded(ours, TEXTS)["attention_mask"]
    means = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    np.testing.assert_allclose(ours.embed(TEXTS, pooling="mean", normalize=False), means, atol=2e-5)
    order = other(**padded(ours, TEXTS[:1], [PAIR])).sop_logits.softmax(-1)[0, 0]
    assert ours.order(TEXTS[0], PAIR).probability == pytest.approx(float(order), abs=1e-5)
    inputs = padded(ours, TEXTS[:1])
    ids, total = inputs["input_ids"][0].clone(), 0.0
    for place in range(1, len(ids) - 1):  # the score of a text: each piece masked alone
        masked = ids.clone()
        masked[place] = ours.tokenizer.mask_id
        logits = other(**{**inputs, "input_ids": masked[None]}).prediction_logits
        total += float(logits.log_softmax(-1)[0, place, ids[place]])
    assert ours.score(TEXTS[0]).log_likelihood == pytest.approx(total, abs=1e-3)


@torch.no_grad()
def test_fine_tuned_folders_of_transformers_answer_as_there(random_model: Random) -> None:
    folder = random_model("AlbertForSequenceClassification", id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1})
    ours, other = package.load(folder), theirs(folder, "AlbertForSequenceClassification")
    expected = other(**padded(ours, TEXTS)).logits.softmax(-1)
    found = [list(each.values.values()) for each in ours.classify(TEXTS)]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert [each.labels for each in ours.classify(TEXTS)] == [(("no", "yes")[int(row.argmax())],) for row in expected]
    expected = other(**padded(ours, TEXTS, [PAIR] * 3)).logits.softmax(-1)
    found = [list(each.values.values()) for each in ours.classify(TEXTS, [PAIR] * 3)]
    np.testing.assert_allclose(found, expected, atol=1e-5)

    ours = package.load(random_model("AlbertForMultipleChoice", num_labels=1))
    inputs = padded(ours, [TEXTS[0]] * 2, ["Who left? Anna", "Who left? Bert"])  # shapes: (choices, pieces)
    logits = theirs(Path(ours.source), "AlbertForMultipleChoice")(
        **{n: each[None] for n, each in inputs.items()}
    ).logits
    chosen = ours.choose("Who left?", ["Anna", "Bert"], context=TEXTS[0])
    np.testing.assert_allclose(chosen.probabilities, logits.softmax(-1)[0], atol=1e-5)

    ours, context = package.load(random_model("AlbertForQuestionAnswering")), TEXTS[1]
    (best,) = ours.answer("Who knew?", context)
    encoding = ours.tokenizer.encode("Who knew?", context)
    first, last = encoding.segments.index(1), len(encoding.ids) - 1  # the pieces of the context
    found = theirs(Path(ours.source), "AlbertForQuestionAnswering")(**padded(ours, ["Who knew?"], [context]))
    sums = found.start_logits[0, first:last, None] + found.end_logits[0, None, first:last]
    start, end = divmod(int(sums.masked_fill(~torch.ones_like(sums).triu().bool(), -torch.inf).argmax()), last - first)
    assert best.start == encoding.offsets[first + start][0]
    assert best.stop == encoding.offsets[first + end][1]


@pytest.mark.parametrize(("architecture", "run"), [each for each in CLASSES.items() if each[0] != "AlbertForMaskedLM"])
def test_our_folders_are_those_of_transformers_bit_for_bit(
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
def test_what_transformers_wrote_is_imported_bit_for_bit(
    random_model: Random, tmp_path: Path, architecture: str
) -> None:
    folder = random_model(architecture, num_labels=1 if architecture == "AlbertForMultipleChoice" else 2)
    done = litebert("import", "huggingface", folder, "--output", tmp_path / "ours", "--json")
    assert done.code == 0, done.stderr
    assert done.json["architecture"] == architecture
    theirs(tmp_path / "ours", architecture).save_pretrained(tmp_path / "again")
    before, after = tensors(folder), tensors(tmp_path / "again")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_what_is_written_for_google_and_read_again_has_the_same_bits(desk: Desk, tmp_path: Path) -> None:
    done = litebert("export", "google", desk.base, tmp_path / "google" / "model.ckpt")
    assert done.code == 0, done.stderr
    names = {path.name for path in (tmp_path / "google").iterdir()}
    assert {"model.ckpt.index", "model.ckpt.data-00000-of-00001", "albert_config.json"} <= names
    if not any(name.endswith(".model") for name in names):
        shutil.copy(desk.tokenizer / "spiece.model", tmp_path / "google" / "30k-clean.model")
    done = litebert("import", "google", tmp_path / "google", "--output", tmp_path / "ours")
    assert done.code == 0, done.stderr
    assert (tmp_path / "ours" / "model.safetensors").read_bytes() == weights(desk.base)
    again = litebert("export", "google", tmp_path / "ours", tmp_path / "again" / "model.ckpt")
    assert again.code == 0, again.stderr
    for name in ("model.ckpt.index", "model.ckpt.data-00000-of-00001"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "google" / name).read_bytes()
