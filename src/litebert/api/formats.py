"""Imports, exports, the Hub and quantization: the options and the help of functions in
other packages.

Those packages need torch and extras. To keep them out of --help, they are imported when
a function is called.
"""

from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, Required

from typing_extensions import TypedDict

from litebert.answers import Shown
from litebert.errors import LitebertError, say
from litebert.hub import locate, model_files, parse_name, pull, push
from litebert.interop import ExportReport, ModelImport, Quantized
from litebert.runs import RunFolder

OutputFolder = Annotated[Path, "New folder.", Required]
Encoder = Annotated[bool, "Export the encoder without the model's head."]
GoogleHead = Literal[
    "sequence-classification", "multiple-choice", "token-classification"
]


def import_google(
    path: Path,
    *,
    output: OutputFolder,
    config: Annotated[Path | None, "albert_config.json, if elsewhere."] = None,
    tokenizer: Annotated[Path | None, "*.model or vocab.txt."] = None,
    head: Annotated[
        GoogleHead | None,
        "What `output_weights` is for; only needed if it has one row.",
    ] = None,
    labels: Annotated[str, "Names of a classifier's labels, in order: A,B,C."] = "",
) -> ModelImport:
    """Convert a checkpoint of Google's code to a model folder.

    litebert import google albert_base_v2.tar.gz --output models/base
    litebert import google race/model.ckpt-best --head multiple-choice --output models/race

    PATH is a .tar.gz, a folder (of a checkpoint, or an unpacked TF-Hub module), or a
    prefix such as model.ckpt-best. albert_config.json and the vocabulary are searched
    for next to it.
    """
    from litebert.interop.google import import_checkpoint

    names = labels.split(",") if labels else ()
    return import_checkpoint(
        path,
        output,
        config=config,
        tokenizer=tokenizer,
        head=head,
        labels=names,
    )


def import_huggingface(
    path_or_name: str,
    *,
    output: OutputFolder,
    legacy_pickle: Annotated[
        bool, "Also read the tensors of pytorch_model.bin; no code in it is run."
    ] = False,
    activation: Annotated[
        Literal["gelu", "gelu_new"] | None,
        "Override hidden_act: gelu (erf), or gelu_new (tanh), which is Google's.",
    ] = None,
) -> ModelImport:
    """Convert a transformers model, in a folder or OWNER/NAME on the Hub, to a model
    folder.

    litebert import huggingface albert/albert-base-v1 --activation gelu_new --output models/v1
    litebert import huggingface downloads/albert_chinese --legacy-pickle --output models/chinese
    """
    from litebert.interop.huggingface import import_model

    return import_model(
        path_or_name, output, legacy_pickle=legacy_pickle, activation=activation
    )


def export_onnx(
    model: str,
    output: Path,
    *,
    int8: Annotated[bool, "Quantize all weights: a quarter of the size."] = False,
    encoder: Encoder = False,
) -> ExportReport:
    """Write one ONNX file, float32 or int8.

    litebert export onnx runs/mine exported/model.onnx
    litebert export onnx runs/mine small/model.onnx --int8

    OUTPUT ends in .onnx; config.json and the tokenizer are written next to it. The
    inputs are input_ids, attention_mask and token_type_ids: int64, of any batch size
    and length. The outputs in onnxruntime are compared with the network's on a few
    sentences: nothing is written if they differ; otherwise, the largest difference is
    printed.
    """
    from litebert.interop.export import onnx

    return onnx.export_onnx(locate(model), output, int8=int8, has_head=not encoder)


def export_web(
    model: str,
    output: Path,
    *,
    runtime: Annotated[
        Path | None,
        "The npm package onnxruntime-web as a file; otherwise downloaded once.",
    ] = None,
) -> ExportReport:
    """Write a web page in which a model answers inside the browser, without a server.

    litebert export web litebert page
    litebert export web runs/reviews page --runtime onnxruntime-web-1.30.0.tgz

    OUTPUT is a new folder for any static server: python -m http.server --directory
    page. MODEL must have a SentencePiece vocabulary. It is written in eight bits, and
    checked as by litebert export onnx.
    """
    from litebert.interop.export import web

    return web.export_web(locate(model), output, runtime=runtime)


