"""Export a model for other runtimes: as one ONNX file, or as a torch.export program."""
