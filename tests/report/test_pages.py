"""Reports of runs: their text, valid markup that loads nothing, reproducible bytes, and
curves that stay small.

The runs are written with the functions that litebert pretrain and finetune use.
"""

import html
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from litebert.config import (
    AlbertConfig,
    FinetuneConfig,
    HeadConfig,
    PretrainConfig,
    TrainConfig,
)
from litebert.device import choose_device
from litebert.errors import DamagedError, LitebertError
from litebert.files import Json, append_line, write_json, write_text
from litebert.folder.config import write_config
from litebert.origins import Origin
from litebert.report.figures import curve_of
from litebert.report.training import write_report
from litebert.runs import LogRow
from litebert.settings import Setting, resolve
from litebert.train.beginning import begin
from litebert.train.log import RunLog
from litebert.train.session import Session


def start_run(
    folder: Path,
    kind: type[BaseModel],
    chosen: dict[str, tuple[Json, str]],
    **data: Json,
) -> RunLog:
    """Start a run of 40 steps with settings and their origins."""
    settings = dict[str, Setting]()
    for name, (value, phrase) in chosen.items():
        settings[name] = Setting(value, Origin.parse(phrase))
    begin(folder, resolve(kind, settings), data={"tokenizer": "a1b2c3", **data})
    return RunLog(
        Session(folder), TrainConfig(steps=40), choose_device("cpu"), is_quiet=True
    )


def pretrained(
    parent: Path,
    name: str = "mine",
    *,
    sentence: str = "order",
    corpus: str = "corpora/wiki",
    last_step: int = 40,
    accuracies: tuple[float, float] = (0.3, 0.8),
    unknown: float = 0.0,
) -> Path:
    """Write a pretraining run with evaluations at steps 0, 20 and 40, or without any if
    `last_step` is 0.
    """
    settings = {"model.preset": ("tiny", "flag"), "data.corpus": (corpus, "flag")}
    settings |= {
        "train.steps": (40, "recipe laptop"),
        "train.log_every": (1, "recipe laptop"),
    }
    settings["objective.sentence"] = (
        sentence,
        f"command line: objective.sentence={sentence}",
    )
    log = start_run(
        parent / name,
        PretrainConfig,
        settings,
        **{"training tokens": 1_234_567, "unknown share": unknown},
    )
    for step in range(last_step + 1):
        values = {
            "masked_lm_loss": 10 - step / 8,
            "masked_lm_accuracy": accuracies[0] * step / 40,
        }
        if sentence != "none":
            values["sentence_order_loss"] = 0.7
            values["sentence_order_accuracy"] = 0.5 + (accuracies[1] - 0.5) * step / 40
            values["sentence_order_pairs"] = 1024
        if step:
            log.training(
                step,
                4_000,
                values,
                {"learning_rate": 1e-3, "gradient_norm": 2.0 / step},
            )
        if last_step and step % 20 == 0:
            log.evaluation(step, partial(dict, values, masked_lm_baseline=0.054))
    if last_step == 40:
        write_json(parent / name / "model" / "config.json", {})
    return parent / name


