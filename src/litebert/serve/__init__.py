"""Answers over HTTP, in one process: an event loop, and a thread for each model that computes ragged batches."""
