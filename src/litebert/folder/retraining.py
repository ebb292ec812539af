"""The command of the shell that trains the model of a run again, for its card.

A run may have been started in Python, so the words of the command follow from the
recorded settings and their origins. The names of folders are private: words such as
CORPUS stand for them.
"""

import json
import shlex
from pathlib import PurePath

from litebert.files import Json
from litebert.origins import DEFAULT, Origin
from litebert.runs import RunFolder

PATH_WORDS = {
    "data.corpus": "",
    "data.dev": "DEV",
    "data.eval_corpus": "CORPUS",
    "data.folder": "",
    "data.mix": "CORPUS",
    "data.train": "",
    "distil.teacher": "",
    "model.start": "",
    "start.model": "",
    "teacher.run": "",
}
"""The settings that are paths, each with the word that stands for it in `setting=WORD`;
"" if an option of the command, such as --corpus, sets it."""

# Values of these origins follow from other words of the command, such as --recipe.
_IMPLIED = ("default", "measured default", "preset", "recipe", "start", "tokenizer")


def retraining_command(run: RunFolder) -> str:
    """Return the command that trains the model of a run again."""
    words = ["litebert"]
    if run.kind == "pretraining":
        words += _pretraining_words(run)
    else:
        words += _finetuning_words(run)
    if run.settings.get("teacher.run"):
        words += ["--teacher", "RUN"]
    words += _recipe_and_presets(run)
    words += ["--name", run.name]
    for plugin in run.file.plugins:
        words += ["--plugin", f"{plugin}.py"]
    words += _setting_words(run)
    return shlex.join(words)


def _pretraining_words(run: RunFolder) -> list[str]:
    words = ["pretrain"]
    if run.settings.get("distil.teacher"):
        words = ["distil", "TEACHER"]
    words += ["--corpus", "CORPUS"]
    if run.settings.get("start.model"):
        words += ["--from", "MODEL"]
    return words


def _finetuning_words(run: RunFolder) -> list[str]:
    task = str(run.settings["task.name"])
    words = ["finetune", task, "--data", "DATA"]
    if task == "table":  # a file of the user's own is named without its folder
        file = str(run.settings.get("data.train") or "DATA")
        words = ["finetune", PurePath(file).name]
    if run.file.origin_of("model.start") != DEFAULT:
        words += ["--model", "MODEL"]
    return words


def _recipe_and_presets(run: RunFolder) -> list[str]:
    """Return --recipe and --preset, if any values come from one."""
    recipes = set[str]()
    presets = set[str]()
    for origin in _origins(run).values():
        if origin.kind == "recipe":
            recipes.add(origin.name)
        if origin.kind == "preset" and origin.is_typed:
            presets.add(origin.name)
    words = list[str]()
    if recipes:
        words += ["--recipe", min(recipes)]
    for preset in sorted(presets):
        words += ["--preset", preset]
    return words


def _setting_words(run: RunFolder) -> list[str]:
    """Return `name=value` for the settings that no other word of the command sets."""
    words = list[str]()
    for name, origin in sorted(_origins(run).items()):
        is_set_by_option = name == "task.name" or PATH_WORDS.get(name) == ""
        if is_set_by_option or origin.kind in _IMPLIED:
            continue
        value = run.settings.get(name)
        if name in PATH_WORDS and value:
            value = _without_paths(value, PATH_WORDS[name])
        words.append(f"{name}={_as_typed(value)}")
    return words


def _origins(run: RunFolder) -> dict[str, Origin]:
    return {name: Origin.parse(phrase) for name, phrase in run.file.origins.items()}


def _without_paths(value: Json, word: str) -> Json:
    """Return a word in the place of a path, or of each path of a list."""
    if isinstance(value, list):
        return [word] * len(value)
    return word


def _as_typed(value: Json) -> str:
    """Return a value as a user types it after `name=`: a text as it is, all else in
    TOML.
    """
    return value if isinstance(value, str) else _in_toml(value)


def _in_toml(value: Json) -> str:
    """Return a value in TOML.

    >>> _in_toml({"masked_lm": 1.0, "sentence_order": 0.5})
    '{masked_lm = 1.0, sentence_order = 0.5}'
    """
    if not isinstance(value, dict):
        return json.dumps(value)  # numbers, booleans and lists of texts are the same
    pairs = [f"{name} = {_in_toml(item)}" for name, item in value.items()]
    return f"{{{', '.join(pairs)}}}"
