"""Contrast: which half of all chunks of a step continues this one?"""

from __future__ import annotations

from litebert.objectives.sentences.base import InOrder


class HalvesApart(InOrder):
    """Both halves of a chunk are sequences of their own; each is to find the other by its vector.

    The wrong answers are the halves of all other chunks of the step (as inverse cloze tasks draw
    them, arXiv 1906.00300), so a step has many pairs of two documents and few neighbours.
    """

    name = "contrast"
    fewest_sentences = 2
    is_contrast = True
