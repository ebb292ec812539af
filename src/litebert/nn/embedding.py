"""Factorised embeddings: words, positions and segments of width E, then one projection to H."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig
from litebert.nn.batch import Batch


class Embedding(nn.Module):
    """Sum three tables, normalise and drop out at width E, then project (modeling.py L196)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.config, size = config, config.embedding_size
        self.word = nn.Embedding(config.vocab_size, size)
        self.position = nn.Embedding(config.max_position_embeddings, size)
        self.segment = nn.Embedding(config.type_vocab_size, size)
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.projection: nn.Module = (
            nn.Linear(size, config.hidden_size) if config.projects_embeddings else nn.Identity()
        )
        self.dropout_prob = config.hidden_dropout_prob

    def forward(self, batch: Batch) -> Float[Tensor, "tokens hidden"]:
        """Embed every token; a sequence longer than the position table is refused."""
        self.config.require_room(max(batch.lengths))
        total = self.word(batch.ids) + self.position(batch.positions) + self.segment(batch.segments)
        dropped = F.dropout(self.norm(total), self.dropout_prob, self.training)
        projected: Tensor = self.projection(dropped)
        return projected
