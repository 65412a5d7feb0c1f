"""The operators: ONNX's names, signatures and semantics, called on tensors."""

from typing import TYPE_CHECKING

from ox.core.lazy import public_names
from ox.ops.control.conditional import *
from ox.ops.control.loop import *
from ox.ops.control.sequence import *
from ox.ops.elementwise.activation import *
from ox.ops.elementwise.arithmetic import *
from ox.ops.elementwise.atan2_hypot import *
from ox.ops.elementwise.comparison import *
from ox.ops.elementwise.erf_inverse import *
from ox.ops.elementwise.expm1_log1p import *
from ox.ops.elementwise.gamma import *
from ox.ops.elementwise.gated_activation import *
from ox.ops.elementwise.gcd import *
from ox.ops.elementwise.incomplete_gamma import *
from ox.ops.elementwise.next_after import *
from ox.ops.elementwise.rectifier import *
from ox.ops.elementwise.rounding import *
from ox.ops.elementwise.trigonometry import *
from ox.ops.index import in_range as in_range
from ox.ops.index.gather import *
from ox.ops.index.gather_nd import *
from ox.ops.index.nonzero_onehot import *
from ox.ops.index.searchsorted import *
from ox.ops.index.topk_unique import *
from ox.ops.linalg import factorization as factorization
from ox.ops.linalg import solve as solve
from ox.ops.linalg.det import *
from ox.ops.linalg.einsum import *
from ox.ops.linalg.linear import *
from ox.ops.linalg.matmul import *
from ox.ops.nn import running_statistics as running_statistics
from ox.ops.nn.attention import *
from ox.ops.nn.binary_cross_entropy import *
from ox.ops.nn.causal_conv import *
from ox.ops.nn.conv import *
from ox.ops.nn.cross_entropy import *
from ox.ops.nn.deform_conv import *
from ox.ops.nn.dropout import *
from ox.ops.nn.global_pool import *
from ox.ops.nn.group_norm import *
from ox.ops.nn.linear_attention import *
from ox.ops.nn.loss import *
from ox.ops.nn.lp_pool import *
from ox.ops.nn.normalization import *
from ox.ops.nn.pool import *
from ox.ops.nn.rms_norm import *
from ox.ops.nn.rotary_embedding import *
from ox.ops.nn.scaled_attention import *
from ox.ops.nn.unpool import *
from ox.ops.quantize.integer_matmul import *
from ox.ops.quantize.quantize_linear import *
from ox.ops.random.philox import *
from ox.ops.random.rng import *
from ox.ops.recurrent import gradients as gradients
from ox.ops.recurrent.rnn import *
from ox.ops.reduce.cumulative import *
from ox.ops.reduce.log_reduction import *
from ox.ops.reduce.reduction import *
from ox.ops.shape.cast import *
from ox.ops.shape.depth_to_space import *
from ox.ops.shape.pad import *
from ox.ops.shape.reshape import *
from ox.ops.shape.triangular import *
from ox.ops.signal.dft import *
from ox.ops.signal.stft import *
from ox.ops.vision.grid_sample import *
from ox.ops.vision.non_max_suppression import *
from ox.ops.vision.resize import *
from ox.ops.vision.roi_align import *

if not TYPE_CHECKING:  # type checkers follow the imports
    __all__ = sorted(public_names(globals()))
