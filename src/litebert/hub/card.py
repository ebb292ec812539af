"""A model card, made from the files on disk: the model, its tokenizer, the run that made it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import NoVocabularyError
from litebert.files import Json, hash_file, write_text
from litebert.folder.config import architecture
from litebert.folder.model import LoadedModel, head_of, load_model
from litebert.folder.weights import weights_path
from litebert.hub.run_facts import RunFacts, run_facts
from litebert.tokenizer import Tokenizer

CARD_FILE = "README.md"
WRITTEN_BY_LITEBERT = "<!-- Written by litebert. Remove this line to keep your own changes. -->"
_THEIR_CALL = 'outputs = model(**tokenizer("The cat sat on the mat.", return_tensors="pt"))'
_THEIR_CALLS = {
    "AlbertForQuestionAnswering": "outputs = model("
    '**tokenizer("Who sat there?", "The cat sat on the mat.", return_tensors="pt"))',
    "AlbertForMultipleChoice": 'texts = tokenizer(["Who sat there?"] * 2, ["the cat", "nobody"], '
    'return_tensors="pt", padding=True)\n'
    "outputs = model(**{name: rows[None] for name, rows in texts.items()})",
}


@dataclass(frozen=True)
class _Facts:
    """The contents of a card, gathered once."""

    name: str
    loaded: LoadedModel
    architecture: str
    tokenizer: Tokenizer | None
    run: RunFacts | None
    num_bytes: int
    weights_hash: str

    @property
    def config(self) -> AlbertConfig:
        return self.loaded.network.config

    @property
    def head(self) -> HeadConfig | None:
        return head_of(self.loaded.network)

    def has(self, part: str) -> bool:
        """Whether the file has all weights that a pretraining head needs."""
        needed = (part, "albert.") if part == "sentence_order" else (part,)
        return self.head is None and not any(n.startswith(needed) for n in self.loaded.missing)


def model_card(folder: Path, *, name: str | None = None, license: str = "", languages: Sequence[str] = ()) -> str:
    """Return the text of README.md for a model folder; `name` is what its users will load.

    For a folder inside a run (runs/<name>/model, beside run.json), it includes measures, the
    settings that were set, and the hashes of the data. Licence and languages are not in the files.
    """
    facts = _gathered(folder, name or str(folder))
    sections = [
        _front_matter(facts, license, languages),
        f"# {facts.name.split('/')[-1]}\n",
        f"{_sentence(facts)}\n",
        _table(_rows(facts)),
        *(f"> {note}\n" for note in _remarks(facts)),
        _usage(facts),
        *(_training(facts.run) if facts.run else []),
    ]
    return "\n".join(sections)


def write_card(folder: Path, *, name: str | None = None) -> None:
    """Write the card into a model folder; `litebert hub push` rewrites it."""
    write_text(folder / CARD_FILE, f"{model_card(folder, name=name)}\n{WRITTEN_BY_LITEBERT}\n")


def _gathered(folder: Path, name: str) -> _Facts:
    loaded = load_model(folder)
    try:
        tokenizer = Tokenizer.load(folder)
    except NoVocabularyError:
        tokenizer = None
    here = [name for name, tensor in loaded.network.state_dict().items() if not tensor.is_meta]
    files = sorted(folder.glob("*.safetensors"))
    single = weights_path(folder)
    return _Facts(
        name=name,
        loaded=loaded,
        architecture=architecture(head_of(loaded.network), here),
        tokenizer=tokenizer,
        run=run_facts(folder),
        num_bytes=sum(file.stat().st_size for file in files),
        weights_hash=hash_file(single) if single.is_file() else "",
    )


def _front_matter(facts: _Facts, license: str, languages: Sequence[str]) -> str:
    """Return the YAML header that the Hub reads, with every value written as JSON."""
    head = facts.head
    pipeline = head.record.pipeline if head else "fill-mask" if facts.has("masked_lm") else ""
    parts = {"masked-lm": "masked_lm", "sentence-order": "sentence_order"}
    tags = [head.kind] if head else [tag for tag, part in parts.items() if facts.has(part)]
    values: dict[str, Json] = {
        "license": license,
        "language": list(languages),
        "library_name": "litebert",
        "pipeline_tag": pipeline,
        "tags": ["albert", *tags],
    }
    lines = [f"{key}: {json.dumps(value)}" for key, value in values.items() if value]
    return "\n".join(["---", *lines, "---", ""])


def _sentence(facts: _Facts) -> str:
    config = facts.config
    parameters = sum(p.numel() for p in facts.loaded.network.parameters() if not p.is_meta)
    layers = "layer" if config.num_hidden_layers == 1 else "layers"
    what = f"An ALBERT of {parameters:,} parameters: {config.num_hidden_layers} {layers}"
    if facts.head:
        return f"{what}. It {facts.head.record.purpose}."
    verbs = {"fills [MASK]": "masked_lm", "tells sentence order": "sentence_order"}
    does = [verb for verb, part in verbs.items() if facts.has(part)]
    return f"{what}, pretrained. It {' and '.join(does) or 'gives hidden states'}."


def _rows(facts: _Facts) -> dict[str, str]:
    config = facts.config
    groups = f"{config.num_hidden_groups} x {config.inner_group_num}"
    return {
        "hidden, layers, heads, intermediate": f"{config.hidden_size:,}, "
        f"{config.num_hidden_layers}, {config.num_attention_heads}, {config.intermediate_size:,}",
        "embedding size": f"{config.embedding_size:,}",
        "shared between layers": f"{config.sharing} (groups x inner groups: {groups})",
        "activation": config.hidden_act,
        "longest input": f"{config.max_position_embeddings:,} pieces",
        "vocabulary": _vocabulary(facts),
        "labels": ", ".join(facts.head.labels) if facts.head else "",
        "weights": f"{facts.num_bytes:,} bytes" + (f", blake2b `{facts.weights_hash}`" if facts.weights_hash else ""),
    }


def _vocabulary(facts: _Facts) -> str:
    if facts.tokenizer is None:
        return f"{facts.config.vocab_size:,} pieces; its tokenizer is not here"
    return f"{facts.tokenizer.vocab_size:,} pieces, blake2b `{facts.tokenizer.hash}`"


def _remarks(facts: _Facts) -> list[str]:
    config = facts.config
    remarks = list(facts.loaded.notes)
    if config.sharing != "all":
        remarks.append(
            f"Its layers share {config.sharing}. transformers knows no partial sharing: it reads "
            f"{config.num_hidden_layers} separate layers, with the same outputs and more memory."
        )
    if facts.head and not facts.head.record.is_in_transformers:
        remarks.append("transformers has no such head: it reads the encoder alone.")
    return remarks


def _usage(facts: _Facts) -> str:
    name, theirs = json.dumps(facts.name), facts.architecture
    if facts.head and not facts.head.record.is_in_transformers:
        theirs = "AlbertModel"
    blocks = [
        ["import litebert", "", f"model = litebert.load({name})", *_calls(facts)],
        [
            f"from transformers import AutoTokenizer, {theirs}",
            "",
            f"tokenizer = AutoTokenizer.from_pretrained({name})",
            f"model = {theirs}.from_pretrained({name}).eval()",
            _THEIR_CALLS.get(theirs, _THEIR_CALL),
        ],
    ]
    ours, others = ("\n".join(["```python", *block, "```"]) for block in blocks)
    return f"## Use\n\n{ours}\n\nor, with transformers:\n\n{others}\n"


def _calls(facts: _Facts) -> list[str]:
    """Return a call for each verb that the weights allow."""
    if facts.head:
        return [f"model.{facts.head.record.python_example}"]
    calls = {
        "masked_lm": 'model.fill("The cat sat on the [MASK].")',
        "sentence_order": 'model.order("He opened the door.", "Nobody was there.")',
    }
    embed = 'model.embed(["A first text.", "Another one."])'
    return [*(call for part, call in calls.items() if facts.has(part)), embed]


def _training(run: RunFacts) -> list[str]:
    """Return what the run recorded: measures, data, settings."""
    made = f"litebert {run.version}, step {run.step:,} of the run `{run.name}`."
    return [
        f"## Training\n\n{made}\n",
        _measures(run),
        *(f"**Warning**: {doubt}.\n" for doubt in run.doubts),
        "Data and tokenizer:\n",
        _table({name: f"`{value}`" for name, value in run.data.items()}),
        "Settings that were set (all others are defaults):\n",
        _table({name: f"`{value}`" for name, value in run.settings.items()}),
        "The command that trains it again, with the data and the model named above:\n",
        f"```sh\n{run.command}\n```\n",
    ]


def _measures(run: RunFacts) -> str:
    """Return each measure, with its value for always giving the commonest label if known."""
    if not run.baseline:
        return _table({name: f"{value:.6g}" for name, value in run.measures.items()})
    rows = [
        f"| {name} | {value:.6g} | {run.baseline[name]:.6g} |"
        if name in run.baseline
        else f"| {name} | {value:.6g} | |"
        for name, value in run.measures.items()
    ]
    return "\n".join(["| | this model | commonest label |", "|---|---|---|", *rows, ""])


def _table(rows: Mapping[str, str]) -> str:
    lines = [f"| {name} | {_cell(text)} |" for name, text in rows.items() if text]
    return "\n".join(["| | |", "|---|---|", *lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
