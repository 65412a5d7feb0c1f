"""`save` writes a verified ONNX file, `save_step` a training step as one, `load` reads one as a module that can be
trained, `inspect` describes one, `convert` writes one anew, `quantize` writes one in lower precision, `adopt` accepts
what another tool made, `diff` and `prove` compare."""

from __future__ import annotations

from ox.core.symbolic import Dim
from ox.export.convert_file import convert
from ox.export.decoder_file import DecoderReport, save_decoder
from ox.export.difference import Difference, diff
from ox.export.encoder_file import EncoderReport, save_encoder
from ox.export.proof import Row
from ox.export.prove_file import FileProof, prove
from ox.export.quantization.adopt_model import adopt
from ox.export.quantization.quantize_model import quantize
from ox.export.quantization.report import QuantizeReport
from ox.export.save_model import Report, save
from ox.export.summary import Summary, inspect
from ox.export.training_step.proof import StepRow
from ox.export.training_step.report import StepReport
from ox.export.training_step.save_step import save_step
from ox.onnx_module.loaded import Loaded, load

__all__ = [
    "DecoderReport",
    "Difference",
    "Dim",
    "EncoderReport",
    "FileProof",
    "Loaded",
    "QuantizeReport",
    "Report",
    "Row",
    "StepReport",
    "StepRow",
    "Summary",
    "adopt",
    "convert",
    "diff",
    "inspect",
    "load",
    "prove",
    "quantize",
    "save",
    "save_decoder",
    "save_encoder",
    "save_step",
]
