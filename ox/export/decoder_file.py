"""`ox.export.save_decoder`: a decoder with its cache as inputs and outputs, and what generation needs beside it."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ox.autograd.grad_mode import no_grad
from ox.core.operator import make_tensor
from ox.core.symbolic import Dim
from ox.dtypes import bfloat16
from ox.errors import ArgumentError, ExportError
from ox.export.decoder_settings import check_settings
from ox.export.model_folder import replace_folder, write_json
from ox.export.save_model import Report, save
from ox.generation.generate import Generates, last_scores
from ox.generation.kv_cache import KVCache
from ox.generation.onnx_decoder import DECODER, OnnxDecoder
from ox.generation.past_inputs import PastInputs
from ox.nn.base.module import Module
from ox.temporary_files import folder as temporary_folder

Array = np.ndarray[Any, Any]

PROOF_TOKENS = 200
PROMPTS = ((5,), (1, 9), (3, 17, 8))  # lengths of the prompts of each batch of the proof
NEW, PAST = 3, 4  # tokens of the example
TIE = 1e-3  # two scores this near may change places by rounding


@dataclass(frozen=True)
class DecoderReport:
    """What `save_decoder` wrote and proved.

    Attributes:
        model: of the file.
        files: in the folder.
        texts, tokens: how many texts of the file were compared with the model's, and how many tokens in all.
        ties: texts whose comparison ended early, as two tokens had nearly the same score.
    """

    model: Report
    files: tuple[str, ...]
    texts: int
    tokens: int
    ties: int

    def __str__(self) -> str:
        near = f", {self.ties} of them up to two equal scores" if self.ties else ""
        return f"{self.model}\n  greedy texts: all {self.texts} are the model's, {self.tokens} tokens together{near}"


class _Step(Module):
    """One call of a decoder with its cache as arguments; its parameters have the decoder's names."""

    def __init__(self, decoder: Any, pasts: Sequence[str]) -> None:
        super().__init__()
        self.decoder, self._pasts = decoder, tuple(pasts)

    def named_parameters(self, *arguments: Any, **named: Any) -> Any:
        return self.decoder.named_parameters(*arguments, **named)

    def _dense_buffers(self, *arguments: Any, **named: Any) -> Any:
        return self.decoder._dense_buffers(*arguments, **named)

    def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, *past: Any) -> dict[str, Any]:
        cache = PastInputs(attention_mask, position_ids, dict(zip(self._pasts, past, strict=True)))
        return {"logits": self.decoder(input_ids, cache=cache), **cache.present}


def save_decoder(
    model: Generates,
    folder: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str] | None = None,
    chat_template: str | None = None,
    generation: Mapping[str, Any] | None = None,
    opset: int | None = None,
    optimize: str | None = "inference",
    metadata: Mapping[str, str] | None = None,
) -> DecoderReport:
    """Write a decoder for generation: ``model.onnx`` reads a prompt (with an empty cache), goes on token by token, and
    goes on with several tokens at once, from one set of weights. Inputs and outputs have the names and layout of
    Hugging Face's Optimum.

    The file is proven as `save` does it, and then by texts: greedy tokens of the file in ONNX Runtime are those of the
    model, in batches of prompts of several lengths. Of a decoder in bfloat16, both are computed in float32 with the
    same weights.

    Args:
        model: a module that inherits `Generates`.
        folder: to write; one that is there is replaced when the new one is complete.
        tokenizer: a tokenizer.json, which is copied.
        chat_template: Jinja2, for tokenizer_config.json.
        generation: defaults of generation by Hugging Face's names, such as ``eos_token_id``, for
            generation_config.json.
        opset, optimize, metadata: as of `save`.

    Raises:
        ExportError: what `save` raises, or a text of the file that is not the model's.
        ArgumentError: the model is no decoder with a cache, or what is to be written beside it does not fit it.
        LoadError: the tokenizer cannot be read.
    """
    if not isinstance(model, Module) or not isinstance(model, Generates):
        raise ArgumentError(
            "a decoder is a module that inherits ox.generation.Generates", got=type(model).__name__,
            hint="ox.export.save for others",
        )  # fmt: skip
    folder = Path(folder)
    if folder.exists() and not (folder / "model.onnx").exists():
        raise ArgumentError(f"{folder} is there, and is no decoder's folder", expected="the name of a new folder")
    training = model.training
    model.eval()
    try:
        vocabulary, sizes = _sizes(model)
        check_settings(vocabulary, tokenizer, generation)
        about = {"context_length": model.context_length, "vocab_size": vocabulary}
        with temporary_folder(f".{folder.name}.", folder.parent) as inside:
            new = inside / folder.name
            new.mkdir()
            report = _save_model(
                model, new, vocabulary, sizes,
                opset=opset, optimize=optimize, metadata={DECODER: json.dumps(about), **(metadata or {})},
            )  # fmt: skip
            texts, tokens, ties = _compare(_in_float32(model), OnnxDecoder(new), vocabulary)
            _write_beside(new, tokenizer, chat_template, generation)
            files = tuple(sorted(path.name for path in new.iterdir()))
            replace_folder(folder, new)
    finally:
        model.train(training)
    report = replace(report, path=folder / "model.onnx", model=type(model).__name__)
    if report.data is not None:
        report = replace(report, data=folder / report.data.name)
    return DecoderReport(report, files, texts, tokens, ties)