def finetuned(
    parent: Path,
    name: str = "mrpc",
    *,
    task: str = "mrpc",
    start: str = "models/mine",
    seed: int = 1,
    accuracies: tuple[float, float] = (0.75, 0.7),
    splits: tuple[str, ...] = ("dev",),
    doubts: tuple[str, ...] = (
        "accuracy 0.7000 is no better than always giving the most common label",
    ),
    labels: tuple[str, ...] = ("not_equivalent", "equivalent"),
    rows: Iterable[dict[str, Json]] = (),
    is_finished: bool = True,
    **overrides: Json,
) -> Path:
    """Write a fine-tuning run with evaluations at steps 20 and 40; by default with four
    answers, the last two wrong.
    """
    folder = parent / name
    settings = {
        "task.name": (task, f"recipe {task}"),
        "optim.learning_rate": (2e-5, f"recipe {task}"),
    }
    settings |= {
        "data.folder": ("glue", "flag"),
        "model.start": (start, "flag"),
        "train.seed": (seed, "flag"),
    }
    settings |= {"train.steps": (40, "command line: train.steps=40")}
    settings |= {
        key.replace("__", "."): (value, "flag") for key, value in overrides.items()
    }
    sizes = {
        "training examples": 3_668,
        "training features": 3_668,
        **{f"{split} examples": 4 for split in splits},
    }
    log = start_run(folder, FinetuneConfig, settings, **sizes)
    prefixes = [f"{split}_" for split in splits] if len(splits) > 1 else [""]

    def measures(value: float) -> dict[str, float]:
        return {
            f"{prefix}{name}": value / part
            for prefix in prefixes
            for name, part in (("accuracy", 1), ("f1", 2))
        }

    for step in range(10, 41 if is_finished else 31, 10):
        log.training(
            step, 900, {"loss": 7 / step}, {"learning_rate": 1e-5, "gradient_norm": 1}
        )
        if step % 20 == 0:
            log.evaluation(step, partial(measures, accuracies[step // 20 - 1]))
    if not is_finished:
        return folder
    best = {
        "step": 20 if accuracies[0] >= accuracies[1] else 40,
        **measures(max(accuracies)),
    }
    result = {
        "task": task,
        "key_measure": f"{prefixes[0]}accuracy",
        "evaluations": 2,
        "seed": seed,
        "start": start,
    }
    result |= {
        "last": {"step": 40, **measures(accuracies[1])},
        "best": best,
        "doubts": list(doubts),
    }
    result |= {"baseline": {f"{prefix}accuracy": 0.75 for prefix in prefixes}}
    result |= {"fresh": ["head.dense.weight", "head.dense.bias"]}
    write_json(folder / "result.json", result)
    (folder / "model").mkdir()
    head = None
    if labels:
        head = HeadConfig(
            kind="sequence-classification",
            labels=labels,
            compares_texts=task == "mrpc",
        )
    write_config(AlbertConfig(), folder / "model", head=head)
    for split in splits:
        lines = "".join(
            json.dumps(row, ensure_ascii=False) + "\n" for row in rows or four()
        )
        write_text(folder / "answers" / f"{split}.jsonl", lines)
    return folder


def row(**changes: Json) -> dict[str, Json]:
    plain = {
        "id": "7",
        "text": "A text.",
        "expected": "equivalent",
        "answer": "equivalent",
    }
    return {**plain, "confidence": 0.9, "score": 1.0, **changes}


def four() -> Iterator[dict[str, Json]]:
    """Yield answers to four pairs of texts, the last two wrong."""
    for number, expected in enumerate(
        ("not_equivalent", "equivalent", "equivalent", "equivalent")
    ):
        wrong = (
            {"answer": "not_equivalent", "score": 0.0}
            if number > 1
            else {"answer": expected}
        )
        text = f"One says {number}. ¦ The other says {number}."
        yield row(
            id=str(number),
            text=text,
            expected=expected,
            confidence=0.6 + number / 10,
            **wrong,
        )


def assert_text(run: Path, present: Iterable[str], absent: Iterable[str] = ()) -> str:
    """Write a report, require and forbid phrases in its text, figures left out, and
    return the text.
    """
    page = write_report(run).read_text(encoding="utf-8")
    body = re.sub(r"<svg.*?</svg>", "", page[page.index("<body>") :], flags=re.DOTALL)
    text = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())
    assert [
        words for words in present if words.replace("{folder}", str(run)) not in text
    ] == []
    assert [words for words in absent if words in text] == []
    return text


# ---- pretraining ---------------------------------------------------------------------

WORSE = {"kind": "eval", "step": 50, "masked_lm_loss": 6.0, "masked_lm_accuracy": 0.2}
HUGE = {
    "kind": "train",
    "step": 41,
    "masked_lm_loss": 3e38,
    "gradient_norm": 1e30,
    "tokens_per_second": 0,
    "tokens": 0,
}
NAN = [
    {"kind": "train", "step": 41, "masked_lm_loss": math.nan, "gradient_norm": math.inf}
]
NAN += [
    {
        "kind": "eval",
        "step": 41,
        "masked_lm_loss": -math.inf,
        "masked_lm_accuracy": math.nan,
    }
]
NOTES = [
    {"kind": "note", "step": n, "text": f"step {n} skipped: gradient norm inf"}
    for n in range(1, 61)
]

# measures before, now and without learning; how to use the model; settings, data, notes
PLAIN = [
    "Finished after 40 steps.",
    "tiny: 3 layers of 128, 2 heads, sharing all",
    "Tokens seen 160,000",
    "Measure At step 0 At step 40 Without learning",
    "Masked-LM loss 10.0000 5.0000 10.3090, uniform guess",
    "Masked-LM accuracy 0.0% 30.0% 5.4%, most common token",
    "Sentence order accuracy 50.0% 80.0% 50.0%, chance",
    'litebert fill "The cat sat on the [MASK]." --model {folder}/model',
    '"He opened the door." "Nobody was there." --model {folder}/model',
    "litebert.load('{folder}/model')",
    "train.seed 12345 12345 default",
    "model.embedding_projection unset unset preset tiny (flag)",
    "tokenizer a1b2c3 training tokens 1,234,567",
    "Nothing unusual was noted",
]
NO_GAIN = [
    (
        "The model predicts 5.4% of the masked tokens; always giving the most common one gets"
        " 5.4%: it has learned next to nothing."
    ),
    "no better than chance on 1,024 pairs.",
]
RESUME = [
    "Not finished: step 30 of 40. There is no model yet.",
    "At step 0 At step 20",
    "to resume it",
]
BEGUN = [
    "Not finished: no training step was logged yet.",
    "Nothing was evaluated yet.",
    "No step was logged yet.",
]
MANY = [
    "Notes 60, listed below",
    "The last 50 of 60 notes",
    "11 step 11 skipped: gradient norm inf",
    "60 step 60 skipped: gradient norm inf",
]
# The run, rows added to its log, and phrases that its report contains and does not
# contain.
PRETRAINED: dict[
    str, tuple[dict[str, Any], list[dict[str, object]], list[str], list[str]]
] = {
    "plain": ({}, [], PLAIN, []),
    "no gain": ({"accuracies": (0.054, 0.52)}, [], NO_GAIN, []),
    "unknown pieces": (
        {"unknown": 0.2},
        [],
        ["20.0% of the tokens, so also of the answers, are unknown;"],
        [],
    ),
    "no sentence objective": (
        {"sentence": "none"},
        [],
        ["litebert fill"],
        ["Sentence order", "litebert order"],
    ),
    "next sentence": (
        {"sentence": "next"},
        [],
        ["Next sentence accuracy 50.0%"],
        ["Sentence order", "litebert order"],
    ),
    "not finished": ({"last_step": 30}, [], RESUME, ["litebert fill"]),
    "only begun": ({"last_step": 0}, [], BEGUN, []),
    "evaluated once": (
        {"last_step": 1},
        [],
        ["Measure At step 0 Without learning Masked-LM loss 10.0000 10.3"],
        [],
    ),
    "past its best": (
        {},
        [WORSE],
        ["The held-out masked-LM loss is 6.000; it was lowest, 5.000, at step 40."],
        [],
    ),
    "beyond all bounds": ({}, [HUGE], ["Finished after 41 steps."], []),
    "not finite": ({}, NAN, ["Masked-LM loss 10.0000 not finite 10.3090"], []),
    "many notes": ({}, NOTES, MANY, ["step 10 skipped"]),
}


@pytest.mark.parametrize(
    ("arguments", "rows", "present", "absent"), PRETRAINED.values(), ids=PRETRAINED
)
def test_the_report_of_a_pretraining_shows_the_no_learning_baselines(
    tmp_path: Path,
    arguments: dict[str, Any],
    rows: list[dict[str, object]],
    present: list[str],
    absent: list[str],
) -> None:
    run = pretrained(tmp_path, **arguments)
    for row in rows:
        append_line(run / "metrics.jsonl", json.dumps(row))
    assert_text(run, present, absent)


def test_changed_settings_come_first_with_default_and_origin(tmp_path: Path) -> None:
    run = pretrained(tmp_path, sentence="next")
    recorded = json.loads((run / "run.json").read_text())
    recorded["settings"]["train.warp"] = 9
    (run / "run.json").write_text(json.dumps(recorded))
    lines = [
        "model.hidden_size 128 768 preset tiny (flag) width of the layers, H",
        "objective.sentence next order command line: objective.sentence=next",
        "data.corpus corpora/wiki required flag",
        "train.warp 9 unknown unknown not a setting of this version",
    ]
    text = assert_text(run, lines)
    changed = text.partition("Settings that differ")[2].partition("settings Setting")[0]
    assert all(line in changed for line in lines) and "train.seed" not in changed
    assert re.search(r"litebert \d+\.\d+\.\d+ python 3\.\d+\.\d+ torch 2\.", text)


# ---- fine-tuning ---------------------------------------------------------------------

BASE = "albert/albert-base-v2"
# last and best; without learning; published figures and their caveats; answers; use
FINETUNED_PLAIN = [
    "Fine-tuning run mrpc Finished after 40 steps.",
    (
        "Last step, 40 Best evaluation, step 20 Without learning accuracy, key measure"
        " 0.7000 0.7500 0.7500 f1 0.3500"
    ),
    "with the highest accuracy of 2 (best/): it was chosen on the same examples",
    "Task mrpc Started from models/mine Network 12 layers of 768",
    "New, not pretrained head.dense Trained on 3,668 examples",
    "Evaluated on dev: 4 examples",
    "Accuracy 0.7000 is no better than always giving the most common label.",
    "started from models/mine, which is not one of the published models",
    "not comparable with yours",
    "xxlarge-v1 accuracy 90.9 70.0 75.0 Table 9, row ALBERT (1.5M)",
    (
        "Expected answered not_equivalent answered equivalent Right not_equivalent 1 0"
        " 100.0% equivalent 2 1 33.3%"
    ),
    (
        "dev: the worst 2 of 2 errors in 4 Id Sure Expected Answered Text 3 90.0%"
        " equivalent not_equivalent One says 3. ¦ The other says 3. 2 80.0% equivalent"
        " not_equivalent One says 2."
    ),
    "train.steps 40 0 command line: train.steps=40",
    "task.name mrpc required recipe mrpc",
    "data.folder glue unset flag",
    "litebert evaluate {folder}/best",
    'litebert classify "A text." --pair "Its pair." --model {folder}/model',
    'model.classify(["A text."], pairs=["Its pair."])',
]
NO_FIGURE = [
    "from the published base-v2, which has no figure on mrpc",
    "are not comparable with yours",
]
OF_BASE = [
    "the run started from the published base-v2: compare your figures",
    "base-v2 accuracy 92.9 70.0 75.0 README L33-44, row V2 ALBERT-base",
]
TWO_SETS = [
    "dev_matched_accuracy, key measure 0.7000 0.7500",
    "Held-out dev_matched_accuracy",
    "Held-out dev_mismatched_accuracy",
    "dev_mismatched, 4 examples",
]
UNFINISHED = [
    "Not finished: step 30 of 40. There is no model yet.",
    "The last evaluation so far Measure At step 20 accuracy 0.7500",
    "Rerun the litebert finetune command that began this run to resume it",
]
OF_NONE = [f"started from random weights, shaped as {BASE}, which is not one of"]
OWN = {"task": "table", "data__folder": None, "data__train": "mine.csv"}
SPANS = [row(expected="the Nile", answer="Nile river", confidence=0.75, score=0.5)]
SPANS += [row(expected="", answer="Nile", confidence=0.7, score=0.0)]
OF_SPANS = [
    "On dev it is 0.7250: the last step is 72.5% sure on average and 0.0% right."
]
OF_SPANS += ["7 70.0% (none) Nile A text."]
NUMBERS = [row(id="near", expected="3", answer="2.9", confidence=None, score=0.9)]
NUMBERS += [row(id="far", expected="5", answer="0.1", confidence=None, score=0.2)]
WRONG = row(expected="label-3", answer="label-9", score=0.0)
MISTAKEN = [WRONG, WRONG, row(expected="label-1", answer="label-2", score=0.0)]
MANY_LABELS = {
    "rows": MISTAKEN,
    "labels": tuple(f"label-{number}" for number in range(40)),
}
COMMONEST = [
    "dev: the 2 most common of 2 confusions Expected Answered Times label-3 label-9 2"
    " label-1 label-2 1"
]
BLANK = row(text=" ", answer="", confidence=None, score=0.0)
TOO_SURE = [
    "dev, 10 examples",
    "On dev it is 0.4000: the last step is 90.0% sure on average and 50.0% right.",
]
FINETUNED: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "plain": ({}, FINETUNED_PLAIN, ["objective."]),
    "no doubts": ({"doubts": ()}, ["accuracy, key measure 0.7000"], ["no better than"]),
    "a published model": ({"task": "sst2", "start": BASE}, OF_BASE, ["not comparable"]),
    "a published model without a figure": ({"start": BASE}, NO_FIGURE, []),
    "random weights": (
        {"task": "sst2", "start": BASE, "model__random": True},
        OF_NONE,
        [],
    ),
    "the user's own task": (OWN, ["Task mine.csv"], ["Published", "Task table"]),
    "two held-out sets": (
        {"splits": ("dev_matched", "dev_mismatched")},
        TWO_SETS,
        ["Held-out dev_matched_f1"],
    ),
    "not finished": (
        {"is_finished": False},
        UNFINISHED,
        ["Best evaluation", "litebert evaluate", "Held-out step"],
    ),
    "one seed of several": (
        {"name": "mrpc/seed-1"},
        ["Fine-tuning run mrpc/seed-1 Finished"],
        [],
    ),
    "many labels": (MANY_LABELS, COMMONEST, []),
    "too sure": (
        {"rows": [*(row(score=float(number < 5)) for number in range(10)), BLANK]},
        TOO_SURE,
        [],
    ),
    "without confidence": (
        {"rows": [row(), row(confidence=None)]},
        [],
        ["Calibration"],
    ),
    "several labels": (
        {"rows": [row(), row(answer="equivalent, not_equivalent")]},
        [],
        ["Calibration"],
    ),
    "spans": ({"rows": SPANS, "labels": ()}, OF_SPANS, ["Confusion"]),
    "numbers": (
        {"rows": NUMBERS},
        ["far unknown 5 0.1 A text. near unknown 3 2.9"],
        ["Confusion"],
    ),
}


@pytest.mark.parametrize(
    ("arguments", "present", "absent"), FINETUNED.values(), ids=FINETUNED
)
def test_the_report_of_a_fine_tuning_shows_baselines_and_published_figures(
    tmp_path: Path, arguments: dict[str, Any], present: list[str], absent: list[str]
) -> None:
    assert_text(finetuned(tmp_path, **arguments), present, absent)


def test_a_start_from_the_vectors_stands_beside_what_training_made_of_it(
    tmp_path: Path,
) -> None:
    run = finetuned(tmp_path)
    result = json.loads((run / "result.json").read_text())
    result["first"] = {"step": 0, "accuracy": 0.72}
    result["kept"] = "best"
    write_json(run / "result.json", result)
    columns = "At the start Without learning"
    present = [
        f"{columns} accuracy, key measure 0.7000 0.7500 0.7200 0.7500 f1",
        "highest accuracy of 2 (best/ and model/)",
    ]
    assert_text(run, present, ["where training ended (model/)"])


def test_long_and_hostile_texts_are_cut_and_escaped_and_many_keep_the_page_small(
    tmp_path: Path,
) -> None:
    bad = '<script>alert("x")</script>\u2028\x00 ' + "word " * 200
    rows = [
        row(id=str(number), text="long text " * 30, confidence=0.5 + number / 40_000)
        for number in range(19_999)
    ]
    run = finetuned(
        tmp_path, rows=[row(text=bad, answer="not_equivalent", score=0.0), *rows]
    )
    page = write_report(run).read_text(encoding="utf-8")
    assert len(page) < 200_000 and "<script" not in page
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt; \ufffd word" in page
    assert "word word …</td>" in page and page.count("word ") < 100


HUGE_COUNT = '{"kind": "train", "step": 1, "tokens": 1' + 400 * "0" + "}"
DAMAGE = [
    ("metrics.jsonl", text)
    for text in ("7", 100_000 * "[", '{"kind": "train", "step": -1}', HUGE_COUNT)
]
DAMAGE += [
    ("answers/dev.jsonl", text)
    for text in ("{", "{}", '{"expected": "a", "score": "much"}')
]
DAMAGE += [("result.json", text) for text in ("{}", '{"last": {"step": 4}}')]


@pytest.mark.parametrize(("file", "damage"), DAMAGE, ids=lambda file: file[:20])
def test_a_damaged_file_is_named_and_the_old_report_stays(
    tmp_path: Path, file: str, damage: str
) -> None:
    run = finetuned(tmp_path)
    page = write_report(run).read_bytes()
    (run / file).write_text(f"{damage}\n")
    with pytest.raises(
        DamagedError, match=rf"LB-651(?s:.*){re.escape(file)}(?s:.*)next: +\S"
    ):
        write_report(run)
    assert (run / "report.html").read_bytes() == page


def test_seeds_are_summarised_for_last_steps_and_best_evaluations(
    tmp_path: Path,
) -> None:
    run = finetuned(tmp_path, "mrpc/seed-3", seed=3, is_finished=False)
    assert_text(run.parent, ["No seed is finished yet."])
    for seed, accuracies in {1: (0.7, 0.6), 2: (0.8, 0.7), 10: (0.9, 0.8)}.items():
        run = finetuned(tmp_path, f"mrpc/seed-{seed}", seed=seed, accuracies=accuracies)
    present = [
        "Fine-tuning run, several seeds mrpc 3 of 4 seeds are finished.",
        "over 3 seeds: median; mean ± deviation",
        "accuracy, key measure 0.7000; 0.7000 ± 0.1000 0.8000; 0.8000 ± 0.1000",
        (
            "1 40 0.6000 20 0.7000 2 40 0.7000 20 0.8000 3 not finished, step 30 - - -"
            " 10 40 0.8000 20 0.9000"
        ),
        "Yours, last step Yours, best evaluation",
        "xxlarge-v1 accuracy 90.9 70.0 80.0 Table 9, row ALBERT (1.5M)",
        "train.seed 1, 2, 3, 10",
        "bands show their lowest and highest",
        f"litebert report {run}",
    ]
    assert_text(run.parent, present)


# ---- as a browser reads it -----------------------------------------------------------


def elements(run: Path) -> Callable[..., list[Element]]:
    """Write a report, check that it can be read as XML, and return a function that
    finds elements by name.
    """
    source = write_report(run).read_text("utf-8").removeprefix("<!DOCTYPE html>")
    root = ElementTree.fromstring(re.sub(r"<(meta[^>]*)>", r"<\1/>", source))
    return lambda *names: [
        element for element in root.iter() if element.tag in names or not names
    ]


LOSS = (
    "Masked-LM loss: training from 9.8750 at step 1 to 5.0000 at step 40; held out from"
    " 10.0000 at step 0 to 5.0000"
)
ACCURACY = (
    "Held-out accuracy: held out from 0.7500 at step 20 to 0.7000 at step 40; without"
    " learning 0.7500."
)


@pytest.mark.parametrize(
    ("write", "num_tables", "described"),
    [(pretrained, 4, LOSS), (finetuned, 7, ACCURACY)],
)
def test_a_report_is_valid_and_loads_nothing_from_a_network(
    tmp_path: Path, write: Callable[[Path], Path], num_tables: int, described: str
) -> None:
    run = write(tmp_path)
    named = elements(run)
    source = (run / "report.html").read_text("utf-8")
    assert "http" not in source.replace("http-equiv", "")
    assert not named("script", "link", "img", "iframe", "object", "image", "a")
    assert "default-src 'none'; style-src 'unsafe-inline'" in [
        tag.get("content") for tag in named("meta")
    ]
    ids = [tag.attrib["id"] for tag in named() if "id" in tag.attrib]
    references = re.findall(r'(?:href="|url\()#([^")]+)', source)
    assert len(ids) == len(set(ids)) and set() < set(references) <= set(ids)
    assert len(named("table")) == len(named("caption")) == num_tables
    assert {tag.get("scope") for tag in named("th")} == {"col", "row"}
    levels = [int(tag.tag[1]) for tag in named("h1", "h2", "h3")]
    assert (levels[:2], levels.count(1)) == ([1, 2], 1)
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert named("html")[0].attrib == {"lang": "en"}

    # Figures have descriptions for people who cannot see them, and take their colours
    # from the page.
    drawings = [
        drawing for figure in named("figure") for drawing in figure.findall("svg")
    ]
    assert len(drawings) == len(named("svg")) == len(named("figcaption")) == 6
    assert all(drawing.get("role") == "img" for drawing in drawings)
    assert any(
        drawing.attrib["aria-label"].startswith(described) for drawing in drawings
    )
    shapes = re.findall(r"<svg.*?</svg>", source, flags=re.DOTALL)
    assert not re.search(r"(?:fill|stroke): #", "".join(shapes))
    assert "stroke: var(--train)" in shapes[0]


def test_names_and_settings_cannot_become_markup(tmp_path: Path) -> None:
    run = pretrained(
        tmp_path, "<script>alert(1)<", corpus='"><img src=x onerror="alert(2)">&amp;'
    )
    append_line(
        run / "metrics.jsonl",
        json.dumps({"kind": "note", "step": 3, "text": "<b>skipped</b>"}),
    )
    assert not elements(run)("script", "img", "b")
    source = (run / "report.html").read_text("utf-8")
    assert "&lt;script&gt;alert(1)&lt;</h1>" in source
    assert "&#34;&gt;&lt;img src=x onerror=&#34;alert(2)&#34;&gt;&amp;amp;" in source
    assert "&lt;b&gt;skipped&lt;/b&gt;" in source
    assert "fill &#34;The cat sat on the [MASK].&#34; --model &#39;" in source
    odd = write_report(pretrained(tmp_path, "caf\udce9"))  # a path that is not UTF-8
    assert "<h1>caf?</h1>" in odd.read_text("utf-8")


FLOATS = st.floats(-1e300, 1e300) | st.sampled_from([float("nan"), float("inf")])


@settings(max_examples=100, deadline=None)
@given(values=st.lists(FLOATS, max_size=60), most_points=st.integers(1, 20))
def test_a_curve_is_short_and_hides_no_extreme(
    values: list[float], most_points: int
) -> None:
    rows = [
        LogRow.model_validate({"kind": "train", "step": step, "loss": value})
        for step, value in enumerate(values)
    ]
    kept = [value for value in values if abs(value) < float("inf")]
    points = curve_of(rows, "loss", most_points=most_points)
    assert len(points) <= most_points and bool(points) == bool(kept)
    assert [point.step for point in points] == sorted({point.step for point in points})
    assert min((p.low for p in points), default=0) == min(kept, default=0)
    assert max((p.high for p in points), default=0) == max(kept, default=0)


def test_a_folder_that_is_no_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        LitebertError, match=r"LB-650(?s:.*)without run\.json(?s:.*)litebert runs list"
    ):
        write_report(tmp_path)
    with pytest.raises(LitebertError, match=r"LB-650(?s:.*)no such folder"):
        write_report(tmp_path / "none")
    folder = pretrained(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "first").symlink_to(folder.absolute())
    monkeypatch.chdir(tmp_path)
    # a name from `runs list`
    with pytest.raises(LitebertError, match="give its folder, runs/first"):
        write_report(Path("first"))
