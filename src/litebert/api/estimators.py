"""Estimators for scikit-learn: texts to vectors, and texts to labels by fine-tuning."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from litebert.api.settings import Overrides, overrides
from litebert.api.training import finetune
from litebert.config import Pooling, Precision
from litebert.errors import LitebertError
from litebert.files import write_stream
from litebert.inference.inputs import as_list
from litebert.inference.model import Model

Labels: TypeAlias = NDArray[np.generic]


class _TakesTexts(BaseEstimator):  # type: ignore[misc]
    """The base of both estimators: the input is a list of strings, not a table of
    numbers.
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.no_validation = True
        # vectors need no training
        tags.requires_fit = isinstance(self, ClassifierMixin)
        return tags

    def __setattr__(self, name: str, value: object) -> None:
        """Set a parameter, and drop the loaded network, which may not match the new
        parameters.
        """
        self.__dict__.pop("_model", None)
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, object]:
        """Leave the loaded network out of pickles: other processes load it again."""
        state: dict[str, object] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_model"}


@dataclass(eq=False, repr=False)
class LitebertVectorizer(TransformerMixin, _TakesTexts):  # type: ignore[misc]
    """Turns texts into vectors, as a step of a scikit-learn pipeline; there is nothing
    to fit.

    `model` is a folder, a run or a name on the Hub; None is the packaged model.

    >>> LitebertVectorizer().fit_transform(["a cat", "a dog"]).shape[0]
    2
    """

    model: str | Path | None = None
    _: KW_ONLY
    pooling: Pooling | None = None
    normalize: bool | None = None
    device: str = "auto"
    precision: Precision | None = None

    def fit(self, X: Sequence[str], y: object = None) -> Self:  # noqa: ARG002, N803
        """Check the texts; no parameter depends on them."""
        as_list(X, "fit")
        return self

    def transform(self, X: Sequence[str]) -> NDArray[np.float32]:  # noqa: N803
        """Return the vectors of texts, one row per text."""
        return self._model.embed(
            as_list(X, "transform"), pooling=self.pooling, normalize=self.normalize
        )

    def get_feature_names_out(self, input_features: object = None) -> Labels:  # noqa: ARG002
        """Return the names of the columns."""
        size = self._model.num_dimensions
        return np.array([f"litebert{number}" for number in range(size)], dtype=object)

    @cached_property
    def _model(self) -> Model:
        return Model.load(self.model, device=self.device, precision=self.precision)


@dataclass(eq=False, repr=False)
class LitebertClassifier(ClassifierMixin, _TakesTexts):  # type: ignore[misc]
    """Predicts labels of texts: `fit` fine-tunes a model, `predict` uses it.

    `model` is the model to start from; None is the packaged model. `settings` are those
    of `litebert.finetune`, such as {"optim.learning_rate": 1e-4}. A fitted classifier
    contains its model, so it can be pickled and copied.
    """

    model: str | Path | None = None
    _: KW_ONLY
    epochs: float | None = None
    seed: int = 12_345
    settings: Overrides | None = None
    device: str = "auto"
    precision: Precision | None = None

    def fit(self, X: Sequence[str], y: Sequence[object]) -> Self:  # noqa: N803
        """Fine-tune on texts with one label each; there must be at least two
        classes.
        """
        texts = as_list(X, "fit")
        labels = column_or_1d(y)
        check_classification_targets(labels)
        # classes may be of any type: the model learns their numbers
        classes, numbers = np.unique(labels, return_inverse=True)
        if len(texts) != len(numbers) or len(classes) < 2:
            raise LitebertError(
                "LB-876",
                "a classifier needs a label for each text, and two classes or more",
                received=(
                    f"{len(texts)} texts, {len(numbers)} labels, {len(classes)} classes"
                ),
                next="check X and y",
            )
        with TemporaryDirectory() as scratch:
            examples = Path(scratch) / "examples.jsonl"
            write_stream(examples, _lines(texts, numbers.tolist()))
            seed = overrides({"train.seed": self.seed})
            run = finetune(
                examples,
                model=self.model,
                columns=["text=text", "label=label"],
                problem="classification",
                epochs=self.epochs,
                runs=scratch,
                settings=seed | overrides(self.settings or {}),
                quiet=True,
            )
            # a signal stopped the training, and nothing is left to resume
            if run.exit_code:
                raise KeyboardInterrupt
            files = _read_files(run.folder / "model")
        # set at the end, so that a fit that fails leaves the classifier as it was
        self.classes_ = classes
        self.files_ = files
        return self

    def predict_proba(self, X: Sequence[str]) -> NDArray[np.float64]:  # noqa: N803
        """Return the probability of each class: one row per text, with columns in the
        order of `classes_`.
        """
        check_is_fitted(self)
        names = [str(number) for number in range(len(self.classes_))]
        answers = self._model.classify(as_list(X, "predict"))
        rows = np.zeros((len(answers), len(names)))
        for row, answer in zip(rows, answers, strict=True):
            row[:] = [answer.values[name] for name in names]
        return rows

    def predict(self, X: Sequence[str]) -> Labels:  # noqa: N803
        """Return the likeliest class of each text."""
        numbers = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[numbers])

    @cached_property
    def _model(self) -> Model:
        """Load the fitted model from a temporary copy of its files; memory-mapped
        weights outlive their deletion.
        """
        with TemporaryDirectory() as scratch:
            for name, data in self.files_.items():
                write_stream(Path(scratch) / name, [data])
            return Model.load(scratch, device=self.device, precision=self.precision)


def _lines(texts: Sequence[str], labels: Sequence[int]) -> Iterator[bytes]:
    """Yield a table of examples as lines of JSON."""
    for text, label in zip(texts, labels, strict=True):
        yield f"{json.dumps({'text': text, 'label': label})}\n".encode()


def _read_files(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files below a folder, by their path in it."""
    contents = dict[str, bytes]()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            contents[str(path.relative_to(folder))] = path.read_bytes()
    return contents
