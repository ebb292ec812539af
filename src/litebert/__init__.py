"""ALBERT from raw text to answers: tokenizer, corpus, pretraining, fine-tuning and inference.

>>> import litebert
>>> litebert.preset("base-v2").hidden_size
768

Nothing heavy is imported before it is used: `import litebert` loads no torch.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from litebert.errors import LitebertError as LitebertError

if TYPE_CHECKING:
    from litebert.api.estimators import LitebertClassifier as LitebertClassifier
    from litebert.api.estimators import LitebertVectorizer as LitebertVectorizer
    from litebert.api.evaluation import evaluate as evaluate
    from litebert.api.evaluation import glue as glue
    from litebert.api.evaluation import predict as predict
    from litebert.api.runs import Run as Run
    from litebert.api.training import distil as distil
    from litebert.api.training import finetune as finetune
    from litebert.api.training import pretrain as pretrain
    from litebert.config import AlbertConfig as AlbertConfig
    from litebert.config import Backend, Precision
    from litebert.config import HeadConfig as HeadConfig
    from litebert.config import preset as preset
    from litebert.inference.model import Embeddings as Embeddings
    from litebert.inference.model import Model as Model
    from litebert.interop.in_transformers import optimize as optimize
    from litebert.nn import Albert as Albert
    from litebert.nn import AlbertForPretraining as AlbertForPretraining
    from litebert.nn import AlbertForTask as AlbertForTask
    from litebert.nn import Batch as Batch
    from litebert.optim import AdamW as AdamW
    from litebert.optim import Lamb as Lamb
    from litebert.tokenizer import Tokenizer as Tokenizer

__version__ = "0.2.0"

_NAMES = {
    "api.estimators": "LitebertClassifier LitebertVectorizer",
    "api.evaluation": "evaluate glue predict",
    "api.runs": "Run",
    "api.training": "distil finetune pretrain",
    "config": "AlbertConfig HeadConfig preset",
    "inference": "Model",
    "inference.model": "Embeddings",
    "interop.in_transformers": "optimize",
    "nn": "Albert AlbertForPretraining AlbertForTask Batch",
    "optim": "AdamW Lamb",
    "tokenizer": "Tokenizer",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = ["LitebertError", "load", *_HOMES]


def load(
    path: str | Path | None = None,
    *,
    precision: "Precision" = "fp32",
    depth: int | None = None,
    backend: "Backend" = "torch",
) -> "Model":
    """Load a model with the verbs its heads allow; `Model.verbs` names them.

    `path` is a model folder, a run or a name on the Hub; without it, the model that comes with the
    package answers. `precision="bf16"` is several times faster where the machine has it; `depth`
    is the number of steps applied, for a model trained with `train.exits`. `backend="auto"`
    computes short texts that are alone with onnxruntime where it is installed and faster.

    >>> model = load()
    >>> len(model.fill("It was a [MASK] day.", top=3))
    3
    """
    from litebert.inference import Model

    return Model.load(path, precision=precision, depth=depth, backend=backend)


def __getattr__(name: str) -> object:
    """Import a public name, or one of our packages, when it is first used."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"litebert.{_HOMES[name]}"), name)
    if name in _NAMES:
        return importlib.import_module(f"litebert.{name}")
    raise AttributeError(f"module 'litebert' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # for completion in a notebook
