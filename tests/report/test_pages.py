"""What a page says of a run: what was learnt and what was not, beside whom, where it errs, what is missing."""

import json
import re
from typing import Any

import pytest

from litebert.errors import DamagedError
from litebert.files import Json, append_line
from litebert.report import write_report

from .conftest import MakeRun, require_said, text_of, write_answers

WORSE = {"kind": "eval", "step": 50, "masked_lm_loss": 6.0, "masked_lm_accuracy": 0.2}
HUGE = {"kind": "train", "step": 41, "masked_lm_loss": 3e38, "gradient_norm": 1e30, "tokens_per_second": 0, "tokens": 0}
NOTES = [{"kind": "note", "step": n, "text": f"step {n} skipped: gradient norm inf"} for n in range(1, 61)]

# What the run is, rows added to its log, what its page says, and what it does not say.
PRETRAINED: dict[str, tuple[dict[str, Any], list[dict[str, object]], list[str], list[str]]] = {
    "plain": (
        {},
        [],
        [
            # Before, now, and without any learning.
            "Finished after 40 steps.",
            "tiny: 3 layers of 128, 2 heads, sharing all",
            "Tokens seen 160,000",
            "Measure At step 0 At step 40 Without learning",
            "Masked-LM loss 10.000 5.000 10.309, all tokens alike",
            "Masked-LM perplexity 22,026.5 148.4 30,000, all tokens alike",
            "Masked-LM accuracy 0.0% 30.0% 5.4%, always the commonest token",
            "Sentence order loss 0.700 0.700 0.693, chance",
            "Sentence order accuracy 50.0% 80.0% 50.0%, chance",
            "At step 40 the model names 30.0% of the masked tokens; always giving the commonest gets 5.4%. Sentence",
            "Sentence order: 80.0% right, where chance gets 50.0%.",
            # How to use its model.
            'litebert fill "The cat sat on the [MASK]." --model {folder}/model',
            '"He opened the door." "Nobody was there." --model {folder}/model',
            "litebert.load('{folder}/model')",
            # Settings, data, notes.
            "train.seed 12345 12345 default",
            "model.embedding_projection unset unset preset tiny (flag)",
            "tokenizer a1b2c3 training tokens 1,234,567",
            "Nothing unusual was noted",
        ],
        [],
    ),
    "no gain": (
        {"accuracies": (0.054, 0.52)},
        [],
        ["the commonest gets 5.4%: no gain over that.", "no better than chance on 1,024 sequences"],
        [],
    ),
    "no sentence objective": (
        {"sentence": "none"},
        [],
        ["No sentence objective was trained (objective.sentence = none).", "litebert fill"],
        ["Sentence order", "litebert order"],
    ),
    "next sentence": (
        {"sentence": "next"},
        [],
        ["Next sentence accuracy 50.0% 80.0%"],
        ["Sentence order", "litebert order"],
    ),
    "not finished": (
        {"last_step": 30},
        [],
        ["Not finished: step 30 of 40. There is no model yet.", "At step 0 At step 20", "to resume it"],
        ["litebert fill"],
    ),
    "only begun": (
        {"last_step": 0, "evaluated": ()},
        [],
        ["Not finished: no training step was logged yet.", "Nothing was evaluated yet.", "No step was logged yet."],
        [],
    ),
    "evaluated once": ({"last_step": 1}, [], ["Evaluated once so far, at step 0."], ["Without learning"]),
    "past its best": ({}, [WORSE], ["masked-LM loss is 6.000; it was lowest, 5.000, at step 40."], []),
    "beyond all bounds": ({}, [HUGE], ["Finished after 41 steps."], []),
    "many notes": (
        {},
        NOTES,
        ["The last 50 of 60 notes", "11 step 11 skipped: gradient norm inf", "60 step 60 skipped: gradient norm inf"],
        ["step 10 skipped"],
    ),
}


@pytest.mark.parametrize(("given", "rows", "said", "unsaid"), PRETRAINED.values(), ids=PRETRAINED)
def test_a_pretraining_is_told_with_what_no_learning_reaches(
    make_run: MakeRun, given: dict[str, Any], rows: list[dict[str, object]], said: list[str], unsaid: list[str]
) -> None:
    run = make_run(**given)
    for row in rows:
        append_line(run / "metrics.jsonl", json.dumps(row))
    require_said(run, said, unsaid)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_are_left_out_and_counted(make_run: MakeRun, bad: float) -> None:
    run = make_run()
    for kind, name in (("train", "gradient_norm"), ("eval", "masked_lm_accuracy")):
        append_line(run / "metrics.jsonl", json.dumps({"kind": kind, "step": 41, "masked_lm_loss": bad, name: bad}))
    said = ["2 non-finite values are omitted. Lower is better.", "1 non-finite values are omitted. Before clipping"]
    require_said(run, [*said, "Masked-LM loss 10.000 not finite 10.309"])


