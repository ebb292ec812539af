"""Tasks: training, evaluation and prediction behind one interface
(`pretraining.Task`).
"""
