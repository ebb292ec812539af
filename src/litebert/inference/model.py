"""A loaded model: the verbs that its heads allow, on strings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from litebert.answers import (
    Choice,
    Classification,
    Coherence,
    Explanation,
    Filling,
    Match,
    Order,
    Results,
    Score,
    SpanFound,
    Tagged,
)
from litebert.config import Backend, Precision
from litebert.errors import RequestError
from litebert.fast import limit_depth, use_backend
from litebert.fast.precision import DTYPES
from litebert.folder import Pooling, SentenceVectors, load_model, read_sentence_vectors
from litebert.inference import downstream, pretrained
from litebert.inference.coherence import coherence
from litebert.inference.embedding import TextIndex, embed
from litebert.inference.explaining import explain
from litebert.inference.given import Texts, count, known_pooling, known_precision, list_of, paired, several, stream_of
from litebert.inference.packaged import model_folder
from litebert.inference.scoring import score
from litebert.nn import AlbertForPretraining, AlbertForTask, Network
from litebert.tokenizer import Tokenizer


class Model:
    """A network with its tokenizer; make one with `litebert.load`.

    `fill` and `order` need the pretraining heads, `classify`, `tag`, `choose` and `answer` the head
    of that task; `embed` needs none. A verb whose head is missing raises LB-612 or LB-615.

    >>> model = Model.load()  # the packaged one
    >>> len(model.embed(["A cat.", "A kitten."]))
    2
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
        unused: tuple[str, ...] = (),
    ) -> None:
        self.network, self.tokenizer, self.notes = network.eval(), tokenizer, notes
        self._missing, self._unused, self.source = missing, unused, source
        self.vectors = vectors or SentenceVectors()

    def __repr__(self) -> str:
        return f"Model({self.source!r}, verbs: {', '.join(self.verbs)})"

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        precision: Precision = "fp32",
        depth: int | None = None,
        backend: Backend = "torch",
    ) -> Model:
        """Read a model folder or a run, or fetch a model from the Hub by its name.

        Without a path, this is the packaged model. No code from the files is executed.

        `precision` is that of activations: bf16 is several times faster where the CPU or GPU has
        it, and within 1 % of fp32. An eight-bit folder (`litebert quantize`) has its own.
        `depth` is the number of steps applied; if a head was trained after that step, it answers.
        `backend` computes single short texts; "auto" is onnxruntime where that is faster.
        """
        folder = model_folder(path)
        loaded = load_model(folder, dtype=DTYPES[known_precision(precision)], for_inference=True)
        if depth is not None:
            limit_depth(loaded.network, depth)
        use_backend(loaded.network.albert, backend)
        return cls(
            loaded.network,
            Tokenizer.load(folder),
            missing=loaded.missing,
            notes=loaded.notes,
            vectors=read_sentence_vectors(folder),
            source=str(folder),
            unused=loaded.unused,
        )

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs that this model's weights allow."""
        if isinstance(self.network, AlbertForTask):
            return (self.network.head_config.record.verb, "embed")
        heads = {"fill": "masked_lm", "score": "masked_lm", "order": "sentence_order"}
        return (*(verb for verb, head in heads.items() if not self._lacking(head)), "embed")

    @overload
    def fill(self, text: str, *, top: int = 5) -> Results[Filling]: ...  # type: ignore[overload-overlap]
    @overload
    def fill(self, text: Iterable[str], *, top: int = 5) -> Results[Results[Filling]]: ...
    def fill(self, text: Texts, *, top: int = 5) -> Results[Filling] | Results[Results[Filling]]:
        """Return the `top` likeliest fillings of every [MASK] in a text, best first.

        Blanks are filled independently; the probability of a filling is the product over its
        blanks. In a long text only the part around the blanks is read. Like `score`, `tag` and
        `order` of one text, this takes at most a million characters.

        Raises:
            LitebertError: LB-610, there is no [MASK]; LB-934, the blanks are too far apart; LB-935,
                the text is too long.
        """
        network, top = self._pretraining("masked_lm", "fill"), count(top, "top")
        texts, fill = several(text, "fill"), partial(pretrained.fill, network, self.tokenizer)
        found = Results(fill(each, top=top) for each in texts)
        return found[0] if isinstance(text, str) else found

    @overload
    def order(self, first: str, second: str) -> Order: ...
    @overload
    def order(self, first: str) -> Coherence: ...
    def order(self, first: str, second: str | None = None) -> Order | Coherence:
        """Say whether `first` comes before `second`; given one text, say where it breaks.

        Sentences longer than the model reads are cut at their end.
        """
        network = self._pretraining("sentence_order", "order")
        if second is None:
            return coherence(network, self.tokenizer, *several([first], "order"))
        return pretrained.order(network, self.tokenizer, *several([first, second], "order"))

    @overload
    def score(self, text: str) -> Score: ...  # type: ignore[overload-overlap]
    @overload
    def score(self, text: Iterable[str]) -> Results[Score]: ...
    def score(self, text: Texts) -> Score | Results[Score]:
        """Return how likely a text and each of its words are: pseudo-log-likelihoods, in nats."""
        network = self._pretraining("masked_lm", "score")
        found = Results(score(network, self.tokenizer, each) for each in several(text, "score"))
        return found[0] if isinstance(text, str) else found

    def embed(
        self,
        texts: Texts,
        *,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        max_length: int | None = None,
    ) -> NDArray[np.float32]:
        """Return one vector for each text: the mean or maximum of its tokens, or [CLS].

        The shape is (texts, H); of a single string, (H,). Texts longer than the model reads are cut
        at their end, see `too_long`. For more texts than fit in memory, see `embed_batches`.

        Unset, `pooling` and `normalize` are what sentence-transformers wrote beside the model; if
        there is nothing, the mean, not normalised. Without fine-tuning or a teacher, a pretrained
        model gives poor vectors. `max_length` cuts texts earlier, to that many pieces including
        [CLS] and [SEP].

        Raises:
            LitebertError: LB-674, no pooling has this name.
        """
        if max_length is not None:
            count(max_length, "max_length", least=3)
        vectors = replace(
            self.vectors,
            pooling=known_pooling(pooling or self.vectors.pooling),
            normalize=self.vectors.normalize if normalize is None else normalize,
            max_length=max_length or self.vectors.max_length,
        )
        found = embed(self.network, self.tokenizer, several(texts, "embed"), vectors=vectors)
        vector: NDArray[np.float32] = found[0] if isinstance(texts, str) else found
        return vector

    def embed_batches(
        self,
        texts: Iterable[str],
        *,
        batch_size: int = 1_024,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        max_length: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[NDArray[np.float32]]:
        """Yield the vectors of `batch_size` texts at a time, each of shape (batch_size, H).

        `progress` is called with the number of texts after each batch.
        """
        remaining = stream_of(texts, "embed_batches")
        while batch := list(islice(remaining, count(batch_size, "batch_size"))):
            yield self.embed(batch, pooling=pooling, normalize=normalize, max_length=max_length)
            if progress is not None:
                progress(len(batch))

    def similar(self, first: Texts, second: Texts, *, pooling: Pooling | None = None) -> float | NDArray[np.float32]:
        """Return the cosine of two texts, or those of each pair of two lists, (first, second)."""
        embed = partial(self.embed, pooling=pooling, normalize=True)
        left, right = (embed(several(texts, "similar")) for texts in (first, second))
        cosines: NDArray[np.float32] = left @ right.T
        is_one = isinstance(first, str) and isinstance(second, str)
        return float(cosines[0, 0]) if is_one else cosines

    def index(
        self, texts: Iterable[str], *, pooling: Pooling | None = None, progress: Callable[[int], None] | None = None
    ) -> TextIndex:
        """Embed texts once, to be searched many times; see `embed_batches` for `progress`."""
        listed, one = list_of(texts, "index", "texts"), partial(self.embed, pooling=pooling)
        embed_all = partial(self.embed_batches, batch_size=256, progress=progress)
        vectors = [one([]), *embed_all(listed, pooling=pooling, normalize=True)]
        return TextIndex(tuple(listed), np.concatenate(vectors), partial(one, normalize=True))

    def search(
        self, query: str, texts: Iterable[str], *, top: int = 10, pooling: Pooling | None = None
    ) -> Results[Match]:
        """Return the texts nearest to a query by the cosine of their vectors, best first."""
        top = count(top, "top")
        return self.index(texts, pooling=pooling).search(query, top=top)

    def too_long(self, texts: Texts, pairs: Texts | None = None) -> list[int]:
        """Return the numbers of the texts, or pairs, that are longer than the model reads at once.

        `order`, `embed`, `classify` and `choose` cut these at the end.
        """
        listed, seconds = paired(texts, pairs, "too_long")
        room = self.network.config.max_position_embeddings - (2 if seconds is None else 3)
        sizes = [0] * len(listed)
        for column in (listed, seconds or []):
            read = [self.tokenizer.beginning(text, room + 1) for text in column]
            for number, ids in enumerate(self.tokenizer.encode_ids(read)):
                sizes[number] += len(ids)
        return [number for number, size in enumerate(sizes) if size > room]

    @overload
    def classify(  # type: ignore[overload-overlap]
        self, texts: str, pairs: str | None = None, *, patience: int | None = None
    ) -> Classification: ...
    @overload
    def classify(
        self, texts: Iterable[str], pairs: Iterable[str] | None = None, *, patience: int | None = None
    ) -> Results[Classification]: ...
    def classify(
        self, texts: Texts, pairs: Texts | None = None, *, patience: int | None = None
    ) -> Classification | Results[Classification]:
        """Return the label of each text, or of each text with its pair; from regression, a score.

        With `patience`, a text takes no more steps once that many classifiers in a row have agreed
        with the one before; the model must have been trained with `train.exits`. A text longer
        than the model reads is cut at its end.
        """
        network = self._with_head("classify")
        listed, seconds = paired(texts, pairs, "classify")
        answers = downstream.classify(network, self.tokenizer, listed, seconds, patience=patience)
        return answers[0] if isinstance(texts, str) else Results(answers)

    @overload
    def tag(self, texts: str) -> Results[Tagged]: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, texts: Iterable[str]) -> Results[Results[Tagged]]: ...
    def tag(self, texts: Texts) -> Results[Tagged] | Results[Results[Tagged]]:
        """Return the tag of every word of each text; words end at white space."""
        found = downstream.tag(self._with_head("tag"), self.tokenizer, several(texts, "tag"))
        return found[0] if isinstance(texts, str) else Results(found)

    def choose(self, question: str, choices: Iterable[str], *, context: str = "") -> Choice:
        """Return which of several choices answers a question about a context.

        A context longer than the model reads is cut at its end.
        """
        network, listed = self._with_head("choose"), list_of(choices, "choose", "choices")
        question, context = several([question, context], "choose")
        return downstream.choose(network, self.tokenizer, question, listed, context)

    def answer(self, question: str, context: Texts, *, top: int = 1) -> Results[SpanFound]:
        """Return the likeliest spans of a context, or of several, that answer a question.

        The best comes first. A SQuAD 2.0 model may find no answer: then an empty text comes first.
        `no_answer` of each span is the probability of that.
        """
        network = self._with_head("answer")
        (question,), contexts = several([question], "answer"), several(context, "answer")
        return downstream.answer(network, self.tokenizer, question, contexts, top=count(top, "top"))

    def explain(self, verb: str, *texts: str, answer: str | None = None) -> Explanation:
        """Return how much each word of the texts adds to an answer of a verb.

        `texts` are what the verb takes: `explain("similar", "a cat", "a kitten")`; for `choose` the
        question, the context and the choices. Unset, `answer` is the one that the model gives.
        """
        return explain(self, verb, several(texts, "explain"), answer)

    def _pretraining(self, head: str, verb: str) -> AlbertForPretraining:
        """Return the network if it has this pretraining head; else raise LB-612."""
        lacking = self._lacking(head)
        if isinstance(self.network, AlbertForPretraining) and not lacking:
            return self.network
        has = downstream.head_in_words(self.network)
        raise RequestError(
            "LB-612",
            f"{self.source} cannot {verb}: its file lacks weights for that",
            received=f"no {', '.join(lacking[:3])}" if lacking else has,
            expected=f"the {head} head; hub files often come without sentence order",
            next="use a model that litebert pretrained, or pretrain this one further",
        )

    def _with_head(self, verb: str) -> AlbertForTask:
        """Return the network if its head answers this verb; else raise LB-615."""
        if isinstance(self.network, AlbertForTask) and self.network.head_config.record.verb == verb:
            return self.network
        has_own = not (self._lacking("masked_lm") and self._lacking("sentence_order"))
        unknown = () if has_own else self._unused
        raise downstream.not_trained_for(verb, self.network, unknown, source=self.source)

    def _lacking(self, head: str) -> list[str]:
        absent = [name for name in self._missing if name.startswith((f"{head}.", "albert."))]
        return sorted(name for name in absent if head != "masked_lm" or "pooler" not in name)