def test_changed_settings_come_first_with_default_and_origin(make_run: MakeRun) -> None:
    run = make_run(sentence="next")
    recorded = json.loads((run / "run.json").read_text())
    recorded["settings"]["train.warp"] = 9
    (run / "run.json").write_text(json.dumps(recorded))
    text = text_of(run)
    changed = text[text.index("Settings that differ") : text.index("All settings of the run")]
    for line in (
        "model.hidden_size 128 768 preset tiny (flag) width of the layers, H",
        "objective.sentence next order command line: objective.sentence=next",
        "data.corpus corpora/wiki required flag",
        "train.warp 9 unknown unknown not a setting of this version",
    ):
        assert line in changed
    assert "train.seed" not in changed
    assert re.search(r"litebert \d+\.\d+\.\d+ python 3\.\d+\.\d+ torch 2\.", text)


# ---- fine-tuning ----------------------------------------------------------------------------------------------------

PLAIN = [
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
    # Published figures cite table and row, and doubt themselves; the recipe is told.
    "started from models/mine, which is none of the published models",
    "not comparable with yours",
    "xxlarge-v1 accuracy 90.9 70.0 75.0 Table 9, row ALBERT (1.5M)",
    "Expected: accuracy 90.9 on dev with xxlarge (Table 9, ALBERT 1.5M)",
    # Confusions are counted in the order of the head; the surest wrong answer comes first.
    "Expected answered not_equivalent answered equivalent Right not_equivalent 1 0 100.0% equivalent 2 1 33.3%",
    "dev: the worst 2 of 2 errors in 4 Id Sure Expected Answered Text 3 90.0% equivalent not_equivalent One says 3."
    " ¦ The other says 3. 2 80.0% equivalent not_equivalent One says 2.",
    # Settings with their origins.
    "train.steps 40 0 command line: train.steps=40",
    "task.name mrpc required recipe mrpc",
    "data.folder glue unset flag",
    # How to ask its model.
    "litebert evaluate {folder} --best",
    'litebert classify "A text." --pair "Its pair." --model {folder}/model',
    'model.classify(["A text."], ["Its pair."])',
]
BASE = "albert/albert-base-v2"
FINETUNED = {
    "plain": ({}, PLAIN, ["objective."]),
    "a gain": ({"accuracies": (0.75, 0.8)}, ["gets 75.0%. With 4 examples"], []),
    "a published model": (
        {"task": "sst2", "start": BASE},
        [
            "the run started from the published base-v2: compare yours",
            "base-v2 accuracy 92.9 70.0 75.0 README L33-44, row V2 ALBERT-base",
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
        ["Held-out dev_matched_f1"],
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
}


@pytest.mark.parametrize(("given", "said", "unsaid"), FINETUNED.values(), ids=FINETUNED)
def test_a_fine_tuning_is_told_beside_published_figures_and_no_learning(
    make_finetuned: MakeRun, given: dict[str, Any], said: list[str], unsaid: list[str]
) -> None:
    require_said(make_finetuned(**given), said, unsaid)


def row(**changes: Json) -> dict[str, Json]:
    plain = {"id": "7", "text": "A text.", "expected": "equivalent", "answer": "equivalent"}
    return {**plain, "confidence": 0.9, "score": 1.0, **changes}


SPANS = [
    row(expected="the Nile", answer="Nile river", confidence=0.75, score=0.5),
    row(expected="", answer="Nile", confidence=0.7, score=0.0),
]
NUMBERS = [
    row(id="near", expected="3", answer="2.9", confidence=None, score=0.9),
    row(id="far", expected="5", answer="0.1", confidence=None, score=0.2),
]
WRONG = row(expected="label-3", answer="label-9", score=0.0)
ANSWERS = {  # the answers, the number of labels, what is said and what is not
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
        ["On dev it is 0.4000: the last step is 90.0% sure on average and 50.0% right."],
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
    "numbers": (NUMBERS, 2, ["far not told 5 0.1 A text. near not told 3 2.9"], ["Confusion"]),
}


@pytest.mark.parametrize(("rows", "num_labels", "said", "unsaid"), ANSWERS.values(), ids=ANSWERS)
def test_answers_are_judged_as_what_they_are(
    make_finetuned: MakeRun, rows: list[dict[str, Json]], num_labels: int, said: list[str], unsaid: list[str]
) -> None:
    run = make_finetuned()
    write_answers(run, rows)
    if num_labels != 2:
        path = run / "model" / "config.json"
        config = json.loads(path.read_text()) | {"id2label": {str(n): f"label-{n}" for n in range(num_labels)}}
        path.write_text(json.dumps(config if num_labels else {}))
    require_said(run, said, unsaid)


def test_long_and_hostile_texts_are_cut_and_escaped_and_many_stay_a_small_page(make_finetuned: MakeRun) -> None:
    run = make_finetuned()
    bad = '<script>alert("x")</script>\u2028\x00 ' + "word " * 200
    rows = [row(id=str(number), text="long text " * 30, confidence=0.5 + number / 40_000) for number in range(19_999)]
    write_answers(run, [row(text=bad, answer="not_equivalent", score=0.0), *rows])
    page = write_report(run).read_text(encoding="utf-8")
    assert len(page) < 200_000
    assert "<script" not in page
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt; \ufffd word" in page
    assert "word word …</td>" in page
    assert page.count("word ") < 100


LINES = ["{", "7", "{}", 100_000 * "["]
STEPS = ["", ', "step": -1', ', "step": 1.5', ', "step": 1, "tokens": 1' + 400 * "0"]
LOG = [*LINES, *(f'{{"kind": "train"{step}}}' for step in STEPS), '{"kind": 3, "step": 1}']
RESULTS = [None, {"last": 3}, {"last": {"step": 4}}, {"best": {"step": "four", "accuracy": 1}}, {"fresh": 1}]
DAMAGE = [("metrics.jsonl", "LB-651", line) for line in LOG]
DAMAGE += [("answers/dev.jsonl", "LB-654", line) for line in [*LINES, '{"expected": "a", "score": "much"}', "\x00"]]
DAMAGE += [("result.json", "LB-653", changes) for changes in [*RESULTS, {"best": {"step": 4, "accuracy": None}}]]


@pytest.mark.parametrize(("file", "code", "damage"), DAMAGE, ids=lambda given: str(given)[:20])
def test_a_damaged_file_is_named_and_the_old_report_stays(
    make_finetuned: MakeRun, file: str, code: str, damage: str | dict[str, Json] | None
) -> None:
    run = make_finetuned()
    page, path = write_report(run).read_bytes(), run / file
    if isinstance(damage, str):
        append_line(path, damage)
    else:
        path.write_text(json.dumps({**json.loads(path.read_text()), **damage} if damage else {}))
    with pytest.raises(DamagedError, match=rf"{code}(?s:.*){re.escape(file)}(?s:.*)next: +\S"):
        write_report(run)
    assert (run / "report.html").read_bytes() == page


def test_seeds_are_summarised_for_last_steps_and_best_evaluations(make_finetuned: MakeRun) -> None:
    for seed, accuracies in {1: (0.7, 0.6), 2: (0.8, 0.7), 10: (0.9, 0.8)}.items():
        run = make_finetuned(f"mrpc/seed-{seed}", seed=seed, accuracies=accuracies)
    said = [
        "Fine-tuning run, several seeds mrpc 3 of 3 seeds are finished.",
        "accuracy 0.7000 0.7000 ± 0.1000 0.8000 0.8000 ± 0.1000",
        "Over 3 seeds",
        "1 40 0.6000 20 0.7000 2 40 0.7000 20 0.8000 10 40 0.8000 20 0.9000",
        "Yours, median of last steps",
        "xxlarge-v1 accuracy 90.9 70.0 80.0 Table 9, row ALBERT (1.5M)",
        "train.seed 1, 2, 10",
        "bands show their lowest and highest",
        f"litebert report {run}",
    ]
    require_said(run.parent, said)


def test_a_seed_that_is_not_finished_is_left_out_and_said(make_finetuned: MakeRun) -> None:
    run = make_finetuned("mrpc/seed-2", seed=2, is_finished=False)
    require_said(run.parent, ["No seed is finished yet."])
    make_finetuned("mrpc/seed-1")
    require_said(run.parent, ["1 of 2 seeds are finished.", "2 not finished, step 30", "Over 1 seed "])
