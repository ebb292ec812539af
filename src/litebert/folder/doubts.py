"""Notes on what the files of a model leave uncertain."""

from __future__ import annotations

from collections.abc import Collection

from litebert.config import PRESETS, AlbertConfig

_PUBLISHED = tuple(PRESETS[f"{size}-v1"] for size in ("base", "large", "xlarge", "xxlarge"))
_ERF_OR_TANH = (
    "hidden_act gelu is computed in the erf form, as transformers does. Google trained its v1 "
    "models with the tanh form under that name: if this is one of them, gelu_new is right (outputs "
    "differ by about 1e-3). Set hidden_act in config.json, or import with --activation gelu_new."
)
_HEADS = (
    "hidden_size 2048 with {0} attention heads: the shapes fit {1} as well, and sources disagree "
    "on xlarge (its published configuration says 16, the paper's H/64 gives 32). If answers look "
    "random, set num_attention_heads to {1} in config.json, or import with --heads {1}."
)

_NEXT_SENTENCE = (
    "This BERT's sentence head was trained on next-sentence prediction: order() tells whether the "
    "second text follows the first in a document, not which of two neighbours comes first."
)


def doubts(config: AlbertConfig) -> tuple[str, ...]:
    """Return a note for each setting on which published sources disagree.

    Sources: official modeling.py L299-349 against the v1 configurations of the Hub; paper 3.1
    against the xlarge configuration.

    >>> doubts(AlbertConfig(hidden_act="gelu_new"))
    ()
    >>> [note.split(",")[0] for note in doubts(AlbertConfig(hidden_act="gelu"))]
    ['hidden_act gelu is computed in the erf form']
    """
    notes = [_ERF_OR_TANH] if config.hidden_act == "gelu" and config.sharing == "all" else []
    others = {16: 32, 32: 16}
    if config.hidden_size == 2_048 and config.num_attention_heads in others:
        heads = config.num_attention_heads
        notes.append(_HEADS.format(heads, others[heads]))
    return tuple(notes)


def notes_on_loading(config: AlbertConfig) -> tuple[str, ...]:
    """Return the doubts about a network whose shape is that of a published one."""
    shape = (config.hidden_size, config.num_hidden_layers)
    published = {(each.hidden_size, each.num_hidden_layers) for each in _PUBLISHED}
    return doubts(config) if config.sharing == "all" and shape in published else ()


def bert_notes(missing: Collection[str]) -> tuple[str, ...]:
    """Return a note on what the sentence head of a BERT predicts, if its file has one."""
    return () if "sentence_order.classifier.weight" in missing else (_NEXT_SENTENCE,)
