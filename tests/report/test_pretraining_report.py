"""What a report says of a pretraining: what was learnt, what was not, what is missing."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from litebert.files import append_line

from .conftest import text_of

MakeRun = Callable[..., Path]
WORSE = {"kind": "eval", "step": 50, "masked_lm_loss": 6.0, "masked_lm_accuracy": 0.2}
HUGE = {"kind": "train", "step": 41, "masked_lm_loss": 3e38, "gradient_norm": 1e30, "tokens_per_second": 0, "tokens": 0}
NOTES = [{"kind": "note", "step": n, "text": f"step {n} skipped: gradient norm inf"} for n in range(1, 61)]

# What the run is, rows added to its log, what its page says, and what it does not say.
RUNS: dict[str, tuple[dict[str, Any], list[dict[str, object]], list[str], list[str]]] = {
    "plain": (
        {},
        [],
        [
            # Before, now, and without any learning.
            "Finished after 40 steps.",
            "tiny: 3 layers of 128, 2 heads, sharing all",
            "Tokens seen 0.2 million",
            "Measure At step 0 At step 40 Without learning",
            "Masked-LM loss 10.000 5.000 10.309, all tokens alike",
            "Masked-LM perplexity 22,026 148.4 30,000, all tokens alike",
            "Masked-LM accuracy 0.0% 30.0% 5.4%, always the commonest token",
            "Sentence order loss 0.700 0.700 0.693, chance",
            "Sentence order accuracy 50.0% 80.0% 50.0%, chance",
            "names 30.0% of the masked tokens; always answering the commonest token gets",
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
        [
            "always answering the commonest token gets 5.4%: no gain over that.",
            "no better than chance on 1,024 sequences",
        ],
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
    "past its best": ({}, [WORSE], ["The held-out masked-LM loss was lowest, 5.000, at step 40."], []),
    "beyond all bounds": ({}, [HUGE], ["Finished after 41 steps."], []),
    "many notes": (
        {},
        NOTES,
        ["The last 50 of 60 notes", "11 step 11 skipped: gradient norm inf", "60 step 60 skipped: gradient norm inf"],
        ["step 10 skipped"],
    ),
}


@pytest.mark.parametrize(("given", "rows", "said", "unsaid"), RUNS.values(), ids=RUNS)
def test_a_page_says_what_is_special_of_its_run(
    make_run: MakeRun, given: dict[str, Any], rows: list[dict[str, object]], said: list[str], unsaid: list[str]
) -> None:
    run = make_run(**given)
    for row in rows:
        append_line(run / "metrics.jsonl", json.dumps(row))
    text = text_of(run)
    assert [words for words in said if words.replace("{folder}", str(run)) not in text] == []
    assert [words for words in unsaid if words in text] == []


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_are_left_out_and_counted(make_run: MakeRun, bad: float) -> None:
    run = make_run()
    for kind, name in (("train", "gradient_norm"), ("eval", "masked_lm_accuracy")):
        append_line(run / "metrics.jsonl", json.dumps({"kind": kind, "step": 41, "masked_lm_loss": bad, name: bad}))
    text = text_of(run)
    assert "2 non-finite values are omitted. Lower is better." in text
    assert "1 non-finite values are omitted. Before clipping" in text
    assert "Masked-LM loss 10.000 not finite 10.309" in text


def test_changed_settings_come_first_with_default_and_origin(make_run: MakeRun) -> None:
    run = make_run(sentence="next")
    recorded = json.loads((run / "run.json").read_text())
    recorded["settings"]["train.warp"] = 9
    (run / "run.json").write_text(json.dumps(recorded))
    text = text_of(run)
    changed = text[text.index("Settings that differ") : text.index("All settings of the run")]
    assert "model.hidden_size 128 768 preset tiny (flag) width of the layers, H" in changed
    assert "objective.sentence next order command line: objective.sentence=next" in changed
    assert "data.corpus corpora/wiki required flag" in changed
    assert "train.seed" not in changed
    assert "train.warp 9 unknown unknown not a setting of this version" in changed
    assert re.search(r"litebert \d+\.\d+\.\d+ python 3\.\d+\.\d+ torch 2\.", text)
