"""The card of a model, made from the files on disk (the model, its tokenizer, its run); and publishing both."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from litebert.config import Origin
from litebert.errors import LitebertError, NoVocabularyError, counted
from litebert.files import Json, hash_file, read_capped, write_text
from litebert.folder.config import architecture
from litebert.folder.model import head_of, load_model
from litebert.folder.weights import weights_path
from litebert.runs import EvaluatedStep, Run, is_run
from litebert.tokenizer import Tokenizer

CARD_FILE = "README.md"
WRITTEN_BY_LITEBERT = "<!-- Written by litebert. Remove this line to keep your own changes. -->"
_LONGEST_CARD = 4 << 20
_USE = """\
## Use

```python
import litebert

model = litebert.load({name})
{ours}
```

or, with transformers:

```python
from transformers import AutoTokenizer, {kind}

tokenizer = AutoTokenizer.from_pretrained({name})
model = {kind}.from_pretrained({name}).eval()
```
"""


def write_card(folder: Path, *, name: str | None = None) -> None:
    """Write the card into a model folder; `litebert hub push` rewrites it."""
    write_text(folder / CARD_FILE, f"{model_card(folder, name=name)}\n{WRITTEN_BY_LITEBERT}\n")


def card_of(folder: Path, *, name: str, license: str = "", languages: Sequence[str] = ()) -> tuple[str, bool]:
    """Return the card that is published with a model, and whether it is the folder's own README.md.

    A README.md of your own is used unchanged; otherwise a card is made from the files on disk, which are thus checked.
    """
    card, own = model_card(folder, name=name, license=license, languages=languages), folder / CARD_FILE
    written = read_capped(own, _LONGEST_CARD, command=f"ls -l {own}") if own.is_file() else WRITTEN_BY_LITEBERT.encode()
    if WRITTEN_BY_LITEBERT.encode() in written:
        return card, False
    if license or languages:
        what = f"{own} exists and is used unchanged: --license and --language change nothing"
        next_step = f"put them between the lines of --- in {own}, or move it away to have a card made"
        raise LitebertError("LB-637", what, next=next_step)
    return written.decode("utf-8", "replace"), True


def model_card(folder: Path, *, name: str | None = None, license: str = "", languages: Sequence[str] = ()) -> str:
    """Return the text of README.md for a model folder; `name` is what its users will load.

    For a folder inside a run (runs/<name>/model, beside run.json), it includes measures, the settings that were set,
    and the hashes of the data. No file has licence and languages.
    """
    loaded = load_model(folder)
    network, config, head = loaded.network, loaded.network.config, head_of(loaded.network)
    # The pretraining heads that have all their weights; sentence order also needs the pooler
    needs = {"masked_lm": ("masked_lm",), "sentence_order": ("sentence_order", "albert.")} if head is None else {}
    parts = [part for part, needed in needs.items() if not any(each.startswith(needed) for each in loaded.missing)]
    run = folder.absolute().parent if is_run(folder.absolute().parent) else None
    name = name or str(folder)
    title = name.split("/")[-1]
    if run is not None and title in ("model", "best"):
        title = run.name

    # The header that the Hub reads is YAML; every value in it is written as JSON.
    header: dict[str, Json] = {
        "license": license,
        "language": list(languages),
        "library_name": "litebert",
        "pipeline_tag": head.record.pipeline if head else "fill-mask" if "masked_lm" in parts else "",
        "tags": ["albert", *([head.kind] if head else [part.replace("_", "-") for part in parts])],
    }
    yaml = "".join(f"{key}: {json.dumps(value)}\n" for key, value in header.items() if value)
    size = sum(p.numel() for p in network.parameters() if not p.is_meta)
    verbs = {"masked_lm": "fills [MASK]", "sentence_order": "tells sentence order"}
    does = " and ".join(verbs[part] for part in parts) or "gives hidden states"
    sentence = f"An ALBERT of {size:,} parameters: {counted(config.num_hidden_layers, 'layer')}"
    sentence += f". It {head.record.purpose}" if head else f", pretrained. It {does}"

    # What is on disk
    try:
        tokenizer = Tokenizer.load(folder)
        vocabulary = f"{tokenizer.vocab_size:,} pieces, blake2b `{tokenizer.hash}`"
    except NoVocabularyError:
        vocabulary = f"{config.vocab_size:,} pieces; its tokenizer is not here"
    weights, single = sum(file.stat().st_size for file in folder.glob("*.safetensors")), weights_path(folder)
    shape = (config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.intermediate_size)
    groups = f"{config.num_hidden_groups} x {config.inner_group_num}"
    table = {
        "hidden, layers, heads, intermediate": ", ".join(f"{number:,}" for number in shape),
        "embedding size": f"{config.embedding_size:,}",
        "shared between layers": f"{config.sharing} (groups x inner groups: {groups})",
        "activation": config.hidden_act,
        "longest input": f"{config.max_position_embeddings:,} pieces",
        "vocabulary": vocabulary,
        "labels": ", ".join(head.labels) if head else "",
        "weights": f"{weights:,} bytes" + (f", blake2b `{hash_file(single)}`" if single.is_file() else ""),
    }
    remarks = [note for note in loaded.notes if "no hash" not in note]
    if config.sharing != "all":
        remarks.append(
            f"Its layers share {config.sharing}. transformers knows no partial sharing: it reads "
            f"{config.num_hidden_layers} separate layers, with the same outputs and more memory."
        )
    theirs = architecture(head, network.state_dict().keys() - loaded.missing)
    if head and not head.record.is_in_transformers:
        remarks.append("transformers has no such head: it reads the encoder alone.")
        theirs = "AlbertModel"

    # Code with a call for each verb that the weights allow
    calls = {
        "masked_lm": 'model.fill("The cat sat on the [MASK].")',
        "sentence_order": 'model.order("He opened the door.", "Nobody was there.")',
    }
    embed = 'model.embed(["A first text.", "Another one."])'
    ours = [f"model.{head.record.python_example}"] if head else [*(calls[part] for part in parts), embed]
    sections = [
        f"---\n{yaml}---\n",
        f"# {title}\n",
        f"{sentence}.\n",
        _table(table),
        *(f"> {note}\n" for note in remarks),
        _USE.format(name=json.dumps(name), ours="\n".join(ours), kind=theirs),
        *(_training(Run.open(run), folder.name) if run is not None else []),
    ]
    return "\n".join(sections)


def _training(run: Run, kept: str) -> list[str]:
    """Return what the run recorded: measures (of the best step for the model in `best`), data, settings, command.

    Settings of the network are in its config.json; paths are private, so the data are named by their hashes.
    """
    result, settings, origins = run.outcome, run.settings, run.file.origins
    evaluated = EvaluatedStep.of(run.evaluations[-1]) if run.evaluations else EvaluatedStep(step=0)
    if result:
        evaluated = result.best if kept == "best" else result.last
    measures = _table({name: f"{value:.6g}" for name, value in evaluated.measures.items()})
    if baseline := result.baseline if result else {}:
        shown = {name: f"{baseline[name]:.6g}" if name in baseline else "" for name in evaluated.measures}
        rows = [f"| {name} | {value:.6g} | {shown[name]} |" for name, value in evaluated.measures.items()]
        measures = "\n".join(["| | this model | commonest label |", "|---|---|---|", *rows, ""])

    # The command: folders are private, so of paths it has names alone.
    if run.kind == "pretraining":
        words, start = ["pretrain", "--corpus", "CORPUS"], "--from" if settings.get("start.model") else ""
    else:
        task, own = str(settings["task.name"]), PurePath(str(settings.get("data.train") or "DATA")).name
        words = ["finetune", own] if task == "table" else ["finetune", task, "--data", "DATA"]
        start = "" if origins.get("model.start") == Origin() else "--model"
    words += [start, "MODEL"] if start else []
    recipes = sorted({origin.detail for origin in origins.values() if origin.kind == "recipe"})
    words += ["--recipe", recipes[0]] if recipes else []
    presets = {origin.detail for origin in origins.values() if origin.kind == "preset" and origin.is_typed}
    words += [word for name in presets for word in ("--preset", name)]
    words += ["--name", run.name]
    for name, origin in sorted(origins.items()):
        is_private = name.startswith("data.") or name in ("start.model", "model.start", "task.name")
        if origin.kind in ("flag", "file", "measured") and not is_private:
            value = settings.get(name)
            words.append(f"{name}={value if isinstance(value, str) else json.dumps(value)}")

    given = {name: f"`{value}`" for name, value in settings.items() if origins.get(name) != Origin()}
    return [
        f"## Training\n\nlitebert {run.file.litebert}, step {evaluated.step:,} of the run `{run.folder.name}`.\n",
        measures,
        *(f"**Warning**: {doubt}.\n" for doubt in (result.doubts if result else ())),
        "Data and tokenizer:\n",
        _table({name: f"`{value}`" for name, value in run.file.data.items()}),
        "Settings that were set (all others are defaults):\n",
        _table({name: value for name, value in given.items() if not name.startswith(("model.", "data."))}),
        "The command that trains it again, with the data and the model named above:\n",
        f"```sh\n{shlex.join(['litebert', *words])}\n```\n",
    ]


def _table(rows: Mapping[str, str]) -> str:
    cells = {name: text.replace("|", "\\|").replace("\n", " ") for name, text in rows.items() if text}
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in cells.items()), ""])
