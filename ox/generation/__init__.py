"""Texts by a decoder, token by token: `generate`, sampling, beam search, key-value caches.

Imports ox.tensors and floors below. Names are imported when first used: ox.serve takes the sampler, and no tensor."""

from typing import TYPE_CHECKING

from ox.core.lazy import lazy_modules

if TYPE_CHECKING:
    from ox.generation.generate import Generates, Generation, TokenLogprobs, TokenStep
    from ox.generation.kv_cache import KVCache
    from ox.generation.onnx_decoder import OnnxDecoder
    from ox.generation.sampler import Sampler
    from ox.generation.sampling_params import SamplingParams

__all__ = [
    "Generates",
    "Generation",
    "KVCache",
    "OnnxDecoder",
    "Sampler",
    "SamplingParams",
    "TokenLogprobs",
    "TokenStep",
]

_GENERATE = dict.fromkeys(("Generates", "Generation", "TokenLogprobs", "TokenStep"), "ox.generation.generate")
__getattr__, __dir__ = lazy_modules(
    __name__,
    also={
        **_GENERATE,
        "KVCache": "ox.generation.kv_cache",
        "OnnxDecoder": "ox.generation.onnx_decoder",
        "Sampler": "ox.generation.sampler",
        "SamplingParams": "ox.generation.sampling_params",
    },
)
