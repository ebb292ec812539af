"""What a run would do and need, as lines of text and as values: the plan that is shown
before training and by `--dry-run`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from litebert import cpu
from litebert.answers import Shown
from litebert.api.runs import Planned
from litebert.config import ObjectiveConfig, PretrainConfig, TrainConfig
from litebert.errors import format_count, format_duration
from litebert.files import format_bytes
from litebert.hub import PACKAGED
from litebert.launch import launched_as
from litebert.origins import DEFAULT
from litebert.reading.source import Source

if TYPE_CHECKING:
    from litebert.train.estimate import Estimate
    from litebert.train.preparation import Prepared


def pretraining_plan(
    config: PretrainConfig,
    needs: "Estimate",
    folder: Path,
    *,
    data: str,
    is_vocabulary_known: bool,
    has_corpus: bool,
) -> Shown[Planned]:
    """Return the plan of a pretraining run; `data` says what it reads."""
    from litebert.train.estimate import tokens_of_step

    train = config.train
    model = config.model
    objective = config.objective
    tokens = train.steps * tokens_of_step(config)
    # a small text has fewer pieces
    at_most = "" if is_vocabulary_known else "at most "
    lines = {
        "model": (
            f"H {model.hidden_size} x {model.num_hidden_layers} layers, E"
            f" {model.embedding_size}, vocabulary {at_most}{model.vocab_size:,}"
        ),
        "parameters": f"{at_most}{needs.num_parameters:,}",
        "data": data,
        "objective": _objective_of(objective),
        "steps": f"{train.steps:,} of {train.batch_size:,} sequences",
        "tokens": f"{tokens:,} at most",
    }
    if train.minutes is not None:
        before = "" if has_corpus else ", after the corpus is made"
        lines["time"] = f"{format_duration(60 * train.minutes)} of training{before}"
    return _plan_of(lines, needs, train, folder, tokens=tokens)


def _objective_of(objective: ObjectiveConfig) -> str:
    """Say what a run learns: masks, the sentence objective, and the heads if they
    differ from the heads of ALBERT.
    """
    words = f"masked LM {objective.mask_prob:.0%}, sentence {objective.sentence}"
    usual = ObjectiveConfig().heads
    if objective.heads == usual:
        return words
    weights = [f"{name} x {weight:g}" for name, weight in objective.heads.items()]
    return f"{words}; heads {', '.join(weights)}"


def describe_texts(sources: Sequence[Source], held_out: float) -> str:
    """Say what a corpus will be made of."""
    number = format_count(len(sources), "file")
    size = format_bytes(sum(source.size for source in sources))
    return f"{number}, {size}; {held_out:.1%} of the documents are held out"


def describe_corpora(config: PretrainConfig) -> str:
    """Name the corpora of a run, with the share of each in a mix."""
    from litebert.corpus.storage import local_corpus
    from litebert.train.sources import open_corpora, shares_of

    name = config.data.corpus
    if not config.data.mix:
        return name
    opened = open_corpora(config, local_corpus(name))
    parts = zip(shares_of(opened, config), opened, strict=True)
    return ", ".join(f"{share:.1%} {corpus.path}" for share, corpus in parts)


def finetuning_plan(
    prepared: "Prepared", needs: "Estimate", folder: Path
) -> Shown[Planned]:
    """Return the plan of a fine-tuning run."""
    train = prepared.config.train
    shape = prepared.network_config
    dataset = prepared.dataset
    num_examples = prepared.data["training examples"]
    lines = {
        "model": (
            f"{_start_of(prepared)}, H {shape.hidden_size} x"
            f" {shape.num_hidden_layers} layers"
        ),
        "task": f"{dataset.name}, {dataset.family.head.kind}",
        "parameters": f"{needs.num_parameters:,}",
        "examples": f"{num_examples:,}",
    }
    if len(prepared.features) != num_examples:
        lines["examples"] += f" in {len(prepared.features):,} sequences"
    for split, held_out in prepared.held_out.items():
        lines[f"  {split}"] = f"{len(held_out.examples):,}"
    lines["steps"] = _steps_of(train)
    lines["rate"] = _rate_of(prepared)
    lines["baseline"] = _baseline_of(prepared)
    lines["tokens"] = f"{prepared.mean_tokens * train.batch_size:,.0f} a step"
    return _plan_of(lines, needs, train, folder, notes=dataset.notes)


def _start_of(prepared: "Prepared") -> str:
    if prepared.resolved.origins["model.start"] == DEFAULT:
        return PACKAGED
    return str(prepared.config.model.start)


def _steps_of(train: TrainConfig) -> str:
    steps = f"{train.steps:,} steps"
    if train.minutes is not None:
        steps = f"as many steps as fit {format_duration(60 * train.minutes)}"
    return (
        f"{steps}, of {train.batch_size} examples, evaluated every {train.eval_every:,}"
    )


def _rate_of(prepared: "Prepared") -> str:
    optim = prepared.config.optim
    origin = prepared.resolved.origins["optim.learning_rate"]
    rate = f"{optim.learning_rate:g} ({origin})"
    if optim.head_rate_scale == 1:
        return rate
    return f"{rate}, of the head {optim.head_rate_scale:g} times that"


def _baseline_of(prepared: "Prepared") -> str:
    key = prepared.key_measure
    if key not in prepared.baseline:
        return "unknown"
    baseline = prepared.baseline[key]
    return f"{key} {baseline:.4f} (always {prepared.dataset.family.baseline})"


# ---- what both have ------------------------------------------------------------------


def _plan_of(
    lines: Mapping[str, str],
    needs: "Estimate",
    train: TrainConfig,
    folder: Path,
    *,
    notes: Sequence[str] = (),
    tokens: int | None = None,
) -> Shown[Planned]:
    """Return a plan: what every run needs, the `lines` of its kind, and the folder of
    its results. A kind that says how long it takes does so in `lines`.
    """
    seconds = train.steps * needs.seconds_per_step
    facts = {
        "threads": _threads_of(train),
        "memory": _memory_of(needs, train),
        "disk": f"{needs.disk_bytes / 2**30:.2f} GiB",
        "time": f"{format_duration(seconds)} on this machine, without evaluations",
    }
    facts.update(lines)
    num_processes = launched_as().size
    if num_processes > 1:
        facts["processes"] = _processes_of(needs, train, num_processes)
    rows = [*facts.items(), ("results", str(folder))]
    rows += [("note", note) for note in notes]
    width = max(len(name) for name, _ in rows)
    text = "\n".join(f"{name:<{width}}  {value}" for name, value in rows)

    plan = Planned(
        num_parameters=needs.num_parameters,
        seconds_per_step=needs.seconds_per_step,
        memory_bytes=needs.memory_bytes,
        disk_bytes=needs.disk_bytes,
        steps=train.steps,
        seconds=seconds,
    )
    if tokens is not None:
        plan["tokens"] = tokens
    return Shown(plan, text)


def _processes_of(needs: "Estimate", train: TrainConfig, size: int) -> str:
    """Say what each of several processes holds and sends."""
    gradients = 4 * needs.num_parameters  # bytes
    # bytes that a process sends in a ring all-reduce (Patarasuk and Yuan, 2009)
    sent = 2 * (size - 1) / size * gradients
    share = train.batch_size / size
    return (
        f"{size}; each holds all weights, gradients and moments"
        f" ({4 * gradients / 1e6:,.0f} MB) and {share:,.4g} of {train.batch_size:,}"
        f" sequences of a step, and sends {sent / 1e6:,.1f} MB a step"
    )


def _threads_of(train: TrainConfig) -> str:
    import torch

    number = train.threads or torch.get_num_threads()
    return cpu.explain_threads(number)


def _memory_of(needs: "Estimate", train: TrainConfig) -> str:
    """Say how much memory a run will need, and whether this process may use so much."""
    from litebert.device import choose_device

    needed = f"{needs.memory_bytes / 2**30:.2f} GiB"
    usable = cpu.usable_memory()
    is_enough = needs.memory_bytes < usable or not usable
    if is_enough or not choose_device(train.device).is_cpu:
        return needed
    owner = "this machine has"
    if cpu.find_memory_limit() is not None:
        owner = "this container may use"
    return (
        f"{needed}; {owner} {usable / 2**30:.2f} GiB: set a smaller"
        " train.micro_batch_size"
    )
