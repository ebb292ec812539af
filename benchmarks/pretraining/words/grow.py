"""Grow the packaged network to 16 MB without changing what it computes: `python -m
benchmarks.pretraining.words.grow MODEL OUT --neurons 1856`.

Every layer gets a block of its own, a copy of the one that it shared, and every
feed-forward block gets new neurons, whose output weights are zero.
"""

from dataclasses import replace
from pathlib import Path

import torch

from litebert.cli.command import command_of
from litebert.folder import read_folder, write_folder
from litebert.nn import AlbertForPretraining, Batch

SEED = 57


@torch.no_grad()
def grown(source: AlbertForPretraining, neurons: int) -> AlbertForPretraining:
    """Return a network with a block for each layer and `neurons` in each."""
    changes = {
        "num_hidden_groups": source.config.num_hidden_layers,
        "intermediate_size": neurons,
    }
    network = AlbertForPretraining(
        source.config.model_copy(update=changes),
        generator=torch.Generator().manual_seed(SEED),
    )
    blocks = ("albert.attention.", "albert.feed_forward.")
    shared = {
        name: weight
        for name, weight in source.state_dict().items()
        if not name.startswith(blocks)
    }
    network.load_state_dict(shared, strict=False)
    former = source.config.intermediate_size
    plans = zip(network.albert.plan, source.albert.plan, strict=True)
    for step, source_step in plans:
        attention = source.albert.attention[source_step.attention]
        network.albert.attention[step.attention].load_state_dict(attention.state_dict())
        block = network.albert.feed_forward[step.feed_forward]
        begun = source.albert.feed_forward[source_step.feed_forward].state_dict()
        for name, weight in block.state_dict().items():
            if name.startswith("intermediate."):  # (neurons, hidden) or (neurons,)
                weight[:former] = begun[name]
            elif name == "output.weight":  # (hidden, neurons)
                weight[:, :former] = begun[name]
                weight[:, former:] = 0
            else:
                weight.copy_(begun[name])
    return network


def main(model: Path, out: Path, *, neurons: int = 1_856) -> None:
    source = read_folder(model, dtype=torch.float32)
    assert isinstance(source.network, AlbertForPretraining)
    network = grown(source.network, neurons)
    batch = Batch.from_lists([[2, *range(100, 140), 3]])
    with torch.no_grad():
        states = [each.eval().albert(batch) for each in (source.network, network)]
    torch.testing.assert_close(states[1], states[0], atol=1e-4, rtol=1e-4)
    write_folder(replace(source, network=network), out)
    print(f"{out}: {sum(p.numel() for p in network.parameters()):,} parameters")


if __name__ == "__main__":
    command_of(main, "grow")()
