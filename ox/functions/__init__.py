"""PyTorch's functions on tensors, as compositions of operators; most are Tensor methods too.

Imports ox.core, ox.ops, ox.amp and ox.devices only; ox.tensors for annotations. What reads an array is not recorded.
"""

from typing import TYPE_CHECKING

from ox.core.lazy import public_names
from ox.functions.bessel import *
from ox.functions.comparison import *
from ox.functions.comparison import comparable as comparable
from ox.functions.concatenation import *
from ox.functions.control import *
from ox.functions.cumulative import *
from ox.functions.diagonals import *
from ox.functions.diagonals import fill_diagonal as fill_diagonal
from ox.functions.differences import *
from ox.functions.distances import *
from ox.functions.dtype_queries import *
from ox.functions.floats import *
from ox.functions.gather_select import *
from ox.functions.histograms import *
from ox.functions.index_arguments import broadcast_all as broadcast_all
from ox.functions.interpolation import *
from ox.functions.like_creation import *
from ox.functions.like_creation import full_like_shape as full_like_shape
from ox.functions.like_creation import to_device as to_device
from ox.functions.movement import *
from ox.functions.movement import unfold as unfold
from ox.functions.norms import *
from ox.functions.operand_arguments import like as like
from ox.functions.overloads import with_keywords as _with_keywords
from ox.functions.pointwise import *
from ox.functions.products import *
from ox.functions.rectifier import *
from ox.functions.reductions import *
from ox.functions.rounding import *
from ox.functions.scatter_fill import *
from ox.functions.shapes import *
from ox.functions.sorting import *
from ox.functions.statistics import *
from ox.functions.transcendental import *

_METHODS = {"fill_diagonal", "unfold"}  # PyTorch has them as methods only
_HELPERS = {"comparable", "full_like_shape", "like", "to_device", "together"}
if not TYPE_CHECKING:  # type checkers follow the imports
    __all__ = sorted(public_names(globals()) - _METHODS - _HELPERS)
    _with_keywords(globals(), __all__)
