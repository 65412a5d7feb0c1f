"""PyTorch's modules that have little to do here, under the same paths below `ox` (`ox.hub`, `ox.jit`, `ox.onnx` ...):
`ox/core/legacy_paths.py` lists them. Imports ox.export and floors below.
"""
