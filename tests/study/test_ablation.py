"""Ablations: the grids are the paper's tables, rows are trained once, orderings are judged."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.cli import run
from litebert.config import PretrainConfig
from litebert.errors import LitebertError
from litebert.settings import resolve, settings_from_words
from litebert.study import sizes_of
from litebert.study.ablation import Ablation, Scale, config_of, described, ordering, training_flops
from litebert.study.findings import read_findings, study_ablation
from litebert.study.trials import Bench
from litebert.train import loop

Ablate = Callable[..., Ablation]


@pytest.fixture
def small(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ablate:
    """Give the rows of a table, trained on a corpus with one seed at a scale of three steps."""
    training = ("model.max_position_embeddings=48", "objective.max_seq_length=48", "optim.name=adamw")
    training += ("optim.learning_rate=0.003", "train.batch_size=8")
    sizes = {"embedding_sizes": {64: 4, 128: 8, 256: 12, 768: 16}, "usual_embedding": 8}
    small = Scale(shapes={"base": (16, 2, 8), "large": (16, 2, 8)}, **sizes, steps=3, training=training)
    monkeypatch.setitem(described().scales, "small", small)
    monkeypatch.setattr("litebert.study.trials.EVALUATION_SEQUENCES", 16)
    fixed = {"corpus": corpus, "output": tmp_path, "scale": "small"}
    return lambda name, **given: study_ablation(name, **fixed, **{"seeds": (1,), **given}).found


def bench(grid: str, scale: str) -> Bench:
    return Bench(described().tables[grid], scale, Path("corpus"), Path("runs"), Path("more"))


@pytest.mark.parametrize("scale", ["paper", "tiny"])
def test_every_row_of_every_table_is_a_valid_configuration(scale: str) -> None:
    for grid in described().tables:
        place = bench(grid, scale)
        assert len(place.variants) > 1
        for variant in place.variants.values():
            resolve(PretrainConfig, settings_from_words(place.words(variant, 1)))
    place = bench("time", scale)  # equal compute is equal by FLOPs, those of the output layer left out
    one, other = (training_flops((*place.words(v, 1), "model.vocab_size=6")) for v in place.variants.values())
    assert one == pytest.approx(other, rel=0.02)


# Body parameters to the digit, and in millions as paper Tables 3, 4 and 12 print them.
UNSHARED, SHARED = [87_648_000, 89_650_176, 93_654_528, 109_081_344], [9_681_408, 11_683_584, 15_687_936, 31_114_752]
PARTLY = [SHARED[3], 83_078_400, 57_117_696, UNSHARED[3], SHARED[1], 63_647_232, 37_686_528, UNSHARED[1]]
NETWORKS = [
    ("embedding", UNSHARED + SHARED, [87, 89, 93, 108, 10, 12, 16, 31]),
    ("sharing", PARTLY, [31, 83, 57, 108, 12, 64, 38, 89]),
    ("width", [17_683_968, 58_724_864, 222_595_584, 495_518_208], [18, 60, 225, 499]),
]


@pytest.mark.parametrize(("name", "bodies", "millions"), NETWORKS)
def test_at_full_scale_the_networks_have_the_papers_parameters(name: str, bodies: list, millions: list) -> None:
    place = bench(name, "paper")
    assert [sizes_of(config_of(place.words(row, 1)).model).body for row in place.variants.values()] == bodies
    assert [body / 1e6 for body in bodies] == pytest.approx(millions, rel=0.025, abs=1.1)


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
def test_an_ordering_is_called_where_the_noise_allows(paper: list, ours: list, verdict: str) -> None:
    assert ordering(paper, ours).partition(":")[0] == verdict


def test_rows_are_trained_once_and_measured_on_both_sentence_objectives(
    small: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = small("sentence", seeds=(1, 2), rows=("NSP", "none"))
    none, nsp, sop = first.rows
    assert [trial.seed for trial in nsp.trials] == [1, 2]
    assert sop.trials == []
    assert "Not trained: SOP." in first.verdict
    assert {"nsp_accuracy", "sop_accuracy", "masked_lm_accuracy"} <= set(none.trials[0].measures)
    trial = nsp.trials[0]
    assert trial.tokens > 0
    assert trial.table == sizes_of(config_of([*trial.settings, "model.vocab_size=90"]).model).embeddings
    assert read_findings(Ablation, tmp_path, "sentence") == [first]
    monkeypatch.delattr("litebert.study.trials.pretrain")  # a trained row is not trained again
    again = small("sentence", seeds=(1, 2), rows=("NSP", "none"))
    assert [row.trials for row in again.rows] == [row.trials for row in first.rows]


def test_a_second_corpus_is_drawn_from_and_a_row_of_two_tables_is_trained_once(
    small: Ablate, corpus: Path, tmp_path: Path
) -> None:
    one, two = (row.trials[0].measures["masked_lm_loss"] for row in small("data", more=corpus).rows)
    assert one != two
    found = small("embedding", afford=0)  # its row is listed wherever it stands
    assert [trial.label for row in found.rows for trial in row.trials] == ["E 128, all shared"] == [found.rows[5].label]
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_deeper_row_starts_from_the_row_before(small: Ablate, tmp_path: Path) -> None:
    found = small("depth", rows=("3 layers",))
    assert found.rows[1].trials[0].label == "3 layers"
    assert len(list((tmp_path / "runs").iterdir())) == 2
    (start,) = (tmp_path / "runs").glob("*/start/config.json")
    assert json.loads(start.read_text())["num_hidden_layers"] == 3
    assert "nothing to compare" in found.verdict


@pytest.mark.usefixtures("small")
def test_what_cannot_be_afforded_is_predicted_and_not_trained(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["study", "ablation", "width", "--corpus", str(corpus), "--output", str(tmp_path), "--scale", "small"]
    assert run([*words, "--afford", "0", "--json"]) == 0
    shown = capsys.readouterr()
    assert run(["study", "page", str(tmp_path), "--html", str(tmp_path / "page.html")]) == 0
    rows = json.loads(shown.out)["rows"]
    assert all(row["trials"] == [] and row["predicted_cpu_seconds"] > 0 for row in rows)
    flops = [row["predicted_flops"] for row in rows]
    assert flops == sorted(flops)
    assert "Nothing was trained" in shown.err
    assert "Nothing was trained" in (tmp_path / "page.html").read_text("utf-8")
    assert not (tmp_path / "runs").exists()


WRONG = {
    "ablation shoring --corpus nowhere": "LB-746",
    "ablation sharing --corpus nowhere --scale tyni": "LB-746",
    "ablation sharing --corpus nowhere --row x": "LB-746",
    "ablation sharing --corpus nowhere --probe sst2": "LB-762",
    "ablation data --corpus nowhere": "LB-829",
    "layers --texts file --depths 4": "LB-761",
    "page . --html page.html": "LB-764",
    "cost --output file": "LB-008",  # before the measuring
}


@pytest.mark.parametrize("words", WRONG)
def test_what_says_nothing_or_is_not_there_is_refused(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("the cat\n")
    monkeypatch.chdir(tmp_path)
    assert run(["study", *words.split()]) == 1
    assert WRONG[words] in capsys.readouterr().err


def test_an_interrupted_probe_says_how_to_resume_and_then_does(
    small: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "words.tsv"
    data.write_text("text\tlabel\n" + "Anna took the ball.\t0\nAnna took a ball.\t1\n" * 20)
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
    assert 0 <= found.rows[0].trials[0].probes["words"] <= 1
    assert found.rows[0].trials[0].measures == trained.rows[0].trials[0].measures
