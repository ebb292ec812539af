"""The choices that are made when a trained model is loaded."""

from typing import Annotated, Literal

Pooling = Literal["mean", "cls", "max"]
"""How the states of a text's tokens become its vector."""

Precision = Literal["fp32", "bf16", "fp16"]
"""The numbers of the activations."""
InferencePrecision = Annotated[
    Literal["fp32", "bf16"] | None,
    "bf16 is several times faster where supported, within 1 %; by default bf16 on a GPU"
    " that has it, otherwise fp32.",
]
DeviceName = Annotated[str, "auto (the GPU if there is one), cpu, cuda, cuda:N or mps."]

Backend = Literal["torch", "openvino", "auto"]
"""What computes the encoder on a CPU; auto is openvino wherever it is installed and
faster.
"""
