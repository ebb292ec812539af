"""Pretrain, fine-tune and serve ALBERT models in PyTorch.

>>> import litebert
>>> litebert.preset("base-v2").hidden_size
768

Heavy modules are imported on first use: `import litebert` does not load torch.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from litebert import cpu
from litebert.errors import LitebertError
from litebert.privacy import turn_off_telemetry

if TYPE_CHECKING:
    from litebert.api.estimators import LitebertClassifier, LitebertVectorizer
    from litebert.api.evaluation import evaluate
    from litebert.api.glue import glue
    from litebert.api.predictions import predict
    from litebert.api.runs import Run
    from litebert.api.training import distil, finetune, pretrain
    from litebert.config import AlbertConfig, Backend, HeadConfig, Precision, preset
    from litebert.inference.model import Embeddings, Model
    from litebert.interop.huggingface import optimize
    from litebert.nn import Albert, AlbertForPretraining, AlbertForTask, Batch
    from litebert.optim import AdamW, Lamb
    from litebert.tokenizer import Tokenizer

# The one thing that happens on import: it is best done before torch is loaded.
cpu.share_processors()

__version__ = "0.3.0"
__all__ = [
    "AdamW",
    "Albert",
    "AlbertConfig",
    "AlbertForPretraining",
    "AlbertForTask",
    "Batch",
    "Embeddings",
    "HeadConfig",
    "Lamb",
    "LitebertClassifier",
    "LitebertError",
    "LitebertVectorizer",
    "Model",
    "Run",
    "Tokenizer",
    "distil",
    "evaluate",
    "finetune",
    "glue",
    "load",
    "optimize",
    "predict",
    "preset",
    "pretrain",
]

_NAMES = {  # public names, by the module that they are imported from on first use
    "api.estimators": "LitebertClassifier LitebertVectorizer",
    "api.evaluation": "evaluate",
    "api.glue": "glue",
    "api.predictions": "predict",
    "api.runs": "Run",
    "api.training": "distil finetune pretrain",
    "config": "AlbertConfig HeadConfig preset",
    "inference.model": "Embeddings Model",
    "interop.huggingface": "optimize",
    "nn": "Albert AlbertForPretraining AlbertForTask Batch",
    "optim": "AdamW Lamb",
    "tokenizer": "Tokenizer",
}
_HOMES = dict[str, str]()  # the module of each name
for _module, _names in _NAMES.items():
    _HOMES.update(dict.fromkeys(_names.split(), _module))

turn_off_telemetry()  # before anything can import the packages that would send it


def load(
    path: str | Path | None = None,
    *,
    device: str = "auto",
    precision: "Precision | None" = None,
    backend: "Backend" = "torch",
) -> "Model":
    """Load a model; `Model.verbs` lists the verbs that its heads support.

    `path` is a model folder, a run or a name on the Hub; without it, the model that
    comes with the package is loaded. `device` is where it computes: "auto" is the GPU
    if there is one. `precision="bf16"` is several times faster where the hardware
    supports it, and the default on a GPU that does. On a CPU, `backend="auto"`
    computes with OpenVINO wherever it is installed and faster.

    >>> model = load()
    >>> len(model.fill("It was a [MASK] day.", top=3))
    3
    """
    from litebert.inference.model import Model

    return Model.load(path, device=device, precision=precision, backend=backend)


def __getattr__(name: str) -> object:
    """Import a public name, or one of our packages, on first use."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"litebert.{_HOMES[name]}"), name)
    if name in _NAMES:
        return importlib.import_module(f"litebert.{name}")
    raise AttributeError(f"module 'litebert' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # for completion in notebooks
