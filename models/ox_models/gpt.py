"""A small GPT learns to write in the words of 1611, one character at a time.

Nobody tells it what a word is, or a verse. It sees 128 characters of the King James Bible and says after each what
comes next; from that alone come spelling, names, and the cadence of "And it came to pass". A step further is only more
of the same: `ox_models/gpt2.py`, which this recipe uses, is GPT-2 itself, and reads checkpoints of its full size.

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

# The context length in characters. A sample has as many targets: the character after the first, the first two, ...
BLOCK = 128

# The token of a character is its index in the alphabet; the exported file contains the alphabet.
inputs = {"input_ids": f"{BLOCK} characters, each by its place, from 0, in {ALPHABET!r}; after a shorter text anything"}
outputs = {"logits": "for each character scores of the one that follows, over the same alphabet"}
labels = list(ALPHABET)
shareable = True  # the text is in the public domain

# Three passes over 1.6 million characters: about six minutes on two idle cores.
defaults = {"epochs": 3, "batch_size": 16, "lr": 2e-3, "clip": 1.0}
metrics = ["perplexity"]  # exp(loss): the number of equally likely characters that would give this loss
best = "-loss"


def encode(text: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([ALPHABET.index(character) for character in text], np.int64)


def data() -> tuple[TokenBlocks, TokenBlocks, TokenBlocks]:
    """One tenth of the chapters for validation (they choose the best epoch), one tenth for testing."""
    texts = ["\n\n".join("\n".join(chapter.verses) for chapter in part) for part in split(chapters())]
    train, validation, held_back = (TokenBlocks(encode(text), BLOCK) for text in texts)
    return train, validation, held_back


def model() -> nn.Module:
    """0.8 million parameters. No dropout: three epochs are too few to overfit."""
    return GPT2LMHeadModel(
        GPT2Config(len(ALPHABET), BLOCK, n_embd=128, n_layer=4, n_head=4, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0)
    )


def loss(logits: ox.Tensor, following: ox.Tensor) -> ox.Tensor:
    """Cross-entropy in nats per character: 1.23 on the test set. The frequencies of the characters alone give 3.0, a
    uniform guess 4.1."""
    return F.cross_entropy(logits.transpose(1, 2), following)


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    """AdamW with weight decay for matrices, but not for biases and normalization weights."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return ox.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def scheduler(optimizer: ox.optim.Optimizer, lr: float, steps: int) -> ox.optim.lr_scheduler.LRScheduler:
    """Warm-up for a tenth of the steps, because a transformer's first steps are unstable; then decay."""
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
        temperature: below 1, likely characters become likelier; towards 0, only the likeliest is used.
        top_k: sample only from the k likeliest characters.
    """
    text = beginning
    for _ in range(count):
        seen = encode(text[-BLOCK:])
        # the values after the last character do not matter: attention is causal
        ids = np.zeros((1, BLOCK), np.int64)
        ids[0, : len(seen)] = seen
        last = np.asarray(scores(ids))[0, len(seen) - 1] / temperature
        likeliest = np.argsort(last)[-top_k:]
        chances = np.exp(last[likeliest] - last.max())
        text += ALPHABET[int(generator.choice(likeliest, p=chances / chances.sum()))]
    return text


def sample(model: nn.Module) -> str:
    """A generated text. The random numbers are the same each time, so that samples of epochs can be compared."""
    return write(lambda ids: model(ox.from_numpy(ids)).numpy(), "And God said", 200, np.random.default_rng(0))


# `write` also works with an exported model; only `scores` changes. With the file:
#
#     session = onnxruntime.InferenceSession("model.onnx")
#     write(lambda ids: session.run(None, {"input_ids": ids})[0], "In the beginning", 300, np.random.default_rng())
#
# and of `ox serve model.onnx` a POST to /v2/models/model/infer for each character, with `ids.ravel().tolist()` as data.
# A client without this file finds the alphabet at /v2/models/model: in the meaning of input_ids, and as labels.
