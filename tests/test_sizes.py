"""Parameters and FLOPs, to the digit: the documented shapes, the tables of the paper,
`litebert sizes`.
"""

import subprocess
import sys
from dataclasses import asdict

import pytest

from litebert.api.sizes import PAPER_PARAMETERS, sizes_of
from litebert.config import PRESETS, AlbertConfig, preset
from litebert.flops import forward_flops
from tests.contract.shell import litebert

PARTS = [
    "embeddings",
    "projection",
    "attention",
    "ffn",
    "pooler",
    "body",
    "masked_lm_head",
    "sentence_order_head",
]
PARTS += ["total", "num_unshared_weights"]
# Every part; what it costs to train; MFLOP per token at 128 and 512.
BASE = (
    3906048,
    99072,
    2363904,
    4723968,
    590592,
    11683584,
    128688,
    1538,
    11813810,
    89462784,
)
LARGE = (
    3906048,
    132096,
    4200448,
    8395776,
    1049600,
    17683968,
    161456,
    2050,
    17847474,
    307009536,
)
XLARGE = (
    3906048,
    264192,
    16789504,
    33568768,
    4196352,
    58724864,
    292528,
    4098,
    59021490,
    1216256000,
)
XXLARGE = (
    3906048,
    528384,
    67133440,
    134246400,
    16781312,
    222595584,
    554672,
    8194,
    223158450,
    2437060608,
)
COUNTS = {
    "base": (BASE, 2.345e19, (176.0, 190.1)),
    "large": (LARGE, 8.048e19, (618, 656)),
    "xlarge": (XLARGE, 3.188e20, (2443, 2518)),
    "xxlarge": (XXLARGE, 6.388e20, (4859, 4935)),
}


@pytest.mark.parametrize("name", COUNTS)
def test_every_part_of_the_published_models_is_counted_to_the_digit(name: str) -> None:
    counts, cost, flops = COUNTS[name]
    record = asdict(sizes_of(preset(f"{name}-v2")))
    assert record == asdict(sizes_of(preset(f"{name}-v1")))
    assert tuple(record[part] for part in PARTS) == counts
    assert record["training_cost"] == pytest.approx(cost, rel=2e-4)
    assert record["bytes_fp32"] == 4 * record["total"]
    megaflops = [record[f"forward_flops_{length}"] / 1e6 for length in (128, 512)]
    assert megaflops == pytest.approx(flops, abs=0.05 if name == "base" else 0.5)


def test_table_1_is_reproduced_within_the_papers_own_spread() -> None:
    for name, printed in PAPER_PARAMETERS.items():
        assert sizes_of(preset(name)).body / 1e6 == pytest.approx(
            float(printed.rstrip("M")), rel=0.06
        )
    assert sizes_of(preset("base-v2")).bytes_fp32 / 1e6 == pytest.approx(47, abs=1)
    assert sizes_of(preset("bert-large")).bytes_fp32 / 1e9 == pytest.approx(
        1.3, abs=0.05
    )


@pytest.mark.parametrize(
    ("one", "other", "length", "difference"),
    [
        (
            {},
            {"inner_group_num": 2},
            128,
            12 * (2 * (4 * 768**2 + 2 * 768 * 3_072) + 4 * 128 * 768),
        ),
        ({"intermediate_size": 3_071}, {}, 128, 12 * 2 * 2 * 768),
        (
            {"embedding_size": 768},
            {"embedding_size": 768, "embedding_projection": True},
            128,
            2 * 768 * 768,
        ),
        *(
            ({}, {"sharing": sharing}, 512, 0)
            for sharing in ("attention", "ffn", "none")
        ),
    ],
    ids=str,
)
def test_flops_count_every_step_whatever_is_shared(
    one: dict, other: dict, length: int, difference: int
) -> None:
    flops = [
        forward_flops(AlbertConfig(**config), seq_length=length)
        for config in (one, other)
    ]
    assert flops[1] - flops[0] == difference


def test_sizes_is_an_aligned_table_or_every_figure_of_the_chosen_presets() -> None:
    _, *rows = litebert("sizes").ok.stdout.splitlines()
    assert [row.split()[0] for row in rows] == list(PRESETS)
    assert len({len(row) for row in rows}) == 1
    assert rows[list(PRESETS).index("base-v2")].split()[1:4] == [
        "11,683,584",
        "11,813,810",
        "12M",
    ]
    large, tiny = litebert(
        "sizes", "--preset", "large", "--preset", "tiny", "--json"
    ).ok.json
    assert (large["preset"], large["total"], tiny["preset"]) == (
        "large",
        17_847_474,
        "tiny",
    )
    code = (
        "import sys; from litebert.cli import run; run(['sizes', '--json']);"
        " sys.exit('torch' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.DEVNULL
        ).returncode
        == 0
    )
