"""GPT-2, with the parameter names of Hugging Face's: a transformer that continues text.

Radford et al., *Language Models are Unsupervised Multitask Learners*, 2019. The recipe `gpt` trains a small one;
`from_pretrained` reads a checkpoint.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import ox
from ox import nn
from ox.errors import ArgumentError
from ox.generation import Generates, KVCache
from ox.generation.kv_cache import Window
from ox.nn import functional as F
from ox_models import checkpoints


@dataclass(frozen=True)
class GPT2Config:
    """Sizes, by their names in config.json; the defaults are those of the smallest GPT-2, with 124 million parameters.

    Args:
        vocab_size: number of different tokens.
        n_positions: the longest context, in tokens.
        n_embd: size of a token's vector; `n_head` must divide it.
        n_layer, n_head: number of blocks, and of attention heads in each.
        embd_pdrop, attn_pdrop, resid_pdrop: dropout of embeddings, attention weights, and the output of each block.
    """

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    resid_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        if self.n_embd % self.n_head:
            raise ArgumentError("n_head must divide n_embd", got=f"{self.n_head} and {self.n_embd}")


class Conv1D(nn.Module):
    """y = x·W + b: a Linear layer whose weight has the shape [inputs, outputs]."""

    def __init__(self, outputs: int, inputs: int, std: float = 0.02) -> None:
        super().__init__()
        self.weight = nn.Parameter(std * ox.randn(inputs, outputs))
        self.bias = nn.Parameter(ox.zeros(outputs))

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        y: ox.Tensor = x @ self.weight + self.bias
        return y


class GPT2Attention(nn.Module):
    """Causal multi-head self-attention."""

    def __init__(self, config: GPT2Config, layer: int = 0) -> None:
        super().__init__()
        self.heads, self.drop, self.layer = config.n_head, config.attn_pdrop, layer
        self.c_attn = Conv1D(3 * config.n_embd, config.n_embd)
        # smaller initial weights for more layers, because the outputs of all blocks are added
        self.c_proj = Conv1D(config.n_embd, config.n_embd, std=0.02 / math.sqrt(2 * config.n_layer))
        self.resid_dropout = nn.Dropout(config.resid_pdrop)

    def forward(self, x: ox.Tensor, cache: KVCache | None = None, window: Window | None = None) -> ox.Tensor:
        batch, length, size = x.shape
        # [batch, length, 3·size] becomes three of [batch, heads, length, size/heads]
        parts = self.c_attn(x).reshape(batch, length, 3, self.heads, size // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        mask, causal = None, True
        if cache is not None and window is not None:
            key, value = cache.update(self.layer, key, value)
            mask, causal = window.mask, window.causal
        drop = self.drop if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, mask, dropout_p=drop, is_causal=causal)
        added: ox.Tensor = self.resid_dropout(self.c_proj(mixed.transpose(1, 2).reshape(batch, length, size)))
        return added


class GPT2MLP(nn.Module):
    """The MLP of a block, applied to each token."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.c_fc = Conv1D(4 * config.n_embd, config.n_embd)
        self.c_proj = Conv1D(config.n_embd, 4 * config.n_embd, std=0.02 / math.sqrt(2 * config.n_layer))
        self.dropout = nn.Dropout(config.resid_pdrop)

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        added: ox.Tensor = self.dropout(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")))
        return added


class GPT2Block(nn.Module):
    def __init__(self, config: GPT2Config, layer: int = 0) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.attn = GPT2Attention(config, layer)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.mlp = GPT2MLP(config)

    def forward(self, x: ox.Tensor, cache: KVCache | None = None, window: Window | None = None) -> ox.Tensor:
        x = x + self.attn(self.ln_1(x), cache, window)
        x = x + self.mlp(self.ln_2(x))
        return x


class GPT2Model(nn.Module):
    """Tokens int64 [batch, length] to a vector for each token in its context, [batch, length, n_embd]."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=0.02)
        self.drop = nn.Dropout(config.embd_pdrop)
        self.h = nn.ModuleList([GPT2Block(config, layer) for layer in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)

    def forward(self, input_ids: ox.Tensor, cache: KVCache | None = None, attention_mask: Any = None) -> ox.Tensor:
        length, window = input_ids.shape[1], None
        if cache is not None:
            window = cache.extend(input_ids.shape[0], length, attention_mask)
            length = cache.length
        if length > self.config.n_positions:
            raise ArgumentError(
                "the text is longer than the model's positions",
                expected=f"at most {self.config.n_positions} tokens",
                got=str(length),
            )
        # without a cache a slice rather than a look-up: the positions are always 0, 1, 2, ...
        positions = self.wpe.weight[:length] if window is None else self.wpe(window.positions)
        x = self.drop(self.wte(input_ids) + positions)
        for block in self.h:
            x = block(x, cache, window)
        normed: ox.Tensor = self.ln_f(x)
        return normed


class GPT2LMHeadModel(Generates, nn.Module):
    """Tokens int64 [batch, length] to scores of the token that follows each, [batch, length, vocab_size]."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.transformer = GPT2Model(config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.transformer.wte.weight  # the embedding and the output layer share one weight

    @property
    def context_length(self) -> int:
        return self.transformer.config.n_positions

    def forward(self, input_ids: ox.Tensor, cache: KVCache | None = None, attention_mask: Any = None) -> ox.Tensor:
        logits: ox.Tensor = self.lm_head(self.transformer(input_ids, cache, attention_mask))
        return logits


FIELDS = {name: type(value) for name, value in vars(GPT2Config()).items()}
ONLY = {
    "model_type": ("gpt2",),
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "n_inner": (None,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "tie_word_embeddings": (True,),
    "add_cross_attention": (False,),
}


def weights(config: GPT2Config) -> int:
    """The number of weights of such a model."""
    size, each = config.n_embd, 12 * config.n_embd + 13
    return size * (config.vocab_size + config.n_positions + config.n_layer * each + 2)


def from_pretrained(path: str | os.PathLike[str]) -> GPT2LMHeadModel:
    """The model of a checkpoint in Hugging Face's form; as theirs, it comes without dropout (`eval`) until `train`.

    Args:
        path: the folder with config.json and model.safetensors (or pytorch_model.bin), or that file. Names may begin
            with ``transformer.`` or not; the triangles that old files store are not needed; of the head, which is the
            table of tokens, there may be a copy or none. Weights of other floating types become float32.

    Raises:
        LoadError: files are missing or damaged, names or shapes do not fit, or settings are not implemented.
    """
    table, state = checkpoints.read(path)
    config = GPT2Config(**checkpoints.settings(table, FIELDS, ONLY))
    checkpoints.must_fill(state, weights(config))
    model = GPT2LMHeadModel(config)
    state = checkpoints.named(state, model, "transformer.", _renamed)
    checkpoints.tie(state, "transformer.wte.weight", "lm_head.weight")
    model.load_state_dict(state)
    return model.eval()


def _renamed(name: str) -> str | None:
    """attn.bias is the causal mask, not a bias; masked_bias is its fill value."""
    return None if name.endswith((".attn.bias", ".attn.masked_bias")) else name
