"""Settings from recipe, file and command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError

from litebert.api.settings import recipe_settings, recipes, recipes_show
from litebert.config import PRESETS, FinetuneConfig, PretrainConfig
from litebert.errors import LitebertError
from litebert.files import Json
from litebert.origins import Origin
from litebert.settings import (
    Setting,
    describe,
    describe_invalid,
    difference,
    fields_of,
    flatten,
    resolve,
    settings_from_toml,
    settings_from_words,
    words_of,
)

CORPUS = {"data.corpus": Setting("c")}
NAMES = [setting.name for setting in describe(PretrainConfig)]


def test_later_layers_win_and_every_value_has_its_origin() -> None:
    recipe = {
        "model.preset": Setting("tiny", Origin("recipe", "r")),
        "train.seed": Setting(1, Origin("recipe", "r")),
    }
    typed = settings_from_words(
        [
            "train.seed=2",
            "model.hidden_act=relu",
            "data.corpus=2024-01-01",
            "start.model=1_000",
        ]
    )
    resolved = resolve(PretrainConfig, CORPUS, recipe, typed)
    assert (resolved.config.train.seed, resolved.config.model.hidden_size) == (2, 128)
    # names, not numbers
    assert (resolved.config.data.corpus, resolved.config.start.model) == (
        "2024-01-01",
        "1_000",
    )
    origins = {
        "train.seed": "command line: train.seed=2",
        "model.hidden_size": "preset tiny (recipe r)",
    }
    origins |= {
        "model.hidden_act": "command line: model.hidden_act=relu",
        "optim.name": "default",
    }
    assert {name: str(resolved.origins[name]) for name in origins} == origins


@pytest.mark.parametrize(
    ("phrase", "kind", "name"),
    [
        ("default", "default", ""),
        ("flag", "flag", ""),
        ("measured here", "measured here", ""),
        ("measured default", "measured default", ""),
        ("tokenizer", "tokenizer", ""),
        ("command line: task.name=a b", "command line", "task.name=a b"),
        ("recipe mrpc", "recipe", "mrpc"),
        ("start runs/my model", "start", "runs/my model"),
        ("preset mini (recipe laptop)", "preset", "mini"),
        ("preset mini (command line: model.preset=mini)", "preset", "mini"),
        ("my settings.toml", "file", "my settings.toml"),
    ],
)
def test_the_origins_that_a_run_keeps_are_read_as_they_were_written(
    phrase: str, kind: str, name: str
) -> None:
    origin = Origin.parse(phrase)
    assert (origin.kind, origin.name, str(origin)) == (kind, name, phrase)


@given(st.sampled_from(NAMES), st.data())
@settings(deadline=None, max_examples=150)
def test_a_typo_in_a_setting_is_answered_with_the_setting(
    name: str, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(name) - 1))
    typo = name[:at] + name[at + 1 :]
    meant = [n for n in NAMES if typo in {n[:i] + n[i + 1 :] for i in range(len(n))}]
    if typo in NAMES or len(meant) > 1:  # os_token_id may be bos or eos
        return
    with pytest.raises(LitebertError, match="LB-103") as caught:
        resolve(PretrainConfig, CORPUS, {typo: Setting(1)})
    assert name in caught.value.expected


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("train.seed=-1", "greater than or equal to 0"),
        ("train.threads=100000", "less than or equal to 1024"),
        ("train.seed=abc", "a whole number, 0 or more"),
        ("train.seed=1.5", "a valid integer"),
        ("model.num_attention_heads=5", "multiple of num_attention_heads"),
        ("model.num_hidden_groups=13", "must not exceed num_hidden_layers"),
        ("objective.mask_prob=nan", "a finite number"),
        ("objective.max_seq_length=600", "max_position_embeddings"),
        ("train.micro_batch_size=7", "multiple"),
        ("optim.warmup_steps=200000", "below train.steps"),
        ("optim.bias_correction=7", "true or false"),
        ("objective.heads=3", "numbers by name, {name = 1}"),
        ("model.hidden_size=1000000000000", "less than or equal to 65536"),
        ("train.minutes=20000000.0", "less than or equal to 10000000"),
        ("train.batch_size=10000000000000", "less than or equal to 1000000000000"),
        ("train.loader_workers=100000", "less than or equal to 1024"),
    ],
)
def test_a_bad_value_is_one_clear_error(word: str, said: str) -> None:
    name, _, value = word.partition("=")
    what = f"^LB-104: {name} cannot have this value .from command line: {word}"
    with pytest.raises(LitebertError, match=what) as error:
        resolve(PretrainConfig, CORPUS, settings_from_words([word]))
    assert said in error.value.expected and value in error.value.received


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("objective.heads={other='x'}", "numbers by name, {name = 1}"),
        ("optim.settings={name={part={}}}", "texts, numbers, true or false, or lists"),
        ("optim.settings={name=[1]}", "texts, numbers, true or false, or lists"),
        ("data.weights=[1, 'x']", "a list of numbers, [1, 2], or null"),
    ],
)
def test_a_bad_value_inside_a_setting_is_told_what_the_setting_may_be(
    word: str, said: str
) -> None:
    with pytest.raises(LitebertError, match=r"^LB-104") as error:
        resolve(PretrainConfig, CORPUS, settings_from_words([word]))
    assert said in error.value.expected


def test_every_setting_has_allowed_values_and_a_description() -> None:
    for setting in [*describe(PretrainConfig), *describe(FinetuneConfig)]:
        assert setting.allowed and setting.description, setting


@pytest.mark.parametrize(
    ("name", "default", "allowed"),
    [
        ("data.corpus", "required", "text"),
        ("start.model", "None", "text, or null"),
        ("optim.clip_norm", "1.0", "a number above 0"),
        ("optim.beta1", "0.9", "a number, 0 or more, below 1"),
        ("optim.name", "'lamb'", "text: the name of an optimizer"),
        ("model.attention", "'full'", "text: the name of a kind of attention"),
        ("model.vocab_size", "30000", "a whole number, 6 or more, at most 4,000,000"),
        ("objective.whole_word", "True", "true or false"),
        ("objective.max_predictions", "None", "a whole number, 1 or more, or null"),
        ("train.precision", "None", "auto, fp32, bf16 or fp16, or null"),
        ("data.weights", "None", "a list of numbers, [1, 2], or null"),
        (
            "objective.heads",
            "{'masked_lm': 1.0, 'sentence_order': 1.0}",
            "numbers by name, {name = 1}: the name of a pretraining head",
        ),
    ],
)
def test_a_setting_is_described_by_its_default_and_what_it_may_be(
    name: str, default: str, allowed: str
) -> None:
    described = {row.name: row for row in describe(PretrainConfig)}
    assert (described[name].default, described[name].allowed) == (default, allowed)


def test_missing_or_unknown_settings_and_invalid_toml_are_one_clear_error(
    write: Callable[[str, str], Path],
) -> None:
    for word, message in (
        ("train.seed=1", "data.corpus is missing"),
        ("model.preset=bsae-v2", "LB-100(?s:.*)base-v2"),
    ):
        with pytest.raises(LitebertError, match=message):
            resolve(PretrainConfig, settings_from_words([word]))
    with pytest.raises(LitebertError, match=r"LB-102(?s:.*)section\.name=value"):
        settings_from_words(["seed"])
    for text in ("steps == 3", f"steps = {'[' * 3_000}"):
        with pytest.raises(LitebertError, match="LB-101"):
            settings_from_toml(write("r.toml", text))
    notepad = write("r.toml", "\ufeff[train]\nseed = 3")
    assert settings_from_toml(notepad)["train.seed"].value == 3


@pytest.mark.parametrize("name", recipes("pretrain"))
def test_every_recipe_resolves(name: str) -> None:
    assert (
        resolve(
            PretrainConfig, CORPUS, recipe_settings("pretrain", name)
        ).config.train.steps
        > 0
    )
    assert recipes_show(name).startswith("# ")


def test_the_papers_recipe_has_the_published_values() -> None:
    """Section 4.1 of the paper, and the official code's values where it is silent."""
    published = (
        "model.preset=base-v1 objective.sentence=order objective.ngram=3"
        " objective.max_seq_length=512 objective.short_seq_prob=0.1"
        " objective.mask_prob=0.15 objective.max_predictions=20 optim.name=lamb"
        " optim.learning_rate=0.00176 optim.warmup_steps=3125 optim.weight_decay=0.01"
        " train.steps=125000 train.batch_size=4096"
    )
    layers = (
        CORPUS,
        recipe_settings("pretrain", "paper-base"),
        settings_from_words(published.split()),
    )
    assert (
        resolve(PretrainConfig, *layers[:2]).config
        == resolve(PretrainConfig, *layers).config
    )


