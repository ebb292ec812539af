"""The programs in benchmarks/study: a model's steps are measured; rows of the paper's
tables are trained once and judged.
"""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks.study.ablation import study_ablation
from benchmarks.study.grids import (
    Ablation,
    Scale,
    config_of,
    ordering,
    read_grids,
    training_flops,
)
from benchmarks.study.layers import (
    STILL,
    Layers,
    dominant_eigenvalue,
    fate_of,
    layers_of,
    measure_layers,
    study_layers,
)
from benchmarks.study.study import read_findings
from benchmarks.study.trials import Bench
from litebert.api.sizes import sizes_of
from litebert.config import AlbertConfig, PretrainConfig
from litebert.errors import LitebertError
from litebert.inference.model import Model
from litebert.nn import Albert, Batch
from litebert.settings import resolve, settings_from_words
from litebert.train import loop

# ---- each step, and beyond -----------------------------------------------------------

SHAPE = {
    "vocab_size": 60,
    "embedding_size": 8,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def network(**changes: object) -> Albert:
    config = AlbertConfig(
        **{**SHAPE, "num_hidden_layers": 3, "initializer_range": 0.3, **changes}
    )
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
    albert = network(num_hidden_layers=6, **changes)
    batch = Batch.from_lists([[2, 7, 8, 9, 3], [2, 11, 12, 3]])
    counted = ~torch.isin(batch.ids, torch.tensor([2, 3]))
    layers = layers_of(albert, batch, counted, source="x", depths=(16, 20))
    assert layers.num_tokens == 5
    assert [step.step for step in (*layers.steps, *layers.beyond)] == list(range(1, 21))
    assert [step.block for step in layers.steps] == blocks
    assert {step.block for step in layers.beyond} == {blocks[-1]}
    assert f"applying {repeated} further" in layers.summary
    with torch.no_grad():
        states = list(albert.states(batch))
        last = albert.plan[-1]
        states.append(
            albert.feed_forward[last.feed_forward](
                albert.attention[last.attention](states[-1], batch)
            )
        )
    states = [state[counted] for state in states]
    for step, before, after in zip(
        (*layers.steps, layers.beyond[0]), states, states[1:], strict=False
    ):
        assert step.l2 == pytest.approx(
            float((after - before).norm(dim=1).mean()), rel=1e-4
        )
        cosines = torch.nn.functional.cosine_similarity(before, after)
        assert step.angle == pytest.approx(
            float(cosines.arccos().rad2deg().mean()), rel=1e-4
        )


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
def test_the_verdict_follows_the_criterion(
    turn: float, residuals: list[float], verdict: str, period: int
) -> None:
    angles = [torch.tensor(turn * number) for number in range(17)]
    fate = fate_of(
        residuals, [torch.stack([angle.cos(), angle.sin()])[None] for angle in angles]
    )
    assert (fate.verdict, fate.period, fate.depth) == (verdict, period, 32)


def test_the_dominant_eigenvalue_is_that_of_the_whole_jacobian() -> None:
    albert = network()
    batch = Batch.from_lists([[2, 7, 3]])
    state = next(albert.states(batch)).detach()
    attend = albert.attention[0]
    transform = albert.feed_forward[0]
    step = lambda x: transform(attend(x.view(3, 16), batch)).flatten()  # noqa: E731
    jacobian = torch.autograd.functional.jacobian(step, state.flatten())
    largest = float(torch.linalg.eigvals(jacobian).abs().max())
    assert dominant_eigenvalue(albert, batch, state, power_steps=400) == pytest.approx(
        largest, rel=0.03
    )


def test_the_program_prints_and_writes_the_layers_of_every_model(
    small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat sat on the mat\n" * 6)
    out = tmp_path / "out"
    models = [
        shutil.copytree(small_model, tmp_path / name / "model")
        for name in ("one", "two")
    ]
    study = study_layers(*models, texts=texts, limit=3, depths=(16, 21), output=out)
    assert study.measured == read_findings(Layers, out, "layers-*")
    assert sorted(path.name for path in out.glob("*.json")) == [
        "layers-one-model.json",
        "layers-two-model.json",
    ]
    assert [fate.depth for fate in study.measured[0].fates] == [16, 21]
    assert (out / "layers-3.svg").read_text().startswith("<?xml")


def test_the_packaged_model_is_not_at_a_fixed_point_at_its_trained_depth() -> None:
    texts = ["The cat sat on the mat.", "Nobody was there."]
    layers = measure_layers(Model.load(), texts, depths=(16,))
    assert layers.eigenvalue_at_depth > 1
    assert min(step.residual for step in layers.steps) > STILL


# ---- ablations: the grids are the paper's tables, rows are trained once, orderings are judged

Ablate = Callable[..., Ablation]


@pytest.fixture
def small(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ablate:
    training = (
        "model.max_position_embeddings=48",
        "objective.max_seq_length=48",
        "optim.name=adamw",
    )
    training += ("optim.learning_rate=0.003", "train.batch_size=8")
    sizes = {"embedding_sizes": {64: 4, 128: 8, 256: 12, 768: 16}, "usual_embedding": 8}
    small = Scale(
        shapes={"base": (16, 2, 8), "large": (16, 2, 8)},
        **sizes,
        steps=3,
        training=training,
    )
    monkeypatch.setitem(read_grids().scales, "small", small)
    monkeypatch.setattr("benchmarks.study.trials.EVALUATION_SEQUENCES", 16)
    fixed = {"corpus": corpus, "output": tmp_path, "scale": "small"}
    return lambda name, **options: (
        study_ablation(name, **fixed, **{"seeds": (1,), **options}).measured
    )


def bench(grid: str, scale: str) -> Bench:
    return Bench(
        read_grids().tables[grid], scale, Path("corpus"), Path("runs"), Path("more")
    )


@pytest.mark.parametrize("scale", ["paper", "tiny"])
def test_every_row_of_every_table_is_a_valid_configuration(scale: str) -> None:
    for grid in read_grids().tables:
        place = bench(grid, scale)
        assert len(place.variants) > 1
        for variant in place.variants.values():
            resolve(PretrainConfig, settings_from_words(place.words(variant, 1)))
    # equal compute means equal FLOPs, without the output layer
    place = bench("time", scale)
    one, other = (
        training_flops((*place.words(v, 1), "model.vocab_size=6"))
        for v in place.variants.values()
    )
    assert one == pytest.approx(other, rel=0.02)


# Body parameters to the digit, and in millions as paper Tables 3, 4 and 12 print them.
UNSHARED = [87_648_000, 89_650_176, 93_654_528, 109_081_344]
SHARED = [9_681_408, 11_683_584, 15_687_936, 31_114_752]
PARTLY = [
    SHARED[3],
    83_078_400,
    57_117_696,
    UNSHARED[3],
    SHARED[1],
    63_647_232,
    37_686_528,
    UNSHARED[1],
]
NETWORKS = [
    ("embedding", UNSHARED + SHARED, [87, 89, 93, 108, 10, 12, 16, 31]),
    ("sharing", PARTLY, [31, 83, 57, 108, 12, 64, 38, 89]),
    ("width", [17_683_968, 58_724_864, 222_595_584, 495_518_208], [18, 60, 225, 499]),
]


@pytest.mark.parametrize(("name", "bodies", "millions"), NETWORKS)
def test_at_full_scale_the_networks_have_the_papers_parameters(
    name: str, bodies: list, millions: list
) -> None:
    place = bench(name, "paper")
    assert [
        sizes_of(config_of(place.words(row, 1)).model).body
        for row in place.variants.values()
    ] == bodies
    assert [body / 1e6 for body in bodies] == pytest.approx(
        millions, rel=0.025, abs=1.1
    )


@pytest.mark.parametrize(
    ("paper", "ours", "verdict"),
    [
        ([1.0, 2.0, 3.0], [[0.1, 0.11], [0.2, 0.21], [0.3, 0.31]], "reproduced"),
        ([1.0, 2.0], [[0.3, 0.31], [0.1, 0.11]], "reversed"),
        ([1.0, 2.0], [[0.1, 0.3], [0.2, 0.4]], "undecided"),
        ([1.0, 2.0, 3.0], [[0.1, 0.11], [0.2, 0.21], [0.19, 0.2]], "partly reproduced"),
        ([1.0, 2.0], [[0.1, 0.11], [0.9]], "undecided"),
        ([1.0, 2.0], [[0.1], []], "nothing to compare"),
        ([None, 2.0], [[0.1], [0.2]], "nothing to compare"),
        ([2.0, 2.0], [[0.1, 0.1], [0.2, 0.2]], "nothing to compare"),
    ],
)
def test_an_ordering_is_judged_only_beyond_the_noise(
    paper: list, ours: list, verdict: str
) -> None:
    assert ordering(paper, ours).partition(":")[0] == verdict


def test_rows_are_trained_once_and_measured_on_both_sentence_objectives(
    small: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = small("sentence", seeds=(1, 2), rows=("NSP", "none"))
    none, nsp, sop = first.rows
    assert [trial.seed for trial in nsp.trials] == [1, 2]
    assert sop.trials == [] and "Not trained: SOP." in first.verdict
    assert {"nsp_accuracy", "sop_accuracy", "masked_lm_accuracy"} <= set(
        none.trials[0].measures
    )
    trial = nsp.trials[0]
    assert trial.tokens > 0
    assert (
        trial.table
        == sizes_of(
            config_of([*trial.settings, "model.vocab_size=90"]).model
        ).embeddings
    )
    assert read_findings(Ablation, tmp_path, "sentence") == [first]
    # a trained row is not trained again
    monkeypatch.delattr("benchmarks.study.trials.pretrain")
    again = small("sentence", seeds=(1, 2), rows=("NSP", "none"))
    assert [row.trials for row in again.rows] == [row.trials for row in first.rows]


def test_a_second_corpus_counts_and_a_row_of_two_tables_is_trained_once(
    small, corpus: Path, tmp_path: Path
) -> None:
    ablation = small("data", more=shutil.copytree(corpus, tmp_path / "more"))
    one, two = (row.trials[0].measures["masked_lm_loss"] for row in ablation.rows)
    assert one != two
    place = Bench(
        read_grids().tables["data"],
        "small",
        tmp_path / "more",
        tmp_path / "runs",
        corpus,
    )
    before = [place.folder(row, 1) for row in place.variants.values()]
    built = tmp_path / "more" / "corpus.json"
    built.write_text(built.read_text() + "\n")
    assert not {*before} & {place.folder(row, 1) for row in place.variants.values()}
    # the row that both tables share is listed here too
    ablation = small("embedding", afford=0)
    assert (
        [trial.label for row in ablation.rows for trial in row.trials]
        == ["E 128, all shared"]
        == [ablation.rows[5].label]
    )
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_deeper_row_starts_from_the_row_before(small: Ablate, tmp_path: Path) -> None:
    ablation = small("depth", rows=("3 layers",))
    assert ablation.rows[1].trials[0].label == "3 layers"
    assert len(list((tmp_path / "runs").iterdir())) == 2
    (start,) = (tmp_path / "runs").glob("*/start/config.json")
    assert json.loads(start.read_text())["num_hidden_layers"] == 3
    assert "nothing to compare" in ablation.verdict


def test_rows_that_cannot_be_afforded_are_predicted_and_not_trained(
    small: Ablate, tmp_path: Path
) -> None:
    width = small("width", afford=0)
    assert all(not row.trials for row in width.rows)
    assert all(row.predicted_cpu_seconds > 0 for row in width.rows)
    flops = [row.predicted_flops for row in width.rows]
    assert flops == sorted(flops)
    assert "Nothing was trained" in width.verdict
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("shoring", {}, "no table shoring"),
        ("sharing", {"scale": "tyni"}, "no scale tyni"),
        ("sharing", {"rows": ("x",)}, "no row x"),
        ("sharing", {"probes": ("sst2",)}, "TASK=PATH"),
        ("data", {}, "--more"),
    ],
)
def test_wrong_arguments_are_refused(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(SystemExit, match=message):
        study_ablation(name, corpus=Path("nowhere"), **options)


def test_an_interrupted_probe_can_be_resumed(
    small: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "words.tsv"
    data.write_text(
        "text\tlabel\n" + "Anna took the ball.\t0\nAnna took a ball.\t1\n" * 20
    )
    trained = small("sentence", rows=("none",))
    original = loop.training_step

    def signalling(*args: object, **kwargs: object) -> object:
        if kwargs["step"] == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "training_step", signalling)
        with pytest.raises(SystemExit, match="interrupted"):
            small("sentence", rows=("none",), probes=(f"words={data}",))
    ablation = small("sentence", rows=("none",), probes=(f"words={data}",))
    assert len([*(tmp_path / "runs").glob("*/probe-words/result.json")]) == 1
    data.write_text(data.read_text().replace("ball", "bowl"))
    with pytest.raises(LitebertError, match="LB-505"):
        small("sentence", rows=("none",), probes=(f"words={data}",))
    assert 0 <= ablation.rows[0].trials[0].probes["words"] <= 1
    assert ablation.rows[0].trials[0].measures == trained.rows[0].trials[0].measures
