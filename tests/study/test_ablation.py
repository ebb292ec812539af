"""Ablations: the grids are the paper's tables, rows are trained once, orderings are judged."""

import json
import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from litebert.cli import cli
from litebert.config import PretrainConfig, resolve, settings_from_words
from litebert.errors import LitebertError
from litebert.study import sizes_of
from litebert.study.ablation import (
    GRIDS,
    SCALES,
    Ablation,
    AblationRow,
    Plan,
    Probe,
    Trial,
    ablate,
    ordering,
    read_ablation,
)
from litebert.study.ablation.grids import Scale, Shape, training_flops
from litebert.study.ablation.trial import Bench
from litebert.train import loop


def _small() -> Scale:
    training = (
        "model.max_position_embeddings=48",
        "objective.max_seq_length=48",
        "optim.name=adamw",
        "optim.learning_rate=0.003",
        "train.batch_size=8",
    )
    shape = Shape(16, 2, 8)
    return Scale(
        "small",
        shape,
        shape,
        embedding_sizes={64: 4, 128: 8, 256: 12, 768: 16},
        usual_embedding=8,
        steps=3,
        training=training,
    )


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCALES, "small", _small())
    monkeypatch.setattr("litebert.study.ablation.trial.EVALUATION_SEQUENCES", 16)


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
@pytest.mark.parametrize("grid", GRIDS.values(), ids=list(GRIDS))
def test_every_row_of_every_table_is_a_valid_configuration(grid, scale: Scale) -> None:
    variants = grid.variants(scale)
    assert len({variant.label for variant in variants}) == len(variants)
    bench = Bench(Path("corpus"), Path("runs"), scale, Path("more"))
    for variant in variants:
        resolve(PretrainConfig, settings_from_words(bench.words(variant, 1)))


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("sharing", [31, 83, 57, 108, 12, 64, 38, 89]),
        ("embedding", [87, 89, 93, 108, 10, 12, 16, 31]),
        ("width", [18, 60, 225, 499]),
    ],
)
def test_at_full_scale_the_networks_have_the_papers_parameters(name: str, millions: list[int]) -> None:
    bench = Bench(Path("corpus"), Path("runs"), SCALES["paper"])
    found = []
    for variant in GRIDS[name].variants(bench.scale):
        words = settings_from_words(bench.words(variant, 1))
        found.append(sizes_of(resolve(PretrainConfig, words).config.model).total / 1e6)
    assert found == pytest.approx(millions, rel=0.06)


def test_equal_compute_is_equal_by_flops_without_the_output_layer() -> None:
    for scale in SCALES.values():
        bench = Bench(Path("corpus"), Path("runs"), scale)
        one, other = (
            training_flops((*bench.words(each, 1), "model.vocab_size=6")) for each in GRIDS["time"].variants(scale)
        )
        assert one == pytest.approx(other, rel=0.02)


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
def test_an_ordering_is_called_where_the_noise_allows(
    paper: list[float | None], ours: list[list[float]], verdict: str
) -> None:
    assert ordering(paper, ours).verdict == verdict


