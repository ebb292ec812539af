"""`litebert sizes` as people and programs read it."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from litebert.cli import cli
from litebert.config import PRESETS
from litebert.errors import LitebertError


def test_the_table_has_an_aligned_row_for_every_preset() -> None:
    result = CliRunner().invoke(cli, ["sizes"])

    assert result.exit_code == 0
    headings, *rows = result.stdout.splitlines()
    assert [row.split()[0] for row in rows] == list(PRESETS)
    assert {len(row) for row in rows} == {len(headings)}
    assert rows[list(PRESETS).index("base-v2")].split()[1:4] == ["11,683,584", "11,813,810", "12M"]


def test_chosen_presets_come_in_the_order_asked_for_with_every_figure() -> None:
    result = CliRunner().invoke(cli, ["sizes", "--preset", "large", "--preset", "tiny", "--json"])

    large, tiny = json.loads(result.stdout)
    assert (large["preset"], large["total"]) == ("large", 17_847_474)
    assert tiny["preset"] == "tiny"
    assert {
        *("preset", "embeddings", "projection", "attention", "ffn", "pooler", "masked_lm_head"),
        *("sentence_order_head", "body", "total", "bytes_fp32", "bytes_bf16", "formula"),
        *("forward_flops_128", "forward_flops_512", "training_flops_128", "training_flops_512"),
        "normalised_cost",
    } == set(tiny)


def test_an_unknown_preset_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(LitebertError, match=r"bsae-v2(?s:.*)did you mean base-v2"):
        CliRunner().invoke(cli, ["sizes", "--preset", "bsae-v2"], catch_exceptions=False)


def test_counting_loads_no_torch() -> None:
    code = "import sys; from litebert.cli import run;run(['sizes', '--json']); sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0
