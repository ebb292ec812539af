"""How the command line behaves: help without torch, one clear error for a mistake, exit
codes, `--json`, outputs.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from .commands import COMMANDS, ELSEWHERE, furnish
from .shell import (
    QUICK,
    assert_error,
    assert_matches_schema,
    interrupted,
    leaves,
    litebert,
)
from .tiny import PRETRAIN, Desk


def test_every_help_has_examples_and_no_help_or_list_loads_torch(desk: Desk) -> None:
    assert len(leaves()) > 40
    for name in leaves():
        done = litebert(*name.split(), "--help").ok
        assert done.stdout.startswith(f"Usage: litebert {name}")
        assert len(re.findall(rf"(?m)^ *litebert {name}\b", done.stdout)) >= 2, name
        assert "None" not in done.stdout, name  # such as a missing limit
    words = [[*name.split(), "--help"] for name in leaves()] + [["--version"], ["help"]]
    words += [["runs", "list", "--runs", str(desk.folder / "runs")]]
    code = f"""
import contextlib, io, sys, litebert
from litebert.cli import main
for words in {words!r}:
    sys.argv = ["litebert", *words]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main()
print(sorted({{"torch", "transformers", "matplotlib"}} & set(sys.modules)))
"""
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True
        ).stdout
        == "[]\n"
    )


def test_version_help_and_completion_are_printed_and_a_missing_verb_shows_help() -> (
    None
):
    assert re.search(r"litebert.*\d+\.\d+", litebert("-V").stdout)
    assert (
        litebert("help", "corpus", "build").stdout
        == litebert("corpus", "build", "--help").stdout
    )
    for words in ([], ["runs"], ["config"]):
        assert litebert(*words) == litebert(*words, "--help")
    assert "_LITEBERT_COMPLETE" in litebert("completion", "bash").stdout
    plain, pretrain, finetune = (
        litebert("config", "list", *verb) for verb in ((), ("pretrain",), ("finetune",))
    )
    assert plain == pretrain != finetune


MISTAKES: dict[str, tuple[int, str, str]] = {
    "a verb": (2, "pretran", "pretran pretrain"),
    "an option": (
        2,
        "fill [MASK] --precsion fp32",
        "--precsion --precision -- before a text",
    ),
    "a command of a group": (2, "runs lst", "lst"),
    "help of nothing": (2, "help nothing", "nothing"),
    "a negative count": (2, "fill [MASK] --top -3", "--top -3"),
    "a port": (2, "serve --port 99999", "--port"),
    **{
        f"a time of {n}": (2, f"serve --client-seconds {n}", "--client-seconds")
        for n in ("nan", "inf")
    },
    "a list of numbers": (2, "finetune REVIEWS --seeds 1,,-5", "--seeds 1,,-5"),
    "no text": (1, "pretrain", "text corpus"),
    "an empty path": (1, "pretrain ''", "empty"),
    "a corpus that is not there": (1, "pretrain --corpus nowhere", "nowhere"),
    "a recipe": (1, "pretrain --corpus x --recipe lapto", "lapto laptop"),
    "a recipe file": (1, "pretrain --corpus x --recipe none.toml", "none.toml"),
    "a setting": (1, "pretrain --corpus x train.sed=1", "train.sed train.seed"),
    "a preset": (1, "pretrain STORIES --preset mnii", "mnii mini"),
    "a preset of a fine-tuning": (
        1,
        "finetune REVIEWS model.preset=tiny",
        "model.preset=tiny",
    ),
    "a kind of task": (
        1,
        "finetune REVIEWS data.problem=foo",
        "foo regression --problem",
    ),
    "a long setting": (1, f"pretrain STORIES data.mix=['{'x' * 300}']", "data.mix"),
    "a setting nested too deep": (
        1,
        f"pretrain STORIES train.steps={'[' * 3_000}",
        "LB-104 train.steps",
    ),
    "endless epochs": (1, "finetune REVIEWS --epochs 1e300", "train.epochs 1e+300"),
    "checkpoints of no run": (1, "runs average nowhere --output x", "LB-650 nowhere"),
    "a name of a run": (1, "pretrain --corpus x --name ../x", "../x"),
    "a name that steers": (1, "pretrain --corpus x --name '\x1b[31m'", "name"),
    "a model": (1, "fill [MASK] --model nowhere", "nowhere"),
    "a run to show": (1, "config show nowhere", "nowhere"),
    "a task": (1, "finetune mrcp --data y", "mrcp mrpc"),
    "no data": (1, "finetune mrpc", "--data"),
    "no fine-tuned run": (
        1,
        "predict BASE --data REVIEWS --output x",
        "LB-613 finetune",
    ),
    "a run that is not there": (1, "evaluate runs/nope", "LB-620 runs/nope"),
    "a seed": (
        1,
        "finetune REVIEWS --seeds 1,99999999999999999999",
        "train.seed 99999999999999999999",
    ),
    "seeds of a single run": (
        1,
        "finetune REVIEWS --runs RUNS --seeds 1,2",
        "reviews --name",
    ),
    "the data of a recipe": (1, "finetune rte --recipe OTHER", "RTE elsewhere"),
    "nothing to evaluate": (1, "evaluate", "RUN"),
    "predictions alone": (1, "evaluate --predictions x.json", "--data"),
    "on of predictions": (
        1,
        "evaluate --predictions p.json --on sts --data REVIEWS",
        "--on",
    ),
    "several pretrained models": (
        1,
        "evaluate BASE litebert --data STORIES",
        "LB-525 one next: evaluate",
    ),
    "answers in a table": (
        1,
        "predict RUNS/reviews --data REVIEWS --output x.csv",
        "LB-547 folder x; classify",
    ),
    "a column that is no text": (
        1,
        "evaluate BASE --data REVIEWS --column color=a",
        "LB-850 color=a text",
    ),
    "a task beside a run": (
        1,
        "evaluate RUNS/reviews --data REVIEWS --task zzz",
        "--task",
    ),
    "split of a text": (1, "evaluate BASE --data STORIES --split test", "--split"),
    "no context": (1, "answer Who? --model nowhere", "CONTEXT"),
    "two outputs": (2, "quantize BASE a --output b", "OUTPUT once --output"),
    "no output": (2, "quantize BASE", "OUTPUT"),
    "a context without a word": (
        1,
        "answer Who? --file BLANK --model RUNS/spans",
        "blank.txt empty",
    ),
    "both contexts": (
        1,
        "answer Who? --context '' --file STORIES",
        "--context --file both",
    ),
    "two pairs for a text": (1, "classify a --pair a --pair b", "--pair"),
    "nothing to compare with": (1, "similar 'a b'", "second"),
    "an empty model": (1, "fill [MASK] --model ''", "LB-538 empty"),
    "an empty second text": (1, "order 'A cat.' '' --model BASE", "LB-945 order blank"),
    "an empty text": (1, "classify '' --model RUNS/reviews", "text"),
    "a device": (1, "embed /dev/null --model BASE", "LB-303 pipe first"),
    "a file of texts": (1, "embed mising.csv --model BASE", "mising.csv"),
    "a file beside a text": (
        1,
        "similar REVIEWS 'b c' --model BASE",
        "reviews.csv file",
    ),
    "a column without a file": (
        1,
        "classify good --column zzz --model RUNS/reviews",
        "--column zzz",
    ),
    "a role": (1, "embed REVIEWS --column txt=label --model BASE", "txt=label text"),
    "a column": (
        1,
        "embed REVIEWS --column body --model BASE",
        "body text, label correct",
    ),
    "no second column": (
        1,
        "similar REVIEWS --column first=text --model BASE",
        "second",
    ),
    "an array of words": (
        1,
        "score STORIES --output s.npy --model BASE",
        "s.npy .jsonl",
    ),
    "the input as output": (
        1,
        "embed STORIES --output STORIES --model BASE --force",
        "stories.txt",
    ),
    "a folder as output": (1, "embed STORIES --output . --model BASE", "folder"),
    "a file as a folder": (
        1,
        "predict RUNS/reviews --data REVIEWS --output REVIEWS --force",
        "LB-619 exists",
    ),
    "this folder as output": (1, "runs average BASE --output .", ""),
    "a verb without its head": (1, "classify a --model BASE", "classif finetune"),
    "33 choices": (1, f"choose Who? {'a ' * 33} --model nowhere", "33 32"),
    "no blank": (1, "fill 'Anna left.' --model BASE", "[MASK]"),
    "an export": (1, "export onnx nowhere out.onnx", "nowhere"),
    "examples": (1, "data check nowhere.csv", "nowhere.csv"),
    "one run to compare": (1, "runs compare BASE", "two"),
}
"""Exit code, command line and words of the error; no command writes or prints anything
else.
"""


@pytest.mark.parametrize(("code", "typed", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_clear_error(
    desk: Desk, tmp_path: Path, code: int, typed: str, said: str
) -> None:
    done = desk.run(tmp_path, *shlex.split(typed))
    assert_error(done, code, *said.split())
    assert (done.stdout, list(tmp_path.iterdir())) == ("", [])
    assert "\x1b" not in done.stderr


def test_debug_shows_where_an_error_comes_from() -> None:
    for words in (
        ["--debug", "recipes", "show", "nothing"],
        ["recipes", "show", "nothing", "--debug"],
    ):
        with pytest.raises(Exception, match="nothing"):
            litebert(*words)


def test_labels_names_and_data_cannot_steer_the_terminal(
    desk: Desk, tmp_path: Path
) -> None:
    bad = "\x1b[31m\x9b0m\U000e0001\u202e"
    (tmp_path / "t.csv").write_text(
        "text,label\n" + f"Anna {bad},good{bad}\nBert,bad\n" * 10, encoding="utf-8"
    )
    made = litebert("finetune", "t.csv", "--model", desk.base, *QUICK, cwd=tmp_path)
    classify = ["classify", f"Anna {bad}", "--model", "runs/t"]
    typed = [
        ["data", "check", "t.csv"],
        ["runs", "list"],
        [bad],
        classify,
        [*classify, "--json"],
    ]
    typed += [["embed", bad, "--model", desk.base], ["recipes", "show", bad]]
    shown = [made, *(litebert(*words, cwd=tmp_path) for words in typed)]
    for done in shown:
        assert done.stdout + done.stderr
        assert not {"\x1b", "\x9b", "\U000e0001", "\u202e"} & set(
            done.stdout + done.stderr
        ), done
    assert f"good{bad}" in shown[5].json[0]["values"]


# ---- JSON ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which all cases run: some read what others write."""
    folder = tmp_path_factory.mktemp("json")
    furnish(folder, desk)
    return folder


