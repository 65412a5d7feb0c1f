"""PyTorch's random numbers on the CPU: the Mersenne Twister and the order in which PyTorch 2.13 draws from it.

Written from the published algorithms and compared with PyTorch by tests, for x86 processors with AVX2, where most
builds of PyTorch run. `words` has the generator; `uniform`, `normal` and `discrete` turn its words into samples.
`ox.random.torch_compatible` switches it on. Imports ox.dtypes and ox.errors only.
"""

from ox.core.mt19937.words import Words

__all__ = ["Words"]
