"""Several processes that train one network: found from the environment, told of each other."""

from litebert.distributed.environment import local_rank, rank, world_size
from litebert.distributed.joining import joined
from litebert.distributed.world import ALONE, World

__all__ = ["ALONE", "World", "joined", "local_rank", "rank", "world_size"]
