"""Long runs: what is kept, stages, averages, resuming by folder, a new vocabulary."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import litebert
from litebert.api.training import resume
from litebert.config import PretrainConfig, Resolved
from litebert.corpus import build_corpus
from litebert.errors import LitebertError
from litebert.folder import load_model
from litebert.runs import clean
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.train import train_tokenizer, write_tokenizer
from litebert.train.checkpoint import average_checkpoints
from litebert.train.pretrain import pretrain
from litebert.train.sources import Sources, batches_of, loader_for

Configure = Callable[..., Resolved[PretrainConfig]]
NO_DROPOUT = ("model.hidden_dropout_prob=0", "model.attention_probs_dropout_prob=0")


@pytest.fixture(scope="module")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 12 steps with a checkpoint every 2 that keeps 2, and one at every multiple of 6."""
    from litebert.config import resolve, settings_from_words

    from .conftest import SMALL

    words = [f"data.corpus={corpus}", *SMALL, "train.save_every=2", "train.keep_every=6"]
    resolved = resolve(PretrainConfig, settings_from_words([*words, "train.keep_best=true"]))
    run = tmp_path_factory.mktemp("long") / "run"
    pretrain(resolved, run, is_quiet=True)
    return run


def test_the_newest_checkpoints_every_sixth_and_the_best_model_are_kept(trained: Path) -> None:
    names = sorted(path.name for path in (trained / "checkpoints").iterdir())
    assert names == ["step-000000006", "step-000000010", "step-000000012"]
    assert litebert.load(trained / "best").fill("In the [MASK] Anna walked.")


def test_a_checkpoint_is_a_model_that_answers_and_that_training_starts_from(
    trained: Path, tmp_path: Path, configure: Configure
) -> None:
    checkpoint = trained / "checkpoints" / "step-000000010"
    assert litebert.load(checkpoint).fill("In the [MASK] Anna walked.")
    further = configure(f"start.model={checkpoint}", "start.optimizer=true", "train.steps=1")
    assert pretrain(further, tmp_path / "further", is_quiet=True).model


def test_the_average_is_the_mean_of_the_checkpoints(trained: Path, tmp_path: Path) -> None:
    assert average_checkpoints(trained, tmp_path / "mean", last=2) == [10, 12]
    one, two, mean = (
        load_model(path).network.state_dict()
        for path in (*sorted((trained / "checkpoints").iterdir())[-2:], tmp_path / "mean")
    )
    for name, tensor in mean.items():
        assert torch.allclose(tensor, (one[name] + two[name]) / 2, atol=1e-7)
    assert average_checkpoints(trained, tmp_path / "one", until=7) == [6]
    with pytest.raises(LitebertError, match="LB-265"):
        average_checkpoints(trained, tmp_path / "many", last=4)


def test_cleaning_a_finished_run_leaves_its_models(trained: Path) -> None:
    freed = clean(trained.parent, is_dry=True)
    assert len(freed) == 3 and all(waste.num_bytes > 0 for waste in freed)
    assert list((trained / "checkpoints").iterdir())


def test_a_run_resumes_by_its_folder_alone(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    from litebert.train import loop

    original = loop.training_step

    def failing(*args: object, **kwargs: object) -> object:
        if kwargs["step"] == 6:
            raise KeyboardInterrupt
        return original(*args, **kwargs)  # type: ignore[arg-type]

    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(loop, "training_step", failing)
        with pytest.raises(KeyboardInterrupt):
            pretrain(configure(), run, is_quiet=True)
    assert not (run / "model").exists()
    assert resume(run, quiet=True).is_finished
    assert pretrain(configure(), run, is_quiet=True).was_finished


def test_stages_have_sequences_and_batches_of_their_own(configure: Configure) -> None:
    resolved = configure("ramp.shares=[0.5, 0.25]", "ramp.seq_lengths=[16, 32]", "ramp.batch_sizes=[2, 4]")
    config = resolved.config
    sources = Sources.open(config)
    batches = batches_of(sources.corpus.path, config=config, sentence=sources.sentence)
    sizes = [
        (len(b.offsets) - 1, int(max(b.offsets[1:] - b.offsets[:-1])) <= length)
        for b, length in (
            (batches.batch(0), 16),
            (batches.batch(5), 16),
            (batches.batch(6), 32),
            (batches.batch(9), 48),
        )
    ]
    assert sizes == [(2, True), (2, True), (4, True), (8, True)]
    own = loader_for(sources.corpus.path, config=config, sentence=sources.sentence)
    assert (batches.batch(9).ids == own.batch(0).ids).all()
    assert (batches.batch(6).ids == batches.batch(6).ids).all()


@pytest.mark.parametrize("words", [("ramp.shares=[0.5]", "ramp.batch_sizes=[8, 9]"), ("ramp.shares=[0.6, 0.5]",)])
def test_stages_that_do_not_fit_are_refused(configure: Configure, words: tuple[str, ...]) -> None:
    with pytest.raises(LitebertError):
        configure(*words)


def test_pieces_that_two_vocabularies_share_keep_their_vectors(
    trained: Path, stories: Path, tmp_path: Path, configure: Configure
) -> None:
    lines = stories.read_text().splitlines()
    write_tokenizer(tmp_path / "other", train_tokenizer(lines, vocab_size=80))
    build_corpus(
        [stories], tokenizer=tmp_path / "other", output=tmp_path / "corpus", sentences="line", held_out=0.2, workers=1
    )
    words = [f"data.corpus={tmp_path / 'corpus'}", f"start.model={trained / 'model'}"]
    with pytest.raises(LitebertError, match="LB-514"):
        pretrain(configure(*words), tmp_path / "refused", is_quiet=True)
    further = configure(*words, "start.new_vocabulary=true", "train.steps=1", "optim.learning_rate=1e-9")
    pretrain(further, tmp_path / "run", is_quiet=True)
    tables = {}
    for name, folder in (("former", trained / "model"), ("new", tmp_path / "run" / "model")):
        network = load_model(folder).network
        tables[name] = (Tokenizer.load(folder), network.albert.embedding.word.weight)
    (former, old), (new, table) = tables["former"], tables["new"]
    shared = set(former.pieces) & set(new.pieces)
    assert 60 < len(shared) <= new.vocab_size
    for piece in shared:
        assert torch.allclose(table[new.id(piece)], old[former.id(piece)], atol=1e-6)
