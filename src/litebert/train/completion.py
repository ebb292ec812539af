"""The configuration of a pretraining run, completed before it begins: the shape of its
network, and what is measured on this machine.
"""

from pathlib import Path

from pydantic import ValidationError

from litebert.config import DROPOUTS, AlbertConfig, PretrainConfig
from litebert.device import choose_device
from litebert.distributed import World
from litebert.errors import LitebertError
from litebert.files import Json
from litebert.folder import read_config
from litebert.hub import locate
from litebert.objectives.taught import holds_vectors, vector_width
from litebert.origins import MEASURED, TOKENIZER, Origin
from litebert.runs import RunFolder
from litebert.settings import Resolved, expected_value
from litebert.tokenizer import Tokenizer
from litebert.train.estimate import Estimate, estimate, fit_steps
from litebert.train.run import settled_precision
from litebert.train.sources import Sources

# What a student takes from its teacher unless it is set. It begins with the teacher's
# weights, so the widths must be the same.
FROM_TEACHER = (
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "num_hidden_layers",
)
# Blocks of a student. On STS-B, a student with three blocks gets after 2 minutes what one
# with a single block gets after 115: 80.1 and 80.3 (benchmarks/distillation).
STUDENT_GROUPS = 3


def settle(
    resolved: Resolved[PretrainConfig], sources: Sources, folder: Path, world: World
) -> Resolved[PretrainConfig]:
    """Return the full configuration, the same in all processes, with the origin of
    each setting: the network's shape comes from the vocabulary or the starting model.
    """

    def measure() -> Json:
        completed, _ = complete(resolved, sources, folder)
        values: Json = completed.model_dump(mode="json")
        return values

    # Measured in one process: others, on slower processors, would choose other steps and
    # threads, and then wait for one another.
    measured = world.from_first(measure)
    settled = resolved.fill_measured(PretrainConfig.model_validate(measured))
    start = settled.config.start.model
    begins_as = start or settled.config.distil.teacher
    # "measured here" is said of whatever was filled in: the shape has a better origin.
    origins = dict[str, Origin]()
    for name, origin in settled.origins.items():
        if origin != MEASURED or not name.startswith("model."):
            continue
        # A student takes the sizes of its teacher, but the vocabulary of its own corpus.
        is_of_text = name == "model.vocab_size" or name.endswith("_token_id")
        if begins_as is None or (is_of_text and not start):
            origins[name] = TOKENIZER
        else:
            origins[name] = Origin("start", begins_as)
    return Resolved(settled.config, settled.origins | origins)


def plan(
    resolved: Resolved[PretrainConfig], folder: Path, *, vocab_size: int | None = None
) -> tuple[PretrainConfig, Estimate]:
    """Return the full configuration and what it will need, without writing anything.

    Give `vocab_size` if the corpus, and therefore the vocabulary, does not exist yet.
    """
    sources = Sources.open(resolved.config) if vocab_size is None else None
    # A run by the clock is estimated on the way, to know its steps.
    config, needs = complete(resolved, sources, folder, vocab_size=vocab_size)
    device = choose_device(config.train.device)
    return config, needs or estimate(config, device, sources)


