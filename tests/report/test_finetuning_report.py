"""What a page says of a fine-tuning run: what was learnt, beside whom, where it errs."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from litebert.errors import DamagedError
from litebert.files import Json
from litebert.report import write_report

from .conftest import text_of, words_of

Make = Callable[..., Any]


def row(**changes: Json) -> dict[str, Json]:
    plain = {"id": "7", "text": "A text.", "expected": "equivalent", "answer": "equivalent"}
    return {**plain, "confidence": 0.9, "score": 1.0, **changes}


@pytest.mark.parametrize(
    "words",
    [
        # The last step and the best evaluation stand side by side.
        "Fine-tuning run mrpc Finished after 40 steps.",
        "Measure Last step, 40 Best evaluation, step 20 accuracy, key measure 0.7000 0.7500 f1 0.3500 0.3750",
        "with the highest accuracy of 2 (best/): it was chosen on the examples",
        # Task, start, and what was not pretrained.
        "Task mrpc Started from models/mine Network 12 layers of 768",
        "New, not pretrained head.dense Trained on 3,668 examples",
        "Evaluated on dev: 4 examples",
        # An accuracy stands beside no learning and beside chance.
        "At the last step 70.0% of dev are right; always answering 'equivalent', its commonest label, gets 75.0%: no "
        "gain over that. With 4 examples, differences below 45.8 points may be chance",
        # Published figures cite table and row, and doubt themselves; what differs from the recipe is said.
        "started from models/mine, which is none of the published models",
        "not comparable with yours",
        "xxlarge-v1 accuracy 90.9 70.0 75.0 Table 9, row ALBERT (1.5M)",
        "Set otherwise than the recipe mrpc says: train.steps = 40.",
        "Expected: accuracy 90.9 on dev with xxlarge (Table 9, ALBERT 1.5M)",
        # Confusions are counted in the order of the head; the surest wrong answer comes first.
        "Expected answered not_equivalent answered equivalent Right not_equivalent 1 0 100.0% equivalent 2 1 33.3%",
        "dev: the worst 2 of 2 errors in 4 Id Sure Expected Answered Text 3 90.0% equivalent not_equivalent One says 3."
        " ¦ The other says 3. 2 80.0% equivalent not_equivalent One says 2.",
        # Settings with their origins.
        "train.steps 40 0 command line: train.steps=40",
        "task.name mrpc required recipe mrpc",
        "data.folder glue unset flag",
    ],
)
def test_the_page_of_a_plain_run_says(finetuned_page: str, words: str) -> None:
    assert words in words_of(finetuned_page)


def test_curves_show_loss_rate_and_key_measure(finetuned_page: str) -> None:
    titles = re.findall(r"<h3>(.*?)</h3>", finetuned_page)
    expected = ["Training loss", "Held-out accuracy", "Learning rate", "Gradient norm"]
    assert titles == [*expected, "Tokens per second", "Reliability on dev"]
    assert "held out from 0.7500 at step 20 to 0.7000 at step 40; commonest label 0.7500." in finetuned_page
    assert "objective." not in words_of(finetuned_page)


BASE = "albert/albert-base-v2"
RUNS = {
    "a gain": ({"accuracies": (0.75, 0.8)}, ["gets 75.0%. With 4 examples"], []),
    "a published model": (
        {"task": "sst2", "start": BASE},
        [
            "the run started from the published base-v2: compare yours",
            "base-v2 accuracy 92.9 70.0 75.0 README L33-44, row V2 ALBERT-base",
            "published figures of other models",
        ],
        ["not comparable"],
    ),
    "a published model without a figure": (
        {"start": BASE},
        ["from the published base-v2, of which there is no figure on mrpc", "are not comparable with yours"],
        [],
    ),
    "random weights": (
        {"task": "sst2", "start": BASE, "model__random": True},
        [f"started from random weights, shaped as {BASE}, which is none of"],
        [],
    ),
    "one's own task": (
        {"task": "table", "data__folder": None, "data__train": "mine.csv"},
        ["Your own examples: three passes"],
        ["Published"],
    ),
    "two held-out sets": (
        {"splits": ("dev_matched", "dev_mismatched")},
        [
            "dev_matched_accuracy, key measure 0.7000 0.7500",
            "Held-out dev_matched_accuracy",
            "Held-out dev_mismatched_accuracy",
            "dev_mismatched, 4 examples",
            "At the last step 70.0% of dev_mismatched are right",
        ],
        [],
    ),
    "not finished": (
        {"is_finished": False},
        [
            "Not finished: step 30 of 40. There is no model yet.",
            "The last evaluation so far Measure At step 20 accuracy 0.7500",
            "Rerun the litebert finetune command that began this run to resume it",
        ],
        ["Best evaluation", "litebert evaluate"],
    ),
    "one seed of several": ({"name": "mrpc/seed-1"}, ["Fine-tuning run mrpc/seed-1 Finished"], []),
    "how to ask its model": (
        {},
        [
            "litebert evaluate {folder} --best",
            'litebert classify "A text." --pair "Its pair." --model {folder}/model',
            'model.classify(["A text."], ["Its pair."])',
        ],
        [],
    ),
}


@pytest.mark.parametrize(("given", "said", "unsaid"), RUNS.values(), ids=RUNS)
def test_a_page_says_what_is_special_of_its_run(
    make_finetuned: Make, given: dict[str, Any], said: list[str], unsaid: list[str]
) -> None:
    run = make_finetuned(**given)
    text = text_of(run.folder)
    assert [words for words in said if words.replace("{folder}", str(run.folder)) not in text] == []
    assert [words for words in unsaid if words in text] == []


SPANS = [
    row(expected="the Nile", answer="Nile river", confidence=0.75, score=0.5),
    row(expected="", answer="Nile", confidence=0.7, score=0.0),
]
WRONG = row(expected="label-3", answer="label-9", score=0.0)
ANSWERS = {
    "always the same": (
        [row(), row(expected="not_equivalent", score=0.0)],
        2,
        ["On dev, it answers 'equivalent' to every text."],
        [],
    ),
    "many labels": (
        [WRONG, WRONG, row(expected="label-1", answer="label-2", score=0.0)],
        40,
        ["dev: the 2 commonest of 2 confusions Expected Answered Times label-3 label-9 2 label-1 label-2 1"],
        [],
    ),
    "too sure": (
        [row(score=float(number < 5)) for number in range(10)],
        2,
        [
            "On dev it is 0.4000: the last step is 90.0% sure on average and 50.0% right.",
            "86.7% to 93.3% 10 90.0% 50.0%",
        ],
        [],
    ),
    "without confidence": ([row(), row(confidence=None)], 2, [], ["Calibration"]),
    "several labels": ([row(), row(answer="equivalent, not_equivalent")], 2, [], ["Calibration"]),
    "spans": (
        SPANS,
        0,
        ["On dev it is 0.7250: the last step is 72.5% sure on average and 0.0% right.", "7 70.0% (none) Nile A text."],
        ["Confusion"],
    ),
    "numbers": (
        [
            row(id="near", expected="3", answer="2.9", confidence=None, score=0.9),
            row(id="far", expected="5", answer="0.1", confidence=None, score=0.2),
        ],
        2,
        ["the 2 of 2 answers that are farthest off", "far not told 5 0.1 A text. near not told 3 2.9"],
        ["Confusion"],
    ),
}


@pytest.mark.parametrize(("rows", "num_labels", "said", "unsaid"), ANSWERS.values(), ids=ANSWERS)
def test_answers_are_judged_as_what_they_are(
    make_finetuned: Make, rows: list[dict[str, Json]], num_labels: int, said: list[str], unsaid: list[str]
) -> None:
    run = make_finetuned()
    run.write_answers("dev", rows)
    if num_labels != 2:
        path = run.folder / "model" / "config.json"
        config = json.loads(path.read_text()) if num_labels else {}
        path.write_text(json.dumps(config | {"id2label": {str(n): f"label-{n}" for n in range(num_labels)}}))
        if not num_labels:
            path.write_text("{}")
    text = text_of(run.folder)
    assert [words for words in said if words not in text] == []
    assert [words for words in unsaid if words in text] == []


def test_long_and_hostile_texts_are_cut_and_escaped(make_finetuned: Make) -> None:
    run = make_finetuned()
    bad = '<script>alert("x")</script>\u2028\x00 ' + "word " * 200
    run.write_answers("dev", [row(text=bad, answer="not_equivalent", score=0.0), row()])
    page = write_report(run.folder).read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt; \ufffd word" in page
    assert "word word …</td>" in page
    assert page.count("word ") < 100


def test_twenty_thousand_long_answers_stay_a_small_page(make_finetuned: Make) -> None:
    run = make_finetuned()
    rows = [row(id=str(number), text="long text " * 30, confidence=0.5 + number / 40_000) for number in range(19_999)]
    run.write_answers("dev", [*rows, row(answer="not_equivalent", score=0.0)])
    assert write_report(run.folder).stat().st_size < 200_000


@pytest.mark.parametrize(
    "line", ["{", "7", "{}", '{"expected": "a", "score": "much"}', 100_000 * "[", "\x00"], ids=lambda line: line[:20]
)
def test_damaged_answers_are_named(make_finetuned: Make, line: str) -> None:
    run = make_finetuned()
    (run.folder / "answers" / "dev.jsonl").write_text(json.dumps(row()) + "\n" + line + "\n")
    with pytest.raises(DamagedError, match=r"LB-654(?s:.*)dev\.jsonl(?s:.*)line 2(?s:.*)next: +\S"):
        write_report(run.folder)


RESULTS = [{}, {"last": 3}, {"last": {"step": 4}}, {"best": {"step": "four", "accuracy": 1}}, {"fresh": 1}]


@pytest.mark.parametrize("result", [*RESULTS, {"best": {"step": 4, "accuracy": None}}], ids=str)
def test_a_damaged_result_is_named(make_finetuned: Make, result: dict[str, Json]) -> None:
    path = make_finetuned().folder / "result.json"
    whole = json.loads(path.read_text()) if result else {}
    path.write_text(json.dumps({**whole, **result}))
    with pytest.raises(DamagedError, match=r"LB-653(?s:.*)result\.json(?s:.*)next: +\S"):
        write_report(path.parent)


def test_seeds_are_summarised_for_last_steps_and_best_evaluations(make_finetuned: Make) -> None:
    for seed, accuracies in {1: (0.7, 0.6), 2: (0.8, 0.7), 10: (0.9, 0.8)}.items():
        run = make_finetuned(f"mrpc/seed-{seed}", seed=seed, accuracies=accuracies)
    text = text_of(run.folder.parent)
    said = [
        "Fine-tuning run, several seeds mrpc 3 of 3 seeds are finished.",
        "accuracy 0.7000 0.7000 ± 0.1000 0.8000 0.8000 ± 0.1000",
        "Over 3 seeds",
        "1 40 0.6000 20 0.7000 2 40 0.7000 20 0.8000 10 40 0.8000 20 0.9000",
        "Yours, median of last steps",
        "xxlarge-v1 accuracy 90.9 70.0 80.0 Table 9, row ALBERT (1.5M)",
        "train.seed 1, 2, 10",
        "bands show their lowest and highest",
        f"litebert report {run.folder}",
    ]
    assert [words for words in said if words not in text] == []


def test_a_seed_that_is_not_finished_is_left_out_and_said(make_finetuned: Make) -> None:
    run = make_finetuned("mrpc/seed-2", seed=2, is_finished=False)
    assert "No seed is finished yet." in text_of(run.folder.parent)
    make_finetuned("mrpc/seed-1")
    text = text_of(run.folder.parent)
    assert all(said in text for said in ("1 of 2 seeds are finished.", "2 not finished, step 30", "Over 1 seed "))
