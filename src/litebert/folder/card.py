"""A model's card: the template card.md, filled from what is on disk: the model, its
tokenizer, its run.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from litebert.errors import LitebertError
from litebert.files import hash_file, read_capped, write_text
from litebert.folder.config import architecture, refusal_of
from litebert.folder.model import ModelFolder
from litebert.folder.retraining import PATH_WORDS, retraining_command
from litebert.folder.storage import read_folder
from litebert.folder.weights import weights_path
from litebert.origins import DEFAULT
from litebert.plugins import VERBS
from litebert.runs import MeasuredStep, RunFolder, is_run

CARD_FILE = "README.md"
WRITTEN_BY_LITEBERT = (
    "<!-- Written by litebert. Remove this line to keep your own changes. -->"
)
_LONGEST_CARD = 4 << 20  # bytes


def write_card(folder: Path, *, final: Path | None = None) -> None:
    """Write the card into a model folder; `litebert hub push` rewrites it.

    `final` is where a folder that is being written will stand.
    """
    card = model_card(folder, final=final)
    write_text(folder / CARD_FILE, f"{card}\n{WRITTEN_BY_LITEBERT}\n")


@dataclass(frozen=True)
class PublishedCard:
    """The card that is published with a model."""

    text: str
    is_of_user: bool  # the README.md of the folder, which litebert did not write


def card_of(
    folder: Path, *, name: str, license: str = "", languages: Sequence[str] = ()
) -> PublishedCard:
    """Return the card that is published with a model.

    A README.md of your own is used unchanged; otherwise a card is made from the files
    on disk, which checks them, too.
    """
    text = model_card(folder, name=name, license=license, languages=languages)
    path = folder / CARD_FILE
    if not path.is_file():
        return PublishedCard(text, is_of_user=False)
    written = read_capped(path, _LONGEST_CARD)
    if WRITTEN_BY_LITEBERT.encode() in written:
        return PublishedCard(text, is_of_user=False)
    if license or languages:
        raise LitebertError(
            "LB-637",
            f"{path} exists and is used unchanged: --license and --language have no"
            " effect",
            next=f"put them between the lines of --- in {path}, or move it away",
        )
    return PublishedCard(written.decode("utf-8", "replace"), is_of_user=True)


def model_card(
    folder: Path,
    *,
    name: str | None = None,
    final: Path | None = None,
    license: str = "",
    languages: Sequence[str] = (),
) -> str:
    """Return the text of README.md for a model folder; `name` is what users will pass
    to `load`, by default the place of the folder, which is `final` while it is written.

    For a folder inside a run (runs/<name>/model, next to run.json), it includes
    metrics, the settings that were set, and the hashes of the data. License and
    languages are in no file.
    """
    place = folder if final is None else final
    loaded_by = name or str(place)
    title = loaded_by.split("/")[-1]
    training = _training_of(place)
    if training is not None and title in ("model", "best"):
        title = training.run.name

    model = read_folder(folder)
    abilities = _abilities(model)
    header = {  # YAML
        "license": license,
        "language": list(languages),
        "library_name": "litebert",
        "pipeline_tag": abilities.pipeline,
        "tags": ["albert", *abilities.tags],
    }
    text: str = _template().render(
        header=header,
        title=title,
        name=loaded_by,
        config=model.config,
        head=model.head,
        abilities=abilities,
        sizes=_sizes(model, folder),
        transformers=_in_transformers(model),
        remarks=[note for note in model.notes if "no hash" not in note],
        training=training,
    )
    return text


def _template() -> Any:
    import jinja2

    environment = jinja2.Environment(  # noqa: S701
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {"json": json.dumps, "number": "{:,}".format}
    text = (files("litebert.folder") / "card.md").read_text("utf-8")
    return environment.from_string(text)


# ---- the model -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Abilities:
    """What a model does, by which calls, and how the Hub lists it."""

    purposes: list[str]
    calls: list[str]  # each follows `model.`
    pipeline: str  # the Hub's name of the task; "" if it has none
    tags: list[str]


def _abilities(model: ModelFolder) -> _Abilities:
    """Return what a model can do, by its head or else by the verbs that its pretraining
    heads allow.
    """
    head = model.head
    if head is not None:
        return _Abilities(
            purposes=[head.record.purpose],
            calls=[VERBS[head.verb].in_python],
            pipeline=head.record.pipeline,
            tags=[head.kind],
        )
    verbs = [verb for verb in VERBS.values() if _can(model, verb)]
    purposes = [verb.purpose for verb in verbs]
    tags = [verb.needs.replace("_", "-") for verb in verbs]
    pipeline = "fill-mask" if "masked-lm" in tags else ""
    return _Abilities(
        purposes=purposes or ["gives hidden states"],
        calls=[verb.in_python for verb in (*verbs, VERBS["embed"])],
        pipeline=pipeline,
        tags=tags,
    )


def _can(model: ModelFolder, verb: Any) -> bool:
    """Return whether a pretrained model has what a verb's head needs.

    Sentence order also needs the pooler; masked words do not.
    """
    if not verb.purpose or verb.needs not in getattr(model.network, "heads", ()):
        return False
    modules = [f"{verb.needs}."]
    if verb.needs != "masked_lm":
        modules.append("albert.")
    return not any(name.startswith(tuple(modules)) for name in model.missing)


@dataclass(frozen=True)
class _Sizes:
    """The number of parameters, and the sizes of vocabulary and weights in words."""

    num_parameters: int
    vocabulary: str
    weights: str


def _sizes(model: ModelFolder, folder: Path) -> _Sizes:
    """Return the sizes of the network, the vocabulary and the weights, with the hashes
    of the last two.
    """
    num_parameters = 0
    for parameter in model.network.parameters():
        if not parameter.is_meta:  # its values are in the files
            num_parameters += parameter.numel()

    vocabulary = f"{model.config.vocab_size:,} pieces; its tokenizer is not here"
    tokenizer = model.tokenizer
    if tokenizer is not None:
        vocabulary = f"{tokenizer.vocab_size:,} pieces, blake2b `{tokenizer.hash}`"

    num_bytes = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    weights = f"{num_bytes:,} bytes"
    single = weights_path(folder)
    if single.is_file():
        weights += f", blake2b `{hash_file(single)}`"
    return _Sizes(num_parameters, vocabulary, weights)


@dataclass(frozen=True)
class _InTransformers:
    """Whether transformers has such a head, and the class that opens the model."""

    has_head: bool
    refusal: str  # why it cannot turn the outputs of its head into answers, or ""
    class_name: str


def _in_transformers(model: ModelFolder) -> _InTransformers:
    head = model.head
    refusal = refusal_of(head)
    has_head = not refusal and (head is None or head.record.is_in_transformers)
    class_name = "AlbertModel"
    if has_head:
        parameters = model.network.state_dict().keys() - model.missing
        class_name = architecture(head, parameters)
    return _InTransformers(has_head, refusal, class_name)


# ---- its run -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Training:
    """What a run recorded of its model."""

    run: RunFolder
    evaluation: MeasuredStep
    baseline: Mapping[str, float]  # measures of always answering the most common label
    doubts: Sequence[str]  # reasons not to trust the measures
    settings: Mapping[str, Any]  # that were set and are no paths
    command: str


def _training_of(folder: Path) -> _Training | None:
    """Return the training of the model in runs/NAME/model or runs/NAME/best; None for a
    folder that is in no run.
    """
    parent = folder.absolute().parent
    if not is_run(parent):
        return None
    run = RunFolder.open(parent)
    baseline: Mapping[str, float] = {}
    doubts: Sequence[str] = ()
    result = run.outcome
    if result is not None:
        baseline = result.baseline
        doubts = result.doubts
    return _Training(
        run,
        evaluation=_evaluation(run, is_best=folder.name == "best"),
        baseline=baseline,
        doubts=doubts,
        settings=_settings_that_were_set(run),
        command=retraining_command(run),
    )


def _evaluation(run: RunFolder, *, is_best: bool) -> MeasuredStep:
    """Return the evaluation of the model in best/ or model/; without a result, as in
    pretraining, the last one.
    """
    result = run.outcome
    if result is not None:
        return result.best if is_best else result.of_model
    if run.evaluations:
        return run.evaluations[-1]
    return MeasuredStep(step=0)


def _settings_that_were_set(run: RunFolder) -> dict[str, Any]:
    """Return the settings that are not defaults, without paths, which are private, and
    without the network, which the card describes.
    """
    settings = dict[str, Any]()
    for name, value in run.settings.items():
        is_of_network = name.startswith("model.")
        is_default = run.file.origin_of(name) == DEFAULT
        if name not in PATH_WORDS and not is_of_network and not is_default:
            settings[name] = value
    return settings
