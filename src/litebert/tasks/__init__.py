"""Tasks: training, evaluation and prediction behind one protocol (`base.Task`)."""
