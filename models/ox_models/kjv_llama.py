"""A small LLaMA reads the Bible of 1611 in turns: a verse is said to it, and it answers with the verse that follows.

The text is that of `ox_models/gpt.py`, in pieces of words instead of characters, and cut into a conversation: of each
chapter the first verse is the user's, the second the assistant's, and so on. So it knows the marks that begin and end
a turn, a server can chat with it, and it also goes on with any beginning, as a language model does. It is no
assistant: 0.4 million pieces teach style and some names, not facts.

`ox train kjv_llama`, then `ox export scribe` writes the folder of a decoder: model.onnx, the tokenizer, the template of
the conversation, and how texts are drawn. It needs the library `tokenizers` (`pip install "ox-onnx[text]"`).
"""

from functools import cache
from typing import Any

import numpy as np

import ox
from ox import nn
from ox.data.datasets import TokenBlocks
from ox.nn import functional as F
from ox_models.kjv_data import MARKS, Chapter, byte_pairs, chapters, split
from ox_models.llama import LlamaConfig, LlamaForCausalLM

CONTEXT = 512  # tokens, of a sample and of the longest text
END, USER, ASSISTANT = MARKS

inputs = {"input_ids": "pieces of text by their numbers in ox_models/data/kjv_bpe.json"}
outputs = {"logits": "for each piece scores of the one that follows"}
shareable = True  # the text is in the public domain

# What the folder of `ox export` holds besides the model.
chat_template = (
    "{% for message in messages %}"
    "{% if message.role not in ['user', 'assistant'] %}"
    "{{ raise_exception('the roles are user and assistant') }}"
    "{% endif %}"
    "{{ '<|' + message.role + '|>' + message.content + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
generation = {"eos_token_id": MARKS.index(END), "do_sample": True, "temperature": 0.8, "top_p": 0.95}

# Four passes over 0.4 million tokens: about ten minutes on two idle cores, less with --compile.
defaults = {"epochs": 4, "batch_size": 4, "lr": 2e-3, "clip": 1.0}
metrics = ["perplexity"]  # exp(loss): the number of equally likely pieces that would give this loss
best = "-loss"


@cache
def tokenizer() -> Any:
    """4,096 pieces: all bytes, and the strings of bytes that are frequent in the training chapters."""
    return byte_pairs()


def conversation(chapter: Chapter) -> str:
    """A chapter's verses in turns."""
    return "".join(f"{(USER, ASSISTANT)[i % 2]}{verse}{END}" for i, verse in enumerate(chapter.verses))


def data() -> tuple[TokenBlocks, TokenBlocks, TokenBlocks]:
    """One tenth of the chapters for validation (they choose the best epoch), one tenth for testing."""
    train, validation, held_back = (
        TokenBlocks(np.concatenate([tokenizer().encode(conversation(chapter)).ids for chapter in part]), CONTEXT)
        for part in split(chapters())
    )
    return train, validation, held_back


def model() -> nn.Module:
    """10.1 million parameters."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=tokenizer().get_vocab_size(),
            hidden_size=384,
            intermediate_size=896,
            num_hidden_layers=6,
            num_attention_heads=6,
            num_key_value_heads=2,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
        )
    )


def loss(logits: ox.Tensor, following: ox.Tensor) -> ox.Tensor:
    """Cross-entropy in nats per piece: 3.69 on the test set. A uniform guess gives 8.3."""
    return F.cross_entropy(logits.transpose(1, 2), following)


def optimizer(model: nn.Module, lr: float) -> ox.optim.Optimizer:
    """AdamW with weight decay for matrices, but not for the weights of norms."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return ox.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def scheduler(optimizer: ox.optim.Optimizer, lr: float, steps: int) -> ox.optim.lr_scheduler.LRScheduler:
    """Warm-up for a tenth of the steps, because a transformer's first steps are unstable; then decay."""
    return ox.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps, pct_start=0.1, cycle_momentum=False)


def sample(model: LlamaForCausalLM) -> str:
    """An answer. The random numbers are the same each time, so that samples of epochs can be compared."""
    prompt = f"{USER}And God said, Let there be light: and there was light.{END}{ASSISTANT}"
    ids = [tokenizer().encode(prompt).ids]
    drawn: Any = generation | {"seed": 0, "max_new_tokens": 60, "return_dict_in_generate": True}
    (text,) = model.generate(ids, tokenizer=tokenizer(), **drawn).texts
    return str(text)
