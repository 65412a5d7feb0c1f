"""Patterns of einops' documentation and tutorials, and of the models that use it: expressions over named arrays.

`batch` marks those whose first input dimension may have any size: they are exported, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_rng = np.random.default_rng(0)


def _array(*shape: int) -> np.ndarray[Any, Any]:
    return _rng.permutation(int(np.prod(shape))).reshape(shape) / 10 + 0.5  # all different: max and min have one place


ARRAYS = {
    "ims": _array(6, 4, 8, 3),  # b h w c
    "x": _array(2, 3, 4, 6),  # b c h w
    "seq": _array(2, 5, 12),  # b n (heads d)
    "v": _array(2, 7),
    "q": _array(2, 3, 5, 4),
    "k": _array(2, 3, 6, 4),
    "m": _array(12, 9),
    "square": _array(5, 5),
}

# expressions of the einops functions; each starts with the array that has the batch first, where it has one
BATCH = """
rearrange(ims, 'b h w c -> b w h c')
rearrange(ims, 'b h w c -> b c h w')
rearrange(ims, 'b h w c -> (b h) w c')
rearrange(ims, 'b h w c -> h (b w) c')
rearrange(ims, 'b h w c -> (b h w c)')
rearrange(ims, 'b h w c -> b (c h w)')
rearrange(ims, 'b (h1 h) (w1 w) c -> (b h1 w1) h w c', h1=2, w1=2)
rearrange(ims, 'b (h h1) (w w1) c -> b h w (c h1 w1)', h1=2, w1=2)
rearrange(ims, 'b h (w w2) c -> (h w2) (b w) c', w2=2)
rearrange(ims, 'b h w c -> w b h c')
rearrange(ims, 'b ... -> b (...)')
rearrange(ims, 'b ... c -> b c ...')
rearrange(ims, '... h w c -> ... (h w) c')
rearrange(ims, 'b h w c -> b 1 h w 1 c')
rearrange(rearrange(ims, 'b h w c -> b 1 h w 1 c'), 'b 1 h w 1 c -> b h w c')
rearrange(ims, 'b h w c -> b () (h w) c')
rearrange(seq, 'b n (h d) -> b h n d', h=3)
rearrange(seq, 'b n (qkv h d) -> qkv b h n d', qkv=3, h=2)
rearrange(x, 'b c (h p1) (w p2) -> b (h w) (p1 p2 c)', p1=2, p2=3)
rearrange(x, 'b c (h p1) (w p2) -> (b h w) c p1 p2', p1=2, p2=3)
rearrange(x, 'b (c1 c2) h w -> b c1 c2 h w', c1=1)
reduce(ims, 'b h w c -> h w c', 'mean')
reduce(ims, 'b h w c -> b c', 'max')
reduce(ims, 'b h w c -> b h w', 'min')
reduce(ims, 'b (h h2) (w w2) c -> b h w c', 'mean', h2=2, w2=2)
reduce(ims, 'b (h h2) (w w2) c -> h (b w) c', 'max', h2=2, w2=2)
reduce(ims, 'b (h 2) (w 2) c -> b c h w', 'sum')
reduce(ims, 'b h w c -> b () () c', 'max') - ims
ims - reduce(ims, 'b h w c -> b 1 1 c', 'mean')
reduce(x, 'b c (h1 h2) (w1 w2) -> b c h1 w1', 'max', h1=2, w1=3)
reduce(v, 'b n -> b', 'prod')
reduce(x, 'b ... -> b', 'sum')
repeat(v, 'b n -> b n c', c=3)
repeat(v, 'b n -> (r b) n', r=2)
repeat(v, 'b n -> (b r) n', r=2)
repeat(v, 'b n -> b (n r)', r=4)
repeat(v, 'b n -> b n 2')
repeat(x, 'b c h w -> b c (h h2) (w w2)', h2=2, w2=2)
repeat(ims, 'b h w c -> b (tile h) w c', tile=2)
repeat(square[0], 'd -> b d', b=v.shape[0]) * v.sum()
repeat(square, 'n d -> (b n) d', b=v.shape[0]) * v.sum()
repeat(square[:1], '() d -> b () d', b=parse_shape(v, 'b _')['b']) + v.sum()
einsum(q, k, 'b h i d, b h j d -> b h i j')
einsum(v, m[:7], 'batch i, i o -> batch o')
einsum(q, k, 'b h i d, b h j d -> i j')
einsum(seq, m, '... i, i o -> ... o')
einsum(q, '... i d -> ... d')
pack([v, x[:, :, 0, 0], seq[:, 0]], 'b *')[0]
pack([seq, seq[:, 0]], 'b * d')[0]
unpack(seq, [[2], [3]], 'b * d')[1]
unpack(v, [[2, 2], [], [2]], 'b *')[0]
unpack(v, [[2, 2], [-1]], 'b *')[1]
unpack(*pack([x], 'b * h w'), 'b * h w')[0]
unpack(*pack([x, x[:, 0]], '* h w'), '* h w')[1]
rearrange(v.reshape(-1), '(b n) -> b n', **parse_shape(v, 'b n'))
rearrange([v, v * 2], 'r b n -> b n r')
""".strip().splitlines()

PLAIN = """
rearrange(list(ims), 'b h w c -> b h w c')
rearrange([ims[0], ims[1]], 'b h w c -> h (b w) c')
rearrange(ims, '(b1 b2) h w c -> (b1 h) (b2 w) c', b1=2)
rearrange(ims, '(b1 b2) h w c -> h (b1 b2 w) c', b2=2)
reduce(ims, 'b h w c ->', 'sum')
reduce(ims > 3, 'b h w c -> b c', 'any')
reduce(ims > 3, 'b h w c -> c', 'all')
reduce(ims, '(b1 b2) h w c -> (b2 h) (b1 w) c', 'mean', b1=2)
einsum(square, 'i i ->')
einsum(square, square, square, 'a b, b c, c d -> a d')
pack([square[0], square], '* d')[0]
unpack(square, [[], [4]], '* d')[0]
asnumpy(ims)
parse_shape(ims, 'b h w c')
parse_shape(ims, 'b _ ...')
""".strip().splitlines()

REFUSED = """
rearrange(v, 'b n -> b m')
rearrange(v, 'b n c -> b n')
rearrange(v, 'b (n m) -> b n m', m=2)
reduce(v.long(), 'b n -> b', 'mean')
repeat(v, 'b n -> b n c')
unpack(v, [[3, 3]], 'b *')
pack([], 'b *')
""".strip().splitlines()
