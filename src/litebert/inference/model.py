"""A loaded model: the verbs that its heads support, on strings.

These methods are the interface: the commands of the shell, the routes of the server and
their schemas are made from their signatures, their docstrings and the records that they
return (`litebert.answers`).

Texts are read in ragged batches of similar lengths, at most `Device.tokens_at_once`
tokens together, so that a hundred short texts cost one pass and a long one costs no
more memory. Whatever needs torch is imported where it is used, so that `litebert fill
--help` does not load it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice, pairwise
from os import PathLike
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args, overload

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from litebert import answers
from litebert.answers import Results
from litebert.config import Backend, Pooling, Precision
from litebert.errors import LitebertError, RequestError, say
from litebert.inference import inputs
from litebert.inference.inputs import Texts
from litebert.inference.verb import TASK, Verb
from litebert.metrics import named_entities
from litebert.plugins import TASK_KINDS, VERBS
from litebert.runs import RunFolder
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.text import replace_surrogates

if TYPE_CHECKING:
    from litebert.device import Device
    from litebert.folder.weights import Stamps
    from litebert.nn import Network
    from litebert.tasks.kinds.spans import SpanAnswer

log = logging.getLogger("litebert")
# the longest text for `fill`, `tag`, `score` and `order`: their answers grow with the
# text
MAX_CHARACTERS = 1_000_000
# windows in memory at once; a context of 33,000 tokens has about this many
_WINDOWS_AT_ONCE = 256

Top = Annotated[int, Ge(1), "Answers to show."]
Context = Annotated[str, "The text that the question is about."]
Answering = Annotated[Texts, "The text that contains the answer."]
PoolingOption = Annotated[
    Pooling | None,
    "How tokens become one vector; by default the model's own pooling, or the mean.",
]
Normalize = Annotated[bool | None, "Scale vectors to length 1."]
MaxLength = Annotated[int | None, "Read at most this many pieces of a text."]
Prompt = Annotated[
    str | None,
    "Name of a prompt of the model, put before each text; '' for none.",
]
Dimensions = Annotated[int | None, "Keep only the first numbers of each vector."]
Progress: TypeAlias = Callable[[int], None]


class Model:
    """A network with its tokenizer; make one with `litebert.load`.

    `fill`, `score` and `order` need the pretraining heads, `classify`, `tag`, `choose`
    and `answer` the head of that task; `embed`, `similar` and `search` need none. One
    text gets one answer, a list of texts a list of answers.

    >>> model = Model.load()  # the packaged one
    >>> len(model.embed(["A cat.", "A kitten."]))
    2
    """

    def __init__(self, network: "Network", tokenizer: Tokenizer) -> None:
        from litebert.folder import SentenceVectors

        self.network = network.eval()
        self.tokenizer = tokenizer
        self.source = "this model"
        # how `embed` makes vectors, unless its caller chooses
        self.vectors = SentenceVectors()
        self.notes: tuple[str, ...] = ()  # what the model's files leave uncertain
        # called once, for a text in an unknown language
        self.remark: Callable[[str], object] | None = log.warning
        # stamps of the files of weights, which are read again only for gradients
        self._stamps: Stamps = {}
        self._missing = frozenset[str]()  # missing weights of the file

    def __repr__(self) -> str:
        return f"Model({self.source!r}, verbs: {', '.join(self.verbs)})"

    @classmethod
    def load(
        cls,
        path: str | PathLike[str] | None = None,
        *,
        device: str = "auto",
        precision: Precision | None = None,
        backend: Backend = "torch",
    ) -> "Model":
        """Load a model folder or a run, or a model from the Hub by its name; without a
        path, the packaged model.

        `device` is where it computes: "auto" is the GPU if there is one. `precision` is
        that of the activations: bf16 is several times faster if the CPU or GPU supports
        it, and within 1 % of fp32; by default it is bf16 on such a GPU, fp32 on a CPU.
        An eight-bit folder (`litebert quantize`) has its own on a CPU. `backend` is what
        computes on a CPU; "auto" uses OpenVINO where it is installed and faster. No code
        from the files is executed.
        """
        from litebert.fast import pack
        from litebert.folder.weights import stamp_weights
        from litebert.hub import locate, packaged_model

        folder = packaged_model() if path is None else locate(path)
        stamps = stamp_weights(folder)
        loaded = inputs.open_network(folder, precision, device)
        if backend != "torch":
            pack(loaded.network.albert, backend)
        model = cls(loaded.network, loaded.require_tokenizer())
        model.source = str(folder)
        model.notes = loaded.notes
        model.vectors = loaded.require_vectors() or model.vectors
        model._stamps = stamps
        model._missing = loaded.missing
        return model

    @property
    def device(self) -> "Device":
        """Where the network computes, and what that hardware can do."""
        from litebert.device import device_of

        return device_of(self.network)

    @property
    def precision(self) -> Precision:
        """The precision of the activations."""
        from litebert.device import DTYPES

        dtype = self.network.albert.dtype
        return next(name for name in get_args(Precision) if DTYPES[name] == dtype)

    # ---- pretrained models -------------------------------------------------------

    @overload
    def fill(self, text: str, *, top: Top = 5) -> Results[answers.Filling]: ...  # type: ignore[overload-overlap]
    @overload
    def fill(
        self, text: Iterable[str], *, top: Top = 5
    ) -> Results[Results[answers.Filling]]: ...
    def fill(
        self, text: Texts, *, top: Top = 5
    ) -> Results[answers.Filling] | Results[Results[answers.Filling]]:
        """Fill each [MASK] of a text; the best answers come first.

        Blanks are filled independently; the probability of a filling is the product
        over its blanks. In a long text only the part around the blanks is read. Like
        `score`, `tag` and `order` of one text, this takes at most a million characters.
        """
        from litebert.inference.filling import fill_texts

        network, texts = self.begin("fill", text, is_bounded=True)
        count = inputs.require_count(top, "top")
        fillings = fill_texts(network, self.tokenizer, texts, count)
        return fillings[0] if isinstance(text, str) else Results(fillings)

    @overload
    def score(self, text: str) -> answers.Score: ...  # type: ignore[overload-overlap]
    @overload
    def score(self, text: Iterable[str]) -> Results[answers.Score]: ...
    def score(self, text: Texts) -> answers.Score | Results[answers.Score]:
        """Return how likely a text and each of its words are: pseudo-log-likelihoods,
        in nats.

        Each piece is masked in turn (Salazar et al. 2020); in a long text, only the
        part around it is read.
        """
        from litebert.inference.scoring import score_texts

        network, texts = self.begin("score", text, is_bounded=True)
        scores = score_texts(network, self.tokenizer, texts)
        return scores[0] if isinstance(text, str) else Results(scores)

    @overload
    def order(self, first: str, second: str) -> answers.Order: ...
    @overload
    def order(self, first: str) -> answers.Coherence: ...
    def order(
        self, first: str, second: str | None = None
    ) -> answers.Order | answers.Coherence:
        """Say whether `first` comes before `second`; given one text, say where it
        breaks.

        Sentences longer than the model can read are cut at their end.
        """
        if second is not None:
            return self.order_pairs([first], [second])[0]
        # takes 40 ms, which other verbs need not pay
        from litebert.corpus.text import TextSettings, split_sentences

        _, (text,) = self.begin("order", [first], is_bounded=True)
        text = replace_surrogates(text)
        sentences = list(split_sentences(text, TextSettings()))
        if len(sentences) < 2:
            raise LitebertError(
                "LB-936",
                "sentence order needs two sentences",
                received=text,
                next='litebert order "He opened the door. Nobody was there."',
            )
        joins = []
        start = text.index(sentences[0])
        orders = self.order_pairs(sentences[:-1], sentences[1:])
        for (before, after), order in zip(pairwise(sentences), orders, strict=True):
            start = text.index(after, start + len(before))
            joins.append(answers.Join(before, after, start, order.probability))
        return answers.Coherence(tuple(joins))

    def order_pairs(
        self, firsts: Sequence[str], seconds: Sequence[str]
    ) -> list[answers.Order]:
        """Return for each pair whether its first text comes before the second in
        running text.
        """
        import torch

        network, texts = self.begin("order", [*firsts, *seconds])
        longest = network.config.max_position_embeddings
        ids = self.tokenizer.encode_ids(
            [self.tokenizer.beginning(text, longest) for text in texts]
        )
        first = ids[: len(firsts)]
        second = ids[len(firsts) :]
        in_order = [0.0] * len(firsts)  # the probability of each pair
        for rows, batch in inputs.frame_batches(network, self.tokenizer, first, second):
            with torch.inference_mode():
                pooled = network.albert.pool(network.albert(batch, batch.first_tokens))
                probabilities = network.sentence_order(pooled).float().softmax(-1)
            # label 0 is "in order"
            for row, value in zip(rows, probabilities[:, 0].tolist(), strict=True):
                in_order[row] = value
        return [answers.Order(value >= 0.5, value) for value in in_order]

    # ---- vectors -----------------------------------------------------------------

    @property
    def num_dimensions(self) -> int:
        """The length of the vectors that `embed` returns by default."""
        return self.vectors.length(self.network.config.hidden_size)

    def embed(
        self,
        texts: Texts,
        *,
        pooling: PoolingOption = None,
        normalize: Normalize = None,
        max_length: MaxLength = None,
        prompt: Prompt = None,
        dimensions: Dimensions = None,
    ) -> NDArray[np.float32]:
        """Return one vector for each text: the mean or maximum of its tokens, or [CLS].

        The shape is (texts, H), or (H,) for a single string. Texts longer than the
        model can read are cut at their end.

        In Python, `too_long` finds the texts that are cut, and `embed_batches` reads
        more texts than fit in memory.

        All options default to the sentence-transformers settings of the folder, or to
        the mean of all tokens, not normalized; `max_length` counts [CLS] and [SEP].
        Pretrained without a teacher, a model gives poor vectors.
        """
        network, listed = self.begin("embed", texts)
        vectors = inputs.chosen_vectors(
            self.vectors,
            network.config.hidden_size,
            pooling=pooling,
            max_length=max_length,
            prompt=prompt,
            dimensions=dimensions,
        )
        rows = inputs.embed_texts(
            network, self.tokenizer, listed, vectors, normalize=normalize
        )
        return rows[0] if isinstance(texts, str) else rows

    def embed_batches(
        self,
        texts: Iterable[str],
        *,
        batch_size: int = 1_024,
        pooling: PoolingOption = None,
        normalize: Normalize = None,
        max_length: MaxLength = None,
        prompt: Prompt = None,
        dimensions: Dimensions = None,
        progress: Progress | None = None,
    ) -> Iterator[NDArray[np.float32]]:
        """Yield vectors of `batch_size` texts at a time, of shape (batch_size, H); the
        stream of texts may be endless.

        `progress` is called with the number of texts after each batch.
        """
        checked = texts
        if not inputs.is_list(texts):
            checked = inputs.as_list(texts, "embed_batches")
        remaining = iter(checked)
        size = inputs.require_count(batch_size, "batch_size")
        while batch := list(islice(remaining, size)):
            yield self.embed(
                batch,
                pooling=pooling,
                normalize=normalize,
                max_length=max_length,
                prompt=prompt,
                dimensions=dimensions,
            )
            if progress is not None:
                progress(len(batch))

    def similar(self, first: Texts, second: Texts) -> float | NDArray[np.float32]:
        """Return the similarity of two texts, or of every pair from two lists, (first,
        second).

        It is the cosine, unless the model's folder names another similarity.
        """
        left = self.embed(self.begin("similar", first)[1])
        right = self.embed(self.begin("similar", second)[1])
        scores = inputs.compare(left, right, self.vectors.similarity)
        if isinstance(first, str) and isinstance(second, str):
            return float(scores[0, 0])
        return scores

    def index(
        self, texts: Iterable[str], *, progress: Progress | None = None
    ) -> "TextIndex":
        """Embed texts once, to search them many times; see `embed_batches` for
        `progress`.

        If the model has a prompt for documents, it is put before each text.
        """
        _, listed = self.begin("index", texts)
        prompt = self.vectors.prompt_for("document")
        batches = self.embed_batches(
            listed, batch_size=256, prompt=prompt, progress=progress
        )
        vectors = np.concatenate([self.embed([]), *batches])
        if self.vectors.similarity == "cosine":
            vectors = inputs.to_unit(vectors)
        return TextIndex(tuple(listed), vectors, self)

    def search(
        self, query: str, texts: Iterable[str], *, top: Top = 10
    ) -> Results[answers.Match]:
        """Return the texts nearest to a query, best first: by cosine similarity, unless
        the model's folder names another.
        """
        inputs.as_list([query], "search")  # before the work on the texts
        return self.index(texts).search(query, top=top)

    def too_long(self, texts: Texts, pairs: Texts | None = None) -> list[int]:
        """Return the indices of the texts, or pairs, that are longer than the model can
        read at once.

        `order`, `embed`, `classify` and `choose` cut these at the end. For a model
        without a task head, single texts have the limit of `embed`, which a folder of
        sentence-transformers may set lower, and its default prompt counts.
        """
        listed, seconds = inputs.as_pairs(texts, pairs, "too_long")
        columns = [listed] if seconds is None else [listed, seconds]
        longest = self.network.config.max_position_embeddings
        prompt = ""
        has_head = getattr(self.network, "head_config", None) is not None
        if seconds is None and not has_head:
            longest = min(longest, self.vectors.max_length or longest)
            prompt = self.vectors.prompt()
        # next to [CLS] and each [SEP]
        room = longest - 1 - len(columns)
        sizes = np.zeros(len(listed), dtype=np.int64)  # in pieces
        for column in columns:
            # one piece more than fits tells enough
            beginnings = list[str]()
            for text in column:
                beginnings.append(self.tokenizer.beginning(prompt + text, room + 1))
            sizes += [len(ids) for ids in self.tokenizer.encode_ids(beginnings)]
        too_long: list[int] = np.flatnonzero(sizes > room).tolist()
        return too_long

    # ---- fine-tuned models -------------------------------------------------------

    @overload
    def classify(  # type: ignore[overload-overlap]
        self, texts: str, pairs: str | None = None
    ) -> answers.Classification: ...
    @overload
    def classify(
        self, texts: Iterable[str], pairs: Iterable[str] | None = None
    ) -> Results[answers.Classification]: ...
    def classify(
        self, texts: Texts, pairs: Texts | None = None
    ) -> answers.Classification | Results[answers.Classification]:
        """Return the label of each text, or of each text with its pair; from
        regression, a score.

        What is longer than the model can read is read in overlapping windows; the
        answer is the mean of theirs. An empty pair counts as none.
        """
        from litebert.tasks.finetuning import answer
        from litebert.tasks.kinds.text import TextClassification, TextExample

        network, listed = self.begin("classify", texts)
        _, seconds = inputs.as_pairs(listed, pairs, "classify")
        head = network.head_config
        family: TextClassification = head.family(reads_windows=True)
        seconds = seconds or [""] * len(listed)
        if self.compares_texts and not all(map(str.strip, seconds)):
            raise RequestError(
                "LB-938",
                f"{self.source} classifies pairs: it compares two texts",
                received="a single text",
                expected="two texts",
                next='litebert classify "A text." --pair "Another one."'
                f" --model {quote(self.source)}",
            )
        rows = zip(listed, seconds, strict=True)
        examples = [TextExample("", first, second or None) for first, second in rows]
        classified = list[answers.Classification]()
        for scores in answer(network, self.tokenizer, family, examples):
            values = dict(zip(family.names, scores.values, strict=True))
            classified.append(answers.Classification(family.named(scores), values))
        return classified[0] if isinstance(texts, str) else Results(classified)

    @overload
    def tag(self, texts: str) -> answers.Tagging: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, texts: Iterable[str]) -> Results[answers.Tagging]: ...
    def tag(self, texts: Texts) -> answers.Tagging | Results[answers.Tagging]:
        """Return the tag of every word of each text, and the entities that the tags
        mark. A text is divided as the texts were that the model was trained on; Chinese
        or Thai words need spaces between unless it was trained on characters.
        """
        from litebert.tasks.finetuning import answer
        from litebert.tasks.kinds.splitting import divide, has_undivided
        from litebert.tasks.kinds.tagging import TagExample, TokenClassification

        network, listed = self.begin("tag", texts, is_bounded=True)
        splitting = network.head_config.splitting
        if any(has_undivided(text, splitting) for text in listed):
            say(
                "note: text without spaces is one word to this model, which was not"
                " trained on characters: put spaces between words"
            )
        spans = [divide(text, splitting) for text in listed]
        family = TokenClassification(network.head_config)
        examples = list[TagExample]()
        for text, places in zip(listed, spans, strict=True):
            words = tuple(text[start:end] for start, end in places)
            examples.append(TagExample("", words))
        tags_of_texts = answer(network, self.tokenizer, family, examples)
        labels = family.head.labels
        taggings = list[answers.Tagging]()
        for text, places, tags in zip(listed, spans, tags_of_texts, strict=True):
            names = [labels[label] for label in tags.best]
            taggings.append(_tagging(text, places, names, labels))
        return taggings[0] if isinstance(texts, str) else Results(taggings)

    def choose(
        self, question: str, choices: Iterable[str], context: Context = ""
    ) -> answers.Choice:
        """Return which of several choices answers a question about a context; a long
        context is cut at its end.
        """
        listed = inputs.as_list(choices, "choose")
        [choice] = self.choose_all([(question, listed, context)])
        return choice

    def choose_all(
        self, asked: Sequence[tuple[str, Sequence[str], str]]
    ) -> list[answers.Choice]:
        """Return which choice answers each question; an item of `asked` is (question,
        choices, context).
        """
        from litebert.tasks.finetuning import answer
        from litebert.tasks.kinds.choice import ChoiceExample, MultipleChoice

        texts = list[str]()
        examples = list[ChoiceExample]()
        num_choices = 1
        for question, choices, context in asked:
            texts += [question, context, *choices]
            examples.append(
                ChoiceExample("", str(context), str(question), tuple(choices))
            )
            num_choices = max(num_choices, len(choices))
        network, _ = self.begin("choose", texts)
        if not all(example.choices for example in examples):
            shown = VERBS["choose"].in_shell
            raise LitebertError(
                "LB-912",
                "a question has no choices",
                next=f"litebert {shown}; in a file, choice1, choice2 ...",
            )
        family = MultipleChoice(num_choices=num_choices)
        chosen = list[answers.Choice]()
        scores_of_examples = answer(network, self.tokenizer, family, examples)
        for example, scores in zip(examples, scores_of_examples, strict=True):
            best = example.choices[scores.best]
            chosen.append(answers.Choice(scores.best, best, scores.values))
        return chosen

    def answer(
        self, question: str, context: Answering, *, top: Top = 1
    ) -> Results[answers.SpanFound]:
        """Return the likeliest spans of a context, or of several, that answer a
        question.

        The best comes first. A SQuAD 2.0 model may find no answer: then an empty text
        comes first. `no_answer` of each span is the probability that there is none; a
        model that was trained on answered questions only does not give it. A context of
        any length is read in overlapping windows.
        """
        contexts = inputs.as_list(context, "answer")
        [spans] = self.answer_all([(question, contexts)], top=top)
        return spans

    def answer_all(
        self, asked: Sequence[tuple[str, Sequence[str]]], *, top: int = 1
    ) -> list[Results[answers.SpanFound]]:
        """Return the likeliest spans of all contexts of each question; an item of
        `asked` is (question, contexts).
        """
        from litebert.inference.ranking import rank_spans
        from litebert.tasks.finetuning import outputs_of
        from litebert.tasks.kinds.spans import SpanExample, answers_with_spans

        texts = list[str]()
        examples = list[SpanExample]()
        for question, contexts in asked:
            texts += [question, *contexts]
            for context in contexts:
                examples.append(SpanExample("", str(question), str(context)))
        network, _ = self.begin("answer", texts)
        count = inputs.require_count(top, "top")
        family = answers_with_spans(network.head_config)

        # the answers of each window, by example; their windows are read in groups
        by_window: list[list[SpanAnswer]] = [[] for _ in examples]
        longest = network.config.max_position_embeddings
        windows_of_all = family.windows(examples, self.tokenizer, max_length=longest)
        while group := list(islice(windows_of_all, _WINDOWS_AT_ONCE)):
            outputs = outputs_of(network, family.outputs, group)
            of_examples = family.answers(examples, group, outputs)
            for number in {window.example for window in group}:
                by_window[number].append(of_examples[number])

        # one answer for each context, question by question
        merged = iter([family.merge(windows) for windows in by_window])
        ranked = list[Results[answers.SpanFound]]()
        for _, contexts in asked:
            of_contexts = list(islice(merged, len(contexts)))
            ranked.append(rank_spans(family, of_contexts, count))
        return ranked

    def explain(
        self, verb: str, *texts: str, answer: str | None = None
    ) -> answers.Explanation:
        """Return how much each word of the texts adds to an answer of a verb.

        The verbs are classify and similar, and `texts` are what they take:
        `explain("similar", "a cat", "a kitten")`. `answer` defaults to the one that the
        model gives.
        """
        from litebert.folder.weights import require_unchanged
        from litebert.inference.explain import explain

        if self._stamps:
            require_unchanged(Path(self.source), self._stamps)
        return explain(self, verb, self.begin("explain", texts)[1], answer)

    # ---- checks before every verb ------------------------------------------------

    @cached_property
    def verbs(self) -> tuple[str, ...]:
        """The verbs that this model's weights support."""
        supported = list[str]()
        for name, verb in VERBS.items():
            if not verb.use_of and self._supports(verb):
                supported.append(name)
        return tuple(supported)

    def _supports(self, verb: Verb) -> bool:
        """Return whether this model's weights are those that a verb needs."""
        head = getattr(self.network, "head_config", None)
        if not verb.needs:
            return True
        if verb.needs == TASK:
            return head is not None and head.verb == verb.name
        heads = getattr(self.network, "heads", ())
        return verb.needs in heads and not self._missing_weights(verb)

    if not TYPE_CHECKING:  # a misspelt method stays an error of types

        def __getattr__(self, name):
            """Return the method of a verb that a plug-in has added."""
            if name.startswith("_") or name not in VERBS:
                message = f"a model has no method {name}"
                if "network" in self.__dict__:  # not while it is being copied
                    message += f"; this one has {', '.join(self.verbs)}"
                raise AttributeError(message)
            return partial(VERBS[name].ask, self)

    def begin(
        self, verb: str, texts: Texts, *, is_bounded: bool = False
    ) -> tuple[Any, list[str]]:
        """Return the network, if its head supports this verb, and the texts as a list;
        warn once of their language.
        """
        listed = inputs.as_list(texts, verb)
        if is_bounded:
            _require_bounded(verb, listed)
        # `index` and `explain` are none
        if verb in VERBS:
            self.require(VERBS[verb])
        if verb in ("score", "order") and not all(map(str.strip, listed)):
            raise LitebertError(
                "LB-945",
                f"the text for {verb} is blank",
                next="give a text, or leave it out",
            )
        self._remark_on_language(listed)
        return self.network, listed

    def _remark_on_language(self, texts: Sequence[str]) -> None:
        """Say once if a text is in a language that the vocabulary was not made for."""
        remark = self.remark  # another thread may set it to None
        if remark is None:
            return
        for text in texts[:3]:
            if self.tokenizer.reads_in_fragments(text[:300]):
                remark(
                    f"note: {text[:60]!r} is split into single letters or unknown"
                    " pieces: the vocabulary of this model was not made for its"
                    " language, or is very small, and answers for these texts are"
                    " unreliable"
                )
                self.remark = None
                return

    def _missing_weights(self, verb: Verb) -> list[str]:
        """Return the weights of a verb's pretraining head, or of the encoder, that the
        file lacks; only sentence order reads the pooler.
        """
        parts = (f"{verb.needs}.", "albert.")
        absent = [name for name in self._missing if name.startswith(parts)]
        if verb.needs != "sentence_order":
            absent = [name for name in absent if "pooler" not in name]
        return sorted(absent)

    @property
    def compares_texts(self) -> bool:
        """Whether it classifies pairs, so that every text needs its second one."""
        head = getattr(self.network, "head_config", None)
        if head is None or head.verb != "classify":
            return False
        return bool(head.compares_texts or head.family().reads_apart)

    def needed(self, verb: Verb) -> tuple[str, ...]:
        """Return the roles without which this model cannot answer a row."""
        if verb.name == "classify" and self.compares_texts:
            return (*verb.needed, "second")
        return verb.needed

    def require(self, verb: Verb) -> None:
        """Raise unless this model's weights are those that a verb needs."""
        if self._supports(verb):
            return
        if verb.needs == TASK:
            raise self._lacks_task_head(verb)
        raise self._lacks_pretraining_head(verb)

    def _lacks_task_head(self, verb: Verb) -> RequestError:
        """Return the error for a verb that needs another fine-tuning."""
        from litebert.hub import name_of_model

        received = "pretraining heads only"
        head = getattr(self.network, "head_config", None)
        if head is not None:
            received = f"a {head.kind} head"
        heads = dict[str, None]()  # those that answer this verb, each once
        for kind in TASK_KINDS.values():
            if kind.verb == verb.name:
                heads |= dict.fromkeys(kind.heads)
        return RequestError(
            "LB-615",
            f"{self.source} cannot {verb.name}: no fine-tuning has taught it that",
            received=received,
            expected=f"a fine-tuned model with a {' or '.join(heads)} head",
            next=f"litebert finetune FILE --model {quote(name_of_model(self.source))}",
        )

    def _lacks_pretraining_head(self, verb: Verb) -> RequestError:
        """Return the error for a verb that needs a head of pretraining, which is lost
        in fine-tuning and left out of many files.
        """
        from litebert.hub import name_of_model

        head = getattr(self.network, "head_config", None)
        if head is None:
            lacking = ", ".join(self._missing_weights(verb)[:3]) or verb.needs
            received = f"no {lacking}"
            source = quote(name_of_model(self.source))
            advice = f"litebert pretrain my-text.txt --from {source}"
        else:
            received = f"a {head.kind} head"
            advice = "use the model that it was fine-tuned from, which has this head"
            run = RunFolder.of(self.source)
            start = None if run is None else run.settings.get("model.start")
            if isinstance(start, str):
                name = quote(name_of_model(start))
                advice = f"use the model that it was fine-tuned from: --model {name}"
        return RequestError(
            "LB-612",
            f"{self.source} cannot {verb.name}: its file lacks weights for that",
            received=received,
            expected=f"the {verb.needs} head",
            next=advice,
        )


