"""PyTorch's random numbers on the CPU: the Mersenne Twister and the order in which PyTorch 2.13 draws from it.

Written from the published algorithms and held against PyTorch by tests, for x86 processors with AVX2, where most of
PyTorch's builds run: `words` has the generator itself, `uniform`, `normal` and `discrete` what it makes of its words.
`ox.random.torch_compatible` turns it on.
"""

from ox.mt19937.words import Words

__all__ = ["Words"]
