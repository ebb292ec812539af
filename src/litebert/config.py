"""All settings, with defaults and ranges: networks and their presets, heads,
pretraining, fine-tuning.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

from litebert.errors import no_such_name


class Section(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """A group of settings, frozen; unknown names are refused."""


# ---- the network ---------------------------------------------------------------------

Pooling = Literal["mean", "cls", "max"]
Activation = Literal["gelu_new", "gelu_pytorch_tanh", "gelu", "relu", "tanh", "linear"]
Sharing = Literal["all", "attention", "ffn", "none"]
Precision = Literal["fp32", "bf16", "fp16"]
InferencePrecision = Annotated[
    Literal["fp32", "bf16"], "bf16 is several times faster where supported, within 1 %."
]
Backend = Literal["torch", "onnxruntime", "auto"]
"""What computes attention and single short texts; auto is onnxruntime if it is
installed and faster.
"""


@dataclass(frozen=True)
class AttentionKind:
    """A kind of attention: what each token reads, and a fast kernel for it
    (docs/extending/attention.md adds one).

    `visible(query, key, **settings)` defines it: for arrays of positions that
    broadcast, it returns whether the query reads the key. None: always. The plain
    network and the map of a model's attention are derived from it. `attend` is the
    engine's kernel for it, a function or "package.module:function"; without one, scores
    are masked. `settings` are the fields of AlbertConfig that both take as keywords;
    config.json has them. Without `visible` and `attend` it is full attention, which
    other programs compute, too.
    """

    visible: Callable[..., Any] | None
    attend: Callable[..., Any] | str | None = None
    settings: tuple[str, ...] = ()

    @property
    def is_full(self) -> bool:
        return self.visible is None and self.attend is None


def near_or_first(query: Any, key: Any, *, attention_window: int) -> Any:
    """Return where local attention reads: neighbours up to the window, and [CLS], which
    itself reads all.
    """
    return (abs(query - key) <= attention_window) | (query == 0) | (key == 0)


ATTENTION_KINDS = {
    "full": AttentionKind(visible=None),
    "local": AttentionKind(
        near_or_first, "litebert.fast.attention:local", settings=("attention_window",)
    ),
}


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
    num_hidden_layers: int = Field(
        12, ge=1, le=1_024, description="times a layer is applied, L"
    )
    num_hidden_groups: int = Field(
        1, ge=1, le=1_024, description="groups of layers that share parameters"
    )
    inner_group_num: int = Field(
        1, ge=1, le=64, description="distinct blocks in one layer"
    )
    num_attention_heads: int = Field(12, ge=1, le=1_024, description="attention heads")
    intermediate_size: int = Field(
        3_072, ge=1, le=262_144, description="feed-forward width, I"
    )
    attention: str = Field(
        "full", description="full, or local: only neighbours and [CLS]"
    )
    attention_window: int = Field(
        64,
        ge=1,
        le=65_536,
        description="neighbours on each side that local attention sees",
    )
    hidden_act: Activation = Field(
        "gelu_new", description="gelu_new: tanh form; gelu: erf"
    )
    hidden_dropout_prob: float = Field(
        0.0, ge=0, lt=1, description="dropout after each sub-layer"
    )
    attention_probs_dropout_prob: float = Field(
        0.0, ge=0, lt=1, description="dropout of attention"
    )
    classifier_dropout_prob: float = Field(
        0.1, ge=0, lt=1, description="dropout before task heads"
    )
    max_position_embeddings: int = Field(
        512, ge=1, le=131_072, description="longest sequence"
    )
    type_vocab_size: int = Field(2, ge=1, le=64, description="segment types")
    initializer_range: float = Field(
        0.02, gt=0, le=1, description="std of the truncated normal"
    )
    layer_norm_eps: float = Field(
        1e-12, ge=0, le=1, description="epsilon of the layer norms"
    )
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
    def attention_settings(self) -> dict[str, object]:
        """The settings of this kind of attention, by name."""
        return {
            name: getattr(self, name)
            for name in ATTENTION_KINDS[self.attention].settings
        }

    @property
    def projects_embeddings(self) -> bool:
        """Whether a dense layer maps E to H (the official code has none if E = H)."""
        differ = self.embedding_size != self.hidden_size
        return (
            differ if self.embedding_projection is None else self.embedding_projection
        )

    @property
    def num_steps(self) -> int:
        """How many blocks are applied to a token: layers times inner groups."""
        return self.num_hidden_layers * self.inner_group_num

    @model_validator(mode="after")
    def _check(self) -> Self:
        layers = self.num_hidden_layers
        groups = self.num_hidden_groups
        heads = self.num_attention_heads
        if self.attention not in ATTENTION_KINDS:
            kinds = ", ".join(ATTENTION_KINDS)
            raise ValueError(
                f"attention {self.attention!r} is not one of {kinds}: import the file"
                " that adds it first"
            )
        if self.hidden_size % heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} must be a multiple of"
                f" num_attention_heads {heads}"
            )
        if groups > layers:
            raise ValueError(
                f"num_hidden_groups {groups} must not exceed num_hidden_layers {layers}"
            )
        if any(
            layer * groups // layers != int(layer / (layers / groups))
            for layer in range(layers)
        ):
            raise ValueError(
                f"num_hidden_groups {groups}: transformers would split {layers} layers"
                " into other groups"
            )
        if self.sharing != "all" and groups not in (1, layers):
            raise ValueError(
                f"sharing {self.sharing!r} does not use num_hidden_groups: leave it"
                " at 1"
            )
        if not self.projects_embeddings and self.embedding_size != self.hidden_size:
            raise ValueError(
                "embedding_projection false needs embedding_size = hidden_size"
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


@dataclass(frozen=True)
class HeadRecord:
    """The properties of one kind of head."""

    kind: str
    # the end of its class names in transformers: AlbertFor..., BertFor...
    class_name: str
    layer: str  # the linear layer on disk
    pipeline: str  # its pipeline tag on the Hub
    purpose: str
    verb: str  # the method of `litebert.load(...)` that uses it
    is_pooled: bool = False  # reads the pooled [CLS] instead of every token
    # the outputs are named labels; else there are `num_outputs`
    has_labels: bool = False
    num_outputs: int = 0
    variable: str = ""  # identifies this head in an official checkpoint
    # names of the columns of a linear head that is read token by token
    logits: tuple[str, ...] = ("logits",)
    is_in_transformers: bool = True  # if not, transformers reads only the encoder
    has_dropout: bool = True  # on the input of the linear layer
    module: str = "litebert.nn.heads:LinearHead"  # the class that implements it
    # gets all tokens and the batch, and returns one row per sequence
    reads_texts: bool = False

    @property
    def has_problem_type(self) -> bool:
        """Whether outputs can be one label, a set of labels, or a score."""
        return self.verb == "classify"

    @property
    def examples(self) -> tuple[str, str]:
        """An example: what follows `litebert` in a shell, and `model.` in Python."""
        return _EXAMPLES[self.verb]

    def make(self, config: AlbertConfig, head: "HeadConfig") -> Any:
        return resolve_name(self.module)(config, head)


_EXAMPLES = {  # by the verb of a head
    "classify": (
        'classify "A first text." "Another one."',
        'classify(["A first text.", "Another one."])',
    ),
    "tag": (
        'tag "The words of this text are tagged."',
        'tag(["The words of this text are tagged."])',
    ),
    "answer": (
        'answer "Who sat?" --context "The cat sat on the mat."',
        'answer("Who sat?", "The cat sat on the mat.")',
    ),
    "choose": (
        'choose "Who sat there?" "the cat" nobody',
        'choose("Who sat there?", ["the cat", "nobody"])',
    ),
    "embed": (
        'embed "A first text." "Another one."',
        'embed(["A first text.", "Another one."])',
    ),
}
_CLASSIFIER = "output_weights"  # in official checkpoints
_RECORDS = (
    HeadRecord(
        "sequence-classification",
        "SequenceClassification",
        "classifier",
        "text-classification",
        "classifies texts or pairs of texts",
        "classify",
        is_pooled=True,
        has_labels=True,
        variable=_CLASSIFIER,
    ),
    HeadRecord(
        "vector-classification",
        "VectorClassification",
        "classifier",
        "text-classification",
        "classifies texts or pairs of texts by their vectors",
        "classify",
        has_labels=True,
        is_in_transformers=False,
        module="litebert.tasks.kinds.text:VectorHead",
        reads_texts=True,
    ),
    HeadRecord(
        "token-classification",
        "TokenClassification",
        "classifier",
        "token-classification",
        "tags words",
        "tag",
        has_labels=True,
        variable=_CLASSIFIER,
    ),
    HeadRecord(
        "question-answering",
        "QuestionAnswering",
        "qa_outputs",
        "question-answering",
        "finds answers in a text (SQuAD 1.1)",
        "answer",
        num_outputs=2,
        variable="cls/squad/output_weights",
        # unlike official classifiers (squad_utils.py L708)
        logits=("start_logits", "end_logits"),
        has_dropout=False,
    ),
    HeadRecord(
        "conditional-question-answering",
        "ConditionalQuestionAnswering",
        "",
        "question-answering",
        "finds answers in a text, or says that there is none (SQuAD 2.0)",
        "answer",
        num_outputs=1,
        variable="start_logits/dense/kernel",
        is_in_transformers=False,
        module="litebert.tasks.kinds.spans:ConditionalSpanHead",
    ),
    HeadRecord(
        "multiple-choice",
        "MultipleChoice",
        "classifier",
        "multiple-choice",
        "chooses between answers",
        "choose",
        is_pooled=True,
        num_outputs=1,
        variable=_CLASSIFIER,
    ),
)
HEADS: dict[str, HeadRecord] = {record.kind: record for record in _RECORDS}
"""All kinds of heads; folders, cards, verbs and reports support every kind that has a
record.
"""
PROBLEMS = {
    "single_label_classification": "litebert.tasks.kinds.text:SingleLabel",
    "multi_label_classification": "litebert.tasks.kinds.text:MultiLabel",
    "regression": "litebert.tasks.kinds.text:Regression",
}
"""What a classifier's outputs can be, by `problem_type`, and the class that handles
each, `package.module:Class`.
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

    @property
    def record(self) -> HeadRecord:
        return HEADS[self.kind]

    @property
    def num_outputs(self) -> int:
        """The number of logits per token or sequence."""
        return len(self.labels) if self.record.has_labels else self.record.num_outputs

    def __str__(self) -> str:
        labels = f"{', '.join(self.labels[:10])}{', …' * (len(self.labels) > 10)}"
        return f"{self.kind}, {self.problem_type}: {labels}" if labels else self.kind

    def answers_as(self, other: "HeadConfig") -> bool:
        """Whether both heads give the same kind of answers, with the same labels."""
        has_same = self.record.has_problem_type and other.record.has_problem_type
        ours = (self.labels, self.problem_type)
        theirs = (other.labels, other.problem_type)
        return (has_same or self.kind == other.kind) and ours == theirs

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind not in HEADS:
            raise ValueError(f"there is no head {self.kind!r}, only {', '.join(HEADS)}")
        if self.problem_type not in PROBLEMS:
            raise ValueError(f"problem_type must be one of {', '.join(PROBLEMS)}")
        if self.record.has_labels != bool(self.labels):
            needs = (
                "needs the names of its labels"
                if self.record.has_labels
                else "has no labels"
            )
            raise ValueError(f"a {self.kind} head {needs}")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("two labels have the same name")
        if (
            self.problem_type != "single_label_classification"
            and not self.record.has_problem_type
        ):
            raise ValueError(
                f"a {self.kind} head has no problem_type {self.problem_type}"
            )
        return self


