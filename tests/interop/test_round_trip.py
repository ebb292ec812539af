"""Google -> litebert -> transformers -> litebert -> Google: the same bits arrive."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from transformers import (
    AlbertForMultipleChoice,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
    PreTrainedModel,
)

from litebert.folder import load_model, save_model
from litebert.interop.google import export_checkpoint, import_checkpoint
from litebert.interop.google.bundle import read_bundle

WRITTEN = Path(__file__).parent / "google" / "fixtures"
POOLER = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
# checkpoint, what the user says of its head, transformers' class, variables that class drops
WAYS = [
    ("pretraining", {}, AlbertForPreTraining, set()),
    ("groups_bfloat16", {}, AlbertForPreTraining, set()),
    ("equal_sizes", {}, AlbertForPreTraining, set()),
    ("labels", {}, AlbertForSequenceClassification, set()),
    ("one_output", {"head": "sequence-classification"}, AlbertForSequenceClassification, set()),
    ("one_output", {"head": "multiple-choice"}, AlbertForMultipleChoice, set()),
    ("labels", {"head": "token-classification"}, AlbertForTokenClassification, POOLER),
    ("spans", {}, AlbertForQuestionAnswering, POOLER),
]


def _variables(prefix: Path) -> dict[str, NDArray[np.float32]]:
    bundle = read_bundle(prefix)
    return {name: bundle.read(name) for name in bundle.entries if not name.endswith(("_m", "_v", "step"))}


@pytest.mark.parametrize(("name", "said", "kind", "dropped"), WAYS)
def test_the_whole_way_there_and_back_is_bit_equal(
    tmp_path: Path, name: str, said: dict[str, object], kind: type[PreTrainedModel], dropped: set[str]
) -> None:
    import_checkpoint(WRITTEN / name, tmp_path / "imported", **said)
    theirs = kind.from_pretrained(tmp_path / "imported")
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = load_model(tmp_path / "theirs")
    assert loaded.missing == frozenset()
    save_model(loaded.network, tmp_path / "ours")
    export_checkpoint(tmp_path / "ours", tmp_path / "exported", num_shards=2)
    before = _variables(WRITTEN / name / "model.ckpt-best")
    after = _variables(tmp_path / "exported" / "model.ckpt-best")
    assert before.keys() == after.keys()
    for variable in before.keys() - dropped:
        assert np.array_equal(before[variable], after[variable]), variable
