"""What a config.json leaves uncertain: settings on which published sources disagree, or
that were changed after the weights were saved, and names of labels that contradict each
other.
"""

from pathlib import Path

from litebert.config import PRESETS, AlbertConfig
from litebert.folder.config import SAVED_WITH, read_table, settings_of_weights

_V1_PRESETS = [PRESETS[name] for name in PRESETS if name.endswith("-v1")]
# (hidden size, layers)
PUBLISHED_SHAPES = {(v1.hidden_size, v1.num_hidden_layers) for v1 in _V1_PRESETS}
_ERF_OR_TANH = (
    "hidden_act gelu is computed in the erf form, as transformers does. Google trained"
    " its v1 models with the tanh form under that name, 1e-3 apart: for those set"
    " gelu_new in config.json, or import with --activation gelu_new."
)
_HEADS = (
    "hidden_size 2048 with {0} attention heads: the shapes fit {1} as well, and sources"
    " disagree on xlarge (its configuration says 16, the paper's H/64 gives 32). If"
    " answers look random, set it to {1} in config.json."
)


def doubts(config: AlbertConfig) -> dict[str, str]:
    """Return a note for each setting on which published sources disagree, by its name.

    Official modeling.py L299-349 against the v1 configurations of the Hub; paper 3.1
    against xlarge's configuration.

    >>> list(doubts(AlbertConfig(hidden_act="gelu")))
    ['hidden_act']
    """
    notes = {}
    if config.hidden_act == "gelu" and config.sharing == "all":
        notes["hidden_act"] = _ERF_OR_TANH
    heads = config.num_attention_heads
    other_heads = {16: 32, 32: 16}
    if config.hidden_size == 2_048 and heads in other_heads:
        notes["num_attention_heads"] = _HEADS.format(heads, other_heads[heads])
    return notes


def changed_settings(folder: Path, config: AlbertConfig) -> list[str]:
    """Return which settings were changed in config.json after the weights were
    saved.
    """
    saved = read_table(folder).get(SAVED_WITH)
    if not isinstance(saved, list):
        return []
    before = dict[str, str]()
    for setting in saved:
        name, _, value = str(setting).partition("=")
        before[name] = value
    changed = []
    for setting in settings_of_weights(config):
        name, _, value = setting.partition("=")
        if before.get(name, value) != value:
            changed.append(f"{name} is {value}, was {before[name]}")
    return changed


def doubts_about(config: AlbertConfig) -> tuple[str, ...]:
    """Return notes on settings of a published model on which sources disagree; none if
    the shape is not that of a published model.
    """
    shape = (config.hidden_size, config.num_hidden_layers)
    is_published = config.sharing == "all" and shape in PUBLISHED_SHAPES
    return tuple(doubts(config).values()) if is_published else ()


def find_other_labels(folder: Path) -> str | None:
    """Say where label2id of config.json contradicts id2label, which is used; None if it
    does not.
    """
    table = read_table(folder)
    names = table.get("id2label")
    numbers = table.get("label2id")
    if not isinstance(names, dict) or not isinstance(numbers, dict):
        return None
    for number, name in names.items():
        other = numbers.get(str(name))
        if str(other) != number:
            there = "nothing" if other is None else other
            return f"id2label has {name!r} for {number}, and label2id {there} for it"
    return None
