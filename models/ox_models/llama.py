"""LLaMA, with the parameter names of Hugging Face's: a decoder with rotary positions, grouped heads, RMS norms and a
gated MLP.

Touvron et al., *LLaMA: Open and Efficient Foundation Language Models*, 2023. `from_pretrained` reads a checkpoint;
Mistral's and TinyLlama's have the same form.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import ox
from ox import nn
from ox.errors import ArgumentError, LoadError
from ox.generation import Generates, KVCache
from ox.generation.kv_cache import Window
from ox.nn import functional as F
from ox_models import checkpoints


@dataclass(frozen=True)
class RopeScaling:
    """Slower rotations for contexts longer than those that a model was first trained on, as of Llama 3.1 on (its
    ``rope_type`` "llama3"; Grattafiori et al., *The Llama 3 Herd of Models*, 2024).

    Args:
        factor: rotations whose wavelength is above original_max_position_embeddings / low_freq_factor are so many times
            slower; those below original_max_position_embeddings / high_freq_factor stay, and between both it fades.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    def __post_init__(self) -> None:
        if self.factor < 1 or not 0 < self.low_freq_factor < self.high_freq_factor:
            raise ArgumentError("a scaling of rotary positions is none", got=str(self),
                                expected="a factor from 1 on, and low_freq_factor below high_freq_factor")  # fmt: skip

    def scaled(self, rate: float) -> float:
        """The rate of a rotation, in radians by position."""
        turns = self.original_max_position_embeddings * rate / (2 * math.pi)  # in the first context
        kept = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        kept = min(1.0, max(0.0, kept))
        return kept * rate + (1 - kept) * rate / self.factor


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes, by their names in config.json; the defaults are those of LLaMA with 7 billion parameters.

    Args:
        vocab_size: number of different tokens.
        hidden_size: size of a token's vector; `num_attention_heads` must divide it.
        intermediate_size: size inside of the MLP.
        num_hidden_layers, num_attention_heads: number of blocks, and of attention heads in each.
        num_key_value_heads: heads of keys and values, which several heads share (Ainslie et al., *GQA*, 2023); must
            divide `num_attention_heads`. Default: as many.
        max_position_embeddings: the longest context, in tokens.
        rms_norm_eps: added to the mean of squares.
        rope_theta: the base of the rotary positions' wavelengths (Su et al., *RoFormer*, 2021).
        head_dim: size of a head. Default: hidden_size / num_attention_heads.
        tie_word_embeddings: whether the table of tokens is also the output layer.
        rope_scaling: of the rotary positions.
    """

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int = 0
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    head_dim: int = 0
    tie_word_embeddings: bool = False
    rope_scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        heads = self.num_attention_heads
        object.__setattr__(self, "num_key_value_heads", self.num_key_value_heads or heads)
        if not self.head_dim and self.hidden_size % heads:
            raise ArgumentError("num_attention_heads must divide hidden_size", got=f"{heads} and {self.hidden_size}")
        object.__setattr__(self, "head_dim", self.head_dim or self.hidden_size // heads)
        if heads % self.num_key_value_heads:
            raise ArgumentError(
                "num_key_value_heads must divide num_attention_heads", got=f"{self.num_key_value_heads} and {heads}"
            )
        if self.head_dim % 2:
            raise ArgumentError("head_dim is even, as positions turn pairs of numbers", got=str(self.head_dim))


def rotary(positions: ox.Tensor, config: LlamaConfig) -> tuple[ox.Tensor, ox.Tensor]:
    """Cosine and sine of each position's angles, [batch, 1, length, head_dim]: the halves of a head turn alike."""
    size, scaling = config.head_dim, config.rope_scaling
    steps = [config.rope_theta ** (-2 * i / size) for i in range(size // 2)]
    rates = ox.tensor(steps if scaling is None else [scaling.scaled(rate) for rate in steps], dtype=ox.float32,
                      device=positions.device)  # fmt: skip
    angles = positions.unsqueeze(-1).float() * rates
    angles = ox.cat([angles, angles], -1).unsqueeze(1)
    return angles.cos(), angles.sin()


def turned(x: ox.Tensor, cosine: ox.Tensor, sine: ox.Tensor) -> ox.Tensor:
    """Heads [batch, heads, length, size], turned by the angles of their positions."""
    first, second = x.chunk(2, -1)
    result: ox.Tensor = x * cosine.to(x.dtype) + ox.cat([-second, first], -1) * sine.to(x.dtype)
    return result


class LlamaAttention(nn.Module):
    """Causal self-attention with rotary positions, whose query heads share keys and values."""

    def __init__(self, config: LlamaConfig, layer: int) -> None:
        super().__init__()
        self.layer, self.size = layer, config.head_dim
        inner, shared = config.num_attention_heads * self.size, config.num_key_value_heads * self.size
        self.q_proj = nn.Linear(config.hidden_size, inner, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, shared, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, shared, bias=False)
        self.o_proj = nn.Linear(inner, config.hidden_size, bias=False)

    def forward(
        self, x: ox.Tensor, angles: tuple[ox.Tensor, ox.Tensor], cache: KVCache | None, window: Window | None
    ) -> ox.Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = turned(query, *angles), turned(key, *angles)
        mask, causal = None, True
        if cache is not None and window is not None:
            key, value = cache.update(self.layer, key, value)
            mask, causal = window.mask, window.causal
        mixed = F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, enable_gqa=True)
        added: ox.Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return added


class LlamaMLP(nn.Module):
    """SwiGLU: one layer opens and closes the other (Shazeer, *GLU Variants Improve Transformer*, 2020)."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        added: ox.Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return added


class LlamaBlock(nn.Module):
    def __init__(self, config: LlamaConfig, layer: int) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.self_attn = LlamaAttention(config, layer)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp = LlamaMLP(config)

    def forward(
        self, x: ox.Tensor, angles: tuple[ox.Tensor, ox.Tensor], cache: KVCache | None, window: Window | None
    ) -> ox.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), angles, cache, window)
        x = x + self.mlp(self.post_attention_layernorm(x))
        return x


class LlamaModel(nn.Module):
    """Tokens int64 [batch, length] to a vector for each token in its context, [batch, length, hidden_size]."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([LlamaBlock(config, layer) for layer in range(config.num_hidden_layers)])
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, input_ids: ox.Tensor, cache: KVCache | None = None, attention_mask: Any = None) -> ox.Tensor:
        length, window = input_ids.shape[1], None
        if cache is not None:
            window = cache.extend(input_ids.shape[0], length, attention_mask)
            length = cache.length
        if length > self.config.max_position_embeddings:
            raise ArgumentError(
                "the text is longer than the model's positions",
                expected=f"at most {self.config.max_position_embeddings} tokens",
                got=str(length),
            )
        positions = ox.arange(length, device=input_ids.device).unsqueeze(0) if window is None else window.positions
        angles = rotary(positions, self.config)
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x, angles, cache, window)
        normed: ox.Tensor = self.norm(x)
        return normed


