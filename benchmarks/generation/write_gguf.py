"""The model of make_model.py in llama.cpp's form. Run by an environment with gguf and safetensors.

Writes model.gguf (float32) and int8.gguf (Q8_0: weights in blocks of 32).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def main(folder: Path) -> None:
    table = json.loads((folder / "hf" / "config.json").read_text())
    weights = load_file(folder / "hf" / "model.safetensors")
    for name, quantized in (("model.gguf", False), ("int8.gguf", True)):
        write(folder / name, table, weights, folder / "hf", quantized)


def write(path: Path, table: dict[str, int], weights: dict[str, np.ndarray], hf: Path, quantized: bool) -> None:
    writer = gguf.GGUFWriter(str(path), "llama")
    heads = table["num_attention_heads"]
    writer.add_context_length(table["max_position_embeddings"])
    writer.add_embedding_length(table["hidden_size"])
    writer.add_block_count(table["num_hidden_layers"])
    writer.add_feed_forward_length(table["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(table["num_key_value_heads"])
    writer.add_rope_dimension_count(table["head_dim"])
    writer.add_layer_norm_rms_eps(table["rms_norm_eps"])
    writer.add_rope_freq_base(table["rope_theta"])
    writer.add_vocab_size(table["vocab_size"])
    tokenizer = json.loads((hf / "tokenizer.json").read_text())["model"]
    words = tokenizer["vocab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(list(words))
    kinds = [gguf.TokenType.CONTROL if n < 3 else gguf.TokenType.NORMAL for n in range(len(words))]
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    for name, value in weights.items():
        new = renamed(name)
        if new.endswith(("attn_q.weight", "attn_k.weight")):
            value = interleaved(value, heads if "attn_q" in new else table["num_key_value_heads"])
        if quantized and value.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(new, gguf.quants.quantize(value, kind), raw_dtype=kind)
        else:
            writer.add_tensor(new, np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def renamed(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{LAYER[rest.removesuffix('.weight')]}.weight"


def interleaved(value: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp rotates neighbours, Hugging Face the two halves of a head."""
    rows, columns = value.shape
    return np.ascontiguousarray(
        value.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