def test_presets_have_the_published_heads_and_dropouts() -> None:
    published = {
        "base-v1": (12, 0.1),
        "large-v1": (16, 0.1),
        "xlarge-v2": (16, 0),
        "xxlarge-v1": (64, 0),
    }
    heads = {
        name: (PRESETS[name].num_attention_heads, PRESETS[name].hidden_dropout_prob)
        for name in published
    }
    assert heads == published


def test_only_a_table_has_entries() -> None:
    with pytest.raises(
        LitebertError, match=r"LB-103: there is no setting train\.seed\.a"
    ):
        resolve(PretrainConfig, CORPUS, settings_from_words(["train.seed.a=1"]))
    with pytest.raises(LitebertError, match=r"LB-104: train\.seed cannot have"):
        resolve(PretrainConfig, CORPUS, settings_from_words(["train.seed={a = 1}"]))


def test_of_two_settings_that_contradict_each_other_the_typed_one_is_refused() -> None:
    recipe = {"optim.warmup_steps": Setting(500, Origin("recipe", "r"))}
    typed = settings_from_words(["train.steps=100"])
    with pytest.raises(LitebertError, match=r"LB-104: train\.steps cannot have"):
        resolve(PretrainConfig, CORPUS, recipe, typed)


@pytest.mark.parametrize(
    ("schema", "verb"), [(PretrainConfig, "pretrain"), (FinetuneConfig, "finetune")]
)
def test_a_refused_setting_leads_to_the_settings_of_its_verb(
    schema: type[BaseModel], verb: str
) -> None:
    with pytest.raises(LitebertError, match="LB-103") as refused:
        resolve(schema, settings_from_words(["train.epochz=3"]))
    assert refused.value.next == f"litebert config list {verb}"


