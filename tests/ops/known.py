"""Cases that a runtime gets wrong or refuses, with the reason: for the generated tests and the table in the docs."""

from __future__ import annotations

# ONNX Runtime 1.31.1 and 1.32.0 on the CPU; by case name, with * for anything
ONNXRUNTIME = {
    "test_attention_4d_with_past_and_present_qk_matmul_bias_*_mask_causal": "ONNX Runtime masks with its lowest float",
    "a mask shorter than the keys": "ONNX Runtime wants a mask as long as the keys",
    "test_attention_4d_*padded_kv*": "ONNX Runtime wants a mask as long as the keys",
    "test_dropout_random_old": "an attribute of opset 11, which reading a file turns into an input",
    "test_training_dropout*": "ONNX Runtime draws other numbers",
    "a training dropout": "ONNX Runtime draws other numbers",
    "test_convinteger_with_padding": "ONNX Runtime takes one zero point alone",
    "test_mod_*_fmod_0": "ONNX Runtime wants fmod=1 for floating types",
    "test_mod_float_edge_cases_fmod_0_*": "ONNX Runtime wants fmod=1 for floating types",
    "test_resize_downsample_scales_*_align_corners": "ONNX Runtime rounds the length before it aligns the corners",
    "test_maxunpool_export_with_output_shape": "ONNX Runtime counts the indices through output_shape",
    "taps moved in *": "ONNX Runtime's DeformConv knows images only",
    "a onesided inverse of other *": "ONNX Runtime reads beyond, or not all of, the frequencies that are given",
    "test_reduce_max_empty_set_bool": "ONNX Runtime refuses an empty set of bool",
}

# Cases that ox does not run though it has the element types. Empty is how it should be.
NUMPY: dict[str, str] = {
    "test_dropout_random_old": "an attribute of opset 11, which reading a file turns into an input",
}

# Cases that fail on the scoreboard (conformance.py) though ox has the operator
SCOREBOARD = {
    "test_cast*FLOAT8E8M0*": "element type float8e8m0",
    "test_equal_string*": "element type string",
    "test_bernoulli*": "draws other numbers",
    "test_attention_4d_causal_fp16_expanded": "ox's Softmax rounds float16 once, the answer was rounded at every step",
}

# Operators whose cases do not go over into other types: attributes speak of the width, or nothing ties the output to it
BY_WIDTH = {"BitCast", "OptionalGetElement"}

# Cases whose answers are one draw of many, which nobody has to repeat
DRAWN = {"test_bernoulli", "test_bernoulli_double", "test_bernoulli_seed"}

# Cases whose answers onnx gives in four decimals: held to onnx's own tolerance of 1e-3
ROUNDED = {"test_averagepool_2d_ceil_last_window_starts_on_pad"}


def reason(table: dict[str, str], name: str) -> str | None:
    """Why this case is in the table; None when it is not."""
    from fnmatch import fnmatchcase

    return next((why for pattern, why in table.items() if fnmatchcase(name, pattern)), None)
