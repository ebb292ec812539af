"""Studies of the architecture: its parameters and costs, and the paper's experiments repeated."""

from litebert.study.sizes import Sizes, sizes_of

__all__ = ["Sizes", "sizes_of"]
