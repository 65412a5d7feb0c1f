"""Lower precision for finished files: float16, bfloat16, int8 and int4, by ONNX Runtime's quantization tools.

Imported by ox.export only; users call `ox.export.quantize` and `ox.export.adopt`.
"""

from __future__ import annotations

__all__: list[str] = []