def kind_of_class(name: str) -> str | None:
    """Return the kind of head of a transformers class, such as
    BertForTokenClassification; None for other classes.
    """
    ends = {
        f"{family}For{record.class_name}": kind
        for kind, record in HEADS.items()
        for family in ("Albert", "Bert")
    }
    return ends.get(name)


def numbered_labels(number: int) -> tuple[str, ...]:
    """Return the default names of labels, as in transformers: LABEL_0, LABEL_1, ..."""
    return tuple(f"LABEL_{index}" for index in range(number))


# ---- pretraining ---------------------------------------------------------------------

Weight = Annotated[float, Field(gt=0)]
Schedule = Literal["official", "linear", "wsd"]


class PretrainStart(Section):
    """Where the weights come from: a model, whose shape is then used, or random
    initialisation.
    """

    model: str | None = Field(None, description="model folder, or a name on the Hub")
    optimizer: bool = Field(False, description="load its optimizer state, too")
    new_vocabulary: bool | None = Field(
        None, description="allow another vocabulary: shared pieces keep vectors"
    )
    attention: Literal["random", "local"] = Field(
        "random", description="local: some heads start by reading neighbours"
    )
    output_bias: Literal["zeros", "unigram"] = Field(
        "zeros", description="unigram: log frequencies of the pieces"
    )


