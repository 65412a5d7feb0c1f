"""`generate`: texts by a decoder, several at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ox.autograd.grad_mode import no_grad
from ox.core.operator import make_tensor
from ox.errors import ArgumentError
from ox.generation.beam_search import beam_search
from ox.generation.kv_cache import KVCache
from ox.generation.sampler import Sampler, log_probabilities
from ox.generation.sampling_params import SamplingParams
from ox.generation.stopping import Stopping
from ox.tensors.tensor import Tensor

Array = np.ndarray[Any, Any]

SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed")


@dataclass(frozen=True)
class TokenLogprobs:
    """The logarithms of probabilities at one place, before penalties and temperature.

    Attributes:
        chosen: of the token that was chosen.
        top: of the likeliest tokens, by id, the likeliest first.
    """

    chosen: float
    top: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TokenStep:
    """One new token of one text.

    Attributes:
        row: the text's place in the batch.
        text: what the token adds to the text, if `generate` has a tokenizer: "" until a character is whole, or where it
            may be the begin of a stop string.
        finish_reason: "stop", "length", or None while the text goes on.
    """

    row: int
    token: int
    text: str | None
    logprobs: TokenLogprobs | None
    finish_reason: str | None


@dataclass(frozen=True)
class Generation:
    """What `generate` returns with ``return_dict_in_generate=True``.

    Attributes:
        sequences: prompts and texts, int64 [batch, length], with the padding token behind texts that ended.
        tokens: the new tokens of each text, without padding.
        texts: of the new tokens, up to a stop string; None without a tokenizer.
        logprobs: at each new token; None unless they were asked for.
        finish_reasons: "stop" or "length" for each text.
        scores: of beam search, the logarithm of a text's probability by its length to the power of `length_penalty`.
    """

    sequences: Tensor
    tokens: list[list[int]]
    texts: list[str] | None
    logprobs: list[list[TokenLogprobs]] | None
    finish_reasons: list[str]
    scores: list[float] | None = None


class Generates:
    """Gives a decoder `generate`. Its forward takes ``(input_ids, cache=None, attention_mask=None)``: ids int64
    [batch, new], a `KVCache` that has what came before, and for the first tokens which are padding. It returns scores
    [batch, new, vocabulary]."""

    @property
    def context_length(self) -> int:
        """The most tokens that it can see.

        Raises:
            ArgumentError: the class has none of its own.
        """
        raise ArgumentError(
            f"{type(self).__name__} does not say how many tokens it can see", hint="context_length = 1024 in the class"
        )

    def new_cache(self, capacity: int) -> Any:
        """An empty cache with room for so many tokens of each text."""
        return KVCache(capacity)

    def generate(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        *,
        max_new_tokens: int = 20,
        do_sample: bool = False,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: dict[int, float] | None = None,
        seed: int | None = None,
        num_beams: int = 1,
        length_penalty: float = 1.0,
        num_return_sequences: int = 1,
        eos_token_id: int | Sequence[int] | None = None,
        pad_token_id: int | None = None,
        stop_strings: str | Sequence[str] = (),
        tokenizer: Any = None,
        logprobs: int | None = None,
        return_dict_in_generate: bool = False,
    ) -> Any:
        """Continue texts. The names are those of Hugging Face's `generate`.

        Args:
            input_ids: prompts, int64 [batch, length].
            attention_mask: [batch, length], 0 where a shorter prompt has padding, which stands before it.
            max_new_tokens: the most tokens that a text gets.
            do_sample: whether tokens are drawn; else each is the likeliest. The arguments temperature, top_k, top_p,
                min_p and seed belong to it. They and the penalties: `SamplingParams`.
            num_beams: beams of a beam search; 1 for none.
            length_penalty: a beam's log-probability is divided by the number of its tokens to the power of this.
            num_return_sequences: texts for each prompt: drawn ones, or the best beams.
            eos_token_id: tokens that end a text.
            pad_token_id: what stands behind texts that ended; default: the first of `eos_token_id`, else 0.
            stop_strings: a text ends with the first of them that it contains.
            tokenizer: has ``decode(ids)``; for `stop_strings` and texts.
            logprobs: also return log-probabilities, with so many of the likeliest tokens.
            return_dict_in_generate: return a `Generation`.

        Returns:
            prompts and texts, int64 [batch x num_return_sequences, length], or a `Generation`.

        Raises:
            ArgumentError: arguments that contradict each other, prompts that are longer than the context or have a
                token that does not exist.
        """
        prompts = _Prompts.read(self, input_ids, attention_mask, max_new_tokens)
        params = _params(
            do_sample=do_sample, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed,
            repetition_penalty=repetition_penalty, presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty, logit_bias=logit_bias or {},
        )  # fmt: skip
        stopping = Stopping.read(eos_token_id, stop_strings, tokenizer)
        pad = pad_token_id if pad_token_id is not None else min(stopping.tokens, default=0)
        if not isinstance(num_return_sequences, int) or num_return_sequences < 1:
            raise ArgumentError("num_return_sequences is a whole number from 1 on", got=repr(num_return_sequences))
        if num_beams != 1:
            if do_sample or logprobs is not None or stopping.strings:
                raise ArgumentError(
                    "beam search goes without do_sample, logprobs and stop_strings", got=f"num_beams={num_beams}"
                )
            found = beam_search(
                self, prompts.ids, prompts.mask, prompts.most, params, num_beams, length_penalty,
                num_return_sequences, stopping.tokens,
            )  # fmt: skip
            repeated = prompts.repeated(num_return_sequences)
            result = _gathered(
                repeated, [beam.tokens for beam in found], pad, stopping, None,
                ["stop" if beam.ended else "length" for beam in found], [beam.score for beam in found],
            )  # fmt: skip
        else:
            if num_return_sequences > 1 and not do_sample:
                raise ArgumentError(
                    "without do_sample all texts of a prompt would be equal",
                    got=f"num_return_sequences={num_return_sequences}",
                )
            repeated = prompts.repeated(num_return_sequences)
            tokens: list[list[int]] = [[] for _ in repeated.ids]
            chances: list[list[TokenLogprobs]] = [[] for _ in repeated.ids]
            reasons = ["length"] * len(tokens)
            for step in _steps(self, repeated, params, stopping, logprobs, num_return_sequences):
                tokens[step.row].append(step.token)
                if step.logprobs is not None:
                    chances[step.row].append(step.logprobs)
                reasons[step.row] = step.finish_reason or "length"
            result = _gathered(repeated, tokens, pad, stopping, None if logprobs is None else chances, reasons, None)
        return result if return_dict_in_generate else result.sequences

    def stream(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        *,
        max_new_tokens: int = 20,
        params: SamplingParams | None = None,
        eos_token_id: int | Sequence[int] | None = None,
        stop_strings: str | Sequence[str] = (),
        tokenizer: Any = None,
        logprobs: int | None = None,
    ) -> Iterator[TokenStep]:
        """Continue texts, and give each token when it is there; of several texts, a token of each in turn.

        Args:
            params: how tokens are chosen; default: greedy. The others are those of `generate`.
        """
        prompts = _Prompts.read(self, input_ids, attention_mask, max_new_tokens)
        stopping = Stopping.read(eos_token_id, stop_strings, tokenizer)
        return _steps(self, prompts, params or SamplingParams(temperature=0.0), stopping, logprobs, 1)


@dataclass(frozen=True)
class _Prompts:
    """Prompts, and the most tokens that each gets."""

    ids: Array
    mask: Array | None
    most: int

    @classmethod
    def read(cls, model: Any, input_ids: Any, attention_mask: Any, most: int) -> _Prompts:
        ids = _array(input_ids)
        if ids.ndim != 2 or ids.dtype.kind not in "iu" or not ids.size:
            raise ArgumentError(
                "prompts are whole numbers [batch, length]", got=f"{ids.dtype} {list(ids.shape)}",
                hint="one prompt: [[1, 2, 3]]",
            )  # fmt: skip
        mask = None if attention_mask is None else _array(attention_mask)
        if mask is not None and mask.shape != ids.shape:
            raise ArgumentError(
                "attention_mask has the shape of the prompts", expected=str(list(ids.shape)), got=str(list(mask.shape))
            )
        if mask is not None and not mask.any(1).all():
            raise ArgumentError("a prompt has one token or more", got="an attention_mask of zeros")
        if not isinstance(most, int) or most < 1:
            raise ArgumentError("max_new_tokens is a whole number from 1 on", got=repr(most))
        room = model.context_length - ids.shape[1]
        if room < 0:
            raise ArgumentError(
                "the prompt is longer than the model's context",
                expected=f"at most {model.context_length} tokens",
                got=str(ids.shape[1]),
            )
        return cls(ids.astype(np.int64), mask, min(most, room + 1))  # the last token is not looked at again

    def repeated(self, count: int) -> _Prompts:
        mask = None if self.mask is None else self.mask.repeat(count, 0)
        return _Prompts(self.ids.repeat(count, 0), mask, self.most)


def _array(value: Any) -> Array:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)


def _params(*, do_sample: bool, logit_bias: dict[int, float], **given: Any) -> SamplingParams:
    named = {name: given.pop(name) for name in SAMPLING}
    named = {name: value for name, value in named.items() if value is not None}
    if not do_sample and named:
        raise ArgumentError(
            f"{', '.join(named)} change how tokens are drawn, and none are", expected="do_sample=True", got="False"
        )
    return SamplingParams(**({} if do_sample else {"temperature": 0.0}) | named | given, logit_bias=logit_bias)


def _steps(
    model: Any, prompts: _Prompts, params: SamplingParams, stopping: Stopping, logprobs: int | None, copies: int
) -> Iterator[TokenStep]:
    """The tokens of all texts, step by step. Texts that end leave the batch."""
    masks = prompts.mask
    samplers = [
        Sampler(params, ids if masks is None else ids[masks[row] != 0], row % copies)
        for row, ids in enumerate(prompts.ids)
    ]
    watchers = [stopping.watch() for _ in samplers]
    cache = model.new_cache(prompts.ids.shape[1] + prompts.most)
    rows = list(range(len(samplers)))  # which texts are in the batch
    ids, mask = prompts.ids, prompts.mask
    for number in range(1, prompts.most + 1):
        scores = last_scores(model, ids, cache, mask)
        chosen, going = [], []
        for place, row in enumerate(rows):
            token = samplers[row](scores[place])
            chances = None if logprobs is None else _logprobs(scores[place], token, logprobs)
            text, stopped = watchers[row].add(token)
            reason = "stop" if stopped else "length" if number == prompts.most else None
            if reason is not None and text is not None and not stopped:
                text += watchers[row].rest()
            if reason is None:
                chosen.append(token)
                going.append(place)
            yield TokenStep(row, token, text, chances, reason)
        if not going:
            return
        if len(going) < len(rows):
            cache.select(going)
        rows = [rows[place] for place in going]
        ids, mask = np.array(chosen)[:, None], None


def last_scores(model: Any, ids: Array, cache: Any, mask: Array | None) -> Array:
    """The scores of the token after the last one of each text, floating [batch, vocabulary]."""
    with no_grad():
        logits = model(make_tensor(ids), cache=cache, attention_mask=mask)
    return logits[:, -1].cpu().numpy()  # type: ignore[no-any-return]


def _logprobs(scores: Array, token: int, count: int) -> TokenLogprobs:
    chances = log_probabilities(scores)
    likeliest = np.argsort(-chances, kind="stable")[:count]
    return TokenLogprobs(float(chances[token]), {int(each): float(chances[each]) for each in likeliest})


def _gathered(
    prompts: _Prompts,
    tokens: list[list[int]],
    pad: int,
    stopping: Stopping,
    logprobs: list[list[TokenLogprobs]] | None,
    reasons: list[str],
    scores: list[float] | None,
) -> Generation:
    longest = max(map(len, tokens))
    texts = np.full((len(tokens), longest), pad, np.int64)
    for row, each in zip(texts, tokens, strict=True):
        row[: len(each)] = each
    sequences = make_tensor(np.concatenate([prompts.ids, texts], 1))
    decoded = None if stopping.tokenizer is None else [stopping.text(each) for each in tokens]
    return Generation(sequences, tokens, decoded, logprobs, reasons, scores)
