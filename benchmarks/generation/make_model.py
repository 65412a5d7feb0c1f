"""A LLaMA of random weights in all forms that the sides of bench_generate.py read. Run by an environment with ox.

Writes to a folder: hf (Hugging Face's form), ox (`ox.export.save_decoder`) and, for int8, ox-int8 (`ox quantize`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from safetensors.numpy import save_file

import ox
from ox_models.llama import LlamaConfig, LlamaForCausalLM

# About 17 million parameters
CONFIG = LlamaConfig(
    vocab_size=4096,
    hidden_size=384,
    intermediate_size=1024,
    num_hidden_layers=8,
    num_attention_heads=6,
    max_position_embeddings=1024,
)


def main(folder: Path) -> None:
    ox.manual_seed(0)
    model = LlamaForCausalLM(CONFIG).eval()
    write_hugging_face(model, folder / "hf")
    ox.export.save_decoder(
        model, folder / "ox", tokenizer=folder / "hf" / "tokenizer.json", generation={"eos_token_id": 2}
    )
    shutil.copytree(folder / "ox", folder / "ox-int8", dirs_exist_ok=True)
    files = ["ox", "quantize", folder / "ox" / "model.onnx", "--out", folder / "ox-int8" / "model.onnx"]
    subprocess.run([*files, "--scheme", "int8-dynamic"], check=True)


def write_hugging_face(model: LlamaForCausalLM, folder: Path) -> None:
    """config.json, model.safetensors and a tokenizer of bytes, filled up to the size of the vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
             "num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "rope_theta", "head_dim")  # fmt: skip
    table = {name: getattr(CONFIG, name) for name in names}
    table |= {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "dtype": "float32",
              "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(table))
    save_file({name: value.numpy() for name, value in model.state_dict().items()}, folder / "model.safetensors",
              metadata={"format": "pt"})  # fmt: skip
    letters = [*map(chr, range(33, 127)), *map(chr, range(161, 173)), *map(chr, range(174, 256))]
    letters += [chr(256 + n) for n in range(256 - len(letters))]  # the letters that byte-level BPE shows bytes as
    words = ["<unk>", "<s>", "</s>", *letters]
    words += [f"t{n}" for n in range(CONFIG.vocab_size - len(words))]
    special = [{"id": n, "content": words[n], "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for n in range(3)]  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    document = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {word: n for n, word in enumerate(words)}, "merges": [["t", "3"]]},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(document))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "bos_token": "<s>"})
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
