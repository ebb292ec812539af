"""A loaded model with the verbs its heads allow, on strings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from litebert.config import HeadKind, Precision
from litebert.errors import LitebertError, did_you_mean
from litebert.fast import limit_depth
from litebert.folder import (
    Pooling,
    SentenceVectors,
    load_model,
    read_sentence_vectors,
)
from litebert.hub import locate
from litebert.inference import downstream, pretrained
from litebert.inference.downstream import Choice, Classification, SpanFound, Tagged
from litebert.inference.embedding import embed
from litebert.inference.pretrained import Filling, Order
from litebert.nn import DTYPES, AlbertForPretraining, AlbertForTask, Network
from litebert.tokenizer import Tokenizer


class Model:
    """A network with its tokenizer; make one with `litebert.load`.

    `fill` and `order` need the pretraining heads, `classify`, `tag`, `choose` and `answer` the head
    of that task; `embed` needs none. A verb whose head is not there says which model would do.
    """

    def __init__(
        self,
        network: Network,
        tokenizer: Tokenizer,
        *,
        missing: frozenset[str] = frozenset(),
        notes: tuple[str, ...] = (),
        vectors: SentenceVectors | None = None,
        source: str = "this model",
    ) -> None:
        self.network, self.tokenizer, self.notes = network.eval(), tokenizer, notes
        self._missing, self._source = missing, source
        self.vectors = vectors or SentenceVectors()

    @classmethod
    def load(
        cls, path: str | Path, *, precision: Precision = "fp32", depth: int | None = None
    ) -> Model:
        """Read a model folder, or fetch a name from the Hub; nothing in the files is executed.

        `precision` is that of activations: bf16 is several times faster where the CPU or GPU has
        it, and within 1 % of fp32. An eight-bit folder (`litebert quantize`) has its own.
        `depth` applies only so many steps; a head that was trained there answers, if there is one.
        """
        folder = locate(path)
        loaded = load_model(folder, dtype=DTYPES[precision], for_inference=True)
        if depth is not None:
            limit_depth(loaded.network, depth)
        return cls(
            loaded.network,
            Tokenizer.load(folder),
            missing=loaded.missing,
            notes=loaded.notes,
            vectors=read_sentence_vectors(folder),
            source=str(folder),
        )

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs that this model's weights allow."""
        if isinstance(self.network, AlbertForTask):
            return (self.network.head_config.record.verb, "embed")
        heads = {"fill": "masked_lm", "order": "sentence_order"}
        return (*(verb for verb, head in heads.items() if not self._lacking(head)), "embed")

    def fill(self, text: str, *, top: int = 5) -> list[Filling]:
        """Return the `top` likeliest fillings of every [MASK] in a text, best first.

        Blanks are filled independently; the probability is the product of theirs.
        """
        network = self._pretraining("masked_lm", "fill")
        return pretrained.fill(network, self.tokenizer, text, top=top)

    def order(self, first: str, second: str) -> Order:
        """Say whether `first` comes before `second` in running text."""
        network = self._pretraining("sentence_order", "order")
        return pretrained.order(network, self.tokenizer, first, second)

    def embed(
        self,
        texts: Sequence[str],
        *,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
    ) -> NDArray[np.float32]:
        """Return one vector of size H for each text: the mean or maximum of its tokens, or [CLS].

        Unset, `pooling` and `normalize` are what sentence-transformers wrote beside the model, or
        the mean, not normalised. A model that was only pretrained pools badly; fine-tune before you
        rely on distances.

        Raises:
            LitebertError: LB-674, no pooling has this name.
        """
        if pooling is not None and pooling not in get_args(Pooling):
            raise LitebertError(
                "LB-674",
                "there is no such pooling",
                received=pooling,
                expected=did_you_mean(str(pooling), get_args(Pooling)),
                next='model.embed(texts, pooling="mean")',
            )
        vectors = replace(
            self.vectors,
            pooling=pooling or self.vectors.pooling,
            normalize=self.vectors.normalize if normalize is None else normalize,
        )
        return embed(self.network, self.tokenizer, _several(texts, "embed"), vectors=vectors)

    def classify(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        patience: int | None = None,
    ) -> list[Classification]:
        """Return the label of each text, or of each text with its pair; or its score.

        With `patience`, a text takes no more steps once so many classifiers in a row have agreed
        with the one before; for a model that was trained with `train.exits`.
        """
        network = self._with_head("sequence-classification", "classify")
        texts = _several(texts, "classify")
        return downstream.classify(network, self.tokenizer, texts, pairs, patience=patience)

    def tag(self, texts: Sequence[str]) -> list[list[Tagged]]:
        """Return the tag of every word of each text; words end at white space."""
        network = self._with_head("token-classification", "tag")
        return downstream.tag(network, self.tokenizer, _several(texts, "tag"))

    def choose(self, question: str, choices: Sequence[str], *, context: str = "") -> Choice:
        """Return which of several choices answers a question about a context."""
        network = self._with_head("multiple-choice", "choose")
        choices = _several(choices, "choose")
        return downstream.choose(network, self.tokenizer, question, choices, context)

    def answer(self, question: str, context: str, *, top: int = 1) -> list[SpanFound]:
        """Return the likeliest spans of a context that answer a question, best first.

        A model of SQuAD 2.0 may say that there is no answer: an empty text comes first then.
        """
        kinds: tuple[HeadKind, ...] = ("question-answering", "conditional-question-answering")
        network = self._with_head(*kinds, "answer")
        return downstream.answer(network, self.tokenizer, question, context, top=top)

    def _pretraining(self, head: str, verb: str) -> AlbertForPretraining:
        """Return the network if it has a pretraining head; say what it lacks if not."""
        lacking = self._lacking(head)
        if isinstance(self.network, AlbertForPretraining) and not lacking:
            return self.network
        lack = f"no {', '.join(lacking[:3])}" if lacking else self._head()
        raise LitebertError(
            "LB-612",
            f"{self._source} cannot {verb}: its file lacks weights for that",
            received=lack,
            expected=f"the {head} head; hub files often come without sentence order",
            next="use a model that litebert pretrained, or pretrain this one further",
        )

    def _with_head(self, *kinds_and_verb: str) -> AlbertForTask:
        """Return the network if its head is of one of the kinds; say what it has if not."""
        *kinds, verb = kinds_and_verb
        if isinstance(self.network, AlbertForTask) and self.network.head_config.kind in kinds:
            return self.network
        raise LitebertError(
            "LB-615",
            f"{self._source} cannot {verb}: it was not fine-tuned for that",
            received=self._head(),
            expected=f"a {' or '.join(kinds)} head",
            next="litebert finetune --help",
        )

    def _head(self) -> str:
        if isinstance(self.network, AlbertForTask):
            return f"a {self.network.head_config.kind} head"
        return "pretraining heads only"

    def _lacking(self, head: str) -> list[str]:
        absent = [name for name in self._missing if name.startswith((f"{head}.", "albert."))]
        return sorted(name for name in absent if head != "masked_lm" or "pooler" not in name)


def _several(texts: Sequence[str], verb: str) -> list[str]:
    if isinstance(texts, str):
        raise LitebertError(
            "LB-611",
            f"{verb} takes a list of texts",
            received="one string",
            expected="a list of strings",
            next=f"model.{verb}([text])",
        )
    return list(texts)
