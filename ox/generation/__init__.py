"""Texts by a decoder, token by token: `generate`, sampling, beam search, key-value caches.

Imports ox.tensors and floors below. It imports nothing of ox.nn."""

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