def _require_bounded(verb: str, texts: Sequence[str]) -> None:
    """Raise LB-935 if a text is too long for a verb whose answer grows with it."""
    longest = max(map(len, texts), default=0)
    if longest > MAX_CHARACTERS:
        raise LitebertError(
            "LB-935",
            f"this text is too long for {verb}: the answer grows with it",
            received=f"{longest:,} characters",
            expected=f"at most {MAX_CHARACTERS:,}",
            next="split the text into chapters, one per row of a file",
        )


@dataclass(frozen=True)
class TextIndex:
    """Texts with their vectors, and the model that made them; vectors that are compared
    by cosine have length 1.
    """

    texts: tuple[str, ...]
    vectors: NDArray[np.float32]
    model: Model

    def search(self, query: str, *, top: int = 10) -> Results[answers.Match]:
        """Return the nearest texts, best first."""
        if not self.texts:
            raise LitebertError(
                "LB-937",
                "there is nothing to search",
                next="give at least one text to search",
            )
        inputs.as_list([query], "search")
        vectors = self.model.vectors
        prompt = vectors.prompt_for("query")
        embedded = self.model.embed([query], prompt=prompt)
        scores = inputs.compare(embedded, self.vectors, vectors.similarity)[0]
        count = inputs.require_count(top, "top")
        matches = list[answers.Match]()
        for number in np.argsort(-scores, kind="stable")[:count].tolist():
            score = float(scores[number])
            matches.append(answers.Match(number, self.texts[number], score))
        return Results(matches)


