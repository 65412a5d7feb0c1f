"""The operators: ONNX's names, signatures and meanings, to be called on tensors."""

from ox.ops import arithmetic
