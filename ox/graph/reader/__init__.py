"""ONNX files as graphs.

Imports ox.graph and ox.core only. The server imports `model_file`, which needs no operators.
"""
