"""The tables of the paper as rows of settings at a scale; the figures are those of arXiv 1909.11942 v6."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from litebert.config import PretrainConfig, resolve, settings_from_words
from litebert.study.sizes import forward_flops
from litebert.terminal import counted


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


def training_flops(words: Words) -> float:
    """Return the FLOPs of a training: three forward passes for every token, plus extras."""
    config = config_of(words)
    length = config.objective.max_seq_length
    tokens = config.train.steps * config.train.batch_size * length
    return passes(config) * forward_flops(config.model, seq_length=length) * tokens


def passes(config: PretrainConfig) -> float:
    """Return the cost of a step in forward passes of the full depth; a backward pass costs two.

    Hard-example mining adds a forward pass per candidate; elastic depth omits steps.

    >>> settings = ["data.corpus=none", "model.num_hidden_layers=4", "elastic.least_depth=1"]
    >>> passes(resolve(PretrainConfig, settings_from_words(settings)).config)
    2.25
    """
    full = config.model.num_steps
    least = config.elastic.least_depth or full
    depth = 1.0
    if least < full:
        depth = (1 + (least + full - 1) / 2 / full) / 2
    chosen = config.mining.pool if config.mining.pool > 1 else 0
    return 3 * depth + chosen


def config_of(words: Words) -> PretrainConfig:
    """Return the configuration of these settings, without a corpus."""
    given = settings_from_words(["data.corpus=none", *words])
    return resolve(PretrainConfig, given).config


AVERAGE = "average of five tasks, %"
MLM = "mask_token_accuracy"
"""Only positions that show [MASK] count: at the others the answer may be in sight."""


# Table 3: (E, not shared, all shared).
_EMBEDDING = ((64, 81.3, 79.0), (128, 81.7, 80.1), (256, 81.8, 79.6), (768, 82.3, 79.8))
# Table 4: by what is shared, at E = 768 and at E = 128.
_SHARING = {"all": (79.8, 80.1), "attention": (81.6, 81.7), "ffn": (79.5, 80.2), "none": (82.3, 81.6)}
# Table 11; the depths of the tiny scale stand in for the paper's from below.
_DEPTH = {1: 52.9, 3: 71.2, 6: 77.2, 12: 81.5, 24: 82.1, 48: 81.8}
# Table 12: width in units of the narrowest.
_WIDTH = {1: 71.2, 2: 74.6, 4: 76.3, 6: 74.0}


def _base(scale: Scale, *words: str) -> Words:
    return (*scale.network(scale.base), *words)


def _embedding(scale: Scale) -> tuple[Variant, ...]:
    return tuple(
        Variant(
            f"E {size}, {'all shared' if sharing == 'all' else 'not shared'}",
            (*scale.base.words(), scale.embedding(size), f"model.sharing={sharing}"),
            figure,
            part="all shared" if sharing == "all" else "not shared",
        )
        for sharing, column in (("none", 1), ("all", 2))
        for size, figure in ((row[0], row[column]) for row in _EMBEDDING)
    )


def _sharing(scale: Scale) -> tuple[Variant, ...]:
    return tuple(
        Variant(
            f"E {size}, shared: {sharing}",
            (*scale.base.words(), scale.embedding(size), f"model.sharing={sharing}"),
            figures[column],
            part=f"E {size}",
        )
        for column, size in enumerate((768, 128))
        for sharing, figures in _SHARING.items()
    )


def _sentence(scale: Scale) -> tuple[Variant, ...]:
    rows = (("none", "none", 79.0), ("NSP", "next", 79.2), ("SOP", "order", 80.1))
    return tuple(Variant(label, _base(scale, f"objective.sentence={name}"), figure) for label, name, figure in rows)


def _depth(scale: Scale) -> tuple[Variant, ...]:
    found: list[Variant] = []
    for layers, figure in _DEPTH.items():
        words = scale.network(scale.large, num_layers=layers)
        # From three layers on, each starts from the weights of the depth before it.
        start = found[-1].label if layers >= 3 else None
        found.append(Variant(counted(layers, "layer"), words, figure, start=start))
    return tuple(found)


def _width(scale: Scale) -> tuple[Variant, ...]:
    return tuple(
        Variant(
            f"H x {factor}",
            scale.network(scale.large, hidden_size=factor * scale.large.hidden_size, num_layers=3),
            figure,
        )
        for factor, figure in _WIDTH.items()
    )


def _dropout(scale: Scale) -> tuple[Variant, ...]:
    rows = (("with dropout .1", 0.1, 90.4), ("without", 0.0, 90.7))
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    return tuple(
        Variant(label, _base(scale, *(f"model.{name}={value}" for name in names)), figure)
        for label, value, figure in rows
    )


def _time(scale: Scale) -> tuple[Variant, ...]:
    """Give BERT-large and ALBERT-xxlarge the same compute, that of the output layer not counted."""
    size, layers = scale.large.hidden_size, scale.large.num_layers
    bert = (*scale.large.words(), f"model.embedding_size={size}", "model.sharing=none")
    albert = scale.network(scale.large, hidden_size=4 * size, num_layers=max(1, layers // 2))
    of_bert, of_albert = (training_flops((*scale.training, *words, "model.vocab_size=6")) for words in (bert, albert))
    balance = math.sqrt(of_albert / of_bert)
    return (
        Variant("unshared, deep and narrow", bert, 87.2, steps=balance),
        Variant("shared, half as deep, H x 4", albert, 88.7, steps=1 / balance),
    )


def _ngram(scale: Scale) -> tuple[Variant, ...]:
    return tuple(Variant(f"up to {n} words", _base(scale, f"objective.ngram={n}")) for n in (1, 2, 3))


def _groups(scale: Scale) -> tuple[Variant, ...]:
    layers = scale.base.num_layers
    counts = [n for n in (1, 2, 3, 6, 12) if layers % n == 0]
    groups = [Variant(counted(n, "group"), _base(scale, f"model.num_hidden_groups={n}")) for n in counts]
    inner = (*scale.network(scale.base, num_layers=layers // 2), "model.inner_group_num=2")
    return (*groups, Variant(f"2 inner blocks, {counted(layers // 2, 'layer')}", inner))


def _more_data(scale: Scale) -> tuple[Variant, ...]:
    base = _base(scale)
    return (Variant("one corpus", base, 80.1), Variant("additional data", base, 80.8, has_more_data=True))


def _mining(scale: Scale) -> tuple[Variant, ...]:
    """Give every row the same compute: a choice among n sequences adds n forward passes to 3."""
    choices = [Variant(f"hardest of {n}", _base(scale, f"mining.pool={n}"), steps=3 / (3 + n)) for n in (2, 4)]
    return (Variant("uniform", _base(scale)), *choices)


def _masking(scale: Scale) -> tuple[Variant, ...]:
    return (
        Variant("15 % masked", _base(scale, "objective.mask_prob=0.15")),
        Variant("30 % in the first 60 %", _base(scale, "objective.mask_prob=0.15", "early.mask_prob=0.3")),
        Variant("30 % masked", _base(scale, "objective.mask_prob=0.3")),
    )


def _attention(scale: Scale) -> tuple[Variant, ...]:
    local = [
        Variant(f"local, window {n}", _base(scale, "model.attention=local", f"model.attention_window={n}"))
        for n in (4, 16)
    ]
    return (Variant("full", _base(scale)), *local)


def _elastic(scale: Scale) -> tuple[Variant, ...]:
    """Give one network for all depths the compute of the full depth alone."""
    layers = scale.base.num_layers
    halves = [layers // 2, 1] if layers > 2 else [1]
    apart = [Variant(f"{counted(n, 'step')} alone", scale.network(scale.base, num_layers=n)) for n in halves]
    elastic = _base(scale, "elastic.least_depth=1")
    share = (1 + 1 / 2) / 2  # half of the steps at full depth, the others at half of it on average
    return (
        Variant(f"{counted(layers, 'step')} alone", _base(scale)),
        *apart,
        Variant("elastic", elastic, steps=1 / share),
    )


GRIDS = {
    grid.name: grid
    for grid in (
        Grid("embedding", "Size of the embeddings", "Table 3", AVERAGE, MLM, _embedding),
        Grid("sharing", "What the layers share", "Table 4", AVERAGE, MLM, _sharing),
        Grid("sentence", "Sentence objective", "Table 5", AVERAGE, MLM, _sentence, crosses_objectives=True),
        Grid("time", "Equal compute", "Table 6", AVERAGE, MLM, _time),
        Grid("data", "Additional data", "Table 7", AVERAGE, MLM, _more_data),
        Grid("dropout", "Dropout", "Table 8 and Figure 2b", AVERAGE, MLM, _dropout),
        Grid("depth", "Depth, each from the one before", "Table 11", AVERAGE, MLM, _depth),
        Grid("width", "Width of three layers", "Table 12", AVERAGE, MLM, _width),
        Grid("ngram", "Longest masked run", "4.2, no table", "none", MLM, _ngram),
        Grid("groups", "Groups that share", "4.5, no table", "none", MLM, _groups),
        Grid("mining", "Hard examples at equal compute", "5, no table", "none", MLM, _mining),
        Grid("masking", "Masking rate", "5, no table", "none", MLM, _masking),
        Grid("attention", "Local attention", "5, no table", "none", MLM, _attention),
        Grid("elastic", "Elastic depth", "5, no table", "none", MLM, _elastic, measures_depths=True),
    )
}
