"""Studies: a model's size, steps, costs and zero-shot scores, their page; ablations,
trained once and judged.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from litebert import evaluate
from litebert.config import PRESETS, AlbertConfig, PretrainConfig, preset
from litebert.errors import LitebertError
from litebert.flops import forward_flops
from litebert.inference import Model
from litebert.inference.measures import blimp, retrieval, sts
from litebert.nn import Albert, Batch
from litebert.settings import resolve, settings_from_words
from litebert.study import PAPER_PARAMETERS, sizes_of
from litebert.study.ablation import (
    Ablation,
    Scale,
    config_of,
    ordering,
    read_grids,
    training_flops,
)
from litebert.study.costs import report_costs
from litebert.study.layers import Layers
from litebert.study.models import dominant_eigenvalue, fate_of, layers_of, measure_costs
from litebert.study.study import read_findings
from litebert.study.tables import study_ablation
from litebert.study.trials import Bench
from litebert.train import loop
from tests.contract.shell import assert_error, litebert

# ---- parameters and FLOPs, to the digit: the documented shapes, the tables of the paper, `litebert sizes`  # noqa: E501

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
PARTS += ["total", "formula"]
# Every part and the documented formula; its cost; MFLOP per token at 128 and 512.
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
    assert record["normalised_cost"] == pytest.approx(cost, rel=2e-4)
    assert record["bytes_fp32"] == 4 * record["total"]
    found = [record[f"forward_flops_{length}"] / 1e6 for length in (128, 512)]
    assert found == pytest.approx(flops, abs=0.05 if name == "base" else 0.5)


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
        forward_flops(AlbertConfig(**each), seq_length=length) for each in (one, other)
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
    found = layers_of(albert, batch, counted, source="x", depths=(16, 20))
    assert found.num_tokens == 5
    assert [step.step for step in (*found.steps, *found.beyond)] == list(range(1, 21))
    assert [step.block for step in found.steps] == blocks
    assert {step.block for step in found.beyond} == {blocks[-1]}
    assert f"applying {repeated} further" in found.summary
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
        (*found.steps, found.beyond[0]), states, states[1:], strict=False
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


def test_commands_print_what_they_write_and_the_page_has_it_all(
    small_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("the cat sat on the mat\n" * 6)
    out = tmp_path / "out"
    models = [
        shutil.copytree(small_model, tmp_path / name / "model")
        for name in ("one", "two")
    ]
    given = [*models, "--texts", tmp_path / "texts.txt", "--output", out, "--json"]
    layers = litebert(
        "study", "layers", *given, "--limit", 3, "--depths", "16,21"
    ).ok.json
    assert layers == [
        json.loads((out / f"layers-{name}-model.json").read_text())
        for name in ("one", "two")
    ]
    assert [fate.depth for fate in Layers.model_validate(layers[0]).fates] == [16, 21]
    assert (out / "layers-3.svg").read_text().startswith("<?xml")
    shown = litebert(
        "study", "page", out, "--html", tmp_path / "page.html", "--json"
    ).ok.json
    assert list(shown["findings"]) == ["layers"]
    text = (tmp_path / "page.html").read_text("utf-8")
    assert all(
        title in text
        for title in ("Figure 1", "no fixed point", "Residual beyond the trained depth")
    )
    assert not any(outside in text for outside in ('src="', 'href="http'))


def test_a_claim_is_measured_with_its_bytes_and_its_network_time() -> None:
    shape = AlbertConfig(**SHAPE, num_hidden_layers=2)
    unshared = shape.model_copy(update={"sharing": "none", "num_hidden_layers": 24})
    found = measure_costs(
        {"shared": (shape, 1.7)},
        ("unshared", unshared),
        tokens=16,
        seq_length=8,
        rounds=3,
    )
    (result,) = found.claims
    assert sorted(result.training_speeds)[1] > 1
    assert result.parameters == (sizes_of(shape).total, sizes_of(unshared).total)
    (own, other), (sends, other_sends) = (
        result.training_seconds,
        (64 * number / 1e9 for number in result.parameters),
    )
    assert result.speed_at(1) == pytest.approx((other + other_sends) / (own + sends))
    assert (
        f"{sorted(result.training_speeds)[1]:.2f} times as fast"
        in report_costs(found).finding
    )


# ---- zero-shot measures equal a direct computation of their definitions --------------

TEXTS = [
    "the cat sat",
    "the cat sat on the mat",
    "a dog ran after the cat",
    "red and blue",
]


@pytest.fixture(scope="module")
def model(small_model: Path) -> Model:
    return Model.load(small_model)


def test_blimp_weighs_paradigms_equally(model: Model, tmp_path: Path) -> None:
    better, worse = sorted(
        TEXTS[:2], key=lambda text: model.score(text).log_likelihood, reverse=True
    )
    rows = [
        (better, worse, "a"),
        (worse, better, "a"),
        *[(better, worse, "a")] * 2,
        (worse, better, "b"),
    ]
    path = tmp_path / "blimp.jsonl"
    names = ("sentence_good", "sentence_bad", "UID", "field")
    path.write_text(
        "\n".join(
            json.dumps(dict(zip(names, (*row, "syntax"), strict=True))) for row in rows
        )
    )
    assert blimp(model, path)["blimp"] == 0.375
    assert (
        evaluate(model.source, data=path, on="blimp", limit=1).measures["blimp"][
            "blimp_syntax"
        ]
        == 0.5
    )


def test_sts_is_the_rank_correlation_of_cosines(model: Model, tmp_path: Path) -> None:
    vectors = model.embed(TEXTS)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    lines = [
        f"{TEXTS[a]}\t{TEXTS[b]}\t{vectors[a] @ vectors[b]}"
        for a, b in [(0, 1), (0, 2), (1, 3), (2, 3)]
    ]
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(["sentence1\tsentence2\tscore", *lines]))
    assert sts(model, path)["sts_spearman"] == pytest.approx(1.0)


def test_rows_without_the_measured_fields_are_one_clear_error(
    model: Model, tmp_path: Path
) -> None:
    whole = dict.fromkeys(
        (
            "sentence1",
            "sentence2",
            "score",
            "sentence_good",
            "sentence_bad",
            "UID",
            "question",
        ),
        1,
    )
    whole |= {"field": "a", "context": "b"}
    nothing = {"text": "a"}
    path = tmp_path / "rows.jsonl"
    for rows in ([nothing], [whole, nothing], [{**whole, "score": "nan"}]):
        path.write_text("\n".join(map(json.dumps, rows)))
        for measure in (sts,) if "score" in rows[-1] else (sts, blimp, retrieval):
            with pytest.raises(LitebertError, match="LB-992"):
                measure(model, path)


def test_a_question_that_is_its_paragraph_is_found_first(
    model: Model, tmp_path: Path
) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(
        "\n".join(json.dumps({"question": text, "context": text}) for text in TEXTS)
    )
    found = retrieval(model, path)
    assert found["retrieval_mrr"] == found["retrieval_recall_at_1"] == 1.0


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
    monkeypatch.setattr("litebert.study.trials.EVALUATION_SEQUENCES", 16)
    fixed = {"corpus": corpus, "output": tmp_path, "scale": "small"}
    return lambda name, **given: (
        study_ablation(name, **fixed, **{"seeds": (1,), **given}).measured
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
    monkeypatch.delattr("litebert.study.trials.pretrain")
    again = small("sentence", seeds=(1, 2), rows=("NSP", "none"))
    assert [row.trials for row in again.rows] == [row.trials for row in first.rows]


def test_a_second_corpus_counts_and_a_row_of_two_tables_is_trained_once(
    small, corpus: Path, tmp_path: Path
) -> None:
    found = small("data", more=shutil.copytree(corpus, tmp_path / "more"))
    one, two = (row.trials[0].measures["masked_lm_loss"] for row in found.rows)
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
    found = small("embedding", afford=0)
    assert (
        [trial.label for row in found.rows for trial in row.trials]
        == ["E 128, all shared"]
        == [found.rows[5].label]
    )
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_deeper_row_starts_from_the_row_before(small: Ablate, tmp_path: Path) -> None:
    found = small("depth", rows=("3 layers",))
    assert found.rows[1].trials[0].label == "3 layers"
    assert len(list((tmp_path / "runs").iterdir())) == 2
    (start,) = (tmp_path / "runs").glob("*/start/config.json")
    assert json.loads(start.read_text())["num_hidden_layers"] == 3
    assert "nothing to compare" in found.verdict


@pytest.mark.usefixtures("small")
def test_rows_that_cannot_be_afforded_are_predicted_and_not_trained(
    corpus: Path, tmp_path: Path
) -> None:
    words = (
        "study",
        "ablation",
        "width",
        "--corpus",
        corpus,
        "--output",
        tmp_path,
        "--scale",
        "small",
    )
    shown = litebert(*words, "--afford", 0, "--json").ok
    assert litebert("study", "page", tmp_path, "--html", tmp_path / "page.html").ok
    rows = shown.json["rows"]
    assert all(row["trials"] == [] and row["predicted_cpu_seconds"] > 0 for row in rows)
    flops = [row["predicted_flops"] for row in rows]
    assert flops == sorted(flops) and "Nothing was trained" in shown.stderr
    assert "Nothing was trained" in (tmp_path / "page.html").read_text("utf-8")
    assert not (tmp_path / "runs").exists()


WRONG = {
    "ablation shoring --corpus nowhere": "LB-746",
    "ablation sharing --corpus nowhere --scale tyni": "LB-746",
    "ablation sharing --corpus nowhere --row x": "LB-746",
    "ablation sharing --corpus nowhere --seeds 1,1": "LB-539",
    "ablation sharing --corpus nowhere --probe sst2": "LB-762",
    "ablation data --corpus nowhere": "LB-829",
    "layers --texts file --depths 4": "LB-761",
    "page . --html page.html": "LB-764",
    "cost --output file": "LB-008",  # before anything is measured
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_arguments_and_missing_files_are_refused(
    words: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("the cat\n")
    assert_error(litebert("study", *words.split(), cwd=tmp_path), 1, WRONG[words])
    (tmp_path / "data.json").write_text('{"rows": 3}')  # of something else
    assert_error(
        litebert("study", "page", ".", "--html", "page.html", cwd=tmp_path), 3, "LB-651"
    )


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
        with pytest.raises(LitebertError, match="LB-830"):
            small("sentence", rows=("none",), probes=(f"words={data}",))
    found = small("sentence", rows=("none",), probes=(f"words={data}",))
    assert len([*(tmp_path / "runs").glob("*/probe-words/result.json")]) == 1
    data.write_text(data.read_text().replace("ball", "bowl"))
    with pytest.raises(LitebertError, match="LB-505"):
        small("sentence", rows=("none",), probes=(f"words={data}",))
    assert 0 <= found.rows[0].trials[0].probes["words"] <= 1
    assert found.rows[0].trials[0].measures == trained.rows[0].trials[0].measures
