"""A small GPT learns to write in the words of 1611, one character at a time.

Nobody tells it what a word is, or a verse. It sees 128 characters of the King James Bible and says after each what
comes next; from that alone come spelling, names, and the cadence of "And it came to pass". A step further is only more
of the same: `ox_models/gpt2.py`, which this page uses, is GPT-2 itself, and reads checkpoints of its full size.

`ox train gpt`, then `ox export model.onnx`, `ox serve model.onnx`; what the server's clients do is at the end.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import ox
from ox import nn
from ox.data.datasets import TokenBlocks
from ox.nn import functional as F
from ox_models.gpt2 import GPT2Config, GPT2LMHeadModel
from ox_models.kjv_data import ALPHABET, chapters, split

# Characters that the model looks back on. Each sample has as many questions: what follows the first, the first two, ...
BLOCK = 128

# Text goes in as numbers: a character's number is its place in the alphabet, which travels in the exported file.
inputs = {"input_ids": f"{BLOCK} characters, each by its place, from 0, in {ALPHABET!r}; after a shorter text anything"}
outputs = {"logits": "for each character scores of the one that follows, over the same alphabet"}
labels = list(ALPHABET)
shareable = True  # the text belongs to nobody

# Three times through 1.6 million characters: about six minutes on two quiet cores.
defaults = {"epochs": 3, "batch_size": 16, "lr": 2e-3, "clip": 1.0}
metrics = ["perplexity"]  # e to the loss: between how many characters the model hesitates, on average
best = "-loss"


def encode(text: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([ALPHABET.index(character) for character in text], np.int64)


def data() -> tuple[TokenBlocks, TokenBlocks, TokenBlocks]:
    """Every tenth chapter chooses the best epoch, every tenth is held back: none of their sentences is ever learnt."""
    texts = ["\n\n".join("\n".join(chapter.verses) for chapter in part) for part in split(chapters())]
    train, validation, held_back = (TokenBlocks(encode(text), BLOCK) for text in texts)
    return train, validation, held_back


def model() -> nn.Module:
    """0.8 million parameters. No dropout: in three readings nothing is learnt by heart."""
    return GPT2LMHeadModel(
        GPT2Config(len(ALPHABET), BLOCK, n_embd=128, n_layer=4, n_head=4, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0)
    )


def loss(logits: ox.Tensor, following: ox.Tensor) -> ox.Tensor:
    """In nats a character: 1.23 on what was held back. Who knows only how often each character occurs pays 3.0, who
    knows nothing 4.1."""
    return F.cross_entropy(logits.transpose(1, 2), following)


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    """Matrices are held small, norms and biases are not: they have nothing to learn by heart with."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return ox.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def scheduler(optimizer: ox.optim.Optimizer, lr: float, steps: int) -> ox.optim.lr_scheduler.LRScheduler:
    """A transformer's first steps are fragile: a tenth of the way up, the rest down."""
    return ox.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps, pct_start=0.1, cycle_momentum=False)


def write(
    scores: Callable[[Any], Any],
    beginning: str,
    count: int,
    generator: np.random.Generator,
    temperature: float = 0.8,
    top_k: int = 20,
) -> str:
    """Continue a text by `count` characters.

    Args:
        scores: int64 [1, BLOCK] to logits [1, BLOCK, characters]: the model, an exported file's session, or a server.
        temperature: below 1 the likely becomes likelier; towards 0 it writes only the likeliest.
        top_k: only so many of the likeliest are drawn from, as among many unlikely ones some slip comes up soon.
    """
    text = beginning
    for _ in range(count):
        seen = encode(text[-BLOCK:])
        # what stands after the last character does not matter: no score looks ahead
        ids = np.zeros((1, BLOCK), np.int64)
        ids[0, : len(seen)] = seen
        last = np.asarray(scores(ids))[0, len(seen) - 1] / temperature
        likeliest = np.argsort(last)[-top_k:]
        chances = np.exp(last[likeliest] - last.max())
        text += ALPHABET[int(generator.choice(likeliest, p=chances / chances.sum()))]
    return text


def sample(model: nn.Module) -> str:
    """What it writes by now. The same draws each time, so that only what was learnt makes the difference."""
    return write(lambda ids: model(ox.from_numpy(ids)).numpy(), "And God said", 200, np.random.default_rng(0))


# An exported model writes as well as this one; only `scores` changes. Of the file:
#
#     session = onnxruntime.InferenceSession("model.onnx")
#     write(lambda ids: session.run(None, {"input_ids": ids})[0], "In the beginning", 300, np.random.default_rng())
#
# and of `ox serve model.onnx` a POST to /v2/models/model/infer for each character, with `ids.ravel().tolist()` as data.
# A client without this page finds the alphabet at /v2/models/model: in the meaning of input_ids, and as labels.
