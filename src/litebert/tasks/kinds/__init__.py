"""Kinds of tasks, one module each: examples, encoding, loss, answers, measures."""
