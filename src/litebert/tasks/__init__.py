"""Tasks: training, evaluation and prediction behind one interface
(`litebert.tasks.task.Task`).
"""
