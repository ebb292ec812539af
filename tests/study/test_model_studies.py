"""Studies of a model: its steps and where they lead, claims of cost, the page of all; what it knows untrained."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from litebert.cli import run
from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.inference import Model
from litebert.nn import Albert, Batch
from litebert.study import sizes_of
from litebert.study.findings import Layers, of_costs
from litebert.study.models import Claim, dominant_eigenvalue, fate_of, layers_of, measure_costs
from litebert.study.zero_shot import blimp, retrieval, sts

SHAPE = {"vocab_size": 60, "embedding_size": 8, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}


def network(**changes: object) -> Albert:
    config = AlbertConfig(**{**SHAPE, "num_hidden_layers": 3, "initializer_range": 0.3, **changes})
    return Albert(config, generator=torch.Generator().manual_seed(1)).eval()


@pytest.mark.parametrize(
    ("changes", "blocks", "repeated"),
    [
        ({"num_hidden_groups": 3}, [1, 1, 2, 2, 3, 3], "the last of its 3 blocks"),
        ({"sharing": "none"}, [1, 2, 3, 4, 5, 6], "its last step"),
        ({}, [1, 1, 1, 1, 1, 1], "its shared step"),
    ],
)
def test_steps_are_measured_by_input_and_output_and_the_last_block_is_applied_further(
    changes: dict[str, object], blocks: list[int], repeated: str
) -> None:
    albert, batch = network(num_hidden_layers=6, **changes), Batch.from_lists([[2, 7, 8, 9, 3], [2, 11, 12, 3]])
    counted = ~torch.isin(batch.ids, torch.tensor([2, 3]))
    found = layers_of(albert, batch, counted, source="x", depths=(16, 20))
    assert found.num_tokens == 5
    assert [step.step for step in (*found.steps, *found.beyond)] == list(range(1, 21))
    assert [step.block for step in found.steps] == blocks
    assert {step.block for step in found.beyond} == {blocks[-1]}
    assert f"applying {repeated} further" in found.summary
    with torch.no_grad():
        states, last = list(albert.states(batch)), albert.plan[-1]
        states.append(albert.feed_forward[last.feed_forward](albert.attention[last.attention](states[-1], batch)))
    states = [state[counted] for state in states]
    for step, before, after in zip((*found.steps, found.beyond[0]), states, states[1:], strict=False):
        assert step.l2 == pytest.approx(float((after - before).norm(dim=1).mean()), rel=1e-4)
        cosines = torch.nn.functional.cosine_similarity(before, after)
        assert step.angle == pytest.approx(float(cosines.arccos().rad2deg().mean()), rel=1e-4)


@pytest.mark.parametrize(
    ("turn", "residuals", "verdict", "period"),
    [
        (0.001, [0.1] * 32, "converges", 2),
        (torch.pi, [2.0] * 32, "oscillates", 2),
        (2 * torch.pi / 3, [1.7] * 32, "oscillates", 3),
        (0.35, [0.35] * 32, "wanders", 2),
        (0.1, [1.0] * 24 + [0.1] * 8, "closes in", 2),
    ],
)
def test_the_verdict_follows_the_criterion(turn: float, residuals: list[float], verdict: str, period: int) -> None:
    angles = [torch.tensor(turn * number) for number in range(17)]
    fate = fate_of(residuals, [torch.stack([angle.cos(), angle.sin()])[None] for angle in angles])
    assert (fate.verdict, fate.period, fate.depth) == (verdict, period, 32)


def test_the_dominant_eigenvalue_is_that_of_the_whole_jacobian() -> None:
    albert, batch = network(), Batch.from_lists([[2, 7, 3]])
    state = next(albert.states(batch)).detach()
    attend, transform = albert.attention[0], albert.feed_forward[0]
    jacobian = torch.autograd.functional.jacobian(
        lambda x: transform(attend(x.view(3, 16), batch)).flatten(), state.flatten()
    )
    largest = float(torch.linalg.eigvals(jacobian).abs().max())
    assert dominant_eigenvalue(albert, batch, state, power_steps=400) == pytest.approx(largest, rel=0.03)


def test_commands_print_what_they_write_and_the_page_has_it_all(
    small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text("the cat sat on the mat\n" * 6)

    def printed(*words: object) -> object:
        assert run(["study", *map(str, words)]) == 0
        return json.loads(capsys.readouterr().out)

    out = tmp_path / "out"
    given = [small_model, "--texts", tmp_path / "texts.txt", "--output", out, "--json"]
    layers = printed("layers", *given, "--limit", 3, "--depths", "16,21")
    assert layers == [json.loads((out / "layers-small.json").read_text())]
    assert [fate.depth for fate in Layers.model_validate(layers[0]).fates] == [16, 21]
    assert (out / "layers-3.svg").read_text().startswith("<?xml")
    shown = printed("page", out, "--html", tmp_path / "page.html", "--json")
    assert list(shown["findings"]) == ["layers"]
    text = (tmp_path / "page.html").read_text("utf-8")
    assert all(title in text for title in ("Figure 1", "no fixed point", "Residual beyond the trained depth"))
    assert not any(outside in text for outside in ('src="', 'href="http'))


def test_a_claim_is_measured_with_its_bytes_and_its_network_time() -> None:
    shape = AlbertConfig(**SHAPE, num_hidden_layers=2)
    unshared = shape.model_copy(update={"sharing": "none", "num_hidden_layers": 24})
    found = measure_costs([Claim("shared", shape, "unshared", unshared, 1.7)], tokens=16, seq_length=8, rounds=3)
    (result,) = found.claims
    assert sorted(result.training_speeds)[1] > 1
    sent = 4 * sizes_of(shape).total
    assert result.gradient_bytes == (sent, 4 * sizes_of(unshared).total)
    (own, other), (sends, other_sends) = result.training_seconds, (16 * size / 1e9 for size in result.gradient_bytes)
    assert result.speed_at(1) == pytest.approx((other + other_sends) / (own + sends))
    assert f"{sorted(result.training_speeds)[1]:.2f} times as fast" in of_costs(found).finding


# ---- zero-shot measures equal what a reader of their definition would compute ----------------------------------------

TEXTS = ["the cat sat", "the cat sat on the mat", "a dog ran after the cat", "red and blue"]


@pytest.fixture(scope="module")
def model(small_model: Path) -> Model:
    return Model.load(small_model)


def test_blimp_weighs_paradigms_alike(model: Model, tmp_path: Path) -> None:
    better, worse = sorted(TEXTS[:2], key=lambda text: model.score(text).log_likelihood, reverse=True)
    rows = [(better, worse, "a")] * 3 + [(worse, better, "b")]
    path = tmp_path / "blimp.jsonl"
    names = ("sentence_good", "sentence_bad", "UID", "field")
    path.write_text("\n".join(json.dumps(dict(zip(names, (*row, "syntax"), strict=True))) for row in rows))
    assert blimp(model, path)["blimp"] == 0.5
    assert blimp(model, path, limit=1)["blimp_syntax"] == 0.5


def test_sts_is_the_rank_correlation_of_cosines(model: Model, tmp_path: Path) -> None:
    vectors = model.embed(TEXTS)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    lines = [f"{TEXTS[a]}\t{TEXTS[b]}\t{vectors[a] @ vectors[b]}" for a, b in [(0, 1), (0, 2), (1, 3), (2, 3)]]
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(["sentence1\tsentence2\tscore", *lines]))
    assert sts(model, path)["sts_spearman"] == pytest.approx(1.0)
    path.write_text("sentence1\tsentence2\na\tb")
    with pytest.raises(LitebertError, match="LB-992"):
        sts(model, path)


def test_a_question_that_is_its_paragraph_is_found_first(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(json.dumps({"question": text, "context": text}) for text in TEXTS))
    found = retrieval(model, path)
    assert found["retrieval_mrr"] == found["retrieval_recall_at_1"] == 1.0
