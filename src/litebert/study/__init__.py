"""Studies of the architecture itself: what it weighs and what it costs."""

from litebert.study.sizes import Sizes, sizes_of

__all__ = ["Sizes", "sizes_of"]
