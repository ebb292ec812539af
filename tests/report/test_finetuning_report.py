"""What a page says of a fine-tuning run: what was learnt, beside whom, where it errs."""

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from litebert.errors import DamagedError
from litebert.files import Json
from litebert.report import write_report


class Finetuned(Protocol):
    folder: Path

    def write_answers(self, split: str, rows: list[dict[str, Json]]) -> None: ...


Make = Callable[..., Finetuned]


def text_of(folder: Path) -> str:
    """Return the words of the page, without figures."""
    return words_of(write_report(folder).read_text(encoding="utf-8"))


def words_of(page: str) -> str:
    body = re.sub(r"<svg.*?</svg>", "", page[page.index("<body>") :], flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def row(**changes: Json) -> dict[str, Json]:
    plain = {"id": "7", "text": "A text.", "expected": "equivalent", "answer": "equivalent"}
    return {**plain, "confidence": 0.9, "score": 1.0, **changes}


def test_last_step_and_best_evaluation_stand_side_by_side(finetuned_page: str) -> None:
    text = words_of(finetuned_page)

    assert "Fine-tuning run mrpc Finished after 40 steps." in text
    assert "Measure Last step, 40 Best evaluation, step 20" in text
    assert "accuracy, key measure 0.7000 0.7500" in text
    assert "f1 0.3500 0.3750" in text
    assert "with the highest accuracy of 2 (best/): it was chosen on the examples" in text


def test_the_header_tells_task_start_and_what_was_not_pretrained(finetuned_page: str) -> None:
    text = words_of(finetuned_page)

    assert "Task mrpc Started from models/mine Network 12 layers of 768" in text
    assert "New, not pretrained head.dense Trained on 3,668 examples" in text
    assert "Evaluated on dev: 4 examples" in text


def test_an_accuracy_stands_beside_no_learning_and_beside_chance(finetuned_page: str) -> None:
    text = words_of(finetuned_page)

    assert "At the last step 70.0% of dev are right; always answering 'equivalent', " in text
    assert "its commonest label, gets 75.0%: no gain over that. With 4 examples" in text
    assert "differences below 45.8 points may be chance" in text


def test_a_gain_is_not_called_none(make_finetuned: Make) -> None:
    text = text_of(make_finetuned(accuracies=(0.75, 0.8)).folder)

    assert "gets 75.0%. With 4 examples" in text


def test_published_figures_cite_table_and_row_and_doubt_themselves(finetuned_page: str) -> None:
    text = words_of(finetuned_page)

    assert "started from models/mine, which is none of the published models" in text
    assert "not comparable with yours" in text
    assert "xxlarge-v1 accuracy 90.9 70.0 75.0 Table 9, row ALBERT (1.5M)" in text


def test_a_published_model_is_compared_with_its_own_figures(make_finetuned: Make) -> None:
    run = make_finetuned(task="sst2", start="albert/albert-base-v2")

    text = text_of(run.folder)

    assert "the run started from the published base-v2: compare yours" in text
    assert "base-v2 accuracy 92.9 70.0 75.0 README L33-44, row V2 ALBERT-base" in text
    assert "published figures of other models" in text
    assert "not comparable" not in text


def test_a_published_model_without_a_figure_is_not_compared_with_others(make_finetuned: Make) -> None:
    text = text_of(make_finetuned(start="albert-base-v2").folder)

    assert "from the published base-v2, of which there is no figure on mrpc" in text
    assert "are not comparable with yours" in text


def test_random_weights_are_no_published_model(make_finetuned: Make) -> None:
    run = make_finetuned(task="sst2", start="albert-base-v2", model__random=True)

    text = text_of(run.folder)

    assert "started from random weights, shaped as albert-base-v2, which is none of" in text


def test_what_differs_from_the_recipe_is_said_and_what_it_says(finetuned_page: str) -> None:
    text = words_of(finetuned_page)

    assert "Set otherwise than the recipe mrpc says: train.steps = 40." in text
    assert "Expected: accuracy 90.9 on dev with xxlarge (Table 9, ALBERT 1.5M)" in text


def test_a_task_of_ones_own_has_no_published_figures(make_finetuned: Make) -> None:
    run = make_finetuned(task="table", data__folder=None, data__train="mine.csv")

    text = text_of(run.folder)

    assert "Published" not in text
    assert "Your own examples: three passes" in text


def test_confusions_are_counted_by_label_in_the_order_of_the_head(finetuned_page: str) -> None:
    text = words_of(finetuned_page)

    assert "Expected answered not_equivalent answered equivalent Right" in text
    assert "not_equivalent 1 0 100.0% equivalent 2 1 33.3%" in text


def test_a_model_that_always_answers_the_same_is_found_out(make_finetuned: Make) -> None:
    run = make_finetuned()
    run.write_answers("dev", [row(), row(expected="not_equivalent", score=0.0)])

    assert "On dev, it answers 'equivalent' to every text." in text_of(run.folder)


def test_many_labels_are_listed_by_their_commonest_confusions(make_finetuned: Make) -> None:
    run = make_finetuned()
    config = json.loads((run.folder / "model" / "config.json").read_text())
    config["id2label"] = {str(number): f"label-{number}" for number in range(40)}
    (run.folder / "model" / "config.json").write_text(json.dumps(config))
    wrong = row(expected="label-3", answer="label-9", score=0.0)
    run.write_answers("dev", [wrong, wrong, row(expected="label-1", answer="label-2", score=0.0)])

    text = text_of(run.folder)

    assert "dev: the 2 commonest of 2 confusions Expected Answered Times" in text
    assert "label-3 label-9 2 label-1 label-2 1" in text


def test_calibration_compares_confidence_with_right_answers(make_finetuned: Make) -> None:
    run = make_finetuned()
    told = [row(confidence=0.9, score=float(number < 5)) for number in range(10)]
    run.write_answers("dev", told)

    text = text_of(run.folder)

    assert "On dev it is 0.4000: the last step is 90.0% sure on average and 50.0% right." in text
    assert "86.7% to 93.3% 10 90.0% 50.0%" in text


@pytest.mark.parametrize(
    "changes",
    [{"confidence": None}, {"answer": "equivalent, not_equivalent"}],
    ids=["without confidence", "several labels"],
)
def test_what_has_no_single_confidence_has_no_calibration(make_finetuned: Make, changes: dict[str, Json]) -> None:
    run = make_finetuned()
    run.write_answers("dev", [row(), row(**changes)])

    assert "Calibration" not in text_of(run.folder)


def test_spans_are_calibrated_by_exact_answers_and_may_be_empty(make_finetuned: Make) -> None:
    run = make_finetuned()
    (run.folder / "model" / "config.json").write_text("{}")
    part = row(expected="the Nile", answer="Nile river", confidence=0.75, score=0.5)
    run.write_answers("dev", [part, row(expected="", answer="Nile", confidence=0.7, score=0.0)])

    text = text_of(run.folder)

    assert "On dev it is 0.7250: the last step is 72.5% sure on average and 0.0% right." in text
    assert "7 70.0% (none) Nile A text." in text
    assert "Confusion" not in text


def test_the_surest_wrong_answer_comes_first_with_its_text(finetuned_page: str) -> None:
    text = words_of(finetuned_page)

    assert "dev: the worst 2 of 2 errors in 4 " in text
    errors = text[text.index("Worst errors") :]
    assert errors.index("One says 3. ¦ The other says 3.") < errors.index("One says 2.")
    assert "3 90.0% equivalent not_equivalent One says 3." in errors
    assert "One says 1." not in errors


def test_the_farthest_score_comes_first_where_nothing_is_sure(make_finetuned: Make) -> None:
    run = make_finetuned()
    near = row(id="near", expected="3", answer="2.9", confidence=None, score=0.9)
    far = row(id="far", expected="5", answer="0.1", confidence=None, score=0.2)
    run.write_answers("dev", [near, far])

    text = text_of(run.folder)

    assert "dev: the 2 of 2 answers that are farthest off" in text
    assert text.index("far not told 5 0.1") < text.index("near not told 3 2.9")
    assert "Confusion" not in text


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


def test_several_held_out_sets_are_reported_each(make_finetuned: Make) -> None:
    text = text_of(make_finetuned(splits=("dev_matched", "dev_mismatched")).folder)

    assert "dev_matched_accuracy, key measure 0.7000 0.7500" in text
    assert "Held-out dev_matched_accuracy" in text
    assert "Held-out dev_mismatched_accuracy" in text
    assert "dev_mismatched, 4 examples" in text
    assert "At the last step 70.0% of dev_mismatched are right" in text


def test_an_unfinished_run_says_how_far_it_came(make_finetuned: Make) -> None:
    text = text_of(make_finetuned(is_finished=False).folder)

    assert "Not finished: step 30 of 40. There is no model yet." in text
    assert "The last evaluation so far Measure At step 20 accuracy 0.7500" in text
    assert "Rerun the litebert finetune command that began this run to resume it" in text
    assert "Best evaluation" not in text
    assert "litebert evaluate" not in text


def test_a_finished_run_shows_how_to_ask_its_model(make_finetuned: Make) -> None:
    run = make_finetuned()

    text = text_of(run.folder)

    assert f"litebert evaluate {run.folder} --best" in text
    assert f'litebert classify "A text." --pair "Its pair." --model {run.folder}/model' in text
    assert 'model.classify(["A text."], ["Its pair."])' in text


def test_the_settings_are_those_of_fine_tuning_with_their_origins(finetuned_page: str) -> None:
    text = words_of(finetuned_page)

    assert "train.steps 40 0 command line: train.steps=40" in text
    assert "task.name mrpc required recipe mrpc" in text
    assert "data.folder glue unset flag" in text
    assert "objective." not in text


def test_curves_show_loss_rate_and_key_measure(finetuned_page: str) -> None:
    titles = re.findall(r"<h3>(.*?)</h3>", finetuned_page)
    expected = ["Training loss", "Held-out accuracy", "Learning rate", "Gradient norm"]
    assert titles == [*expected, "Tokens per second", "Reliability on dev"]
    assert "held out from 0.7500 at step 20 to 0.7000 at step 40; commonest label 0.7500." in finetuned_page


@pytest.mark.parametrize(
    "line", ["{", "7", "{}", '{"expected": "a", "score": "much"}', 100_000 * "[", "\x00"], ids=lambda line: line[:20]
)
def test_damaged_answers_are_named(make_finetuned: Make, line: str) -> None:
    run = make_finetuned()
    (run.folder / "answers" / "dev.jsonl").write_text(json.dumps(row()) + "\n" + line + "\n")

    with pytest.raises(DamagedError, match=r"LB-654(?s:.*)dev\.jsonl(?s:.*)line 2(?s:.*)next: +\S"):
        write_report(run.folder)


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"last": 3},
        {"last": {"step": 4}},
        {"best": {"step": "four", "accuracy": 1}},
        {"fresh": 1},
        {"best": {"step": 4, "accuracy": None}},
    ],
    ids=str,
)
def test_a_damaged_result_is_named(make_finetuned: Make, result: dict[str, Json]) -> None:
    run = make_finetuned()
    path = run.folder / "result.json"
    whole = json.loads(path.read_text()) if result else {}
    path.write_text(json.dumps({**whole, **result}))

    with pytest.raises(DamagedError, match=r"LB-653(?s:.*)result\.json(?s:.*)next: +\S"):
        write_report(run.folder)


