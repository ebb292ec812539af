"""Tasks: training, evaluation and prediction behind one protocol (`pretraining.Task`)."""
