"""The claims of speed and cost."""

from pathlib import Path

import pytest

from litebert.api.study import costs_part
from litebert.cli import run
from litebert.config import AlbertConfig, preset
from litebert.study.claims import Claim, measure_costs, paper_claims
from litebert.study.sizes import sizes_of


def test_the_gradients_of_the_paper_are_47_megabytes_and_1_3_gigabytes() -> None:
    assert sizes_of(preset("base-v2")).bytes_fp32 / 1e6 == pytest.approx(47, abs=1)
    assert sizes_of(preset("bert-large")).bytes_fp32 / 1e9 == pytest.approx(1.3, abs=0.05)


def test_the_claims_are_those_of_the_paper() -> None:
    assert [(c.name, c.beside, c.paper) for c in paper_claims()] == [
        ("ALBERT-large", "BERT-large", 1.7),
        ("ALBERT-xxlarge", "BERT-large", 0.3),
    ]


def test_a_claim_is_measured_with_its_bytes_and_its_network_time() -> None:
    shape = AlbertConfig(
        vocab_size=50,
        embedding_size=8,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=32,
        num_hidden_layers=2,
    )
    unshared = shape.model_copy(update={"sharing": "none", "num_hidden_layers": 6})
    claim = Claim("shared", shape, "unshared", unshared, 1.7)
    found = measure_costs([claim], tokens=16, seq_length=8, rounds=3)
    (result,) = found.claims
    assert result.training_speed.low <= result.training_speed.median <= result.training_speed.high
    assert result.training_speed.median > 1
    sent = 4 * sizes_of(shape).total
    assert result.gradient_bytes == (sent, 4 * sizes_of(unshared).total)
    assert result.network_seconds[1][0] == pytest.approx(16 * sent / 1e9)
    own, other = result.training_seconds
    assert result.speed_at(1) == pytest.approx(
        (other + result.network_seconds[1][1]) / (own + result.network_seconds[1][0])
    )
    part = costs_part(found)
    assert f"{result.training_speed.median:.2f} times as fast" in part.finding


@pytest.mark.parametrize("option", ["--output", "--html"])
def test_what_cannot_be_written_is_refused_before_the_measuring(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" if option == "--output" else tmp_path
    assert run(["study", "cost", option, str(place)]) == 1
    assert ("LB-008" if option == "--output" else "LB-619") in capsys.readouterr().err
