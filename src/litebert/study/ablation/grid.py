"""What an ablation is: one table of the paper as rows of settings, at a scale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from litebert.errors import LitebertError, did_you_mean


@dataclass(frozen=True)
class Shape:
    """The widths and the depth that a table varies."""

    hidden_size: int
    num_layers: int
    head_size: int

    def words(self, *, hidden_size: int | None = None, num_layers: int | None = None) -> Words:
        """Return the settings of a network of this shape, with another width or depth if given."""
        size = hidden_size or self.hidden_size
        return (
            f"model.hidden_size={size}",
            f"model.num_hidden_layers={num_layers or self.num_layers}",
            f"model.num_attention_heads={size // self.head_size}",
            f"model.intermediate_size={4 * size}",
        )


Words = tuple[str, ...]


@dataclass(frozen=True)
class Scale:
    """How large the networks of a study are, and how long they are trained.

    `base` and `large` stand for the paper's two shapes; `embedding_size` is that of both.
    """

    name: str
    base: Shape
    large: Shape
    embedding_size: int
    steps: int
    training: Words

    def part_of_hidden(self, embedding_size: int) -> str:
        """Return the setting of the paper's E (of H = 768) as the same share of our H.

        >>> SCALES["tiny"].part_of_hidden(256)
        'model.embedding_size=32'
        """
        return f"model.embedding_size={embedding_size * self.base.hidden_size // 768}"


_SMALL_TRAINING = (
    "model.hidden_act=gelu",
    "model.max_position_embeddings=64",
    "start.attention=local",
    "start.output_bias=unigram",
    "objective.max_seq_length=64",
    "optim.name=muon",
    "optim.beta2=0.98",
    "optim.warmup_steps=0.1",
    "train.threads=1",
)

SCALES = {
    "smoke": Scale(
        name="smoke",
        base=Shape(48, 6, 16),
        large=Shape(24, 6, 8),
        embedding_size=8,
        steps=300,
        training=(
            *_SMALL_TRAINING,
            "objective.whole_word=false",
            "optim.learning_rate=0.01",
            "optim.muon_learning_rate=0.02",
            "train.batch_size=8",
            "train.precision=fp32",
        ),
    ),
    "tiny": Scale(
        name="tiny",
        base=Shape(96, 6, 32),
        large=Shape(48, 6, 16),
        embedding_size=16,
        steps=400,
        training=(
            *_SMALL_TRAINING,
            "optim.learning_rate=0.003",
            "optim.muon_learning_rate=0.004",
            "train.batch_size=32",
            "train.precision=bf16",
        ),
    ),
    "paper": Scale(
        name="paper",
        base=Shape(768, 12, 64),
        large=Shape(1_024, 24, 64),
        embedding_size=128,
        steps=125_000,
        training=("objective.max_seq_length=512", "train.batch_size=4096", "train.precision=auto"),
    ),
}
"""Paper 4.1 and Table 1; below it a scale of a CPU minute a row, and one of ten seconds.

The two small ones have hardly begun to learn when they end: they show that a study runs, and how
large the noise is, before the machine is found that can train longer (`Scale.steps`).
"""


@dataclass(frozen=True)
class Variant:
    """One row of a table: settings, the paper's figure, and perhaps the row that it starts from.

    `steps` multiplies the scale's steps. `paper` is None where the paper has no figure.
    """

    label: str
    words: Words
    paper: float | None = None
    start: str | None = None
    steps: float = 1.0


@dataclass(frozen=True)
class Grid:
    """One table: its rows at a scale, what the paper measured, and what we compare with it."""

    name: str
    title: str
    source: str
    paper_measure: str
    measure: str
    variants: Callable[[Scale], tuple[Variant, ...]]
    crosses_objectives: bool = False


def known_scale(name: str) -> Scale:
    """Return the scale called `name`.

    Raises:
        LitebertError: LB-745, there is none.
    """
    if name not in SCALES:
        raise LitebertError(
            "LB-745",
            "no study has this scale",
            received=name,
            expected=did_you_mean(name, SCALES),
            next="litebert study ablation --help",
        )
    return SCALES[name]
