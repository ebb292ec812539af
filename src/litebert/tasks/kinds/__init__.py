"""Kinds of tasks, a chapter each: reading, encoding, loss, answers, measures."""
