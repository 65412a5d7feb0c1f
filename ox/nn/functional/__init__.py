"""The layers as functions, under the names of `torch.nn.functional`."""

from typing import TYPE_CHECKING

from ox.core.lazy import public_names
from ox.functions import cosine_similarity as cosine_similarity
from ox.functions import hardshrink as hardshrink
from ox.functions import pairwise_distance as pairwise_distance
from ox.functions import pdist as pdist
from ox.functions import prelu as prelu
from ox.nn.functional.activation import *
from ox.nn.functional.adaptive_pool import *
from ox.nn.functional.attention import *
from ox.nn.functional.class_loss import *
from ox.nn.functional.conv import *
from ox.nn.functional.ctc import *
from ox.nn.functional.dropouts import *
from ox.nn.functional.embeddings import *
from ox.nn.functional.folding import *
from ox.nn.functional.grid import *
from ox.nn.functional.loss import *
from ox.nn.functional.margin_loss import *
from ox.nn.functional.multi_head import *
from ox.nn.functional.normalization import *
from ox.nn.functional.padding import *
from ox.nn.functional.pool import *
from ox.nn.functional.projections import *
from ox.nn.functional.rectifier import *
from ox.nn.functional.resize import *
from ox.nn.functional.softmaxes import *
from ox.overrides import handle_torch_function as handle_torch_function
from ox.overrides import has_torch_function as has_torch_function
from ox.overrides import has_torch_function_unary as has_torch_function_unary
from ox.overrides import has_torch_function_variadic as has_torch_function_variadic

# code copied from PyTorch has the names of ox.overrides from here, too
if not TYPE_CHECKING:  # type checkers follow the imports
    __all__ = sorted(name for name in public_names(globals()) if "torch_function" not in name)