def test_rows_are_trained_once_and_measured_on_both_sentence_objectives(
    corpus: Path, tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(seeds=(1, 2), only=("NSP", "none"))
    first = ablate("sentence", corpus, tmp_path, scale="small", plan=plan)
    none, nsp, sop = first.rows
    assert [trial.seed for trial in nsp.trials] == [1, 2]
    assert sop.trials == []
    assert "Not trained: SOP." in first.verdict
    assert {"nsp_accuracy", "sop_accuracy", "masked_lm_accuracy"} <= set(none.trials[0].measures)
    trial = nsp.trials[0]
    assert trial.tokens > 0
    assert trial.table == sizes_of_trial(trial.settings).embeddings
    assert read_ablation(tmp_path / "sentence.json") == first

    monkeypatch.setattr("litebert.study.ablation.trial.pretrain", _fail)
    again = ablate("sentence", corpus, tmp_path, scale="small", plan=plan)
    assert [row.trials for row in again.rows] == [row.trials for row in first.rows]


def _fail(*_: object, **__: object) -> None:
    raise AssertionError("a trained row is not trained again")


def sizes_of_trial(settings: list[str]):
    words = [*settings, "data.corpus=x", "model.vocab_size=90"]
    return sizes_of(resolve(PretrainConfig, settings_from_words(words)).config.model)


def test_one_network_is_measured_at_every_depth(corpus: Path, tmp_path: Path, small: None) -> None:
    plan = Plan(seeds=(1,), only=("elastic",))
    found = ablate("elastic", corpus, tmp_path, scale="small", plan=plan)
    rows = {row.label: row for row in found.rows}
    for label in plan.only:
        (trial,) = rows[label].trials
        assert {f"mask_token_accuracy_at_{n}" for n in (1, 2)} <= set(trial.measures)


def test_additional_data_is_drawn_beside_the_first_corpus(corpus: Path, tmp_path: Path, small: None) -> None:
    plan = Plan(seeds=(1,), more=corpus)
    found = ablate("data", corpus, tmp_path, scale="small", plan=plan)
    one, two = (row.trials[0].measures["masked_lm_loss"] for row in found.rows)
    assert one != two


def test_a_row_of_two_tables_is_trained_once_and_listed_wherever_it_stands(
    corpus: Path, tmp_path: Path, small: None
) -> None:
    only = Plan(seeds=(1,), only=("E 768, shared: all",))
    ablate("sharing", corpus, tmp_path, scale="small", plan=only)
    found = ablate("embedding", corpus, tmp_path, scale="small", plan=Plan(seeds=(1,), most_cpu_seconds=0))
    trained = [row.label for row in found.rows if row.trials]
    assert trained == ["E 768, all shared"] == [found.rows[7].trials[0].label]
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_a_table_of_two_parts_is_ordered_within_each() -> None:
    def row(label: str, part: str, paper: float, *ours: float) -> AblationRow:
        trials = [
            Trial(
                label=label,
                seed=seed,
                settings=[],
                steps=1,
                tokens=1,
                cpu_seconds=1,
                table=1,
                body=1,
                measures={"m": value},
            )
            for seed, value in enumerate(ours)
        ]
        return AblationRow(
            label=label, part=part, paper=paper, trials=trials, predicted_flops=1, predicted_cpu_seconds=1
        )

    rows = [row("a", "one", 1, 0.1, 0.11), row("b", "one", 2, 0.3, 0.31)]
    rows += [row("c", "two", 1, 0.6, 0.61), row("d", "two", 2, 0.5, 0.51)]
    found = Ablation(name="x", title="x", source="x", scale="small", paper_measure="x", measure="m", rows=rows)
    assert [each.verdict for each in found.orderings.values()] == ["reproduced", "reversed"]
    assert "The paper's ordering, one: reproduced" in found.verdict


def test_a_deeper_row_starts_from_the_row_before(corpus: Path, tmp_path: Path, small: None) -> None:
    plan = Plan(seeds=(1,), only=("3 layers",))
    found = ablate("depth", corpus, tmp_path, scale="small", plan=plan)
    (trial,) = found.rows[1].trials
    assert trial.label == "3 layers"
    assert len(list((tmp_path / "runs").iterdir())) == 2
    (start,) = (tmp_path / "runs").glob("*/start/config.json")
    assert json.loads(start.read_text())["num_hidden_layers"] == 3
    assert found.orderings[""].verdict == "nothing to compare"


def test_what_cannot_be_afforded_is_predicted_and_not_trained(corpus: Path, tmp_path: Path, small: None) -> None:
    words = ["ablation", "width", "--corpus", str(corpus), "--output", str(tmp_path)]
    words += ["--scale", "small", "--afford", "0", "--html", str(tmp_path / "page.html"), "--json"]
    result = CliRunner().invoke(cli, ["study", *words])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert all(row["trials"] == [] and row["predicted_cpu_seconds"] > 0 for row in rows)
    flops = [row["predicted_flops"] for row in rows]
    assert flops == sorted(flops)
    assert "Nothing was trained" in result.stderr
    assert "Nothing was trained" in (tmp_path / "page.html").read_text("utf-8")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["shoring"], "LB-746"),
        (["sharing", "--scale", "tyni"], "LB-745"),
        (["sharing", "--row", "x"], "LB-748"),
        (["sharing", "--probe", "sst2"], "LB-762"),
        (["data"], "LB-829"),
    ],
)
def test_wrong_names_are_refused_with_the_right_ones(words: list[str], code: str) -> None:
    result = CliRunner().invoke(cli, ["study", "ablation", *words, "--corpus", "nowhere"])
    assert isinstance(result.exception, LitebertError)
    assert result.exception.code == code


def test_an_interrupted_probe_says_how_to_resume_and_then_does(
    corpus: Path, tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"Anna took {'a' if n % 2 else 'the'} ball.\t{n % 2}" for n in range(40)]
    data = tmp_path / "words.tsv"
    data.write_text("\n".join(["text\tlabel", *lines]), encoding="utf-8")
    plan = Plan(seeds=(1,), only=("none",), probes=(Probe("words", data),))

    trained = ablate("sentence", corpus, tmp_path, scale="small", plan=Plan((1,), only=("none",)))
    folder = next((tmp_path / "runs").glob("*/run")).parent
    original = loop.training_step

    def signalling(*args: object, **kwargs: object) -> object:
        if kwargs["step"] == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "training_step", signalling)
        with pytest.raises(LitebertError, match="LB-830"):
            ablate("sentence", corpus, tmp_path, scale="small", plan=plan)
    found = ablate("sentence", corpus, tmp_path, scale="small", plan=plan)
    assert (folder / "probe-words" / "result.json").is_file()
    assert 0 <= found.rows[0].trials[0].probes["words"] <= 1
    assert found.rows[0].trials[0].measures == trained.rows[0].trials[0].measures
