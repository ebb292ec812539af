"""Export a model to run elsewhere: in onnxruntime, as a torch.export program, in a
browser.
"""
