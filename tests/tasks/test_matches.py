"""Texts that belong together, without labels: their loss, their ranks, their files."""

from pathlib import Path

import numpy as np
import pytest
import torch

from litebert.config import HeadConfig
from litebert.errors import LitebertError
from litebert.tasks.kinds.matches import SHARPNESS, Matches, VectorPair
from litebert.tasks.kinds.text import TextExample
from litebert.tasks.own.dataset import table_dataset

FAMILY = Matches(HeadConfig(kind="text-vectors"))
QUESTIONS = ("who sat", "who ran", "who sang", "who sat")
ANSWERS = ("the cat", "the dog", "a bird", "a boy")
EXAMPLES = [
    TextExample(str(number), *pair)
    for number, pair in enumerate(zip(QUESTIONS, ANSWERS, strict=True))
]


def test_the_loss_compares_each_pair_with_those_that_share_no_text() -> None:
    draw = torch.Generator().manual_seed(1)
    vectors = torch.nn.functional.normalize(torch.randn(8, 6, generator=draw), dim=-1)
    firsts = vectors[0::2]
    seconds = vectors[1::2]
    targets = torch.from_numpy(np.concatenate([FAMILY.target(x) for x in EXAMPLES]))
    losses = FAMILY.losses_of(torch.cat([firsts, seconds], -1), targets)
    for i in range(4):
        total = 0.0
        for j in range(4):
            # of the two that ask who sat, neither answer is wrong for the other
            if i == j or {i, j} != {0, 3}:
                total += float((SHARPNESS * firsts[i] @ seconds[j]).exp())
        right = float(SHARPNESS * firsts[i] @ seconds[i])
        assert float(losses[i]) == pytest.approx(np.log(total) - right, rel=1e-4)


def test_ranks_count_equal_texts_once_and_share_equal_cosines() -> None:
    same = [TextExample("4", "who slept", "the cat"), *EXAMPLES]
    axes = np.eye(4)
    vectors = {text: axes[number] for number, text in enumerate(ANSWERS)}
    answers = [
        VectorPair(vectors[x.second or ""], vectors[x.second or ""]) for x in same
    ]
    assert FAMILY.measures(same, answers) == {"mrr": 1.0, "accuracy": 1.0}
    # the first of five is nearest to "the dog", then to its own
    answers[0] = VectorPair(0.6 * axes[1] + 0.5 * axes[0], axes[0])
    found = FAMILY.measures(same, answers)
    assert found == pytest.approx({"mrr": 0.9, "accuracy": 0.8})
    # without learning, all orders of four texts are as likely
    chance = FAMILY.measures(same, FAMILY.constant(same, same))
    mean = (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4
    assert chance == pytest.approx({"mrr": mean, "accuracy": 0.25})


HEADINGS = {
    "question,answer": ("question", "answer"),
    "Frage,Antwort": ("Frage", "Antwort"),
    "positive,anchor": ("anchor", "positive"),
    "id,query,passage": ("query", "passage"),
}


def _write(path: Path, heading: str, number: int = 40) -> Path:
    lines = [heading]
    for row in range(number):
        words = [f"where is house number {row}", f"it is at the river, place {row}"]
        cells = [f'"{word}"' for word in words]
        lines.append(",".join([f"n{row}"] * heading.startswith("id") + cells))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("heading", HEADINGS)
def test_two_columns_of_texts_without_a_label_belong_together(
    tmp_path: Path, heading: str
) -> None:
    dataset = table_dataset(_write(tmp_path / "pairs.csv", heading))
    assert isinstance(dataset.family, Matches)
    first, second = HEADINGS[heading]
    assert dataset.settled["columns"][:2] == [f"text={first}", f"second={second}"]


def test_a_pair_without_its_second_text_is_refused_by_its_line(tmp_path: Path) -> None:
    path = _write(tmp_path / "pairs.csv", "question,answer")
    path.write_text(path.read_text(encoding="utf-8") + "where,\n", encoding="utf-8")
    dataset = table_dataset(path, problem="matches")
    with pytest.raises(LitebertError, match="LB-857") as raised:
        dataset.read(path, "train")
    assert "line 42" in str(raised.value)