@pytest.mark.parametrize(("name", "typed"), COMMANDS, ids=map(" ".join, COMMANDS))
def test_json_output_matches_the_schema_that_help_shows(
    desk: Desk, place: Path, name: str, typed: str
) -> None:
    assert_matches_schema(
        name, desk.run(place, *name.split(), *shlex.split(typed), "--json").ok.json
    )


def test_rows_of_a_file_match_the_schema_and_every_command_with_json_is_tested(
    desk: Desk,
) -> None:
    done = litebert(
        "embed", desk.table("reviews.csv"), "--model", desk.base, "--json", "--quiet"
    )
    assert len(done.rows) == 20
    for row in done.rows:
        assert_matches_schema("embed", row)
    with_json = {
        name
        for name in leaves()
        if re.search(r"(?m)^  --json\b", litebert(*name.split(), "--help").stdout)
    }
    assert {name for name, _ in COMMANDS} | ELSEWHERE == with_json
    assert_error(litebert("help", "--schema", "recipes", "show"), 1, "recipes show")
    for wrong in ({}, {"cosine": "near"}, {"cosine": 0.5, "more": 1}):
        with pytest.raises(jsonschema.ValidationError):
            assert_matches_schema("similar", wrong)


# ---- signals, and the exit codes of a training ---------------------------------------


