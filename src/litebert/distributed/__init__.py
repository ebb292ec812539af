"""Several processes that train one network: discovered from the environment, and connected."""

from litebert.distributed.joining import joined, local_rank, rank, world_size
from litebert.distributed.world import ALONE, World

__all__ = ["ALONE", "World", "joined", "local_rank", "rank", "world_size"]
