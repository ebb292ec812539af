"""Connect several processes that train one network, as described by the environment."""

from litebert.distributed.joining import joined, local_rank, rank, world_size
from litebert.distributed.world import ALONE, World

__all__ = ["ALONE", "World", "joined", "local_rank", "rank", "world_size"]
