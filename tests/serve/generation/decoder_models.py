"""The models of tiny decoders."""

from __future__ import annotations

from generation_client import CONTEXT, VOCABULARY

import ox
from ox_models.gpt2 import GPT2Config, GPT2LMHeadModel
from ox_models.llama import LlamaConfig, LlamaForCausalLM


def models() -> tuple[LlamaForCausalLM, GPT2LMHeadModel]:
    """The first has heads that queries share."""
    ox.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    llama = LlamaForCausalLM(
        LlamaConfig(VOCABULARY, hidden_size=64, intermediate_size=64, max_position_embeddings=CONTEXT, **sizes)
    )
    return llama, GPT2LMHeadModel(GPT2Config(VOCABULARY, n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=4))