def complete(
    resolved: Resolved[PretrainConfig],
    sources: Sources | None,
    folder: Path,
    *,
    vocab_size: int | None = None,
) -> tuple[PretrainConfig, Estimate | None]:
    """Fill in what depends on the data, and what depends on this machine: precision,
    threads and steps.

    A run by the clock (`train.minutes`) has as many steps as the time allows. They are
    measured once: a plan in the same command, or the first start of a run, has them
    already. If they are measured here, what the run needs is returned, too.
    """
    config = resolved.config
    tokenizer = sources.tokenizer if sources else None
    # the sizes and ids that the network takes from the vocabulary
    of_data: dict[str, Json] = {"vocab_size": vocab_size}
    if tokenizer:
        of_data = {
            "vocab_size": tokenizer.vocab_size,
            "pad_token_id": tokenizer.pad_id,
            "bos_token_id": tokenizer.cls_id,
            "eos_token_id": tokenizer.sep_id,
        }
    model = shape_of(resolved, tokenizer).model_copy(update=of_data)

    train = config.train
    device = choose_device(train.device)
    recorded = RunFolder(folder).settings
    of_machine: dict[str, Json] = {"precision": settled_precision(train, recorded)}
    # Steps are known if they are set, or if the plan of this command measured them.
    has_steps = train.minutes is None or resolved.origins["train.steps"] == MEASURED
    # A run that is resumed keeps them: measured again, they would be another schedule.
    if not has_steps and recorded.get("train.minutes") == train.minutes:
        of_machine["threads"] = recorded["train.threads"]
        of_machine["steps"] = recorded["train.steps"]
        has_steps = True
    settled = config.model_copy(
        update={"model": model, "train": train.model_copy(update=of_machine)}
    )
    if has_steps:
        return settled, None
    return fit_steps(settled, device, sources)


# ---- the shape of the network --------------------------------------------------------


def shape_of(
    resolved: Resolved[PretrainConfig], tokenizer: Tokenizer | None = None
) -> AlbertConfig:
    """Return the network's configuration: the starting model's, a student's, or the one
    that is set.
    """
    config = resolved.config
    if config.start.model:
        shape = shape_of_start(resolved, tokenizer)
    else:
        shape = _shape_of_settings(resolved, tokenizer)
    # Either may be a student of known vectors, which need no shape of a teacher.
    if config.distil.teacher and holds_vectors(config.distil.teacher):
        require_wide_vectors(config.distil.teacher, shape.hidden_size)
    return shape


def require_wide_vectors(teacher: str, hidden_size: int) -> None:
    """Raise if a student would be wider than the vectors that it is to learn."""
    width = vector_width(teacher)
    if hidden_size > width:
        raise LitebertError(
            "LB-566",
            "the student is wider than the vectors that it would learn",
            received=f"hidden_size {hidden_size}, and vectors of {width} numbers",
            expected=f"hidden_size {width} or less",
            next=f"set model.hidden_size={width}, or --from a narrower student",
        )


def _shape_of_settings(
    resolved: Resolved[PretrainConfig], tokenizer: Tokenizer | None
) -> AlbertConfig:
    """Return the shape that is set, or that of a student of the teacher that is set."""
    config = resolved.config
    # A size that is set by name is a mistake if it is not that of the corpus; the usual
    # one only fills the place until the corpus is known.
    is_open = _is_usual(resolved.origins["model.vocab_size"])
    if tokenizer and not is_open and config.model.vocab_size != tokenizer.vocab_size:
        raise _other_shape(
            resolved,
            "vocab_size",
            f"{tokenizer.vocab_size}, the pieces of {config.data.corpus}",
        )
    if config.distil.teacher and not holds_vectors(config.distil.teacher):
        return shape_of_student(resolved)
    return config.model


def shape_of_start(
    resolved: Resolved[PretrainConfig], tokenizer: Tokenizer | None
) -> AlbertConfig:
    """Return the starting model's configuration; only its dropouts may be set to other
    values.
    """
    start = str(resolved.config.start.model)
    folder = locate(start)
    shape = read_config(folder)
    if tokenizer:
        if not resolved.config.start.new_vocabulary:
            _require_same_vocabulary(start, Tokenizer.load(folder), tokenizer)
        shape = shape.model_copy(update={"vocab_size": tokenizer.vocab_size})
    _require_positions(resolved, start, shape.max_position_embeddings)
    # Recipes and presets are for new networks: here, only what was typed counts.
    typed = dict[str, Json]()
    for name in AlbertConfig.model_fields:
        if not resolved.origins[f"model.{name}"].is_typed:
            continue
        typed[name] = getattr(resolved.config.model, name)
        size = getattr(shape, name)
        if name not in DROPOUTS and typed[name] != size:
            raise _other_shape(resolved, name, f"{size}, as in {start}")
    return shape.model_copy(update=typed)