def trained(desk: Desk, *more: object) -> list[object]:
    words = [
        "pretrain",
        "--corpus",
        desk.corpus,
        "--preset",
        "tiny",
        "objective.max_seq_length=64",
        "--name",
        "own",
    ]
    own = {str(word).split("=")[0] for word in more}
    return [*words, *(word for word in QUICK if word.split("=")[0] not in own), *more]


def test_ctrl_c_ends_a_training_after_a_step_and_the_same_command_resumes_it(
    desk: Desk, tmp_path: Path
) -> None:
    words = trained(desk, "train.steps=12", "train.save_every=3", "--runs")
    stopped = interrupted(
        *words, tmp_path / "a", once=tmp_path / "a/own/checkpoints/step-000000003"
    )
    assert stopped.code == 130, stopped
    assert "Traceback" not in stopped.stderr
    assert [litebert(*words, tmp_path / name).code for name in "ab"] == [0, 0]
    weights = [
        (tmp_path / name / "own" / "model" / "model.safetensors").read_bytes()
        for name in "ab"
    ]
    assert weights[0] == weights[1]
    again = litebert(*words, tmp_path / "b")
    assert (again.code, (tmp_path / "b/own/model/model.safetensors").read_bytes()) == (
        0,
        weights[1],
    )
    assert_error(
        litebert(*words, tmp_path / "b", "optim.learning_rate=0.1"), 1, "learning_rate"
    )


