"""Measure models on the whole list of README.md, and print a column for each.

`python -m benchmarks.pretraining.words.measure STATE MODEL...`; run it again to go on
after a stop. STATE has the corpus `corpus` with held-out documents (resume.sh makes
it), and keeps what was measured. Needs LITEBERT_TEST_DATA (blimp, glue, nli, squad).
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import nn

import litebert
from benchmarks.distillation import short_sentences
from benchmarks.pretraining.words import sentences
from benchmarks.texts import DATA
from litebert.config import PretrainConfig
from litebert.device import choose_device
from litebert.files import hash_file, write_json
from litebert.folder import read_folder
from litebert.inference.measures import MEASURES
from litebert.nn import AlbertForPretraining
from litebert.tasks.pretraining import Pretraining
from litebert.train.sources import Sources

# the masks, pairs and settings of all tables of README.md
HELD_OUT = {
    "objective": {"max_seq_length": 128, "short_seq_prob": 0.3},
    "train": {"batch_size": 64, "eval_sequences": 512, "seed": 4},
}
PAIRS_OF_A_PARADIGM = 20

Measures = dict[str, float]


def main(state: Path, models: list[Path]) -> None:
    """Measure each model, one measure after the other, and print all as a table."""
    columns = [measure(state, model) for model in models]
    print("| | " + " | ".join(str(model) for model in models) + " |")
    print("|---" * (1 + len(models)) + "|")
    for name in columns[0]:
        cells = [f"{column[name]:.2f}" for column in columns]
        print(f"| {name} | " + " | ".join(cells) + " |")


def measure(state: Path, model: Path) -> Measures:
    """Return all measures of a model, those that are known from its file of results."""
    weights = hash_file(model / "model.safetensors")[:12]
    path = state / "measured" / f"{weights}.json"
    path.parent.mkdir(exist_ok=True)
    results: dict[str, Measures] = json.loads(path.read_text()) if path.exists() else {}
    for name, of_model in _measures(state).items():
        if name not in results:
            results[name] = of_model(model)
            write_json(path, results)
            print(model, name, results[name], flush=True)
    return {name: value for part in results.values() for name, value in part.items()}


def _measures(state: Path) -> Mapping[str, Callable[[Path], Measures]]:
    return {
        "size": _size,
        "STS-B dev": lambda model: _sts(model, "STS-B dev", "glue/STS-B/dev.tsv.gz"),
        "SICK": lambda model: _sts(model, "SICK", "nli/SICK.txt.gz"),
        "short sentences": _short_sentences,
        "twenty sentences": _twenty_sentences,
        "held out": lambda model: _held_out(state / "corpus", model),
        "retrieval": _retrieval,
        "BLiMP": _blimp,
    }


# ---- the measures --------------------------------------------------------------------


def _size(model: Path) -> Measures:
    size = sum(path.stat().st_size for path in model.rglob("*") if path.is_file())
    return {"megabytes": size / 1e6}


def _sts(model: Path, name: str, data: str) -> Measures:
    measured = MEASURES["sts"](litebert.load(model), DATA / data)
    return {name: 100 * measured["sts_spearman"]}


def _retrieval(model: Path) -> Measures:
    data = DATA / "squad" / "dev-v1.1.json.gz"
    measured = MEASURES["retrieval"](litebert.load(model), data)
    return {
        "retrieval": 100 * measured["retrieval_mrr"],
        "retrieval: recall at 1": 100 * measured["retrieval_recall_at_1"],
    }


def _blimp(model: Path) -> Measures:
    data = DATA / "blimp" / "blimp.jsonl.gz"
    measured = MEASURES["blimp"](litebert.load(model), data, limit=PAIRS_OF_A_PARADIGM)
    return {"BLiMP": 100 * measured["blimp"]}


def _short_sentences(path: Path) -> Measures:
    """Return the percentages of short sentences whose hidden word is right, and of
    wrong answers that are in sight.
    """
    model = litebert.load(path)
    measured = Measures()
    for kind, texts in short_sentences.kinds().items():
        hidden = short_sentences.with_one_hidden(texts)
        right, repeats = short_sentences.shares(model, hidden)
        measured[f"{kind}: right"] = 100 * right
        measured[f"{kind}: repeats"] = 100 * repeats
    return measured


def _twenty_sentences(path: Path) -> Measures:
    first, among_five, repeated = sentences.count(litebert.load(path))
    return {
        "sentences: first": first,
        "sentences: one of five": among_five,
        "sentences: repeats": repeated,
    }


def _held_out(corpus: Path, model: Path) -> Measures:
    """Return the loss and accuracies, in percent, on held-out documents."""
    data = {"corpus": str(corpus)}
    config = PretrainConfig.model_validate({**HELD_OUT, "data": data})
    network = read_folder(model, dtype=torch.float32).network
    measured = evaluate(network, Sources.open(config), config)
    return {
        "[MASK]": 100 * measured["mask_token_accuracy"],
        "all masked": 100 * measured["masked_lm_accuracy"],
        "all masked: loss": measured["masked_lm_loss"],
        "order": 100 * measured["sentence_order_accuracy"],
    }


def evaluate(
    network: nn.Module, sources: Sources, config: PretrainConfig
) -> Mapping[str, float]:
    """Return what a training would measure on its held-out documents."""
    assert isinstance(network, AlbertForPretraining)
    task = Pretraining(
        network.to(choose_device("cpu").place),
        held_out=sources.evaluation(config),
        train=config.train,
        mask_id=sources.tokenizer.mask_id,
    )
    return task.evaluate()


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(model) for model in sys.argv[2:]])