def _require_same_vocabulary(start: str, former: Tokenizer, corpus: Tokenizer) -> None:
    if former.hash == corpus.hash:
        return
    raise LitebertError(
        "LB-514",
        "the corpus was made with another tokenizer than the model that training"
        " starts from",
        received=f"tokenizer {corpus.hash[:12]} in the corpus",
        expected=f"that of {start}",
        next=f"build the corpus with --tokenizer {start}, or add"
        " start.new_vocabulary=true",
    )


def _require_positions(
    resolved: Resolved[PretrainConfig], start: str, num_positions: int
) -> None:
    """Raise if sequences are longer than the starting model can read."""
    length = resolved.config.objective.max_seq_length
    if length <= num_positions:
        return
    raise LitebertError(
        "LB-519",
        f"objective.max_seq_length is above the positions of {start}",
        received=f"{length} ({resolved.origins['objective.max_seq_length']})",
        expected=f"at most {num_positions}",
        next=f"set objective.max_seq_length={num_positions}",
    )


def shape_of_student(resolved: Resolved[PretrainConfig]) -> AlbertConfig:
    """Return the student's configuration: the teacher's widths and depth, unless set.

    Its layers share three blocks, unless `num_hidden_groups` or another sharing is set.
    """
    named = str(resolved.config.distil.teacher)
    chosen = resolved.config.model
    teacher = read_config(locate(named))
    shape = chosen.model_dump()
    # what is set by name stays, even where it does not fit: the checks below refuse it
    for name in FROM_TEACHER:
        if _is_usual(resolved.origins[f"model.{name}"]):
            shape[name] = getattr(teacher, name)
    if shape["embedding_size"] == shape["hidden_size"]:
        # `begin_as_teacher` fits it to the teacher's word table
        shape["embedding_projection"] = True  # (embedding, hidden), square
    # one block for all layers, as in ALBERT, learns much more slowly from a teacher
    may_group = _is_usual(resolved.origins["model.num_hidden_groups"])
    if may_group and chosen.sharing == "all":
        shape["num_hidden_groups"] = min(STUDENT_GROUPS, shape["num_hidden_layers"])
    for name in ("hidden_size", "num_attention_heads"):
        size = getattr(teacher, name)
        if shape[name] != size:
            raise _other_shape(resolved, name, f"{size}, as in {named}")
    # a narrower one gets the most active neurons
    size = teacher.intermediate_size
    if shape["intermediate_size"] > size:
        expected = f"{size} or less, as in {named}"
        raise _other_shape(resolved, "intermediate_size", expected)
    try:
        return AlbertConfig.model_validate(shape)
    except ValidationError as error:
        # too many groups for the depth that it takes from its teacher
        raise _other_shape(
            resolved,
            "num_hidden_groups",
            expected_value(error.errors(include_url=False)[0]),
        ) from error


def _is_usual(origin: Origin) -> bool:
    """Return whether nobody chose the value of a setting for this run."""
    return origin.kind in ("default", "preset")


def _other_shape(
    resolved: Resolved[PretrainConfig], name: str, expected: str
) -> LitebertError:
    value = getattr(resolved.config.model, name)
    origin = resolved.origins[f"model.{name}"]
    return LitebertError(
        "LB-515",
        f"model.{name} does not fit the corpus, or the model that training starts from",
        received=f"{value} ({origin})",
        expected=expected,
        next=f"omit {_word_that_set(name, origin)}",
    )


def _word_that_set(name: str, origin: Origin) -> str:
    """Return what was typed for a value of the network: its name, or the preset."""
    if origin.chosen_by is None or not origin.is_typed:
        return f"model.{name}"
    return "--preset" if origin.chosen_by.kind == "flag" else "model.preset"
