"""What else pretraining can learn: replaced words, halves that belong together, taught depths."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from litebert import rng
from litebert.config import (
    AlbertConfig,
    ElasticConfig,
    ObjectiveConfig,
    PretrainConfig,
    ReplacedConfig,
    TrainConfig,
    resolve,
    settings_from_words,
)
from litebert.corpus import Corpus
from litebert.errors import LitebertError
from litebert.nn import AlbertForPretraining
from litebert.objectives import Loader, PretrainingBatch
from litebert.tasks.contrast import TEMPERATURE, Contrast
from litebert.tasks.pretraining import Pretraining, PretrainingWork, micro_batches
from litebert.tasks.replaced import ReplacedTokens
from litebert.tasks.taught_depths import TaughtDepths
from litebert.train.sources import vocabulary_of

CPU = torch.device("cpu")


def _batch(corpus: Path, sentence: str) -> PretrainingBatch:
    opened = Corpus.open(corpus)
    config = ObjectiveConfig(max_seq_length=40, short_seq_prob=0.5, sentence=sentence)
    vocabulary = vocabulary_of(opened.tokenizer())
    loader = Loader(opened.shards, vocabulary=vocabulary, config=config, batch_size=6, seed=1)
    return loader.batch(0)


def _task(kind: type[Pretraining], **settings: object) -> Pretraining:
    config = AlbertConfig(
        vocab_size=90,
        embedding_size=8,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=32,
        num_hidden_layers=3,
        initializer_range=0.3,
    )
    network = AlbertForPretraining(config, generator=torch.Generator().manual_seed(1))
    train = TrainConfig()
    return kind(network, open_loader=_never, held_out=(), train=train, **settings)  # type: ignore


def _never() -> None:
    raise AssertionError("nothing is loaded")


def _work(batch: PretrainingBatch) -> PretrainingWork:
    (work,) = micro_batches(batch, None, CPU)
    return work


def test_replaced_words_are_drawn_at_a_part_of_the_depth_and_found_at_the_full_one(corpus: Path) -> None:
    work = _work(_batch(corpus, "none"))
    task = _task(ReplacedTokens, replaced=ReplacedConfig(depth=1, weight=3.0))
    torch.manual_seed(5)
    found = task.loss(work)

    network = task.network
    network.albert.depth = 1
    guesses = network(work.batch, work.masked_positions).masked_lm
    torch.manual_seed(5)
    drawn = torch.multinomial(guesses.softmax(-1), 1)[:, 0]
    network.albert.depth = 3
    ids = work.batch.ids.clone()
    ids[work.masked_positions] = drawn
    true = work.batch.ids.clone()
    true[work.masked_positions] = work.masked_ids
    batch = type(work.batch)(**{**vars(work.batch), "ids": ids})
    table = network.albert.embedding.word.weight
    logits = network.masked_lm(network.albert(batch), table) - network.masked_lm.bias
    scores = logits.gather(1, ids[:, None])[:, 0]
    by_token = F.binary_cross_entropy_with_logits(scores, (ids == true).float(), reduction="none")
    by_sequence = [part.mean() for part in by_token.split(list(work.batch.lengths))]
    masked = F.cross_entropy(guesses, work.masked_ids)

    expected = masked + 3 * torch.stack(by_sequence).mean()
    assert found.total.item() == pytest.approx(expected.item(), rel=1e-5)
    measures = task.measures(found.sums.tolist())
    assert 0 < measures["detection_baseline"] < 1
    assert measures["detection_loss"] == pytest.approx(torch.stack(by_sequence).mean().item())


def test_halves_are_sequences_of_their_own_with_all_pieces_and_masks(corpus: Path) -> None:
    whole, halves = (_batch(corpus, name) for name in ("order", "contrast"))
    assert halves.sentence_labels is not None
    assert halves.sentence_labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    cls = whole.ids[0]
    assert (halves.ids[halves.offsets[:-1]] == cls).all()
    assert (halves.segments == 0).all()
    ids = halves.ids.copy()
    ids[halves.masked_positions] = halves.masked_ids
    assert (halves.ids == cls).sum() == 12
    assert len(halves.masked_ids) >= 6
    assert not np.isin(ids[halves.masked_positions], [cls]).any()


def test_each_half_is_to_find_the_other_one(corpus: Path) -> None:
    work = _work(_batch(corpus, "contrast"))
    task = _task(Contrast)
    found = task.loss(work)

    network = task.network
    hidden = network.albert(work.batch)
    vectors = torch.stack([part.mean(0) for part in hidden.split(list(work.batch.lengths))])
    labels = work.sentence_labels
    assert labels is not None
    losses = []
    for row, label in enumerate(labels):
        others = [n for n in range(12) if n != row]
        cosines = F.cosine_similarity(vectors[row], vectors[others]) / TEMPERATURE
        (partner,) = [i for i, n in enumerate(others) if labels[n] == label]
        losses.append(cosines.logsumexp(0) - cosines[partner])
    guesses = network(work.batch, work.masked_positions).masked_lm
    expected = F.cross_entropy(guesses, work.masked_ids) + torch.stack(losses).mean()
    assert found.total.item() == pytest.approx(expected.item(), rel=1e-4)


def test_a_taught_depth_learns_from_the_text_and_from_the_full_depth(corpus: Path) -> None:
    work = _work(_batch(corpus, "order"))
    task = _task(TaughtDepths, elastic=ElasticConfig(least_depth=1, teaching=2.0))
    network = task.network
    full = Pretraining.loss(task, work).total
    guesses = network(work.batch, work.masked_positions).masked_lm
    network.albert.depth = 1
    shallow = Pretraining.loss(task, work).total
    shallow_guesses = network(work.batch, work.masked_positions).masked_lm
    divergence = F.kl_div(
        shallow_guesses.log_softmax(-1), guesses.log_softmax(-1), reduction="batchmean", log_target=True
    )
    found = task.loss(work)
    expected = full + shallow + 2 * divergence
    assert found.total.item() == pytest.approx(expected.item(), rel=1e-4)
    assert network.albert.depth == 1

    network.albert.depth = 3
    assert task.loss(work).total.item() == pytest.approx(full.item(), rel=1e-5)


@pytest.mark.parametrize(
    "words",
    [
        ["replaced.depth=1", "objective.sentence=contrast"],
        ["replaced.depth=1", "elastic.least_depth=1"],
        ["elastic.teaching=1"],
        ["objective.sentence=contrast", "mining.pool=2"],
        ["objective.sentence=contrast", "train.micro_batch_size=8", "train.batch_size=8"],
    ],
)
def test_what_cannot_be_trained_together_is_refused(words: list[str]) -> None:
    with pytest.raises(LitebertError):
        resolve(PretrainConfig, settings_from_words(["data.corpus=none", *words]))


def test_evaluation_draws_the_same_words_every_time(corpus: Path) -> None:
    task = _task(ReplacedTokens, replaced=ReplacedConfig(depth=1))
    task._held_out = [_batch(corpus, "order")]
    torch.manual_seed(rng.torch_seed(1, "other", 0))
    assert task.evaluate() == task.evaluate()
