"""What a report says of a run: what was learnt, what was not, what is missing."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from litebert.files import append_line

from .conftest import text_of

MakeRun = Callable[..., Path]


def test_the_summary_compares_before_with_now_and_with_no_learning(make_run: MakeRun) -> None:
    text = text_of(make_run())

    assert "Finished after 40 steps." in text
    assert "tiny: 3 layers of 128, 2 heads, sharing all" in text
    assert "Tokens seen 0.2 million" in text
    assert "Measure At step 0 At step 40 Without learning" in text
    assert "Masked-LM loss 10.000 5.000 10.309, all tokens alike" in text
    assert "Masked-LM perplexity 22,026 148.4 30,000, all tokens alike" in text
    assert "Masked-LM accuracy 0.0% 30.0% 5.4%, always the commonest token" in text
    assert "Sentence order loss 0.700 0.700 0.693, chance" in text
    assert "Sentence order accuracy 50.0% 80.0% 50.0%, chance" in text
    assert "names 30.0% of the masked tokens; always answering the commonest token gets" in text
    assert "Sentence order: 80.0% right, where chance gets 50.0%." in text


RUNS = {
    "no gain": (
        {"accuracies": (0.054, 0.52)},
        [
            "always answering the commonest token gets 5.4%: no gain over that.",
            "no better than chance on 1,024 sequences",
        ],
        [],
    ),
    "no sentence objective": (
        {"sentence": "none"},
        ["No sentence objective was trained (objective.sentence = none).", "litebert fill"],
        ["Sentence order", "litebert order"],
    ),
    "next sentence": (
        {"sentence": "next"},
        ["Next sentence accuracy 50.0% 80.0%"],
        ["Sentence order", "litebert order"],
    ),
    "how to use its model": (
        {},
        [
            'litebert fill "The cat sat on the [MASK]." --model {folder}/model',
            '"He opened the door." "Nobody was there." --model {folder}/model',
            "litebert.load('{folder}/model')",
        ],
        [],
    ),
    "not finished": (
        {"last_step": 30},
        ["Not finished: step 30 of 40. There is no model yet.", "At step 0 At step 20", "to resume it"],
        ["litebert fill"],
    ),
    "evaluated once": ({"last_step": 1}, ["Evaluated once so far, at step 0."], ["Without learning"]),
}


@pytest.mark.parametrize(("given", "said", "unsaid"), RUNS.values(), ids=RUNS)
def test_a_page_says_what_is_special_of_its_run(
    make_run: MakeRun, given: dict[str, Any], said: list[str], unsaid: list[str]
) -> None:
    run = make_run(**given)
    text = text_of(run)
    assert [words for words in said if words.replace("{folder}", str(run)) not in text] == []
    assert [words for words in unsaid if words in text] == []


def test_a_run_whose_best_evaluation_is_past_says_so(make_run: MakeRun) -> None:
    run = make_run()
    worse = {"kind": "eval", "step": 50, "masked_lm_loss": 6.0, "masked_lm_accuracy": 0.2}
    append_line(run / "metrics.jsonl", json.dumps(worse))

    assert "The held-out masked-LM loss was lowest, 5.000, at step 40." in text_of(run)


def test_a_run_that_has_only_begun_is_reported_too(make_run: MakeRun) -> None:
    run = make_run(last_step=0)
    (run / "metrics.jsonl").unlink()

    text = text_of(run)

    assert "Not finished: no training step was logged yet." in text
    assert "Nothing was evaluated yet." in text
    assert "No step was logged yet." in text


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_are_left_out_and_counted(make_run: MakeRun, bad: float) -> None:
    run = make_run()
    row = {"kind": "train", "step": 41, "masked_lm_loss": bad, "gradient_norm": bad}
    append_line(run / "metrics.jsonl", json.dumps(row))
    held_out = {"kind": "eval", "step": 41, "masked_lm_loss": bad, "masked_lm_accuracy": 0.1}
    append_line(run / "metrics.jsonl", json.dumps(held_out))

    text = text_of(run)

    assert "2 non-finite values are omitted. Lower is better." in text
    assert "1 non-finite values are omitted. Before clipping" in text
    assert "Masked-LM loss 10.000 not finite 10.309" in text


def test_losses_beyond_all_bounds_are_drawn_without_a_complaint(make_run: MakeRun) -> None:
    run = make_run()
    values = {"masked_lm_loss": 3e38, "gradient_norm": 1e30, "tokens_per_second": 0.0, "tokens": 0}
    append_line(run / "metrics.jsonl", json.dumps({"kind": "train", "step": 41, **values}))

    assert "Finished after 41 steps." in text_of(run)


def test_changed_settings_come_first_with_default_and_origin(make_run: MakeRun) -> None:
    text = text_of(make_run(sentence="next"))

    changed = text[text.index("Settings that differ") : text.index("All settings of the run")]
    assert "model.hidden_size 128 768 preset tiny (flag) width of the layers, H" in changed
    typed = "command line: objective.sentence=next"
    assert f"objective.sentence next order {typed}" in changed
    assert "data.corpus corpora/wiki required flag" in changed
    assert "train.seed" not in changed
    assert "train.seed 12345 12345 default" in text
    assert "model.embedding_projection unset unset preset tiny (flag)" in text


def test_a_setting_of_another_version_is_shown_as_unknown(make_run: MakeRun) -> None:
    run = make_run()
    recorded = json.loads((run / "run.json").read_text())
    recorded["settings"]["train.warp"] = 9
    (run / "run.json").write_text(json.dumps(recorded))

    assert "train.warp 9 unknown unknown not a setting of this version" in text_of(run)


def test_environment_and_data_are_written_down(make_run: MakeRun) -> None:
    text = text_of(make_run())

    assert re.search(r"litebert \d+\.\d+\.\d+ python 3\.\d+\.\d+ torch 2\.", text)
    assert "tokenizer a1b2c3 training tokens 1,234,567" in text


def test_notes_are_listed_the_last_fifty_of_many(make_run: MakeRun) -> None:
    run = make_run()
    assert "Nothing unusual was noted" in text_of(run)
    for step in range(1, 61):
        note = {"kind": "note", "step": step, "text": f"step {step} skipped: gradient norm inf"}
        append_line(run / "metrics.jsonl", json.dumps(note))

    text = text_of(run)

    assert "The last 50 of 60 notes" in text
    assert "step 10 skipped" not in text
    assert "11 step 11 skipped: gradient norm inf" in text
    assert "60 step 60 skipped: gradient norm inf" in text
