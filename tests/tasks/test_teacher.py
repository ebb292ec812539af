"""A teacher reads the text behind a student's ids, aligned by characters."""

import numpy as np
import torch

from litebert.nn import Batch
from litebert.tasks.teacher import Teacher, align
from litebert.tokenizer import Tokenizer
from tests.networks import PLAIN_SENTENCES, plain_tokenizer, unshared_network

TEXT = f" {PLAIN_SENTENCES[0].lower()}"


def spans_of(tokenizer: Tokenizer) -> list[tuple[int, int]]:
    """Return the characters of each token of the text, framed."""
    return [(0, 0), *tokenizer.encode(TEXT).offsets, (0, 0)]


def test_teacher_tokens_that_overlap_a_student_token_cover_its_characters() -> None:
    student_spans = spans_of(plain_tokenizer(40))
    teacher_spans = spans_of(plain_tokenizer(44))
    assert student_spans != teacher_spans
    first, stop = align([student_spans], [teacher_spans])
    for (begin, end), low, high in zip(student_spans, first, stop, strict=True):
        covering = [span for span in teacher_spans[low:high] if span != (0, 0)]
        for teacher_begin, teacher_end in covering:
            assert teacher_begin < end
            assert begin < teacher_end
        if end > begin:
            assert covering[0][0] <= begin
            assert covering[-1][1] >= end


def test_a_target_is_the_mean_of_the_teacher_tokens_that_overlap_a_token() -> None:
    student_tokenizer = plain_tokenizer(40)
    tokenizer = plain_tokenizer(44)
    network = unshared_network(tokenizer)
    teacher = Teacher(network.albert, tokenizer, student_tokenizer)
    pieces = student_tokenizer.encode(TEXT).ids
    ids = np.array([student_tokenizer.cls_id, *pieces, student_tokenizer.sep_id])
    reading = teacher.read(ids, np.array([0, len(ids)]), layers=[1])

    batch = Batch.from_lists([tokenizer.encode(TEXT, frame=True).ids])
    after_first_layer = list(network.albert.states(batch))[1]
    first, stop = align([spans_of(student_tokenizer)], [spans_of(tokenizer)])
    [targets] = reading.states
    for number, target in zip(reading.kept, targets, strict=True):
        rows = after_first_layer[first[number] : stop[number]]
        torch.testing.assert_close(target, rows.mean(0))
    # all but a lone space have a counterpart
    has_characters = [begin < end for begin, end in spans_of(student_tokenizer)[1:-1]]
    assert len(reading.kept) == sum(has_characters) + 2
