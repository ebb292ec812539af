"""Export a model to run elsewhere: in onnxruntime, or in a browser."""
