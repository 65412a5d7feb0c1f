"""From which part of the Bible is this sentence? A small BERT reads verses and sorts them into six kinds of books.

The classes are law, history, wisdom, prophets, gospels and letters. Always answering "gospels" is correct for 22 % of
the verses, this network for 77 %, and methods that count words for as many (naive Bayes 77 %, logistic regression
79 %): 12,742 verses are too few to learn a language. BERT is strong after pre-training on much text;
`bert.from_pretrained` starts from such a checkpoint.

A tokenizer with a vocabulary of 3,000 word pieces converts sentences to numbers outside of the model. It needs the
library `tokenizers` (`pip install "ox-onnx[text]"`); clients of a server use the same file: see `numbers` below.
"""

from functools import cache
from typing import Any

import numpy as np

import ox
from ox import nn
from ox.data import TensorDataset
from ox_models.bert import BertConfig, BertForSequenceClassification
from ox_models.kjv_data import KINDS, chapters, split, word_pieces

LENGTH = 48  # the longest verse in tokens; longer ones, one in ten, are truncated

inputs = {
    "input_ids": f"{LENGTH} pieces of words by their numbers in ox_models/data/kjv_wordpiece.json, the last ones 0",
    "attention_mask": "1 for each piece, 0 for what only fills up",
}
outputs = {"logits": "one score for each kind of book; softmax makes probabilities of them"}
labels = KINDS
shareable = True

defaults = {"epochs": 5, "batch_size": 64, "lr": 1e-3, "clip": 1.0}
metrics = ["f1", "confusion"]


@cache
def tokenizer() -> Any:
    pieces = word_pieces()
    pieces.enable_truncation(LENGTH)
    pieces.enable_padding(length=LENGTH)
    return pieces


def numbers(sentences: list[str]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The inputs of the model for sentences: input_ids and attention_mask, int64 [n, LENGTH] each.

    A client without ox does it in three lines, and sends both to /v2/models/model/infer:

        tokenizer = tokenizers.Tokenizer.from_file("kjv_wordpiece.json")
        tokenizer.enable_truncation(48), tokenizer.enable_padding(length=48)
        encoded = tokenizer.encode("The LORD is my shepherd")     # encoded.ids, encoded.attention_mask
    """
    encoded = tokenizer().encode_batch(sentences)
    return np.array([each.ids for each in encoded]), np.array([each.attention_mask for each in encoded])


def data() -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """12,742 verses for training, 1,469 for validation (they choose the best epoch), 1,614 for testing. The split is by
    chapters, because neighbouring verses are similar."""
    parts = []
    for part in split(chapters()):
        verses = [(verse, KINDS.index(chapter.kind)) for chapter in part for verse in chapter.verses]
        ids, mask = numbers([verse for verse, _ in verses])
        parts.append(TensorDataset(ids, mask, np.array([kind for _, kind in verses])))
    return parts[0], parts[1], parts[2]


def model() -> nn.Module:
    """A small BERT: two layers of width 96 instead of twelve of width 768."""
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=tokenizer().get_vocab_size(),
            hidden_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=192,
            hidden_dropout_prob=0.2,
            max_position_embeddings=LENGTH,
            num_labels=len(KINDS),
        )
    )


UNKNOWN = 1  # [UNK]


def augment(batch: tuple[ox.Tensor, ...], generator: ox.Generator) -> tuple[ox.Tensor, ...]:
    """Replaces each token with [UNK] with a probability of 15 %, so that single words, such as names, do not decide
    alone."""
    ids, mask, kinds = batch
    hidden = ox.rand(ids.shape, generator=generator) < 0.15
    # the first token, [CLS], stays: the classifier uses it
    hidden[:, 0] = False
    return ox.where(hidden & (mask == 1), ox.full_like(ids, UNKNOWN), ids), mask, kinds


loss = nn.CrossEntropyLoss(label_smoothing=0.1)


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    return ox.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.1)


def scheduler(optimizer: ox.optim.Optimizer, lr: float, steps: int) -> ox.optim.lr_scheduler.LRScheduler:
    """Warm-up for a tenth of the steps, because a transformer's first steps are unstable; then decay."""
    return ox.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps, pct_start=0.1, cycle_momentum=False)
