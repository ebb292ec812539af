"""All settings, with defaults and ranges: networks and their presets, heads,
pretraining, fine-tuning.
"""

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, Field, JsonValue, model_validator

from litebert.errors import no_such_name
from litebert.plugins import (
    ATTENTION_KINDS,
    OPTIMIZERS,
    PRETRAINING_HEADS,
    SENTENCE_OBJECTIVES,
    TASK_HEADS,
    TASK_KINDS,
    NameIn,
    checked_settings,
    types_of,
)


class Section(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """A group of settings, frozen; unknown names are refused."""


class ContradictionError(ValueError):
    """Settings that do not fit each other; `names` are those of the fields, one of which
    has to change.
    """

    def __init__(self, names: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.names = names


# ---- the network ---------------------------------------------------------------------

Count: TypeAlias = Annotated[int, Field(ge=1, le=10**12)]
LayerCount: TypeAlias = Annotated[int, Field(ge=1, le=1_024)]
UpToOne: TypeAlias = Annotated[float, Field(ge=0, le=1)]
BelowOne: TypeAlias = Annotated[float, Field(ge=0, lt=1)]  # of dropouts and decays
Option: TypeAlias = bool | int | float | str | list[str]
Options: TypeAlias = dict[str, Option]
"""Settings of a record that a plug-in may have added, by name; on a command line,
`section.field.name=value`.
"""
Pooling = Literal["mean", "cls", "max"]
Activation = Literal["gelu_new", "gelu_pytorch_tanh", "gelu", "relu", "tanh", "linear"]
Sharing = Literal["all", "attention", "ffn", "none"]
Precision = Literal["fp32", "bf16", "fp16"]
InferencePrecision = Annotated[
    Literal["fp32", "bf16"] | None,
    "bf16 is several times faster where supported, within 1 %; by default bf16 on a GPU"
    " that has it, otherwise fp32.",
]
DeviceName = Annotated[str, "auto (the GPU if there is one), cpu, cuda, cuda:N or mps."]
Backend = Literal["torch", "openvino", "auto"]
"""What computes the encoder on a CPU; auto is openvino wherever it is installed and
faster.
"""


class AlbertConfig(Section):
    """The shape of an ALBERT network, under Hugging Face's names (defaults: base
    v2).
    """

    vocab_size: int = Field(
        30_000, ge=6, le=4_000_000, description="pieces in the vocabulary, V"
    )
    embedding_size: int = Field(
        128, ge=1, le=65_536, description="width of the embeddings, E"
    )
    hidden_size: int = Field(768, ge=1, le=65_536, description="width of the layers, H")
    num_hidden_layers: LayerCount = Field(12, description="times a layer is applied, L")
    num_hidden_groups: LayerCount = Field(
        1, description="groups of layers that share parameters"
    )
    inner_group_num: int = Field(
        1, ge=1, le=64, description="distinct blocks in one layer"
    )
    num_attention_heads: LayerCount = Field(12, description="attention heads")
    intermediate_size: int = Field(
        3_072, ge=1, le=262_144, description="feed-forward width, I"
    )
    attention: Annotated[str, NameIn(ATTENTION_KINDS)] = Field(
        "full", description="full, or a kind that a plug-in adds"
    )
    attention_settings: Options = Field(
        {}, description="settings of a kind of attention that a plug-in adds"
    )
    hidden_act: Activation = Field(
        "gelu_new", description="gelu_new: tanh form; gelu: erf"
    )
    hidden_dropout_prob: BelowOne = Field(
        0.0, description="dropout after each sub-layer"
    )
    attention_probs_dropout_prob: BelowOne = Field(
        0.0, description="dropout of attention"
    )
    classifier_dropout_prob: BelowOne = Field(
        0.1, description="dropout before task heads"
    )
    max_position_embeddings: int = Field(
        512, ge=1, le=131_072, description="longest sequence"
    )
    type_vocab_size: int = Field(2, ge=1, le=64, description="segment types")
    initializer_range: float = Field(
        0.02, gt=0, le=1, description="std of the truncated normal"
    )
    layer_norm_eps: UpToOne = Field(1e-12, description="epsilon of the layer norms")
    sharing: Sharing = Field(
        "all", description="what the layers share (paper, Table 4)"
    )
    embedding_projection: bool | None = Field(
        None, description="project E to H; unset: if they differ, as upstream"
    )
    pad_token_id: int = Field(0, ge=0, description="id of <pad>")
    bos_token_id: int = Field(2, ge=0, description="id of [CLS]")
    eos_token_id: int = Field(3, ge=0, description="id of [SEP]")

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def has_full_attention(self) -> bool:
        """Whether every token reads every token, as in other programs."""
        return self.attention == "full"

    @property
    def attention_arguments(self) -> dict[str, Any]:
        """All settings of this kind of attention, by name."""
        if self.has_full_attention:
            return {}
        return {**ATTENTION_KINDS[self.attention].settings, **self.attention_settings}

    @property
    def projects_embeddings(self) -> bool:
        """Whether a dense layer maps E to H (the official code has none if E = H)."""
        if self.embedding_projection is not None:
            return self.embedding_projection
        return self.embedding_size != self.hidden_size

    @property
    def num_steps(self) -> int:
        """How many blocks are applied to a token: layers times inner groups."""
        return self.num_hidden_layers * self.inner_group_num

    # ---- rules: each names the fields of which one has to change ----

    @model_validator(mode="after")
    def _require_known_attention_settings(self) -> Self:
        if self.attention_settings:
            checked_settings(
                self.attention_settings,
                types_of(ATTENTION_KINDS[self.attention].settings),
                table="model.attention_settings",
                owner=f"attention {self.attention}",
            )
        return self

    @model_validator(mode="after")
    def _require_whole_heads(self) -> Self:
        heads = self.num_attention_heads
        if self.hidden_size % heads:
            raise ContradictionError(
                ("hidden_size", "num_attention_heads"),
                f"hidden_size {self.hidden_size} must be a multiple of"
                f" num_attention_heads {heads}",
            )
        return self

    @model_validator(mode="after")
    def _require_groups_like_those_of_transformers(self) -> Self:
        layers = self.num_hidden_layers
        groups = self.num_hidden_groups
        if groups > layers:
            raise ContradictionError(
                ("num_hidden_layers", "num_hidden_groups"),
                f"num_hidden_groups {groups} must not exceed num_hidden_layers {layers}",
            )
        for layer in range(layers):
            # transformers divides floats, which can miss a whole number
            group_there = int(layer / (layers / groups))
            if layer * groups // layers != group_there:
                raise ContradictionError(
                    ("num_hidden_layers", "num_hidden_groups"),
                    f"num_hidden_groups {groups}: transformers would split {layers}"
                    " layers into other groups",
                )
        return self

    @model_validator(mode="after")
    def _require_one_kind_of_sharing(self) -> Self:
        uses_groups = self.num_hidden_groups not in (1, self.num_hidden_layers)
        if self.sharing != "all" and uses_groups:
            raise ContradictionError(
                ("num_hidden_groups", "sharing"),
                f"sharing {self.sharing!r} does not use num_hidden_groups: leave it"
                " at 1",
            )
        return self

    @model_validator(mode="after")
    def _require_projection_between_widths(self) -> Self:
        if not self.projects_embeddings and self.embedding_size != self.hidden_size:
            raise ContradictionError(
                ("embedding_size", "hidden_size", "embedding_projection"),
                "embedding_projection false needs embedding_size = hidden_size",
            )
        return self


def _shape(hidden_size: int, layers: int, heads: int, **others: Any) -> AlbertConfig:
    sizes = {
        "hidden_size": hidden_size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    return AlbertConfig(**sizes, intermediate_size=4 * hidden_size, **others)


_DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
_BERT = {**_DROPOUT, "sharing": "none"}
PRESETS: dict[str, AlbertConfig] = {
    # Ours use the erf form of GELU, which torch computes faster on a CPU than the tanh
    # form.
    "tiny": _shape(128, 3, 2, hidden_act="gelu"),
    "mini": _shape(256, 6, 4, hidden_act="gelu"),
    "small": _shape(512, 6, 8, hidden_act="gelu"),
    # Paper Table 1. v1 was trained with dropout 0.1 (xxlarge without), v2 without. Both
    # used the tanh GELU, whatever later configurations say; xlarge has the published 16
    # heads, not H/64.
    "base-v1": _shape(768, 12, 12, **_DROPOUT),
    "large-v1": _shape(1_024, 24, 16, **_DROPOUT),
    "xlarge-v1": _shape(2_048, 24, 16, **_DROPOUT),
    "xxlarge-v1": _shape(4_096, 12, 64),
    "base-v2": _shape(768, 12, 12),
    "large-v2": _shape(1_024, 24, 16),
    "xlarge-v2": _shape(2_048, 24, 16),
    "xxlarge-v2": _shape(4_096, 12, 64),
    # The paper's comparison runs: BERT's shapes on ALBERT's vocabulary and objectives.
    "bert-base": _shape(768, 12, 12, embedding_size=768, **_BERT),
    "bert-large": _shape(1_024, 24, 16, embedding_size=1_024, **_BERT),
}
ALIASES = {
    "base": "base-v2",
    "large": "large-v2",
    "xlarge": "xlarge-v2",
    "xxlarge": "xxlarge-v2",
}


def preset(name: str) -> AlbertConfig:
    """Return the configuration called `name`: one of the paper's, a BERT for
    comparison, or a small one for laptops.
    """
    key = ALIASES.get(name, name) if isinstance(name, str) else name
    if key not in PRESETS:
        raise no_such_name(
            "LB-100",
            "no preset has this name",
            str(name),
            [*PRESETS, *ALIASES],
            next="litebert sizes",
        )
    return PRESETS[key]


# ---- heads of tasks ------------------------------------------------------------------


Splitting = Literal["words", "spaces", "ideographs", "characters"]
"""How a text is divided into the words that get tags: words and marks, at spaces only,
also each character of a script without spaces, or each character.
"""


class HeadConfig(Section):
    """A task head, under Hugging Face's names."""

    kind: str = Field(description="what is predicted, and from what")
    labels: tuple[str, ...] = Field(
        (), description="names of the labels, by output number"
    )
    problem_type: str = Field(
        "single_label_classification", description="how a classifier's outputs are read"
    )
    splitting: Splitting = Field(
        "words", description="how a text is divided into words that get tags"
    )
    compares_texts: bool | None = Field(
        None,
        description=(
            "a classifier was trained on pairs of texts; unset: its folder does not say"
        ),
    )
    always_answers: bool | None = Field(
        None,
        description=(
            "a linear head for spans was trained on answered questions only; unset:"
            " its folder does not say, and it may find no answer"
        ),
    )

    settings: dict[str, JsonValue] = Field(
        {}, description="settings of the kind of task that a plug-in adds"
    )

    @property
    def record(self) -> Any:
        """The `TaskHead` of this kind: its layers, and its names elsewhere."""
        return TASK_HEADS[self.kind]

    @property
    def task_kind(self) -> Any:
        """The kind of task that this head was trained for, a subclass of `Family`; None
        if no kind of task uses heads like this.
        """
        for kind in kinds_of_head(self.kind):
            if kind.problem_type in ("", self.problem_type):
                return kind
        return None

    def __hash__(self) -> int:
        # settings, a dict, have no hash
        return hash((self.kind, self.labels, self.problem_type))

    def family(self, **changes: Any) -> Any:
        """Return the kind of task, with the settings that it was trained with."""
        kind = self.task_kind
        settings = kind.checked_settings(
            self.settings, next="load the plug-in with which the model was trained"
        )
        return kind(self, **{**settings, **changes})

    @property
    def verb(self) -> str:
        """The verb that this head answers."""
        kind = self.task_kind
        return "embed" if kind is None else str(kind.verb)

    @property
    def leaves_answers_open(self) -> bool:
        """Whether nobody knows if it was trained on questions without an answer."""
        return self.kind == "question-answering" and self.always_answers is None

    @property
    def has_problem_type(self) -> bool:
        """Whether kinds of task that differ in the meaning of the outputs share it."""
        return any(kind.problem_type for kind in kinds_of_head(self.kind))

    @property
    def num_outputs(self) -> int:
        """The number of logits per token or sequence."""
        record = self.record
        return len(self.labels) if record.has_labels else int(record.num_outputs)

    def __str__(self) -> str:
        if not self.labels:
            return self.kind
        more = ", …" if len(self.labels) > 10 else ""
        return f"{self.kind}, {self.problem_type}: {', '.join(self.labels[:10])}{more}"

    def answers_as(self, other: "HeadConfig") -> bool:
        """Whether both heads give the same kind of answers, with the same labels."""
        is_alike = self.task_kind is not None and self.task_kind is other.task_kind
        is_same = is_alike or self.kind == other.kind
        return (
            is_same
            and self.labels == other.labels
            and self.problem_type == other.problem_type
        )

    @model_validator(mode="after")
    def _require_known_kind(self) -> Self:
        if self.kind not in TASK_HEADS:
            kinds = ", ".join(TASK_HEADS)
            raise ValueError(f"there is no head {self.kind!r}, only {kinds}")
        return self

    @model_validator(mode="after")
    def _require_fitting_problem_type(self) -> Self:
        problems = [kind.problem_type for kind in kinds_of_head(self.kind)]
        if any(problems) and self.problem_type not in problems:
            raise ValueError(f"problem_type must be one of {', '.join(problems)}")
        is_default = self.problem_type == "single_label_classification"
        if not any(problems) and not is_default:
            raise ValueError(
                f"a {self.kind} head has no problem_type {self.problem_type}"
            )
        return self

    @model_validator(mode="after")
    def _require_fitting_labels(self) -> Self:
        has_labels = self.record.has_labels
        if has_labels and not self.labels:
            raise ValueError(f"a {self.kind} head needs the names of its labels")
        if self.labels and not has_labels:
            raise ValueError(f"a {self.kind} head has no labels")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("two labels have the same name")
        return self


def have_same_layers(first: HeadConfig | None, second: HeadConfig | None) -> bool:
    """Return whether two heads, or none, are the same but for what a folder may not
    say.
    """
    if first is None or second is None:
        return first is second
    unsaid: dict[str, Any] = {
        "compares_texts": None,
        "always_answers": None,
        "settings": {},
    }
    return first.model_copy(update=unsaid) == second.model_copy(update=unsaid)


def kinds_of_head(name: str) -> list[Any]:
    """Return the kinds of task that can be trained with a head."""
    return [kind for kind in TASK_KINDS.values() if name in kind.heads]


def numbered_labels(number: int) -> tuple[str, ...]:
    """Return the default names of labels, as in transformers: LABEL_0, LABEL_1, ..."""
    return tuple(f"LABEL_{index}" for index in range(number))


# ---- pretraining ---------------------------------------------------------------------

Weight = Annotated[float, Field(gt=0)]
Schedule = Literal["official", "linear", "wsd"]


class PretrainStart(Section):
    """Where the weights come from: a model, whose shape is then used, or random
    initialization.
    """

    model: str | None = Field(None, description="model folder, or a name on the Hub")
    optimizer: bool = Field(False, description="load its optimizer state, too")
    new_vocabulary: bool | None = Field(
        None, description="allow another vocabulary: shared pieces keep vectors"
    )
    attention: Literal["random", "local"] = Field(
        "random", description="local: some heads start by reading neighbors"
    )
    output_bias: Literal["zeros", "unigram"] = Field(
        "zeros", description="unigram: log frequencies of the pieces"
    )


class DataConfig(Section):
    """Where the training text comes from."""

    corpus: str = Field(description="corpus folder")
    mix: tuple[str, ...] | None = Field(
        None, description="more corpora of the same vocabulary to sample from"
    )
    weights: tuple[Weight, ...] | None = Field(
        None, description="weights of corpus and mix, in order; unset: tokens"
    )
    temperature: float | None = Field(
        None, gt=0, le=100, description="shares are weights ** (1 / temperature)"
    )
    eval_corpus: str | None = Field(
        None, description="corpus to evaluate on; unset: the held-out part of `corpus`"
    )

    @model_validator(mode="after")
    def _require_weight_of_each_corpus(self) -> Self:
        if self.weights is not None and len(self.weights) != 1 + len(self.mix or ()):
            raise ContradictionError(
                ("mix", "weights"),
                f"data.weights needs one number per corpus, not {len(self.weights)}",
            )
        return self


class ObjectiveConfig(Section):
    """The objectives (paper 3.1 and 4.2; official create_pretraining_data.py)."""

    heads: Annotated[dict[str, float], NameIn(PRETRAINING_HEADS)] = Field(
        {"masked_lm": 1.0, "sentence_order": 1.0},
        description="weights of the losses by head; 0: without this head",
    )
    sentence: Annotated[str, NameIn(SENTENCE_OBJECTIVES)] = Field(
        "order",
        description=(
            "order: swapped neighbors; order-official: with a leak; next; none"
        ),
    )
    max_seq_length: int = Field(
        512, ge=8, le=131_072, description="pieces in the longest sequence"
    )
    short_seq_prob: UpToOne = Field(0.1, description="share of shorter sequences")
    short_seq_per: Literal["instance", "document"] = Field(
        "instance", description="document: drawn once, as upstream"
    )
    ngram: int = Field(3, ge=1, le=10, description="most words masked in a row")
    favor_shorter_ngram: bool = Field(
        True, description="p(n) proportional to 1/n, or reversed"
    )
    whole_word: bool = Field(True, description="mask whole words, not single pieces")
    mask_prob: float = Field(0.15, gt=0, lt=1, description="share of pieces to predict")
    max_predictions: int | None = Field(
        None, ge=1, description="most pieces predicted in a sequence; upstream: 20"
    )

    @property
    def chosen_heads(self) -> tuple[str, ...]:
        """The heads that the network has."""
        return tuple(name for name, weight in self.heads.items() if weight > 0)

    @model_validator(mode="after")
    def _require_masked_lm(self) -> Self:
        if self.heads.get("masked_lm", 0.0) <= 0 or min(self.heads.values()) < 0:
            raise ContradictionError(
                ("heads",),
                "objective.heads needs a weight above 0 for masked_lm, and none below"
                " 0",
            )
        return self


class EarlyConfig(Section):
    """What differs in the early steps; it depends only on the step, so resuming is
    exact.
    """

    mask_prob: float | None = Field(
        None, gt=0, lt=1, description="share to predict at first; unset: no change"
    )
    mask_share: UpToOne = Field(
        0.6, description="share of the planned steps with that mask_prob"
    )
    depth: int | None = Field(
        None, ge=1, description="steps of the network applied at first; unset: all"
    )
    depth_share: BelowOne = Field(
        0.3, description="share of the planned steps with that depth"
    )


class DistilConfig(Section):
    """What is learned from a teacher, besides masked words and sentence order."""

    teacher: str | None = Field(
        None,
        description="model folder, a name on the Hub, or vectors.npy; unset: none",
    )
    hidden: float = Field(
        5.5, ge=0, le=100, description="weight of the hidden-state error"
    )
    vectors: float = Field(
        3.0, ge=0, le=100, description="weight of the text-vector error"
    )
    pretraining: float = Field(
        1.0, ge=0, le=100, description="weight of masked LM and sentence order"
    )
    texts: int = Field(24, ge=1, le=65_536, description="short plain texts per step")
    text_length: int = Field(
        64, ge=8, le=512, description="pieces in the longest plain text"
    )


class OptimConfig(Section):
    """The optimizer and its schedule (official optimization.py, lamb_optimizer.py)."""

    name: Annotated[str, NameIn(OPTIMIZERS)] = Field(
        "lamb",
        description="lamb, adamw or muon: on hidden matrices, adamw on the rest",
    )
    learning_rate: float = Field(1.76e-3, gt=0, le=10, description="peak learning rate")
    muon_learning_rate: float = Field(
        4e-3, gt=0, le=1, description="peak rate of the matrices that muon updates"
    )
    muon_momentum: BelowOne = Field(0.95, description="decay of muon's momentum")
    bias_correction: bool | None = Field(
        None, description="divide moments by 1 - beta^t; unset: only with muon"
    )
    average_decay: BelowOne = Field(
        0.0,
        description="decay of the weight average that is saved; 0: none",
    )
    weight_decay: float = Field(
        0.01, ge=0, le=10, description="decoupled; not applied to norms and biases"
    )
    beta1: BelowOne = Field(0.9, description="decay of the first moment")
    beta2: BelowOne = Field(0.999, description="decay of the second moment")
    epsilon: float = Field(
        1e-6, gt=0, le=1, description="added outside the square root"
    )
    clip_norm: float = Field(1.0, gt=0, description="largest global gradient norm")
    schedule: Schedule = Field(
        "linear",
        description="official: with a jump; linear: none; wsd: warm-up-stable-decay",
    )
    warmup_steps: float = Field(
        0.025,
        ge=0,
        description=(
            "warm-up steps, with train.minutes at most a tenth of all; below 1: a share"
            " of all"
        ),
    )
    decay_share: float = Field(
        0.2, gt=0, le=1, description="share of the steps in which wsd decays"
    )
    settings: Options = Field(
        {}, description="settings of an optimizer that a plug-in adds"
    )

    @model_validator(mode="after")
    def _require_settings_of_the_optimizer(self) -> Self:
        if self.settings:  # the registry loads torch
            checked_settings(
                self.settings,
                types_of(OPTIMIZERS[self.name].settings),
                table="optim.settings",
                owner=f"the optimizer {self.name}",
            )
        return self


class TrainConfig(Section):
    """How long to train, with what batches and precision, and what to keep."""

    steps: int = Field(125_000, ge=1, le=10**9, description="optimizer steps in all")
    minutes: float | None = Field(
        None,
        gt=0,
        le=10**7,  # 19 years
        description="stop after this time: the schedule follows the clock",
    )
    batch_size: Count = Field(4_096, description="sequences per step")
    micro_batch_size: int | None = Field(
        None, ge=1, description="sequences computed at once; unset: the whole batch"
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] | None = Field(
        None,
        description=(
            "of activations; unset: bf16 on a GPU that has it, else fp32; auto: the"
            " faster of the two; fp16: with a scaled loss, on older GPUs"
        ),
    )
    device: str = Field("auto", description="auto, cpu, cuda, cuda:N or mps")
    gradient_checkpointing: bool = Field(
        False, description="recompute blocks in the backward pass"
    )
    compile: bool = Field(
        False,
        description="compile what follows attention in each step (torch.compile)",
    )
    deterministic: bool = Field(
        False, description="on a GPU, use only kernels that repeat the same bits"
    )
    seed: int = Field(
        12_345, ge=0, lt=2**63, description="the single seed of all randomness"
    )
    eval_every: Count = Field(1_000, description="steps between held-out evaluations")
    eval_at_start: bool = Field(True, description="evaluate before the first step, too")
    eval_sequences: Count = Field(
        1_024, description="held-out sequences per evaluation"
    )
    save_every: Count = Field(1_000, description="steps between checkpoints")
    keep_checkpoints: Count = Field(2, description="newest checkpoints to keep")
    keep_every: int | None = Field(
        None, ge=1, description="also keep checkpoints at multiples of this many steps"
    )
    keep_best: bool | None = Field(
        None,
        description="pretraining: also keep the best evaluation's model, in `best`",
    )
    log_every: Count = Field(10, description="steps between reports of the losses")
    loader_workers: int = Field(
        1, ge=0, le=1_024, description="processes that prepare batches; 0: none"
    )
    threads: int | None = Field(
        None,
        ge=1,
        le=1_024,  # torch crashes where the system cannot start so many
        description="CPU threads; unset: torch's default; with minutes: the faster",
    )
    max_skipped_steps: int = Field(
        8, ge=0, description="consecutive non-finite steps before stopping"
    )


class PretrainConfig(Section):
    """Everything that determines a pretraining run."""

    start: PretrainStart = PretrainStart()
    model: AlbertConfig = AlbertConfig()
    data: DataConfig
    objective: ObjectiveConfig = ObjectiveConfig()
    early: EarlyConfig = EarlyConfig()
    distil: DistilConfig = DistilConfig()
    optim: OptimConfig = OptimConfig()
    train: TrainConfig = TrainConfig()

    @model_validator(mode="after")
    def _require_enough_positions(self) -> Self:
        length = self.objective.max_seq_length
        positions = self.model.max_position_embeddings
        # that of a starting model is known later
        if length > positions and not self.start.model:
            raise ContradictionError(
                ("model.max_position_embeddings", "objective.max_seq_length"),
                f"objective.max_seq_length {length} must not exceed"
                f" model.max_position_embeddings {positions}",
            )
        return self

    @model_validator(mode="after")
    def _require_steps_after_warmup(self) -> Self:
        warmup = self.optim.warmup_steps
        steps = self.train.steps
        if warmup >= steps > 1 and self.train.minutes is None:
            raise ContradictionError(
                ("optim.warmup_steps", "train.steps"),
                f"optim.warmup_steps {warmup} must be below train.steps {steps}",
            )
        return self

    @model_validator(mode="after")
    def _require_equal_micro_batches(self) -> Self:
        size = self.train.batch_size
        micro_size = self.train.micro_batch_size
        if micro_size is not None and size % micro_size:
            raise ContradictionError(
                ("train.batch_size", "train.micro_batch_size"),
                f"train.batch_size {size} must be a multiple of"
                f" train.micro_batch_size {micro_size}",
            )
        return self

    @model_validator(mode="after")
    def _require_whole_steps_in_distillation(self) -> Self:
        without_teacher = {
            "early.depth": self.early.depth,
            "train.micro_batch_size": self.train.micro_batch_size,
        }
        for name, value in without_teacher.items():
            if self.distil.teacher and value:
                raise ContradictionError(
                    (name,),
                    f"{name} must be null in distillation, which does not support it",
                )
        return self


# ---- fine-tuning ---------------------------------------------------------------------


class TaskConfig(Section):
    """What is learned, and how long its sequences may be."""

    name: str = Field(description="a named task, or table: your own data")
    max_length: int = Field(
        512, ge=8, le=131_072, description="pieces in the longest sequence"
    )
    max_query_length: Count = Field(64, description="SQuAD: pieces kept of a question")
    doc_stride: Count = Field(
        128, description="SQuAD: pieces from one window's start to the next"
    )
    max_answer_length: Count = Field(
        30, description="SQuAD: pieces in the longest answer"
    )
    null_threshold: float | None = Field(
        None, description="SQuAD 2.0: no answer from this null score; unset: official"
    )
    max_qa_length: Count = Field(
        128, description="RACE: last pieces kept of question + option"
    )
    class_weights: tuple[float, ...] | None = Field(
        None, description="loss weights, in the order of the labels"
    )
    settings: Options = Field(
        {}, description="settings of a kind of task that a plug-in adds"
    )


class TaskDataConfig(Section):
    """Where the examples are: a folder of a named task, or files of your own."""

    folder: str | None = Field(
        None, description="folder of a named task, as its authors publish it"
    )
    train: str | None = Field(
        None, description="your own examples: a table, or a folder for each label"
    )
    dev: str | None = Field(
        None, description="examples to evaluate on; unset: a part of train"
    )
    held_out: float = Field(
        0.1, gt=0, lt=1, description="share of train to evaluate on"
    )
    missing_labels: Literal["refuse", "skip"] = Field(
        "refuse", description="rows of your own files without a label"
    )
    problem: str | None = Field(
        None, description="kind of your own task; unset: guessed"
    )
    labels: tuple[str, ...] = Field(
        (), description="labels of your own task in your order; unset: sorted"
    )
    columns: tuple[str, ...] = Field(
        (), description='roles, ["text=review", "label=stars"]; unset: guessed'
    )


DROPOUTS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout_prob",
)
"""Settings of a network that a run may change when it starts from it."""


class StartConfig(Section):
    """Which network is fine-tuned; unset values are those of its config.json."""

    start: str = Field(description="model folder, or a name on the Hub")
    random: bool = Field(
        False, description="its shape with random weights, as a control"
    )
    pooling: Literal["auto", "cls", "mean", "apart"] = Field(
        "auto",
        description=(
            "what a classifier reads: [CLS], the mean of the tokens, or the means of"
            " two texts that are read apart; auto: what suits the start model"
        ),
    )
    hidden_dropout_prob: float | None = Field(
        None, ge=0, lt=1, description="encoder dropout"
    )
    attention_probs_dropout_prob: float | None = Field(
        None, ge=0, lt=1, description="attention dropout"
    )
    classifier_dropout_prob: float | None = Field(
        None, ge=0, lt=1, description="dropout before the head"
    )


class FinetuneOptimConfig(OptimConfig):
    """The optimizer, with defaults that suit most tasks."""

    name: Annotated[str, NameIn(OPTIMIZERS)] = Field("adamw", description="update rule")
    learning_rate: float = Field(2e-5, gt=0, le=10, description="peak learning rate")
    warmup_steps: float = Field(
        0.1, ge=0, description="warm-up steps; below 1: a share of all steps"
    )
    head_rate_scale: float = Field(
        1.0, gt=0, le=1000, description="factor on the learning rate of the new head"
    )


class FinetuneTrainConfig(TrainConfig):
    """How long to train, and with what batches."""

    epochs: float = Field(
        3.0, gt=0, le=10**6, description="passes over the data, if steps are not set"
    )
    steps: int = Field(
        0, ge=0, le=10**9, description="optimizer steps in all; 0: from epochs"
    )
    batch_size: Count = Field(32, description="examples (SQuAD: windows) per step")
    eval_every: int = Field(
        0,
        ge=0,
        description=(
            "steps between evaluations; 0: once an epoch, or less often if more"
            " examples are held out than trained on"
        ),
    )
    eval_at_start: bool = Field(
        False, description="evaluate before the first step, too"
    )
    save_every: Count = Field(500, description="steps between checkpoints")
    keep_checkpoints: Count = Field(1, description="newest checkpoints to keep")


class TeacherConfig(Section):
    """Which fine-tuned run is imitated in addition to the labels, and with what
    weight.
    """

    run: str | None = Field(
        None, description="fine-tuned run of the same task; unset: no teacher"
    )
    temperature: float = Field(
        2.0, gt=0, le=100, description="softens the logits of both teacher and student"
    )
    weight: UpToOne = Field(0.5, description="share of the loss; 1: labels are ignored")


class FinetuneConfig(Section):
    """Everything that determines a fine-tuning run."""

    task: TaskConfig
    data: TaskDataConfig = TaskDataConfig()
    model: StartConfig
    optim: FinetuneOptimConfig = FinetuneOptimConfig()
    train: FinetuneTrainConfig = FinetuneTrainConfig()
    teacher: TeacherConfig = TeacherConfig()

    @model_validator(mode="after")
    def _require_one_place_of_data(self) -> Self:
        if (self.data.folder is None) == (self.data.train is None):
            raise ContradictionError(
                ("data.folder", "data.train"),
                "set either data.folder (a named task) or data.train (your own)",
            )
        return self

    @model_validator(mode="after")
    def _require_own_files_for_their_settings(self) -> Self:
        defaults = TaskDataConfig()
        for name in ("dev", "columns", "labels", "problem", "missing_labels"):
            is_set = getattr(self.data, name) != getattr(defaults, name)
            if is_set and self.data.train is None:
                raise ContradictionError(
                    (f"data.{name}",), f"only your own files have data.{name}"
                )
        return self
