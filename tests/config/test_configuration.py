"""Settings from recipe, file and command line."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.api.settings import recipes
from litebert.api.settings import recipes_show as recipe_text
from litebert.config import PRESETS, FinetuneConfig, PretrainConfig
from litebert.errors import LitebertError
from litebert.files import write_text
from litebert.settings import Setting, describe, resolve, settings_from_toml, settings_from_words

CORPUS = {"data.corpus": Setting("c", "test")}
NAMES = [setting.name for setting in describe(PretrainConfig)]


def test_later_layers_win_and_every_value_knows_its_origin() -> None:
    recipe = {"model.preset": Setting("tiny", "recipe r"), "train.seed": Setting(1, "recipe r")}
    typed = settings_from_words(["train.seed=2", "model.hidden_act=relu"])
    resolved = resolve(PretrainConfig, CORPUS, recipe, typed)
    assert (resolved.config.train.seed, resolved.config.model.hidden_size) == (2, 128)
    origins = {"train.seed": "command line: train.seed=2", "model.hidden_size": "preset tiny (recipe r)"}
    origins |= {"model.hidden_act": "command line: model.hidden_act=relu", "optim.name": "default"}
    assert {name: resolved.origins[name] for name in origins} == origins


@given(st.sampled_from(NAMES), st.data())
@settings(deadline=None, max_examples=150)
def test_a_typo_in_a_setting_is_answered_with_the_setting(name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(name) - 1))
    typo = name[:at] + name[at + 1 :]
    meant = [n for n in NAMES if typo in {n[:i] + n[i + 1 :] for i in range(len(n))}]
    if typo in NAMES or len(meant) > 1:  # os_token_id may be bos or eos
        return
    with pytest.raises(LitebertError, match="LB-103") as caught:
        resolve(PretrainConfig, CORPUS, {typo: Setting(1, "test")})
    assert name in caught.value.expected


@pytest.mark.parametrize(
    ("word", "code", "said"),
    [
        ("train.seed=-1", "LB-104", "greater than or equal to 0"),
        ("train.seed=abc", "LB-104", "a valid integer"),
        ("model.num_attention_heads=5", "LB-104", "multiple of num_attention_heads"),
        ("model.num_hidden_groups=13", "LB-104", "must not exceed num_hidden_layers"),
        ("objective.mask_prob=nan", "LB-104", "a finite number"),
        ("objective.max_seq_length=600", "LB-104", "max_position_embeddings"),
        ("train.micro_batch_size=7", "LB-104", "multiple"),
        ("optim.warmup_steps=200000", "LB-104", "below train.steps"),
        ("optim.name=sgd", "LB-104", "'lamb', 'adamw' or 'muon'"),
        ("optim.bias_correction=7", "LB-104", "a valid boolean"),
        ("model.hidden_size=1000000000000", "LB-104", "less than or equal to 65536"),
        ("model.preset=bsae-v2", "LB-100", "base-v2"),
        ("seed", "LB-102", "section.name=value"),
    ],
)
def test_a_bad_value_is_one_clear_error(word: str, code: str, said: str) -> None:
    with pytest.raises(LitebertError) as caught:
        resolve(PretrainConfig, CORPUS, settings_from_words([word]))
    assert caught.value.code == code
    assert said in caught.value.expected
    name, _, value = word.partition("=")
    if code == "LB-104":
        assert str(caught.value).startswith(f"LB-104: {name} cannot have this value")
        assert f"command line: {word}" in str(caught.value)
        assert value in caught.value.received


@pytest.mark.parametrize("schema", [PretrainConfig, FinetuneConfig])
def test_every_setting_says_what_it_may_be(schema: type[PretrainConfig | FinetuneConfig]) -> None:
    for setting in describe(schema):
        assert setting.allowed, setting
        assert "another kind" not in setting.allowed, setting
        assert setting.description, setting


def test_what_is_missing_or_not_toml_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(LitebertError, match=r"data\.corpus is missing"):
        resolve(PretrainConfig)
    write_text(tmp_path / "r.toml", "steps == 3")
    with pytest.raises(LitebertError, match="LB-101"):
        settings_from_toml(tmp_path / "r.toml")


@pytest.mark.parametrize("name", recipes("pretrain"))
def test_every_recipe_resolves(tmp_path: Path, name: str) -> None:
    write_text(tmp_path / "recipe.toml", recipe_text(name))
    resolved = resolve(PretrainConfig, CORPUS, settings_from_toml(tmp_path / "recipe.toml"))
    assert resolved.config.train.steps > 0
    assert recipe_text(name).startswith("# ")


def test_presets_have_the_published_heads_and_dropouts() -> None:
    published = {"base-v1": (12, 0.1), "large-v1": (16, 0.1), "xlarge-v2": (16, 0), "xxlarge-v1": (64, 0)}
    found = {name: (PRESETS[name].num_attention_heads, PRESETS[name].hidden_dropout_prob) for name in published}
    assert found == published