def _sizes(model: Any) -> tuple[int, list[tuple[int, int, Any]]]:
    """The number of tokens, and heads, size and type of each layer's keys."""
    cache = KVCache(1)
    with no_grad():
        logits = model(make_tensor(np.zeros((1, 1), np.int64)), cache=cache)
    if not cache._layers:
        raise ArgumentError("the model's forward does not use its cache", got=type(model).__name__)
    return logits.shape[-1], [(keys.shape[1], keys.shape[3], keys.dtype) for keys, _ in cache._layers]


def _save_model(model: Any, folder: Path, vocabulary: int, sizes: list[tuple[int, int, Any]], **options: Any) -> Report:
    random = np.random.default_rng(0)
    batch, new, past = "batch", Dim("new"), Dim("past", min=0)
    names = [f"past_key_values.{layer}.{kind}" for layer in range(len(sizes)) for kind in ("key", "value")]
    pasts = [random.standard_normal((2, heads, PAST, size)).astype(dtype) for heads, size, dtype in sizes for _ in "kv"]
    dims: dict[str, Sequence[Any]] = {
        "input_ids": [batch, new], "attention_mask": [batch, past + new], "position_ids": [batch, new],
        **{name: [batch, array.shape[1], past, array.shape[3]] for name, array in zip(names, pasts, strict=True)},
    }  # fmt: skip
    example = (
        random.integers(0, vocabulary, (2, NEW)),
        np.ones((2, PAST + NEW), np.int64),
        np.arange(PAST, PAST + NEW)[None].repeat(2, 0),
        *pasts,
    )
    return save(
        _Step(model, names), folder / "model.onnx", example, input_names=list(dims), dims=dims, golden=False, **options
    )


def _in_float32(model: Any) -> Any:
    """A decoder in bfloat16 as `OnnxDecoder` runs its file: with the same weights, computed in float32. In bfloat16
    its scores are too coarse to tell rounding from defects; `save` has compared the file with the model itself."""
    if not any(parameter.dtype == bfloat16 for parameter in model.parameters()):
        return model
    return copy.deepcopy(model).float()


def _compare(model: Any, file: OnnxDecoder, vocabulary: int) -> tuple[int, int, int]:
    """Texts, tokens, and texts that ended in a tie.

    Raises:
        ExportError: a token of the file is not the model's.
    """
    random, texts, tokens, ties = np.random.default_rng(1), 0, 0, 0
    for lengths in PROMPTS:
        lengths = tuple(min(length, max(1, model.context_length - 1)) for length in lengths)
        ids = np.zeros((len(lengths), max(lengths)), np.int64)
        mask = np.zeros_like(ids)
        for row, length in enumerate(lengths):
            ids[row, -length:], mask[row, -length:] = random.integers(0, vocabulary, length), 1
        wanted, found = (
            each.generate(ids, mask, max_new_tokens=PROOF_TOKENS, return_dict_in_generate=True).tokens
            for each in (model, file)
        )
        for row, (got, want) in enumerate(zip(found, wanted, strict=True)):
            same = next((i for i, pair in enumerate(zip(got, want, strict=True)) if pair[0] != pair[1]), len(want))
            if same < len(want):
                prompt = np.array([*ids[row, -lengths[row] :], *want[:same]], np.int64)
                _must_be_tie(model, prompt, got[same], want[same], same, lengths[row])
                ties += 1
            texts, tokens = texts + 1, tokens + same
    return texts, tokens, ties


def _must_be_tie(model: Any, prompt: Array, got: int, want: int, place: int, length: int) -> None:
    scores = last_scores(model, prompt[None], model.new_cache(len(prompt)), None)[0]
    gap = float(scores[want] - scores[got])
    if gap > TIE * max(1.0, float(np.abs(scores).max())):
        raise ExportError(
            "ONNX Runtime gives another text than the model",
            expected=f"token {want} at place {place} after a prompt of {length}",
            got=f"token {got}, whose score is {gap:.1e} lower",
            hint="float64 separates rounding from defects",
        )


def _write_beside(
    folder: Path,
    tokenizer: str | os.PathLike[str] | None,
    chat_template: str | None,
    generation: Mapping[str, Any] | None,
) -> None:
    if tokenizer is not None:
        shutil.copyfile(tokenizer, folder / "tokenizer.json")
    template = chat_template and {"chat_template": chat_template}
    texts = {"generation_config.json": generation, "tokenizer_config.json": template}
    for name, content in texts.items():
        if content:
            write_json(folder / name, dict(content))
