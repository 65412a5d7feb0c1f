"""The Transformer's modules beside PyTorch, with the same weights under the same names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sides import assert_same, check_error, names, split

R = np.random.default_rng(41)
ARRAYS = {
    "src": R.normal(size=(5, 3, 8)),
    "tgt": R.normal(size=(4, 3, 8)),
    "pad": np.array([[False] * 5, [False, False, False, True, True], [False, True, False, False, False]]),
    "tpad": np.array([[False] * 4, [False, False, False, True], [False, True, False, False]]),
    "up": np.triu(np.ones((5, 5), bool), 1),
    "tup": np.triu(np.ones((4, 4), bool), 1),
    "far": R.normal(size=(4, 5)),
}
LAYER = "8, 2, 16, 0.0"
CASES = f"""
TransformerEncoderLayer({LAYER}) | src
TransformerEncoderLayer({LAYER}, "gelu", 1e-3, norm_first=True) | src, up
TransformerEncoderLayer({LAYER}, batch_first=True, bias=False) | src.transpose(0, 1), src_key_padding_mask=pad
TransformerEncoderLayer({LAYER}, activation=F.silu) | src, up, pad
TransformerEncoderLayer({LAYER}) | src, up, is_causal=True
TransformerEncoderLayer({LAYER}) | src[:, 0], up
TransformerDecoderLayer({LAYER}) | tgt, src
TransformerDecoderLayer({LAYER}, "gelu", norm_first=True, batch_first=True) | tgt.transpose(0, 1), src.transpose(0, 1)
TransformerDecoderLayer({LAYER}, bias=False) | tgt, src, tup, far, tpad, pad
TransformerDecoderLayer({LAYER}) | tgt, src, tup, tgt_is_causal=True
TransformerDecoderLayer({LAYER}, activation=T.tanh) | tgt[:, 0], src[:, 0]
TransformerEncoder(nn.TransformerEncoderLayer({LAYER}), 2, enable_nested_tensor=False) | src
TransformerEncoder(nn.TransformerEncoderLayer({LAYER}), 2, nn.LayerNorm(8), False) | src, up, pad
TransformerEncoder(nn.TransformerEncoderLayer({LAYER}), 2, enable_nested_tensor=False) | src, mask=up, is_causal=True
TransformerDecoder(nn.TransformerDecoderLayer({LAYER}), 2) | tgt, src, tup
TransformerDecoder(nn.TransformerDecoderLayer({LAYER}), 2, nn.LayerNorm(8)) | tgt, src, tup, None, tpad, pad
Transformer(8, 2, 2, 2, 16, 0.0) | src, tgt
Transformer(8, 2, 1, 1, 16, 0.0, "gelu", batch_first=True, norm_first=True) | src.transpose(0, 1), tgt.transpose(0, 1)
Transformer(8, 2, 1, 2, 16, 0.0, bias=False) | src, tgt, up, tup, None, pad, tpad, pad
Transformer(8, 2, 1, 1, 16, 0.0) | src, tgt, tgt_mask=nn.Transformer.generate_square_subsequent_mask(4).double()
Transformer(8, 2, 1, 1, 16, 0.0) | src[:, 0], tgt[:, 0], tgt_mask=tup
"""


@pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:Support for mismatched")
@pytest.mark.parametrize("case", CASES.strip().splitlines())
def test_modules(case: str) -> None:
    """Names of the state, output and all gradients in training, and the output in evaluation."""
    make, call = case.split(" | ")
    found: list[list[Any]] = []
    for side in (0, 1):
        own = names(ARRAYS, side)
        module = eval(f"nn.{make}", own).double()
        values = np.random.default_rng(6)
        state = {k: own["T"].tensor(values.normal(size=tuple(x.shape)) * 0.5) for k, x in module.state_dict().items()}
        module.load_state_dict(state)
        leaves = [own[n].requires_grad_() for n in ("src", "tgt") if n in call]
        y = eval(f"module({call})", {**own, "module": module})
        (y * y * y).sum().backward()
        grads = [p.grad for _, p in sorted(module.named_parameters())]
        found.append([list(state), y.detach(), *[x.grad for x in leaves], *grads])
        if "pad" not in call:  # where PyTorch's fast path leaves zeros
            module.eval()
            found[-1].append(eval(f"module({call})", {**own, "module": module}).detach())
    assert_same(*found, rtol=1e-5, atol=1e-7)


def test_the_mask() -> None:
    for side in (0, 1):
        own = names({}, side)
        made = own["nn"].Transformer.generate_square_subsequent_mask(3)
        assert made.tolist() == [[0, -np.inf, -np.inf], [0, 0, -np.inf], [0, 0, 0]]


ERRORS = """
nn.Transformer(8, 2, 1, 1, 16)(src, tgt[:, :2]); nn.Transformer(8, 2, 1, 1, 16)(src[..., :6], tgt)
nn.Transformer(8, 3); nn.TransformerEncoderLayer(8, 2, 16, activation="swish")
nn.TransformerEncoderLayer(8, 2, 16)(src[..., :4]); nn.TransformerDecoderLayer(8, 2, 16)(tgt, src[:, :2])
nn.Transformer(8, 2, 1, 1, 16)(src, tgt[:, 0]); nn.TransformerEncoderLayer(8, 2, 16)(src, T.zeros(4, 4))
"""


@pytest.mark.parametrize("expression", split(ERRORS))
def test_errors(expression: str) -> None:
    check_error(expression, {n: x.astype(np.float32) if x.dtype == np.float64 else x for n, x in ARRAYS.items()})
