"""ox: train eagerly, export a standard ONNX file that proves itself, serve it."""

__version__ = "0.1.0"
