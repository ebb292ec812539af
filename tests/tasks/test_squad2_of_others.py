"""SQuAD 2.0 models that others trained: a linear head, where [CLS] means "no answer"."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AlbertConfig, AlbertForQuestionAnswering
from transformers.pipelines.document_question_answering import select_starts_ends

import litebert
from litebert.folder import read_folder, write_folder
from litebert.hub import packaged_model
from litebert.inference.model import Model
from litebert.tokenizer import Tokenizer

NUM_QUESTIONS = 40
LONGEST = 384  # pieces, so that each question has one window


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a random model with transformers."""
    folder = tmp_path_factory.mktemp("others") / "squad2"
    tokenizer = Tokenizer.load(packaged_model())
    torch.manual_seed(0)
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        initializer_range=0.1,
    )
    AlbertForQuestionAnswering(config).save_pretrained(folder)
    tokenizer.save(folder)
    return folder


@torch.no_grad()
def balance(
    network: AlbertForQuestionAnswering,
    tokenizer: Tokenizer,
    pairs: list[tuple[str, str]],
) -> None:
    """Move the head toward the state of [CLS] until some of the questions have an
    answer, and some have none.
    """
    states = []
    for pair in pairs:
        inputs, _ = inputs_of(tokenizer, pair)
        states.append(network.albert(**inputs).last_hidden_state[0, 0])
    direction = torch.stack(states).mean(0)  # (hidden,)
    weight = network.qa_outputs.weight.clone()
    for step in torch.logspace(-2, 3, 80).tolist():
        network.qa_outputs.weight.copy_(weight + step * direction)
        answers = [rule_of_transformers(network, tokenizer, pair)[0] for pair in pairs]
        if answers.count("") >= len(pairs) // 3:
            return
    raise AssertionError("[CLS] never scores higher")


def questions(real_data: Path) -> list[tuple[str, str]]:
    """Return questions on short contexts of SQuAD 2.0's dev set."""
    path = real_data / "squad" / "dev-v2.0.part1.json.gz"
    pairs = []
    for article in json.loads(gzip.decompress(path.read_bytes()))["data"]:
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"][:2]:
                pairs.append((asked["question"], paragraph["context"]))
    return pairs


def inputs_of(
    tokenizer: Tokenizer, pair: tuple[str, str]
) -> tuple[dict[str, torch.Tensor], int]:
    """Return what the network reads for a question on a context, and the position of
    the first piece of the context.
    """
    question, context = tokenizer.encode_ids([*pair])
    head = [tokenizer.cls_id, *question, tokenizer.sep_id]
    ids = [*head, *context, tokenizer.sep_id]
    segments = [0] * len(head) + [1] * (len(context) + 1)
    inputs = {
        "input_ids": torch.tensor([ids]),
        "token_type_ids": torch.tensor([segments]),
    }
    return inputs, len(head)


def rule_of_transformers(
    network: AlbertForQuestionAnswering, tokenizer: Tokenizer, pair: tuple[str, str]
) -> tuple[str, float, float]:
    """Return the answer of transformers' own functions, and the probabilities of the
    best span and of [CLS].
    """
    inputs, first_piece = inputs_of(tokenizer, pair)
    with torch.no_grad():
        output = network(**inputs)
    # [CLS] and the context can be in an answer
    p_mask = np.ones(inputs["input_ids"].shape, dtype=np.int64)
    p_mask[0, 0] = 0
    p_mask[0, first_piece:-1] = 0
    starts, ends, scores, null = select_starts_ends(
        output.start_logits.double().numpy(),
        output.end_logits.double().numpy(),
        p_mask,
        np.ones_like(p_mask),
        handle_impossible_answer=True,
        max_answer_len=30,
    )
    if null > scores[0]:
        return "", float(scores[0]), null
    offsets = tokenizer.encode(pair[1]).offsets
    first = offsets[starts[0] - first_piece][0]
    last = offsets[ends[0] - first_piece][1]
    return pair[1][first:last].strip(), float(scores[0]), null


def test_predictions_are_those_of_transformers_own_rule(
    folder: Path, real_data: Path, tmp_path: Path
) -> None:
    pairs = questions(real_data)
    network = AlbertForQuestionAnswering.from_pretrained(folder).eval()
    tokenizer = Tokenizer.load(folder)
    balance(network, tokenizer, pairs[:24:2])
    network.save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    model = litebert.load(tmp_path)
    num_compared = 0
    num_empty = 0
    for question, context in pairs:
        sizes = map(len, model.tokenizer.encode_ids([question, context]))
        if sum(sizes) > LONGEST:
            continue
        expected, best, null = rule_of_transformers(
            network, model.tokenizer, (question, context)
        )
        (answer,) = model.answer(question, context)
        assert answer.text == expected, (question, best, null)
        num_compared += 1
        num_empty += expected == ""
        if num_compared == NUM_QUESTIONS:
            break
    assert num_compared == NUM_QUESTIONS
    assert 5 <= num_empty <= NUM_QUESTIONS - 5


CONTEXT = "Anna found a red ball in the garden. Bert slept."


def test_both_scores_are_returned_and_the_folder_says_what_it_does_not_know(
    folder: Path, tmp_path: Path
) -> None:
    model = litebert.load(folder)
    assert sum("always_answers" in note for note in model.notes) == 1
    answers = model.answer("Who?", CONTEXT, top=500)
    assert sum(span.text == "" for span in answers) == 1
    assert {span.no_answer for span in answers} == {answers[0].no_answer}
    assert sum(span.probability for span in answers) == pytest.approx(1, abs=1e-6)

    # a copy knows as much: it was not trained by litebert
    write_folder(read_folder(folder), tmp_path / "copy")
    copied = litebert.load(tmp_path / "copy")
    assert copied.answer("Who?", CONTEXT, top=500) == answers

    # whoever knows says so
    config = folder / "config.json"
    table = json.loads(config.read_text())
    told = tmp_path / "told"
    write_folder(read_folder(folder), told)
    (told / "config.json").write_text(json.dumps(table | {"always_answers": True}))
    answered = litebert.load(told)
    assert not any("always_answers" in note for note in answered.notes)
    assert {span.no_answer for span in answered.answer("Who?", CONTEXT, top=5)} == {
        None
    }


def test_a_score_of_cls_far_above_all_others_is_no_answer(folder: Path) -> None:
    model = litebert.load(folder)
    for score, text in ((1e4, ""), (-1e4, None)):
        assert_answer(model, score, text)


def assert_answer(model: Model, score: float, text: str | None) -> None:
    """Check the answer of a head that gives [CLS] this score and other tokens none."""

    def replace_logits(
        _module: object, _inputs: object, output: torch.Tensor
    ) -> object:
        logits = torch.zeros_like(output)
        logits[0] = score
        return logits

    hook = model.network.head.register_forward_hook(replace_logits)
    (answer,) = model.answer("Who?", CONTEXT)
    hook.remove()
    assert (answer.text == "") == (text == "")
    assert answer.no_answer == pytest.approx(1.0 if text == "" else 0.0)


def test_a_context_without_a_word_has_no_answer(folder: Path) -> None:
    (answer,) = litebert.load(folder).answer("Who?", "\u0301")
    assert (answer.text, answer.no_answer) == ("", 1.0)