class LlamaForCausalLM(Generates, nn.Module):
    """Tokens int64 [batch, length] to scores of the token that follows each, [batch, length, vocab_size]."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.model = LlamaModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                added = name.endswith(("o_proj.weight", "down_proj.weight"))  # of all blocks, so smaller for more
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.num_hidden_layers) if added else 0.02)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    @property
    def context_length(self) -> int:
        return self.model.config.max_position_embeddings

    def forward(self, input_ids: ox.Tensor, cache: KVCache | None = None, attention_mask: Any = None) -> ox.Tensor:
        logits: ox.Tensor = self.lm_head(self.model(input_ids, cache, attention_mask))
        return logits


FIELDS = {name: type(value) for name, value in vars(LlamaConfig()).items() if type(value) in (int, float)}
ONLY = {
    "model_type": ("llama", "mistral"),
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "sliding_window": (None,),
    "pretraining_tp": (1,),
    "tie_word_embeddings": (True, False),
}

SCALING = {
    "factor": float, "low_freq_factor": float, "high_freq_factor": float, "original_max_position_embeddings": int
}  # fmt: skip


def weights(config: LlamaConfig) -> int:
    """The number of weights of such a model."""
    size, head = config.hidden_size, config.head_dim
    attention = 2 * size * head * (config.num_attention_heads + config.num_key_value_heads)
    each = attention + 3 * size * config.intermediate_size + 2 * size
    tables = 1 if config.tie_word_embeddings else 2
    return tables * size * config.vocab_size + config.num_hidden_layers * each + size


def from_pretrained(path: str | os.PathLike[str]) -> LlamaForCausalLM:
    """The model of a checkpoint in Hugging Face's form, in `eval` mode.

    Args:
        path: the folder with config.json and model.safetensors (or pytorch_model.bin), or that file. Names may begin
            with ``model.`` or not; of the head there may be a copy or none where it is the table of tokens. Weights of
            other floating types become float32.

    Raises:
        LoadError: files are missing or damaged, names or shapes do not fit, or settings are not implemented.
    """
    table, state = checkpoints.read(path)
    rotary_table = _rotary_table(table)
    if rotary_table.get("rope_theta") is not None:
        table = {**table, "rope_theta": rotary_table["rope_theta"]}
    found = checkpoints.settings(table, FIELDS, ONLY)
    tied = bool(table.get("tie_word_embeddings", False))
    config = LlamaConfig(**found, tie_word_embeddings=tied, rope_scaling=_scaling(rotary_table))
    checkpoints.must_fill(state, weights(config))
    model = LlamaForCausalLM(config)
    state = checkpoints.named(state, model, "model.", _renamed)
    if tied:
        checkpoints.tie(state, "model.embed_tokens.weight", "lm_head.weight")
    model.load_state_dict(state)
    return model.eval()


def _rotary_table(table: dict[str, Any]) -> dict[str, Any]:
    """The settings of the rotary positions: newer files hold them in a table of their own, with the base.

    Raises:
        LoadError: it is no table.
    """
    inner = table.get("rope_parameters") or table.get("rope_scaling") or {}
    if not isinstance(inner, dict):
        raise LoadError("rope_scaling in config.json is no table", expected="{...}", got=repr(inner)[:100])
    return inner


def _scaling(table: dict[str, Any]) -> RopeScaling | None:
    """Raises LoadError for positions of another kind."""
    kind = table.get("rope_type", table.get("type", "default"))
    known = {"rope_type": ("default", "llama3"), "partial_rotary_factor": (None, 1)}
    checkpoints.settings({**table, "rope_type": kind}, {}, known)
    if kind == "default":
        return None
    found = checkpoints.settings(table, SCALING, {})
    if found.keys() != SCALING.keys():
        raise LoadError("config.json says too little of rope_type='llama3'", expected=", ".join(SCALING),
                        got=", ".join(found))  # fmt: skip
    return RopeScaling(**found)


def _renamed(name: str) -> str | None:
    """Old files store the rates of the rotary positions."""
    return None if name.endswith(".rotary_emb.inv_freq") else name
