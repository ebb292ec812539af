"""A graph of OpenVINO gives what the plain network gives, for texts of one length."""

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from litebert.fast import calibrate, int8, is_packed, pack, to_int8
from litebert.inference.model import Model
from litebert.nn import Albert, Batch

from .test_engine import BATCH, CHANGES, IDS, SHAPES, make, relative_difference

# not importorskip: an import of openvino itself sends an event
if find_spec("openvino") is None:
    pytest.skip("needs the extra [fast]", allow_module_level=True)

from litebert.fast import graphs

ALONE = Batch.from_lists([IDS[:40].tolist()])
OF_ONE_LENGTH = Batch.from_lists([ids.tolist() for ids in IDS[:64].split(16)])
READ = torch.tensor([7, 0, 33])


def graph_in(albert: Albert) -> graphs.Graph:
    graph = albert.engine.packed.graph
    assert graph is not None
    return graph


@pytest.mark.parametrize("changes", SHAPES)
@pytest.mark.parametrize("batch", [ALONE, OF_ONE_LENGTH, BATCH])
@torch.inference_mode()
def test_every_state_is_that_of_the_plain_network(
    changes: dict[str, object], batch: Batch
) -> None:
    plain = make(**changes).albert
    packed = make(**changes).albert
    pack(packed, "openvino")
    expected = list(plain.states(batch))
    for ours, theirs in zip(packed.states(batch), expected, strict=True):
        assert relative_difference(ours, theirs) < 2e-6
    assert relative_difference(packed(batch, READ), expected[-1][READ]) < 2e-6
    packed.depth = 2
    assert relative_difference(packed(batch), expected[2]) < 2e-6


@torch.inference_mode()
def test_bf16_is_within_a_hundredth_of_float32() -> None:
    expected = make().albert(OF_ONE_LENGTH)
    half = make(torch.bfloat16).albert
    pack(half, "openvino")
    computed = half(OF_ONE_LENGTH)
    assert graph_in(half).fits(OF_ONE_LENGTH)
    assert computed.dtype == torch.bfloat16
    assert relative_difference(computed, expected) < 2e-2


@pytest.mark.skipif(
    not int8.kernels_work(),
    reason="this CPU has no eight-bit products that are right at the ends",
)
@pytest.mark.parametrize("sharing", ["all", "none", "ffn"])
@torch.no_grad()
def test_eight_bits_are_those_of_torch(sharing: str) -> None:
    exact = make(sharing=sharing).albert
    expected = exact(OF_ONE_LENGTH)
    eight = copy.deepcopy(exact)
    to_int8(eight, calibrate(exact, [BATCH]))
    pack(eight)
    by_torch = eight(OF_ONE_LENGTH)
    pack(eight, "openvino")
    by_graph = eight(OF_ONE_LENGTH)
    assert graph_in(eight).fits(OF_ONE_LENGTH)
    assert relative_difference(by_torch, expected) < 0.05
    assert relative_difference(by_graph, expected) < 0.05
    assert relative_difference(by_graph, by_torch) < 0.05


def test_a_graph_is_for_texts_of_one_length_up_to_the_longest() -> None:
    albert = make().albert
    with torch.no_grad():
        pack(albert, "openvino")
    graph = graph_in(albert)
    assert graph.fits(ALONE)
    assert graph.fits(OF_ONE_LENGTH)
    assert not graph.fits(BATCH)
    assert not graph.fits(Batch.from_lists([[5] * 40] * 26))
    graph.longest = 39
    assert not graph.fits(ALONE)
    assert graph.fits(OF_ONE_LENGTH)


@pytest.mark.parametrize(
    ("wins", "longest"),
    [([], None), ([16], 64), ([16, 128], 256), ([16, 128, 512], 1_024)],
)
def test_a_graph_is_used_up_to_the_length_at_which_torch_is_faster(
    wins: list[int], longest: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = iter([16, 128, 512])

    def time_each(*_choices: object, rounds: int) -> list[float]:
        by_graph = 1.0 if next(lengths) in wins else 3.0
        return [by_graph, 2.0]

    monkeypatch.setattr(graphs, "time_each", time_each)
    albert = make(max_position_embeddings=512).albert
    with torch.no_grad():
        pack(albert, "auto")
    graph = albert.engine.packed.graph
    assert (graph.longest if graph else None) == longest


@torch.no_grad()
def test_a_result_stays_when_the_graph_runs_again_here_or_in_another_thread() -> None:
    albert = make().albert
    pack(albert, "openvino")
    batches = [Batch.from_lists([[number] * 30]) for number in range(1, 9)]
    in_turn = [albert(batch) for batch in batches]

    def compute(batch: Batch) -> torch.Tensor:
        with torch.no_grad():
            return albert(batch)

    with ThreadPoolExecutor(4) as pool:
        at_once = list(pool.map(compute, batches))
    for first, second in zip(in_turn, at_once, strict=True):
        assert torch.equal(first, second)


@torch.no_grad()
def test_a_copy_has_a_graph_of_its_own() -> None:
    albert = make().albert
    pack(albert, "openvino")
    for copied in (copy.deepcopy(albert), pickle.loads(pickle.dumps(albert))):
        assert torch.equal(copied(ALONE), albert(ALONE))
        assert graph_in(copied) is not graph_in(albert)


@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_a_graph_is_discarded_when_the_weights_may_change(change: str) -> None:
    albert = make().albert
    pack(albert, "openvino")
    before = albert(ALONE)
    CHANGES[change](albert)
    assert not is_packed(albert)
    is_same = relative_difference(albert(ALONE), before) < 1e-5
    assert is_same == (change in ("train", "move"))


@pytest.mark.parametrize("num_queries", [1, 40])
# the last has too many scores for any run
@pytest.mark.parametrize("num_keys", [40, 300, 1_100])
def test_attention_by_openvino_equals_that_of_torch(
    num_queries: int, num_keys: int
) -> None:
    draws = torch.Generator().manual_seed(0)
    q = torch.randn(9, 96, num_queries, 8, generator=draws)
    k = torch.randn(9, 96, num_keys, 8, generator=draws)
    v = torch.randn(9, 96, num_keys, 8, generator=draws)
    widths = torch.arange(1, 10)[:, None] * num_keys / 9
    is_key = (torch.arange(num_keys) < widths)[:, None, None]
    attend = graphs.attention_graph()
    for mask in (None, is_key):
        expected = F.scaled_dot_product_attention(q, k, v, mask)
        torch.testing.assert_close(attend(q, k, v, mask), expected, rtol=0, atol=1e-5)


def test_the_packaged_model_answers_alike_with_either_backend() -> None:
    by_torch = Model.load(backend="torch").embed("A cat.")
    by_graph = Model.load(backend="openvino").embed("A cat.")
    assert by_graph == pytest.approx(by_torch, abs=1e-5)


def test_openvino_sends_nothing_and_writes_no_id(tmp_path: Path) -> None:
    code = (
        "import litebert.fast.graphs, sys; print('openvino_telemetry' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"HOME": str(tmp_path), "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"
    assert not list(tmp_path.iterdir())
