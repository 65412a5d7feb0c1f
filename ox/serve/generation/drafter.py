"""Where drafts of the next tokens come from."""

from __future__ import annotations

from ox.serve.generation.decoder import Decoder
from ox.serve.generation.draft_model import DraftModel
from ox.serve.generation.text import Text


class Drafter:
    """Drafts for a text that is alone: from the text itself, which costs nothing, or else, of greedy
    texts, by a smaller model.

    One run gives scores for all tokens of a draft. From them each token is chosen as it would be without a draft, with
    the random number of its place, until one differs from the draft. For drafts that are certain of their tokens this
    is the rule of Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023: texts have the
    distribution that they have without drafts, and here also the same tokens.

    Args:
        most: tokens of a draft; 0 for none.
        decoder: the smaller model, if there is one.
        context: the most tokens of a text.
    """

    def __init__(self, most: int, decoder: Decoder | None, context: int) -> None:
        self._most = most
        self._model = None if decoder is None else DraftModel(decoder, context)
        self._by_model = False

    @property
    def nbytes(self) -> int:
        """Of the smaller model's cache."""
        return 0 if self._model is None else self._model.nbytes

    def release(self) -> None:
        """Gives the memory of the smaller model back."""
        if self._model is not None:
            self._model.release()

    def draft(self, text: Text, capacity: int) -> list[int]:
        """Tokens that the text may go on with, for which its slot has room; after them at least one more is left."""
        room = min(self._most, text.most - text.generated - 1, capacity - text.computed - 1)
        if room <= 0:
            return []
        draft = text.lookup.draft(text.tokens, room)
        # what a drawn text goes on with, a smaller model seldom guesses
        self._by_model = not draft and text.request.sampling.greedy
        return self._model.draft(text.tokens, room) if self._by_model and self._model is not None else draft

    def count(self, text: Text, drafted: int, accepted: int) -> None:
        """So many tokens of the last draft were right."""
        if self._by_model and self._model is not None:
            self._model.count(accepted)
        else:
            text.lookup.count(drafted, accepted)
