"""A decoder whose tokens follow a script, with a tokenizer and a chat template: its answers are known beforehand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

END = "<|eos|>"
PLAIN = ["Hello", " there", ", friend", "."]
CONTEXT = 8192
LIKELY = 12.0  # score of the script's token; the others have less than 2
SYSTEM = """{%- if tools %}<|im_start|>system
Write <tool_call>{"name": ..., "arguments": ...}</tool_call>.
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif -%}
"""
MESSAGES = """{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}<|im_end|>
{% endfor -%}
"""
GENERATION = """{%- if add_generation_prompt %}<|im_start|>assistant
SCRIPT{% endif %}"""
HERMES = SYSTEM + MESSAGES + GENERATION


def write_scripted_decoder(
    folder: Path,
    scripts: Mapping[str, Sequence[str]],
    template: str = HERMES,
    special: Sequence[str] = (),
    **defaults: Any,
) -> Path:
    """Writes a decoder into `folder`.

    The n-th token of an answer is the n-th piece of its script, whatever was chosen before it, and after the last piece
    the token that ends a text. With `temperature: 0` and no grammar the answer is the script. Where a grammar forbids a
    piece, the likeliest tokens are those that end a text or JSON: the end token, `"`, `}`, `]`.

    Args:
        scripts: pieces by name; each piece is one token. A prompt that ends with `<|name|>` gets this script.
        template: the chat template. `SCRIPT` in it becomes the token of the script that the last word of the last
            message names; `PLAIN` where it names none.
        special: pieces that are special tokens, which are no part of a text, such as `[TOOL_CALLS]`.
        defaults: more of generation_config.json.
    """
    tokenizers = pytest.importorskip("tokenizers", reason="the extra text is not installed")
    spoken = {"plain": PLAIN, **scripts}
    names = [f"<|{name}|>" for name in spoken]
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({token: i for i, token in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([END, "<|im_start|>", "<|im_end|>", *names, *special])
    pieces = sorted({piece for script in spoken.values() for piece in script if len(piece) > 1} - set(special))
    tokenizer.add_tokens([tokenizers.AddedToken(piece, special=False, normalized=False) for piece in pieces])
    ids = {token: tokenizer.token_to_id(token) for token in [END, *names, *pieces, *special]}
    size = tokenizer.get_vocab_size()

    length = 1 + max(map(len, spoken.values()))
    table = np.full((1 + len(spoken), length), ids[END])  # the first row: no script
    for row, script in enumerate(spoken.values(), start=1):
        for column, piece in enumerate(script):
            (table[row, column],) = [ids[piece]] if piece in ids else tokenizer.encode(piece).ids
    script_of = np.zeros(size, np.float32)
    script_of[[ids[name] for name in names]] = range(1, 1 + len(names))
    base = np.random.default_rng(0).uniform(0, 0.5, size).astype(np.float32)
    for rank, token in enumerate('"}]'):
        base[tokenizer.token_to_id(token)] = 1.5 - rank / 4
    base[ids[END]] = 1.75

    name = "messages[-1].content.split(' ')[-1]"
    script = f"{{% set script = {name} %}}<|{{{{ script if script in {list(scripts)} else 'plain' }}}}|>"
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(_model(table, script_of, base), folder / "model.onnx")
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"max_position_embeddings": CONTEXT, "vocab_size": size, "num_attention_heads": 1}
    for name, document in (
        ("config.json", {**config, "eos_token_id": ids[END]}),
        ("generation_config.json", {"eos_token_id": ids[END], **defaults}),
        ("tokenizer_config.json", {"chat_template": template.replace("SCRIPT", script), "eos_token": END}),
    ):
        (folder / name).write_text(json.dumps(document))
    return folder


def _model(table: np.ndarray[Any, Any], script_of: np.ndarray[Any, Any], base: np.ndarray[Any, Any]) -> Any:
    """Its cache holds the script's row as key, and its position as value, at the token that names it; else zeros. So
    the sum of the keys is the row, and the position less the sum of the values tells how many tokens came since."""
    rows, length = table.shape
    constants = {
        "script_of": script_of, "base": base, "table": table.reshape(-1).astype(np.int64),
        "likely": np.array([0, LIKELY], np.float32), "depth": np.array([len(base)], np.int64),
        "axes": np.array([1, 3], np.int64), "two": np.array(2, np.int64), "one": np.array([1], np.int64),
        "first": np.array(0, np.float32), "last_row": np.array(rows - 1, np.float32),
        "last": np.array(length - 1, np.float32), "length": np.array(length, np.float32),
        "far": np.array([1 << 40], np.int64),
    }  # fmt: skip
    node = helper.make_node
    nodes = [
        node("Gather", ["script_of", "input_ids"], ["new_row"]),
        node("Cast", ["position_ids"], ["position"], to=TensorProto.FLOAT),
        node("Greater", ["new_row", "first"], ["named"]),
        node("Cast", ["named"], ["named_float"], to=TensorProto.FLOAT),
        node("Mul", ["named_float", "position"], ["new_start"]),
        node("Cast", ["attention_mask"], ["mask_float"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["mask_float", "axes"], ["mask"]),
        node("Shape", ["input_ids"], ["new_length"], start=1),
        node("Neg", ["new_length"], ["begin"]),
    ]
    for new, part, total in (("new_row", "key", "row"), ("new_start", "value", "start")):
        nodes += [
            node("Unsqueeze", [new, "axes"], [f"{part}_new"]),
            node("Concat", [f"past_key_values.0.{part}", f"{part}_new"], [f"present.0.{part}"], axis=2),
            node("Mul", [f"present.0.{part}", "mask"], [f"{part}_kept"]),
            node("CumSum", [f"{part}_kept", "two"], [f"{part}_sum"]),
            node("Squeeze", [f"{part}_sum", "axes"], [f"{part}_all"]),
            node("Slice", [f"{part}_all", "begin", "far", "one"], [total]),
        ]
    nodes += [
        node("Clip", ["row", "first", "last_row"], ["row_in"]),
        node("Round", ["row_in"], ["row_whole"]),
        node("Sub", ["position", "start"], ["since"]),
        node("Clip", ["since", "first", "last"], ["since_in"]),
        node("Round", ["since_in"], ["since_whole"]),
        node("Mul", ["row_whole", "length"], ["row_begin"]),
        node("Add", ["row_begin", "since_whole"], ["entry"]),
        node("Cast", ["entry"], ["entry_index"], to=TensorProto.INT64),
        node("Gather", ["table", "entry_index"], ["next"]),
        node("OneHot", ["next", "depth", "likely"], ["scripted"]),
        node("Add", ["scripted", "base"], ["logits"]),
    ]
    value, whole, real = helper.make_tensor_value_info, TensorProto.INT64, TensorProto.FLOAT
    inputs = [value("input_ids", whole, ["batch", "seq"]), value("attention_mask", whole, ["batch", "total"]),
              value("position_ids", whole, ["batch", "seq"])]  # fmt: skip
    inputs += [value(f"past_key_values.0.{part}", real, ["batch", 1, "past", 1]) for part in ("key", "value")]
    outputs = [value("logits", real, ["batch", "seq", len(base)])]
    outputs += [value(f"present.0.{part}", real, ["batch", 1, "total", 1]) for part in ("key", "value")]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "scripted", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model
