"""What the routes say beyond the contract: the inside of a model, and to OpenAI's own client."""

from pathlib import Path

import openai
import pytest
import torch

import litebert
from litebert.nn import Batch
from litebert.serve import Options
from litebert.serve.app import ROUTES, Answer
from litebert.serve.batching import attention, load

TEXTS = ["Anna found a red ball.", "At night the river was quiet again.", "No"]
LONG = {"text": "Anna walked home. " * 30}


def test_steps_and_attention_show_a_number_for_each_token(server) -> None:
    steps = server.ask("/v1/steps", LONG)
    Answer[ROUTES["steps"].result].model_validate(steps.json)
    found = steps.json["result"]
    assert len(found["pieces"]) == len(found["by_token"]) == 64
    means = [sum(column) / 64 for column in zip(*found["by_token"], strict=True)]
    assert means == pytest.approx(found["l2"], rel=1e-4)
    assert all(-1 <= cosine <= 1 for cosine in found["cosine"])
    first, second = (server.ask("/v1/attention", {**LONG, "step": step}).json["result"] for step in (1, 2))
    assert len(first["pieces"]) == len(first["heads"][0]) == 64
    assert all(sum(row) == pytest.approx(1, abs=0.004) for head in first["heads"] for row in head)
    assert first["heads"] != second["heads"]


def test_attention_mixes_values_as_the_network_does(folders: dict[str, Path]) -> None:
    model = litebert.load(folders["base"])
    found = attention(model, "Anna walked home.", step=2)
    batch = Batch.from_lists([model.tokenizer.encode("Anna walked home.", frame=True).ids])
    before, after = list(model.network.albert.states(batch))[1:]
    block, feed_forward = model.network.albert.attention[0], model.network.albert.feed_forward[0]
    value = torch.unflatten(block.value(before), -1, block.heads)
    mixed = torch.einsum("hqk,khd->qhd", torch.tensor(found["heads"]), value).flatten(-2)
    expected = feed_forward(block.norm(before + block.output(mixed)))
    torch.testing.assert_close(expected, after, atol=2e-3, rtol=0)


def test_openai_clients_work_unchanged(server, folders: dict[str, Path]) -> None:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none") as client:
        assert [model.id for model in client.models.list()] == list(folders)
        packed = client.embeddings.create(model="base", input=TEXTS * 100)
        plain = client.embeddings.create(model="base", input=TEXTS[0], encoding_format="float")
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="nobody", input="a")
    assert [each.index for each in packed.data] == list(range(300))
    assert packed.usage.prompt_tokens == packed.usage.total_tokens > 600
    assert packed.data[297].embedding == pytest.approx(plain.data[0].embedding, abs=1e-6)
    ours = server.ask("/v1/embed", {"texts": TEXTS}).json["result"][0]
    length = sum(x * x for x in ours) ** 0.5
    assert plain.data[0].embedding == pytest.approx([x / length for x in ours], abs=1e-6)


def test_a_model_in_bf16_says_how_far_it_is_from_fp32(folders: dict[str, Path]) -> None:
    assert load(str(folders["base"]), Options())[1]["notes"] == []
    (note,) = load(str(folders["base"]), Options(precision="bf16"))[1]["notes"]
    assert 0 < float(note.rpartition(" ")[2].removesuffix("%")) < 3