def quantize(
    model: str,
    output: Path,
    *,
    texts: Annotated[
        tuple[Path, ...],
        "Texts like those the model will read, one per line; repeat for more.",
    ] = (),
    data: Annotated[
        Path | None, "Data of its task; by default, what the run was trained on."
    ] = None,
    task: Annotated[
        str | None, "Name of the task, for a model folder without its run."
    ] = None,
) -> Quantized:
    """Write an eight-bit copy of MODEL to the new folder OUTPUT.

    A few hundred texts, or for a run of litebert finetune its training examples, give
    the range of each activation. The weights take a quarter of their bytes in float32.

    litebert quantize runs/mine models/int8 --texts texts.txt
    litebert quantize runs/mrpc models/mrpc-int8
    """
    from litebert.corpus.text import read_texts
    from litebert.inference.quantizing import quantize as write_quantized

    examples = data
    if not texts and data is None:
        examples = _training_data(model)
    has_one_source = bool(texts) != (examples is not None)
    if not has_one_source or (task is not None and examples is None):
        raise LitebertError(
            "LB-536",
            "calibration needs either texts, or the data of a fine-tuned run",
            expected="--texts FILE, or a run of litebert finetune; --task goes with"
            " --data",
            next=f"litebert quantize {model} {output} --texts texts.txt",
        )
    lines = chain.from_iterable(text.splitlines() for text in read_texts(texts))
    return write_quantized(
        model,
        output,
        texts=filter(str.strip, lines),
        data=examples,
        task=task,
    )


def _training_data(model: str) -> Path | None:
    """Return what a run of fine-tuning was trained on; None for any other model."""
    from litebert.inference.finetuned import data_of

    run = RunFolder.of(model)
    if run is None or run.kind == "pretraining":
        return None
    return data_of(model)


# ---- the Hub -------------------------------------------------------------------------


class PublicationPlan(TypedDict):
    repository: str
    revision: str
    files: dict[str, int]  # the size of each in bytes
    card: Literal["kept", "made"]


def hub_pull(name: str) -> Shown[dict[Literal["folder"], str]]:
    """Fetch the model OWNER/NAME, or a branch, tag or commit of it, into the cache and
    print its folder there.

    To convert a model to a folder elsewhere, use `litebert import huggingface`.

    litebert hub pull albert/albert-base-v2
    litebert hub pull albert/albert-base-v2@main
    """
    folder = str(pull(*parse_name(name)))
    return Shown({"folder": folder}, folder)


def hub_push(
    folder: Path,
    name: str,
    *,
    private: Annotated[bool, "Make a new repository private."] = False,
    license: Annotated[str, "For the card, such as apache-2.0."] = "",
    languages: Annotated[
        tuple[str, ...], "--language", "For the card, such as en; repeat for more."
    ] = (),
    dry_run: Annotated[bool, "Only print what would be sent, and the card."] = False,
) -> Shown[dict[Literal["commit"], str] | PublicationPlan]:
    """Publish the model in FOLDER, a model folder or a run, as OWNER/NAME or
    OWNER/NAME@BRANCH, in one commit.

    Its README.md is the model card; without one, a card is made from the configuration,
    the tokenizer and the run that the folder belongs to. Other files in the folder are
    not sent.

    litebert hub push runs/mine OWNER/mine --private
    litebert hub push runs/mine OWNER/mine --license apache-2.0 --language en --dry-run
    """
    from litebert.folder.card import CARD_FILE, card_of

    place = locate(folder)
    repository, revision = parse_name(name)
    card = card_of(place, name=repository, license=license, languages=languages)
    files = model_files(place)
    files.pop(CARD_FILE, None)
    sizes = {path: file.stat().st_size for path, file in files.items()}
    sizes[CARD_FILE] = len(card.text.encode())
    card_state: Literal["kept", "made"] = "kept" if card.is_of_user else "made"
    plan = PublicationPlan(
        repository=repository,
        revision=revision or "main",
        files=sizes,
        card=card_state,
    )
    summary = _summary(plan, is_private=private)
    if dry_run:
        return Shown(plan, f"{summary}\n\n{card.text}")
    say(summary)
    commit = push(
        repository, revision, files, texts={CARD_FILE: card.text}, private=private
    )
    return Shown({"commit": commit}, commit)


def _summary(plan: PublicationPlan, *, is_private: bool) -> str:
    """Return what will be sent, a line for each file."""
    visibility = "private" if is_private else "public"
    source = "made from what is on disk"
    if plan["card"] == "kept":
        source = "the README.md of the folder"
    lines = [
        f"{plan['repository']}, branch {plan['revision']} ({visibility}, if it is new)"
    ]
    lines += [f"  {size:>13,}  {path}" for path, size in plan["files"].items()]
    total = sum(plan["files"].values())
    lines.append(f"  {total:>13,}  bytes; README.md {source}")
    return "\n".join(lines)
