"""Modules, under the names of `torch.nn`."""

from typing import TYPE_CHECKING

from ox.core.lazy import lazy_modules, public_names
from ox.nn import functional as functional
from ox.nn import init as init
from ox.nn import utils as utils
from ox.nn.base.module import *
from ox.nn.base.uninitialized import *
from ox.nn.layers.activation import *
from ox.nn.layers.adaptive_pool import *
from ox.nn.layers.adaptive_softmax import *
from ox.nn.layers.attention import *
from ox.nn.layers.batch_norm import *
from ox.nn.layers.class_loss import *
from ox.nn.layers.containers import *
from ox.nn.layers.conv import *
from ox.nn.layers.conv_transpose import *
from ox.nn.layers.distance import *
from ox.nn.layers.dropout import *
from ox.nn.layers.embedding import *
from ox.nn.layers.lazy_conv import *
from ox.nn.layers.lazy_norm import *
from ox.nn.layers.linear import *
from ox.nn.layers.loss import *
from ox.nn.layers.margin_loss import *
from ox.nn.layers.normalization import *
from ox.nn.layers.padding import *
from ox.nn.layers.parameter_containers import *
from ox.nn.layers.pool import *
from ox.nn.layers.rectifier import *
from ox.nn.layers.recurrent import *
from ox.nn.layers.recurrent_cells import *
from ox.nn.layers.softmax import *
from ox.nn.layers.sync_batch_norm import *
from ox.nn.layers.transformer import *
from ox.nn.layers.vision import *
from ox.nn.parameter import *

if not TYPE_CHECKING:  # type checkers follow the imports
    __all__ = sorted(public_names(globals()) | {"functional", "init", "utils"})

__getattr__, __dir__ = lazy_modules(
    __name__, ("attention", "common_types", "modules", "parallel"), {"DataParallel": "ox.nn.parallel"}
)
