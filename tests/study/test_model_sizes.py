"""Counts to the digit, against the documented shapes and the paper's tables."""

import json

import pytest

from litebert.config import AlbertConfig, preset
from litebert.study import sizes_of
from litebert.study.sizes import PAPER_PARAMETERS, forward_flops

# embeddings, projection, attention, ffn, pooler, body, masked LM, sentence order, total
COUNTS = {
    "base": (3906048, 99072, 2363904, 4723968, 590592, 11683584, 128688, 1538, 11813810),
    "large": (3906048, 132096, 4200448, 8395776, 1049600, 17683968, 161456, 2050, 17847474),
    "xlarge": (3906048, 264192, 16789504, 33568768, 4196352, 58724864, 292528, 4098, 59021490),
    "xxlarge": (*(3906048, 528384, 67133440, 134246400, 16781312), *(222595584, 554672, 8194, 223158450)),
}

# Paper Tables 3 and 4 (H 768, 12 layers, body only), and what the paper prints where it does.
ABLATIONS = [
    (64, "all", 9_681_408, "10M"),
    (64, "attention", 61_645_056, None),
    (64, "ffn", 35_684_352, None),
    (64, "none", 87_648_000, "87M"),
    (128, "all", 11_683_584, "12M"),
    (128, "attention", 63_647_232, "64M"),
    (128, "ffn", 37_686_528, "38M"),
    (128, "none", 89_650_176, "89M"),
    (256, "all", 15_687_936, "16M"),
    (256, "attention", 67_651_584, None),
    (256, "ffn", 41_690_880, None),
    (256, "none", 93_654_528, "93M"),
    (768, "all", 31_114_752, "31M"),
    (768, "attention", 83_078_400, "83M"),
    (768, "ffn", 57_117_696, "57M"),
    (768, "none", 109_081_344, "108M"),
]


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("name", COUNTS)
def test_every_part_of_the_published_models_is_counted_to_the_digit(name: str, version: str) -> None:
    sizes = sizes_of(preset(f"{name}-{version}"))

    assert (
        sizes.embeddings,
        sizes.projection,
        sizes.attention,
        sizes.ffn,
        sizes.pooler,
        sizes.body,
        sizes.masked_lm_head,
        sizes.sentence_order_head,
        sizes.total,
    ) == COUNTS[name]


@pytest.mark.parametrize(("embedding_size", "sharing", "body", "printed"), ABLATIONS)
def test_every_row_of_the_papers_tables_3_and_4_is_counted_to_the_digit(
    embedding_size: int, sharing: str, body: int, printed: str | None
) -> None:
    sizes = sizes_of(AlbertConfig(embedding_size=embedding_size, sharing=sharing))

    assert sizes.body == body
    if printed:
        assert sizes.body / 1e6 == pytest.approx(float(printed.rstrip("M")), abs=1.1)


@pytest.mark.parametrize(
    ("hidden_size", "millions"), [(1_024, 17.68), (2_048, 58.72), (4_096, 222.60), (6_144, 495.52)]
)
def test_the_width_sweep_of_table_12_is_counted(hidden_size: int, millions: float) -> None:
    config = AlbertConfig(
        hidden_size=hidden_size, intermediate_size=4 * hidden_size, num_attention_heads=16, num_hidden_layers=3
    )

    assert round(sizes_of(config).body / 1e6, 2) == millions


@pytest.mark.parametrize("name", PAPER_PARAMETERS)
def test_the_papers_table_1_is_met_within_its_own_spread(name: str) -> None:
    printed = float(PAPER_PARAMETERS[name].rstrip("M"))

    assert sizes_of(preset(name)).body / 1e6 == pytest.approx(printed, rel=0.06)


def test_groups_and_inner_groups_multiply_the_blocks_alone() -> None:
    one = sizes_of(AlbertConfig())

    many = sizes_of(AlbertConfig(num_hidden_groups=3, inner_group_num=2))

    assert (many.attention, many.ffn) == (6 * one.attention, 6 * one.ffn)
    assert many.body - one.body == 5 * (one.attention + one.ffn)


def test_inner_groups_multiply_the_steps_a_token_passes() -> None:
    one = forward_flops(AlbertConfig(), seq_length=128)
    two = forward_flops(AlbertConfig(inner_group_num=2), seq_length=128)

    blocks = 12 * (2 * (4 * 768**2 + 2 * 768 * 3_072) + 4 * 128 * 768)
    assert two - one == blocks


def test_a_narrower_intermediate_layer_costs_less_everywhere() -> None:
    wide, narrow = AlbertConfig(), AlbertConfig(intermediate_size=3_071)

    assert sizes_of(wide).ffn - sizes_of(narrow).ffn == 2 * 768 + 1
    flops = forward_flops(wide, seq_length=128) - forward_flops(narrow, seq_length=128)
    assert flops == 12 * 2 * 2 * 768


@pytest.mark.parametrize("sharing", ["attention", "ffn", "none"])
def test_sharing_saves_no_flops(sharing: str) -> None:
    shared = forward_flops(AlbertConfig(), seq_length=512)

    assert forward_flops(AlbertConfig(sharing=sharing), seq_length=512) == shared


@pytest.mark.parametrize(
    ("name", "forward", "training"),
    [
        ("base", (176.0, 190.1), (527.9, 570.4)),
        ("large", (618, 656), (1_854, 1_967)),
        ("xlarge", (2_443, 2_518), (7_329, 7_555)),
        ("xxlarge", (4_859, 4_935), (14_578, 14_805)),
    ],
)
def test_flops_per_token_have_the_documented_values(
    name: str, forward: tuple[float, float], training: tuple[float, float]
) -> None:
    sizes = sizes_of(preset(name))

    tolerance = 0.05 if name == "base" else 0.5
    found = (sizes.forward_flops_128 / 1e6, sizes.forward_flops_512 / 1e6)
    assert found == pytest.approx(forward, abs=tolerance)
    found = (sizes.training_flops_128 / 1e6, sizes.training_flops_512 / 1e6)
    assert found == pytest.approx(training, abs=tolerance)


@pytest.mark.parametrize(
    ("name", "formula", "cost"),
    [
        ("base", 89_462_784, 2.345e19),
        ("large", 307_009_536, 8.048e19),
        ("xlarge", 1_216_256_000, 3.188e20),
        ("xxlarge", 2_437_060_608, 6.388e20),
    ],
)
def test_the_formula_and_its_cost_have_the_documented_values(name: str, formula: int, cost: float) -> None:
    sizes = sizes_of(preset(name))

    assert sizes.formula == formula
    assert sizes.normalised_cost == pytest.approx(cost, rel=2e-4)


def test_an_embedding_as_wide_as_the_layers_has_no_projection_unless_asked_for() -> None:
    plain = AlbertConfig(embedding_size=768)
    projected = AlbertConfig(embedding_size=768, embedding_projection=True)

    assert sizes_of(plain).projection == 0
    assert sizes_of(projected).projection == 768 * 768 + 768
    added = forward_flops(projected, seq_length=128) - forward_flops(plain, seq_length=128)
    assert added == 2 * 768 * 768


def test_json_holds_every_figure_and_its_bytes() -> None:
    sizes = sizes_of(preset("base"))

    record = json.loads(json.dumps(sizes.to_json(), allow_nan=False))

    assert record["total"] == 11_813_810
    assert (record["bytes_fp32"], record["bytes_bf16"]) == (47_255_240, 23_627_620)
    assert sum(record[name] for name in ("embeddings", "projection", "attention", "ffn")) == (
        record["body"] - record["pooler"]
    )
