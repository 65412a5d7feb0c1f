"""Drafts of the next tokens by a smaller decoder."""

from __future__ import annotations

import numpy as np

from ox.errors import LoadError
from ox.serve.config.generation_options import GenerationOptions
from ox.serve.generation.cache_slots import CacheSlots
from ox.serve.generation.decoder import Decoder
from ox.serve.generation.decoder_folder import DecoderFolder, decoder_file
from ox.serve.generation.decoder_run import MOST_NEW
from ox.serve.generation.gpu_claims import GpuClaims
from ox.serve.generation.scores import GREEDY, NOTHING, best_token
from ox.serve.runtime.load_control import LoadControl
from ox.serve.runtime.source import read
from ox.serve.text.model_file import text_folder

TOKENS = 3  # of a draft: those behind are seldom right
PART = 256  # tokens of a prompt that are read at a time
WORTH = 1  # right tokens of a draft that pay for it
MARGIN, PAUSE = 4, 64  # after drafts with so many fewer right tokens than that, none for so many tokens


def load_draft(
    options: GenerationOptions,
    folder: DecoderFolder,
    vocab_size: int,
    threads: int | None = None,
    control: LoadControl | None = None,
    device: str = "cpu",
    claims: GpuClaims | None = None,
) -> Decoder | None:
    """The decoder that `options.draft` names, None without one.

    Args:
        folder: of the model that checks the drafts.
        vocab_size: its tokens.
        device: where the draft model runs.
        claims: of memory on GPUs, with the limit of its session there.

    Raises:
        LoadError: it cannot be loaded, or has other tokens.
    """
    if options.draft is None:
        return None
    given = text_folder(folder.model) / options.draft
    own = DecoderFolder.read(decoder_file(given))
    decoder = Decoder(read(own.model), threads, control, own, device, claims=claims)
    tokenizers = [each.raw.get_vocab() for each in (folder.tokenizer, own.tokenizer) if each is not None]
    if decoder.vocab_size != vocab_size or (len(tokenizers) == 2 and tokenizers[0] != tokenizers[1]):
        raise LoadError(
            f"{given} has other tokens than the model that it drafts for",
            expected=f"{vocab_size} tokens, and the same tokenizer.json",
            got=f"{decoder.vocab_size} tokens" + (", another tokenizer" if decoder.vocab_size == vocab_size else ""),
            hint="a small model that was trained with the same tokenizer",
        )
    return decoder


class DraftModel:
    """Keeps what it computed for one text, the last one that it was asked for.

    Args:
        decoder: is this object's alone.
        context: the most tokens of a text.
    """

    def __init__(self, decoder: Decoder, context: int) -> None:
        self._run = decoder.run
        self._slots = CacheSlots(decoder.shapes, 1, min(context, decoder.context_length), self._run.memory)
        self._run.attach(self._slots)
        self._tokens: list[int] = []  # of that text, which grow
        self._before = 0  # how many of them were computed before the last draft
        self._draft: list[int] = []
        self._gain = self._pause = 0

    @property
    def nbytes(self) -> int:
        """Of its cache."""
        return self._slots.capacity * self._slots.token_bytes

    def release(self) -> None:
        """Gives its memory back; there are no more drafts."""
        self._run.release()

    def draft(self, tokens: list[int], room: int) -> list[int]:
        """The tokens that may come after those of a text, at most `room`: the ones with the largest scores. There are
        none while a long prompt is not read yet: a part of it is read each time.

        Args:
            tokens: of one text always the same list.
        """
        if tokens is not self._tokens:
            self._tokens, self._before, self._draft, self._gain, self._pause = tokens, 0, [], 0, 0
        count = min(TOKENS, room)
        if self._pause or len(tokens) + count > self._slots.capacity:
            self._pause = max(0, self._pause - 1)
            return []
        known = self._known(tokens)
        if len(tokens) - known > MOST_NEW:
            part = tokens[known : min(known + PART, len(tokens) - 1)]
            self._run.read(0, np.array(part, np.int64), known, NOTHING)
            known += len(part)
            self._before, self._draft = known, []
            if len(tokens) - known > MOST_NEW:  # the next time: other texts may join meanwhile
                return []
        draft: list[int] = []
        new = tokens[known:]
        for _ in range(count):
            needs = [NOTHING] * (len(new) - 1) + [GREEDY]
            scores = self._run.step(np.array([new], np.int64), np.array([known], np.int64), needs)
            known += len(new)
            draft.append(best_token(scores[-1]))
            new = draft[-1:]
        self._before, self._draft = len(tokens), draft
        return draft

    def count(self, accepted: int) -> None:
        """So many tokens of the last draft were right."""
        self._gain = min(self._gain + accepted - WORTH, MARGIN)
        if self._gain < -MARGIN:
            self._gain, self._pause = 0, PAUSE

    def _known(self, tokens: list[int]) -> int:
        """How many tokens need not be read: those computed before the last draft, and what of that was right."""
        known = min(self._before, len(tokens) - 1)
        for token in self._draft[:-1]:  # the last one was not computed
            if known == len(tokens) - 1 or tokens[known] != token:
                break
            known += 1
        return known
