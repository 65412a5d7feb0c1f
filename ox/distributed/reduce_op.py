"""How a reduction over ranks combines their values."""

from __future__ import annotations

from enum import Enum


class ReduceOp(Enum):
    """`torch.distributed.ReduceOp`.

    `AVG` needs a floating type, the B's need integers or bools. Of bools, `SUM` and `MAX` say whether any rank has
    True, `PRODUCT` and `MIN` whether all have.
    """

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"
