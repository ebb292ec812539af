"""What each step changes, where the iterates go, and the dominant eigenvalue of a step."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import litebert
from litebert.cli import cli
from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.folder import save_model
from litebert.nn import Albert, AlbertForPretraining, Batch
from litebert.study.layers import Layers, _fate, dominant_eigenvalue, layers_of, measure_layers
from litebert.tokenizer import Tokenizer


def _network(**changes: object) -> Albert:
    shape = {
        "vocab_size": 60,
        "embedding_size": 8,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "num_hidden_layers": 3,
        "initializer_range": 0.3,
    }
    config = AlbertConfig(**(shape | changes))
    return Albert(config, generator=torch.Generator().manual_seed(1)).eval()


def _batch() -> Batch:
    return Batch.from_lists([[2, 7, 8, 9, 3], [2, 11, 12, 3]])


@pytest.mark.parametrize("sharing", ["all", "none"])
def test_the_change_of_each_step_is_that_of_its_input_and_output(sharing: str) -> None:
    albert, batch = _network(sharing=sharing), _batch()
    counted = ~torch.isin(batch.ids, torch.tensor([2, 3]))
    found = layers_of(albert, batch, counted, source="x", depths=(16, 20))
    with torch.no_grad():
        states = [state[counted] for state in albert.states(batch)]
    assert found.num_tokens == 5
    assert found.is_shared == (sharing == "all")
    assert [step.step for step in (*found.steps, *found.beyond)] == list(range(1, 21))
    for step, before, after in zip(found.steps, states, states[1:], strict=False):
        assert step.l2 == pytest.approx(float((after - before).norm(dim=1).mean()), rel=1e-4)
        cosine = torch.nn.functional.cosine_similarity(before, after).mean()
        assert step.cosine == pytest.approx(float(cosine), rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "blocks", "repeated"),
    [
        ({"num_hidden_groups": 3}, [1, 1, 2, 2, 3, 3], "the last of its 3 blocks"),
        ({"sharing": "none"}, [1, 2, 3, 4, 5, 6], "its last step"),
        ({}, [1, 1, 1, 1, 1, 1], "its shared step"),
    ],
)
def test_each_step_names_its_block_and_the_last_one_is_applied_further(
    changes: dict[str, object], blocks: list[int], repeated: str
) -> None:
    albert, batch = _network(num_hidden_layers=6, **changes), _batch()
    counted = torch.ones(len(batch.ids), dtype=torch.bool)
    found = layers_of(albert, batch, counted, source="x", depths=(16,))
    assert [step.block for step in found.steps] == blocks
    assert {step.block for step in found.beyond} == {blocks[-1]}
    assert f"applying {repeated} further" in found.summary
    with torch.no_grad():
        *_, state = albert.states(batch)
        last = albert.plan[-1]
        after = albert.feed_forward[last.feed_forward](albert.attention[last.attention](state, batch))
    moved = float((after - state).norm(dim=1).mean())
    assert found.beyond[0].l2 == pytest.approx(moved, rel=1e-4)


def _states(angles: list[float], sizes: list[float]) -> list[torch.Tensor]:
    return [
        size * torch.tensor([[torch.tensor(a).cos(), torch.tensor(a).sin()]])
        for a, size in zip(angles, sizes, strict=True)
    ]


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
    states = _states([turn * number for number in range(17)], [1.0] * 17)
    fate = _fate(residuals, states)
    assert (fate.verdict, fate.period, fate.depth) == (verdict, period, 32)


def test_the_dominant_eigenvalue_is_that_of_the_whole_jacobian() -> None:
    albert, batch = _network(), Batch.from_lists([[2, 7, 3]])
    state = next(albert.states(batch)).detach()
    attend, transform = albert.attention[0], albert.feed_forward[0]
    jacobian = torch.autograd.functional.jacobian(
        lambda x: transform(attend(x.view(3, 16), batch)).flatten(), state.flatten()
    )
    largest = float(torch.linalg.eigvals(jacobian).abs().max())
    found = dominant_eigenvalue(albert, batch, state, 400)
    assert found.modulus == pytest.approx(largest, rel=0.03)


@pytest.fixture
def model(tmp_path: Path, corpus: Path) -> Path:
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=8,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=32,
        num_hidden_layers=2,
    )
    save_model(AlbertForPretraining(config), tmp_path / "model")
    tokenizer.save(tmp_path / "model", max_length=512)
    return tmp_path / "model"


def test_the_command_writes_metrics_figures_and_a_page(model: Path, stories: Path, tmp_path: Path) -> None:
    words = ["layers", str(model), "--texts", str(stories), "--limit", "3", "--depths", "16,21"]
    output, page = tmp_path / "out", tmp_path / "layers.html"
    words += ["--output", str(output), "--html", str(page), "--json"]
    result = CliRunner().invoke(cli, ["study", *words])
    assert result.exit_code == 0, result.output
    (shown,) = json.loads(result.stdout)
    assert json.loads((output / "layers-model.json").read_text()) == shown
    found = Layers.model_validate(shown)
    assert [fate.depth for fate in found.fates] == [16, 21]
    assert found.summary in result.stderr
    assert (output / "layers-1.svg").read_text().startswith("<?xml")
    assert (output / "layers-3.png").read_bytes().startswith(b"\x89PNG")
    text = page.read_text("utf-8")
    assert "Figure 1" in text
    assert "no fixed point" in text
    assert 'src="' not in text
    assert 'href="http' not in text


def test_what_is_no_depth_and_what_is_no_text_are_refused(model: Path, stories: Path, tmp_path: Path) -> None:
    words = ["layers", str(model), "--texts", str(stories), "--depths", "24,x"]
    result = CliRunner().invoke(cli, ["study", *words])
    assert result.exit_code == 2
    with pytest.raises(LitebertError, match="LB-761"):
        measure_layers(litebert.load(model), ["Anna left."], depths=[4])
    with pytest.raises(LitebertError, match="LB-749"):
        measure_layers(litebert.load(model), [""])
