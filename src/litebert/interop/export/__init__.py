"""A model as other runtimes read it: one ONNX file, or a torch.export program."""