def test_names_are_those_of_the_registries() -> None:
    for word, nearest in (
        ("optim.name=adam", "did you mean adamw?"),
        ("objective.sentence=ordered", "did you mean order?"),
        ("model.attention=fully", "did you mean full?"),
    ):
        with pytest.raises(LitebertError, match="LB-107") as caught:
            resolve(PretrainConfig, CORPUS, settings_from_words([word]))
        assert caught.value.expected == nearest
        assert "--plugin FILE" in str(caught.value.next)


def test_an_entry_of_a_table_is_set_by_its_name() -> None:
    words = ["task.settings.width=3", "task.settings={depth=2, width=4}", "task.name=a"]
    words += ["model.start=x", "data.folder=y"]
    config = resolve(FinetuneConfig, settings_from_words(words)).config
    assert config.task.settings == {"width": 4, "depth": 2}


@pytest.mark.parametrize(
    ("words", "setting", "expected"),
    [
        (
            "task.name=sst2 data.folder=x data.held_out=0.3",
            "data.held_out",
            "data.held_out applies only to your own files (data.train)",
        ),
        (
            'task.name=sst2 data.folder=x data.labels=["a"]',
            "data.labels",
            "data.labels applies only to your own files (data.train)",
        ),
        (
            "task.name=sst2 data.folder=x data.missing_labels=skip",
            "data.missing_labels",
            "data.missing_labels applies only to your own files (data.train)",
        ),
        (
            "task.name=sst2 data.train=x.csv",
            "data.train",
            "the files of sst2 are in data.folder, not data.train",
        ),
        (
            "task.name=table data.folder=x",
            "data.folder",
            "your own files are in data.train, not data.folder",
        ),
        (
            "task.name=table data.folder=x data.train=x.csv",
            "data.folder",
            "set either data.folder (a named task) or data.train (your own)",
        ),
        (
            "task.name=table data.train=x.csv data.held_out=0.3 data.dev=y.csv",
            "data.held_out",
            "set either data.dev or data.held_out: with data.dev, no rows of data.train"
            " are held out",
        ),
    ],
)
def test_settings_of_data_that_would_have_no_effect_are_refused(
    words: str, setting: str, expected: str
) -> None:
    typed = settings_from_words(["model.start=x", *words.split()])
    with pytest.raises(LitebertError, match="LB-104") as refused:
        resolve(FinetuneConfig, typed)
    assert str(refused.value).startswith(f"LB-104: {setting} cannot have this value")
    assert refused.value.expected == expected


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("optim.lr", "optim.learning_rate"),
        ("optim.wd", "optim.weight_decay"),
        ("train.learning_rate", "optim.learning_rate"),
        ("train.num_steps", "train.steps"),
    ],
)
def test_a_setting_by_the_name_that_others_give_it_is_answered_with_ours(
    typed: str, meant: str
) -> None:
    with pytest.raises(LitebertError, match="LB-103") as caught:
        resolve(PretrainConfig, CORPUS, {typed: Setting(1)})
    assert caught.value.expected == f"did you mean {meant}?"


