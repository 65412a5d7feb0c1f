"""Operators through which rows are not followed, each with its reason."""

from __future__ import annotations

from ox.serve.runtime.row_independence.node import CONTRIB, refuse

refuse(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    "draws random numbers, which follow from a row's place",
    regardless=True,
)
refuse(
    ("ConcatFromSequence", "SequenceAt", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength"),
    "sequences of tensors are not followed",
)
refuse(("SequenceMap",), "sequences of tensors are not followed", regardless=True)
refuse(("Optional", "OptionalGetElement", "OptionalHasElement"), "optional values are not followed")
refuse(("NonMaxSuppression",), "numbers the images of the batch")
refuse(("MaxUnpool",), "places elements by their number in the whole batch")
refuse(("Unique",), "looks for equals among all rows")
refuse(("StringNormalizer",), "removes strings, so that rows move")
refuse(("ImageDecoder",), "decodes one image")
refuse(("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix"), "makes tables from a size")
refuse(("DynamicQuantizeMatMul", "DynamicQuantizeLSTM"), "takes one scale from all rows", CONTRIB)
refuse(("PackedAttention", "PackedMultiHeadAttention", "RemovePadding", "RestorePadding"), "packs rows", CONTRIB)