def test_a_warm_up_longer_than_the_time_takes_a_tenth_of_the_steps_that_fit(
    desk: Desk, tmp_path: Path
) -> None:
    corpus = (
        "pretrain",
        "--corpus",
        desk.corpus,
        "--preset",
        "tiny",
        "--minutes",
        0.01,
        "--runs",
        tmp_path,
    )
    words = (*corpus, "train.batch_size=4", "objective.max_seq_length=64")
    words += ("optim.warmup_steps=10000", "train.log_every=1")
    # started after a plan, then resumed with the recorded settings
    for manner in ((), ("--quiet",)):
        assert litebert(*words, "train.loader_workers=0", *manner).ok
        (tmp_path / "albert" / "model" / "config.json").unlink()
    rates = re.findall(
        r'"learning_rate": ([^,]+)',
        (tmp_path / "albert" / "metrics.jsonl").read_text("utf-8"),
    )
    assert max(map(float, rates)) > 0.001  # the peak is 0.003


def test_a_training_with_non_finite_numbers_exits_with_five(
    desk: Desk, tmp_path: Path
) -> None:
    wild = [
        "optim.name=adamw",
        "optim.learning_rate=10",
        "optim.weight_decay=10",
        "optim.clip_norm=1e30",
    ]
    done = litebert(
        *trained(
            desk,
            *wild,
            "train.steps=60",
            "train.max_skipped_steps=2",
            "--runs",
            tmp_path,
        )
    )
    assert_error(done, 5, "finite")


# ---- outputs -------------------------------------------------------------------------


def test_a_dry_run_writes_nothing_and_a_small_text_has_fewer_pieces_than_requested(
    desk: Desk, tmp_path: Path
) -> None:
    words = (
        "pretrain",
        desk.stories,
        *PRETRAIN,
        "--held-out",
        0.2,
        "--vocab-size",
        8_000,
        *QUICK,
    )
    plan = litebert(*words, "--dry-run", cwd=tmp_path)
    assert {line.split()[0] for line in plan.ok.stdout.splitlines()} >= {
        "parameters",
        "memory",
        "time",
    }
    mix = (
        f'data.mix=["{desk.corpus / "held-out"}"]',
        "data.weights=[9,1]",
        "data.temperature=2",
        "--dry-run",
    )
    mixed = litebert(
        "pretrain", "--corpus", desk.corpus, "--preset", "tiny", *mix, cwd=tmp_path
    )
    assert re.search(
        rf"data +75.0% {desk.corpus}, 25.0% {desk.corpus}/held-out", mixed.stdout
    ), mixed
    assert list(tmp_path.iterdir()) == []
    done = litebert(*(word for word in words if word != "--quiet"), cwd=tmp_path)
    assert "the text has only" in done.stderr
    record = json.loads((tmp_path / "runs" / "albert" / "run.json").read_text())
    assert record["settings"]["train.steps"] == 2
    assert record["origins"]["train.steps"] == "command line: train.steps=2"
    assert record["settings"]["model.vocab_size"] < 1_000