class Section(BaseModel):
    size: int = Field(default=1, ge=1, le=9)
    name: Literal["one", "two"] = "one"


class Whole(BaseModel):
    section: Section = Section()
    number: float = 0.0


def test_a_configuration_is_sections_of_settings() -> None:
    assert list(fields_of(Whole)) == ["section.size", "section.name"]
    assert flatten(Whole()) == {
        "section.size": 1,
        "section.name": "one",
        "number": 0.0,
    }


def test_two_configurations_differ_in_what_one_has_and_the_other_lacks() -> None:
    old = {"a": 1, "b": 2, "c": None}
    new = {"a": 1, "b": 3, "d": 4}
    # a setting that is missing is like one without a value
    changes = difference(old, new)
    assert [str(change) for change in changes] == ["b: 2 -> 3", "d: None -> 4"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"section": {"size": "x"}}', "section.size should be a valid integer"),
        ('{"section": {"size": 10}}', "section.size should be less than or equal to 9"),
        ("[1]", "the content should be an object"),
        ('{"section": {"size": 2}', "the content: "),
    ],
)
def test_a_refused_record_is_told_by_its_first_fault(text: str, fault: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Whole.model_validate_json(text, strict=False)
    assert describe_invalid(refused.value).startswith(fault)


def test_a_check_of_ours_speaks_for_itself() -> None:
    assert describe_invalid(ValueError("a text of ours")) == "a text of ours"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("train.steps", 9),
        ("optim.learning_rate", 1e-05),
        ("train.keep_best", True),
        ("train.minutes", None),
        ("data.columns", ["text=die Überschrift", 'label="x"']),
        ("objective.heads", {"masked_lm": 1.0, "sentence_order": 0.5}),
        ("data.corpus", "my corpora/2024-01-01"),
    ],
)
def test_a_setting_is_written_as_the_words_that_give_its_value(
    name: str, value: Json
) -> None:
    read = settings_from_words(words_of(name, value))
    if isinstance(value, dict):
        expected = {f"{name}.{entry}": number for entry, number in value.items()}
    else:
        expected = {name: value}
    assert {name: setting.value for name, setting in read.items()} == expected