class Embeddings:
    """An embedder for LangChain, LlamaIndex and other libraries that call these two
    methods.

    >>> len(Embeddings().embed_query("a cat"))
    384
    """

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        device: str = "auto",
        precision: Precision | None = None,
    ) -> None:
        self.model = Model.load(path, device=device, precision=precision)

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text; a prompt for documents is put before it."""
        prompt = self.model.vectors.prompt_for("document")
        vectors = self.model.embed(list(texts), prompt=prompt)
        as_lists: list[list[float]] = vectors.tolist()
        return as_lists

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query; a prompt for queries is put before it."""
        prompt = self.model.vectors.prompt_for("query")
        vector: list[float] = self.model.embed(text, prompt=prompt).tolist()
        return vector


def _tagging(
    text: str,
    places: Sequence[tuple[int, int]],
    tags: Sequence[str],
    labels: Sequence[str],
) -> answers.Tagging:
    """Return the words of a text with their tags, and the entities; `labels` are all
    tags that the model has.
    """
    words = list[answers.Tagged]()
    for (start, end), tag in zip(places, tags, strict=True):
        words.append(answers.Tagged(text[start:end], tag, start, end))
    entities = list[answers.Entity]()
    for label, first, stop in named_entities(tags, labels):
        start = words[first].start
        end = words[stop - 1].end
        entities.append(answers.Entity(text[start:end], label, start, end))
    return answers.Tagging(tuple(words), tuple(entities))