class DataConfig(Section):
    """Where the training text comes from."""

    corpus: str = Field(description="corpus folder made by `litebert corpus build`")
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
    window: int | None = Field(
        None, ge=1, description="pieces that are shuffled together; unset: 4 billion"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.weights is not None and len(self.weights) != 1 + len(self.mix or ()):
            raise ValueError(
                f"data.weights needs one number per corpus, not {len(self.weights)}"
            )
        return self


class ObjectiveConfig(Section):
    """The objectives (paper 3.1 and 4.2; official create_pretraining_data.py)."""

    sentence: str = Field(
        "order",
        description=(
            "order: swapped neighbours; order-official: with a leak; next; none"
        ),
    )
    max_seq_length: int = Field(
        512, ge=8, le=131_072, description="pieces in the longest sequence"
    )
    short_seq_prob: float = Field(
        0.1, ge=0, le=1, description="share of shorter sequences"
    )
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


class EarlyConfig(Section):
    """What differs in the early steps; it depends only on the step, so resuming is
    exact.
    """

    mask_prob: float | None = Field(
        None, gt=0, lt=1, description="share to predict at first; unset: no change"
    )
    mask_share: float = Field(
        0.6, ge=0, le=1, description="share of the planned steps with that mask_prob"
    )
    depth: int | None = Field(
        None, ge=1, description="steps of the network applied at first; unset: all"
    )
    depth_share: float = Field(
        0.3, ge=0, lt=1, description="share of the planned steps with that depth"
    )


class DistilConfig(Section):
    """What is learnt from a teacher, besides masked words and sentence order."""

    teacher: str | None = Field(
        None, description="model folder, or a name on the Hub; unset: none"
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

    name: Literal["lamb", "adamw", "muon"] = Field(
        "lamb", description="muon: on hidden matrices, adamw on the rest"
    )
    learning_rate: float = Field(1.76e-3, gt=0, le=10, description="peak learning rate")
    muon_learning_rate: float = Field(
        4e-3, gt=0, le=1, description="peak rate of the matrices that muon updates"
    )
    muon_momentum: float = Field(
        0.95, ge=0, lt=1, description="decay of muon's momentum"
    )
    bias_correction: bool | None = Field(
        None, description="divide moments by 1 - beta^t; unset: only with muon"
    )
    average_decay: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="decay of the weight average that is saved; 0: none",
    )
    weight_decay: float = Field(
        0.01, ge=0, le=10, description="decoupled; not applied to norms and biases"
    )
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the first moment")
    beta2: float = Field(0.999, ge=0, lt=1, description="decay of the second moment")
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


class TrainConfig(Section):
    """How long to train, with what batches and precision, and what to keep."""

    steps: int = Field(125_000, ge=1, le=10**9, description="optimizer steps in all")
    minutes: float | None = Field(
        None, gt=0, description="stop after this time: the schedule follows the clock"
    )
    batch_size: int = Field(4_096, ge=1, description="sequences per step")
    micro_batch_size: int | None = Field(
        None, ge=1, description="sequences computed at once; unset: the whole batch"
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "fp32",
        description=(
            "of activations; auto: the faster of fp32 and bf16; fp16: with a scaled"
            " loss, on older GPUs"
        ),
    )
    device: str = Field("auto", description="auto, cpu, cuda, cuda:N or mps")
    gradient_checkpointing: bool = Field(
        False, description="recompute blocks in the backward pass"
    )
    seed: int = Field(
        12_345, ge=0, lt=2**63, description="the single seed of all randomness"
    )
    eval_every: int = Field(
        1_000, ge=1, description="steps between held-out evaluations"
    )
    eval_at_start: bool = Field(True, description="evaluate before the first step, too")
    eval_sequences: int = Field(
        1_024, ge=1, description="held-out sequences per evaluation"
    )
    save_every: int = Field(1_000, ge=1, description="steps between checkpoints")
    keep_checkpoints: int = Field(2, ge=1, description="newest checkpoints to keep")
    keep_every: int | None = Field(
        None, ge=1, description="also keep checkpoints at multiples of this many steps"
    )
    keep_best: bool | None = Field(
        None,
        description="pretraining: also keep the best evaluation's model, in `best`",
    )
    log_every: int = Field(10, ge=1, description="steps between progress lines")
    loader_workers: int = Field(
        1, ge=0, description="processes that prepare batches; 0: none"
    )
    threads: int | None = Field(
        None,
        ge=1,
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
    def _check(self) -> Self:
        positions = self.model.max_position_embeddings
        train = self.train
        warmup = self.optim.warmup_steps
        # that of a starting model is known later
        if (
            length := self.objective.max_seq_length
        ) > positions and not self.start.model:
            name = "objective.max_seq_length"
            raise ValueError(
                f"{name} {length} must not exceed model.max_position_embeddings"
                f" {positions}"
            )
        if warmup >= train.steps > 1 and train.minutes is None:
            raise ValueError(
                f"optim.warmup_steps {warmup} must be below train.steps {train.steps}"
            )
        if train.micro_batch_size and train.batch_size % train.micro_batch_size:
            sizes = (
                f"train.batch_size {train.batch_size}",
                f"train.micro_batch_size {train.micro_batch_size}",
            )
            raise ValueError(f"{sizes[0]} must be a multiple of {sizes[1]}")
        for name, value in (
            ("early.depth", self.early.depth),
            ("train.micro_batch_size", train.micro_batch_size),
        ):
            if self.distil.teacher and value:
                raise ValueError(
                    f"{name} must be null in distillation, which does not support it"
                )
        return self


# ---- fine-tuning ---------------------------------------------------------------------

Problem = Literal[
    "classification",
    "multi-label",
    "regression",
    "token-classification",
    "multiple-choice",
    "question-answering",
]
"""The kinds of tasks for users' own files; `tasks/own/dataset.py` has a row reader for
each.
"""


class TaskConfig(Section):
    """What is learnt, and how long its sequences may be."""

    name: str = Field(
        description="a named task (litebert recipes list), or table: your own data"
    )
    max_length: int = Field(
        512, ge=8, le=131_072, description="pieces in the longest sequence"
    )
    max_query_length: int = Field(
        64, ge=1, description="SQuAD: pieces kept of a question"
    )
    doc_stride: int = Field(
        128, ge=1, description="SQuAD: pieces from one window's start to the next"
    )
    max_answer_length: int = Field(
        30, ge=1, description="SQuAD: pieces in the longest answer"
    )
    null_threshold: float | None = Field(
        None, description="SQuAD 2.0: no answer from this null score; unset: official"
    )
    max_qa_length: int = Field(
        128, ge=1, description="RACE: last pieces kept of question + option"
    )
    class_weights: tuple[float, ...] | None = Field(
        None, description="loss weights, in the order of the labels"
    )


class TaskDataConfig(Section):
    """Where the examples are: a folder of a named task, or files of your own."""

    folder: str | None = Field(
        None, description="folder of a named task, as its authors publish it"
    )
    train: str | None = Field(
        None, description="your own examples: CSV, TSV, JSONL, Parquet"
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
    problem: Problem | None = Field(
        None, description="kind of your own task; unset: guessed"
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
    pooling: Literal["auto", "cls", "mean"] = Field(
        "auto",
        description=(
            "what a classifier reads; auto: mean for a model of text vectors, else"
            " [CLS]"
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

    name: Literal["lamb", "adamw"] = Field("adamw", description="update rule")
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
    batch_size: int = Field(32, ge=1, description="examples (SQuAD: windows) per step")
    eval_every: int = Field(
        0, ge=0, description="steps between evaluations; 0: once an epoch"
    )
    eval_at_start: bool = Field(
        False, description="evaluate before the first step, too"
    )
    save_every: int = Field(500, ge=1, description="steps between checkpoints")
    keep_checkpoints: int = Field(1, ge=1, description="newest checkpoints to keep")
    exits: bool = Field(
        False,
        description=(
            "classification: a head after every step, for early exit and less depth"
        ),
    )


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
    weight: float = Field(
        0.5, ge=0, le=1, description="share of the loss; 1: labels are ignored"
    )


class FinetuneConfig(Section):
    """Everything that determines a fine-tuning run."""

    task: TaskConfig
    data: TaskDataConfig = TaskDataConfig()
    model: StartConfig
    optim: FinetuneOptimConfig = FinetuneOptimConfig()
    train: FinetuneTrainConfig = FinetuneTrainConfig()
    teacher: TeacherConfig = TeacherConfig()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.data.folder is None) == (self.data.train is None):
            raise ValueError(
                "set either data.folder (a named task) or data.train (your own)"
            )
        # with their defaults
        own = {"dev": None, "columns": (), "problem": None, "missing_labels": "refuse"}
        if self.data.train is None and (
            unused := [name for name in own if getattr(self.data, name) != own[name]]
        ):
            raise ValueError(f"only your own files have data.{unused[0]}")
        return self