def test_seeds_are_summarised_for_last_steps_and_best_evaluations(make_finetuned: Make) -> None:
    for seed, accuracies in {1: (0.7, 0.6), 2: (0.8, 0.7), 10: (0.9, 0.8)}.items():
        run = make_finetuned(f"mrpc/seed-{seed}", seed=seed, accuracies=accuracies)

    text = text_of(run.folder.parent)

    assert "Fine-tuning run, several seeds mrpc 3 of 3 seeds are finished." in text
    assert "accuracy 0.7000 0.7000 ± 0.1000 0.8000 0.8000 ± 0.1000" in text
    assert "Over 3 seeds" in text
    assert "1 40 0.6000 20 0.7000 2 40 0.7000 20 0.8000 10 40 0.8000 20 0.9000" in text
    assert "Yours, median of last steps" in text
    assert "xxlarge-v1 accuracy 90.9 70.0 80.0 Table 9, row ALBERT (1.5M)" in text
    assert "train.seed 1, 2, 10" in text
    assert "bands show their lowest and highest" in text
    assert f"litebert report {run.folder}" in text


def test_a_seed_that_is_not_finished_is_left_out_and_said(make_finetuned: Make) -> None:
    make_finetuned("mrpc/seed-1")
    run = make_finetuned("mrpc/seed-2", seed=2, is_finished=False)

    text = text_of(run.folder.parent)

    assert "1 of 2 seeds are finished." in text
    assert "2 not finished, step 30" in text
    assert "Over 1 seed " in text


def test_no_seed_finished_is_a_page_too(make_finetuned: Make) -> None:
    run = make_finetuned("mrpc/seed-1", is_finished=False)

    assert "No seed is finished yet." in text_of(run.folder.parent)


def test_one_seed_of_several_is_named_with_its_task(make_finetuned: Make) -> None:
    run = make_finetuned("mrpc/seed-1")

    assert "Fine-tuning run mrpc/seed-1 Finished" in text_of(run.folder)


def test_the_same_run_gives_the_same_bytes(make_finetuned: Make) -> None:
    folder = make_finetuned().folder

    assert write_report(folder).read_bytes() == write_report(folder).read_bytes()
