"""A graph of OpenVINO gives what the plain network gives, for texts of one length."""

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from litebert.fast import calibrate, int8, is_packed, pack, to_int8
from litebert.inference.model import Model
from litebert.nn import Albert, Batch

from .test_engine import BATCH, CHANGES, IDS, SHAPES, make, relative_difference

# not importorskip: an import of openvino itself sends an event
if find_spec("openvino") is None:
    pytest.skip("needs the extra [fast]", allow_module_level=True)

from litebert.fast import graphs
from litebert.fast.parts import divide

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
def test_the_last_states_are_those_of_the_plain_network(
    changes: dict[str, object], batch: Batch
) -> None:
    plain = make(**changes).albert
    packed = make(**changes).albert
    pack(packed, "openvino")
    expected = plain(batch)
    assert relative_difference(packed(batch), expected) < 2e-6
    for queries in (READ, batch.first_tokens, batch.first_tokens.flip(0)):
        assert relative_difference(packed(batch, queries), expected[queries]) < 2e-6


@torch.inference_mode()
def test_a_graph_is_for_the_depth_that_the_encoder_has_when_it_is_packed() -> None:
    plain = make().albert
    packed = make().albert
    plain.depth = packed.depth = 2
    pack(packed, "openvino")
    assert graph_in(packed).fits(BATCH, 2)
    assert relative_difference(packed(BATCH), plain(BATCH)) < 2e-6
    for depth in (1, 3):
        plain.depth = packed.depth = depth
        assert not graph_in(packed).fits(BATCH, depth)
        assert relative_difference(packed(BATCH), plain(BATCH)) < 2e-6


@torch.inference_mode()
def test_a_large_batch_is_computed_in_parts_of_similar_lengths() -> None:
    lengths = [5, 90, 7, 80, 96, 6, 11, 70, 88, 95, 3, 60, 93, 40]
    batch = Batch.from_lists([[number + 1] * n for number, n in enumerate(lengths)])
    parts = divide(batch.lengths)
    assert len(parts) == 2
    assert sorted(np.concatenate([part.tokens for part in parts])) == list(
        range(sum(lengths))
    )
    plain = make().albert
    packed = make().albert
    pack(packed, "openvino")
    expected = plain(batch)
    assert relative_difference(packed(batch), expected) < 2e-6
    few = torch.tensor([700, 2, 3, 96, 2])
    assert relative_difference(packed(batch, few), expected[few]) < 2e-6


@torch.inference_mode()
def test_bf16_is_within_a_hundredth_of_float32() -> None:
    expected = make().albert(OF_ONE_LENGTH)
    half = make(torch.bfloat16).albert
    pack(half, "openvino")
    computed = half(OF_ONE_LENGTH)
    assert graph_in(half).fits(OF_ONE_LENGTH, half.depth)
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
    assert graph_in(eight).fits(OF_ONE_LENGTH, eight.depth)
    assert relative_difference(by_torch, expected) < 0.05
    assert relative_difference(by_graph, expected) < 0.05
    assert relative_difference(by_graph, by_torch) < 0.05


def test_a_graph_is_for_texts_up_to_the_longest() -> None:
    albert = make().albert
    with torch.no_grad():
        pack(albert, "openvino")
    graph = graph_in(albert)
    for batch in (ALONE, OF_ONE_LENGTH, BATCH):
        assert graph.fits(batch, albert.depth)
    graph.longest = 39
    assert not graph.fits(ALONE, albert.depth)
    assert graph.fits(OF_ONE_LENGTH, albert.depth)
    assert not graph.fits(BATCH, albert.depth)


@pytest.mark.parametrize(
    ("wins", "longest"),
    [([], None), ([16], 64), ([16, 128], 256), ([16, 128, 512], 512)],
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


def test_the_packaged_model_answers_alike_with_either_backend() -> None:
    by_torch = Model.load(backend="torch").embed("A cat.")
    by_graph = Model.load(backend="openvino").embed("A cat.")
    assert by_graph == pytest.approx(by_torch, abs=1e-5)


SIGNALLED = """
import gc, signal
import litebert
{change}
first = litebert.load(backend="openvino")
second = litebert.load(backend="openvino")
del first
gc.collect()
del second
gc.collect()
signal.signal(signal.SIGTERM, lambda *_: print("handled"))
signal.raise_signal(signal.SIGTERM)
"""


@pytest.mark.parametrize(
    ("change", "is_handled"),
    [
        ("", True),
        (
            "from litebert.fast import operators as on; on._core = on.openvino.Core",
            False,
        ),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="no stack for signals elsewhere")
def test_a_signal_is_handled_after_the_graphs_are_freed(
    change: str, is_handled: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED.format(change=change)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout == "handled\n") == is_handled, done
    assert (done.returncode == 0) == is_handled, done


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
