"""The programs that compute the encoder: one class each, and the registry
(docs/extending/rival.md).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.steps import DTYPES
from benchmarks.texts import Texts

Call: TypeAlias = Callable[[], Any]


class Rival(ABC):
    """A program at one of its `precisions`, loaded from what `exports` wrote to
    `root`.
    """

    precisions: ClassVar[tuple[str, ...]] = ("fp32", "bf16")
    is_padded: ClassVar[bool] = True
    """Whether outputs are rectangles, padding included, or the real tokens end to end.
    """

    def __init__(self, root: Path, precision: str) -> None:
        self.root = root
        self.precision = precision

    @abstractmethod
    def ready(self, texts: Texts) -> Call:
        """Prepare the inputs, which is not timed, and return the call that computes the
        states.
        """

    def states(self, output: Any, texts: Texts) -> NDArray[np.float32]:
        """Return the states of the real tokens, end to end, by which all can be
        compared.
        """
        states = output.float().numpy() if isinstance(output, torch.Tensor) else output
        return states[texts.mask] if self.is_padded else states

    def encoder(self, precision: str) -> torch.nn.Module:
        """Load `AlbertModel` or `BertModel` as its users do, with torch's fused
        attention.
        """
        from transformers import AutoModel

        folder = self.root / "model"
        dtype = DTYPES[precision]
        return AutoModel.from_pretrained(
            folder, attn_implementation="sdpa", dtype=dtype
        ).eval()


def tensors(texts: Texts) -> dict[str, torch.Tensor]:
    """Return the rectangle under the names that transformers gives its inputs."""
    return {name: torch.from_numpy(values) for name, values in texts.padded().items()}


class Transformers(Rival):
    def __init__(self, root: Path, precision: str) -> None:
        super().__init__(root, precision)
        self.model = self.encoder(precision)

    def ready(self, texts: Texts) -> Call:
        inputs = tensors(texts)
        model = self.model
        return lambda: model(**inputs).last_hidden_state


class Compiled(Transformers):
    """The same with each layer compiled: as fast as compiling everything, in a tenth of
    the time.

    Weights are frozen, which lets the compiler pack them; rectangles are compiled for
    their shape, real texts once for all lengths.
    """

    def __init__(self, root: Path, precision: str) -> None:
        Rival.__init__(self, root, precision)
        import torch._dynamo
        import torch._inductor.config

        torch._inductor.config.freezing = True
        torch._dynamo.config.recompile_limit = 64
        self.variants = {}
        for is_dynamic in (False, True):
            model = self.encoder(precision)
            for layer in self.layers(model):
                layer.compile(dynamic=is_dynamic)
            self.variants[is_dynamic] = model

    @staticmethod
    def layers(model: Any) -> Iterable[torch.nn.Module]:
        """Return those of a BERT, or the one that an ALBERT applies many times."""
        if hasattr(model.encoder, "layer"):
            return model.encoder.layer
        return model.encoder.albert_layer_groups[0].albert_layers

    def ready(self, texts: Texts) -> Call:
        has_several_lengths = len(set(texts.lengths)) > 1
        self.model = self.variants[has_several_lengths]
        return super().ready(texts)


class SentenceTransformers(Rival):
    """The same through sentence-transformers, on token ids, with its mean pooling."""

    def __init__(self, root: Path, precision: str) -> None:
        super().__init__(root, precision)
        from sentence_transformers import SentenceTransformer, models

        words = models.Transformer(
            str(root / "model"),
            model_kwargs={"dtype": DTYPES[precision]},
            max_seq_length=512,
        )
        pooling = models.Pooling(words.get_embedding_dimension())
        self.model = SentenceTransformer(modules=[words, pooling], device="cpu").eval()

    def ready(self, texts: Texts) -> Call:
        inputs = tensors(texts)
        return lambda: self.model(dict(inputs))["token_embeddings"]


class OnnxRuntime(Rival):
    """A session with as many threads as torch has, which do not spin while others
    work.
    """

    precisions = ("fp32", "int8")

    def __init__(self, root: Path, precision: str) -> None:
        super().__init__(root, precision)
        from onnxruntime import InferenceSession, SessionOptions

        options = SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self.session = InferenceSession(root / f"{precision}.onnx", options)

    def ready(self, texts: Texts) -> Call:
        inputs = texts.padded()
        return lambda: self.session.run(["last_hidden_state"], inputs)[0]


class OpenVino(Rival):
    """One stream; what NNCF left in float is computed in bf16, which measured
    fastest.
    """

    precisions = ("fp32", "bf16", "int8")

    def __init__(self, root: Path, precision: str) -> None:
        super().__init__(root, precision)
        from openvino import Core

        computed_in = "f32" if precision == "fp32" else "bf16"
        settings = {
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": computed_in,
        }
        file = "int8.xml" if precision == "int8" else "fp32.xml"
        self.model = Core().compile_model(root / file, "CPU", settings)
        if precision == "int8":
            self.require_int8()

    def require_int8(self) -> None:
        """Check that the runtime computes most products in eight bits."""
        precisions = list[str]()  # of the products
        for node in self.model.get_runtime_model().get_ops():
            facts = node.get_rt_info()
            if facts["layerType"].astype(str) in ("FullyConnected", "MatMul"):
                precisions.append(str(facts["runtimePrecision"].astype(str)))
        num_int8 = precisions.count("u8") + precisions.count("i8")
        assert num_int8 > len(precisions) // 2, f"OpenVINO computes {precisions}"
        print(f"openvino int8: {num_int8} of {len(precisions)} products")

    def ready(self, texts: Texts) -> Call:
        inputs = list(texts.padded().values())
        # which belongs to one caller at a time
        request = self.model.create_infer_request()
        return lambda: request.infer(inputs, share_inputs=True, share_outputs=True)[0]


class Litebert(Rival):
    """The encoder of a folder, loaded as `litebert.load(backend="auto")` does, on
    batches without padding.
    """

    precisions = ("fp32", "bf16", "int8")
    is_padded = False

    def __init__(self, root: Path, precision: str) -> None:
        super().__init__(root, precision)
        from litebert.fast import pack
        from litebert.folder import read_folder

        folder = "int8" if precision == "int8" else "model"
        dtype = DTYPES.get(precision, torch.float32)
        model = read_folder(root / folder, dtype=dtype, for_inference=True)
        self.albert = model.network.albert
        pack(self.albert, "auto")

    def ready(self, texts: Texts) -> Call:
        from litebert.nn import Batch

        batch = Batch.from_lists(texts.ids, texts.segments)
        return lambda: self.albert(batch)


class Optimized(Transformers):
    """transformers' model after `litebert.optimize`: same inputs, same padded
    outputs.
    """

    def __init__(self, root: Path, precision: str) -> None:
        from litebert import optimize

        Rival.__init__(self, root, precision)
        self.model = optimize(self.encoder("fp32"), precision=precision)


RIVALS: dict[str, type[Rival]] = {
    "transformers": Transformers,
    "sentence-transformers": SentenceTransformers,
    "torch.compile": Compiled,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "litebert": Litebert,
    "litebert.optimize": Optimized,
}


def names() -> tuple[str, ...]:
    """Return every rival at every precision, `litebert fp32` for instance."""
    combinations = list[str]()
    for precision in ("fp32", "bf16", "int8"):
        for name, rival in RIVALS.items():
            if precision in rival.precisions:
                combinations.append(f"{name} {precision}")
    return tuple(combinations)


def load(name: str, root: Path) -> Rival:
    program, precision = name.rsplit(" ", 1)
    return RIVALS[program](root, precision)
