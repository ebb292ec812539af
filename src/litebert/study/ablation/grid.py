"""The parts of an ablation: one table of the paper as rows of settings, at a scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


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

    `base` and `large` stand for the paper's two shapes, and `embedding_sizes` for its embedding
    sizes. `usual_embedding` is the embedding size of all other tables; None makes it equal to H.
    """

    name: str
    base: Shape
    large: Shape
    embedding_sizes: Mapping[int, int]
    usual_embedding: int | None
    steps: int
    training: Words

    def embedding(self, paper: int) -> str:
        """Return the setting that stands for an embedding size of the paper.

        >>> SCALES["tiny"].embedding(256)
        'model.embedding_size=96'
        """
        return f"model.embedding_size={self.embedding_sizes[paper]}"

    def network(self, shape: Shape, *, hidden_size: int | None = None, num_layers: int | None = None) -> Words:
        """Return the settings of a shape, perhaps wider or deeper, with the usual embeddings."""
        embedding = self.usual_embedding or hidden_size or shape.hidden_size
        words = shape.words(hidden_size=hidden_size, num_layers=num_layers)
        return (*words, f"model.embedding_size={embedding}")


SCALES = {
    "tiny": Scale(
        name="tiny",
        base=Shape(128, 4, 32),
        large=Shape(64, 4, 32),
        embedding_sizes={64: 32, 128: 64, 256: 96, 768: 128},
        usual_embedding=None,
        steps=400,
        training=(
            "model.hidden_act=gelu",
            "model.initializer_range=0.05",
            "model.max_position_embeddings=32",
            "start.attention=local",
            "start.output_bias=unigram",
            "objective.max_seq_length=32",
            "objective.mask_prob=0.3",
            "objective.whole_word=false",
            "optim.name=muon",
            "optim.beta2=0.98",
            "optim.warmup_steps=0.1",
            "optim.learning_rate=0.005",
            "optim.muon_learning_rate=0.01",
            "train.batch_size=32",
            "train.precision=bf16",
            "train.threads=1",
        ),
    ),
    "paper": Scale(
        name="paper",
        base=Shape(768, 12, 64),
        large=Shape(1_024, 24, 64),
        embedding_sizes={size: size for size in (64, 128, 256, 768)},
        usual_embedding=128,
        steps=125_000,
        training=("objective.max_seq_length=512", "train.batch_size=4096", "train.precision=auto"),
    ),
}
"""Paper 4.1 and Table 1, and the smallest scale that learns from context in seconds per row.

With a vocabulary of some hundred pieces and sequences of 32, `tiny` leaves the plateau of the piece
frequencies after 0.2 million pieces where E = H, which is its usual size; where E is smaller, it
takes longer. Its embedding sizes keep the paper's order, not its shares.
"""


@dataclass(frozen=True)
class Variant:
    """One row of a table: settings, the paper's figure, and perhaps the row that it starts from.

    `steps` multiplies the scale's steps. `paper` is None where the paper has no figure. A row with
    `has_more_data` draws from a second corpus, too. Where the paper's table has several parts, rows
    are compared within their `part` alone.
    """

    label: str
    words: Words
    paper: float | None = None
    start: str | None = None
    steps: float = 1.0
    has_more_data: bool = False
    part: str = ""


@dataclass(frozen=True)
class Grid:
    """One table: its rows at a scale, what the paper measured, and what we compare with it.

    `crosses_objectives`: each row is measured on next sentence and on sentence order, too;
    `measures_depths`: masked words are measured after every step of the network. The measure
    `probes` is the mean of the downstream probes that all rows have.
    """

    name: str
    title: str
    source: str
    paper_measure: str
    measure: str
    variants: Callable[[Scale], tuple[Variant, ...]]
    crosses_objectives: bool = False
    measures_depths: bool = False
