"""The shape of the network, and the presets of the paper."""

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from litebert.config.section import (
    BelowOne,
    ContradictionError,
    Options,
    Section,
    UpToOne,
)
from litebert.errors import no_such_name
from litebert.plugins import ATTENTION_KINDS, NameIn, checked_settings, types_of

LayerCount: TypeAlias = Annotated[int, Field(ge=1, le=1_024)]
Activation = Literal["gelu_new", "gelu_pytorch_tanh", "gelu", "relu", "tanh", "linear"]
Sharing = Literal["all", "attention", "ffn", "none"]


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
