"""Compiled steps (train.compile) compute what the others compute, in few graphs."""

import json
import subprocess
import sys

import pytest

# In a process of its own: the checks of shapes that tests add are not compiled.
PROGRAM = """
import json, sys
import torch
from torch._dynamo.utils import counters
from litebert.config import AlbertConfig
from litebert.fast import accelerate, compile_steps, steps
from litebert.nn import AlbertForPretraining, Batch

if sys.argv[1] != "inductor":
    steps.compiled_finish = lambda: torch.compile(
        steps.finish_step, fullgraph=True, dynamic=True, backend=sys.argv[1])
config = AlbertConfig(
    vocab_size=50, embedding_size=16, hidden_size=32, num_hidden_layers=3,
    num_attention_heads=2, intermediate_size=64,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)

def gradients(is_compiled, lengths):
    network = AlbertForPretraining(
        config, generator=torch.Generator().manual_seed(1)).train()
    accelerate(network.albert)
    if is_compiled:
        compile_steps(network.albert)
    batch = Batch.from_lists([[number % 50 for number in range(n)] for n in lengths])
    hidden = network.albert(batch)
    hidden.square().mean().backward()
    return [hidden.detach()] + [
        p.grad for p in network.albert.parameters() if p.grad is not None]

apart = 0.0
for lengths in ((19, 7, 7), (16, 16, 16), (40, 3), (25, 25, 25, 9), (60, 60)):
    pairs = zip(gradients(False, lengths), gradients(True, lengths), strict=True)
    apart = max([apart] + [float((x - y).abs().max()) for x, y in pairs])
print(json.dumps({"apart": apart, "graphs": counters["stats"]["unique_graphs"]}))
"""


@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
def test_compiled_steps_give_the_same_gradients_for_any_lengths(backend: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, backend],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["apart"] < 1e-5
    # the first step's input needs no gradient of its own; no graph for new lengths
    assert result["graphs"] <= 3
