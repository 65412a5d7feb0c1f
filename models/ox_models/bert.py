"""BERT, with the parameter names of Hugging Face's: a transformer that reads a text in both directions.

Devlin et al., *BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding*, 2019. The recipe
`verses` trains a small one from nothing; `from_pretrained` reads a checkpoint.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import ox
from ox import nn
from ox.errors import ArgumentError
from ox.nn import functional as F
from ox_models import checkpoints


@dataclass(frozen=True)
class BertConfig:
    """Sizes, by their names in config.json; the defaults are those of bert-base, with 110 million parameters.

    Args:
        vocab_size: number of different tokens.
        hidden_size: size of a token's vector; `num_attention_heads` must divide it.
        num_hidden_layers, num_attention_heads: number of layers, and of attention heads in each.
        intermediate_size: width between the two dense layers of a block.
        hidden_dropout_prob, attention_probs_dropout_prob: dropout of the output of each part, and of attention weights.
        max_position_embeddings: length of the longest text, in tokens.
        type_vocab_size: number of segment types, such as question and answer.
        num_labels: number of classes.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    num_labels: int = 2

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise ArgumentError(
                "num_attention_heads must divide hidden_size", got=f"{self.num_attention_heads} and {self.hidden_size}"
            )


class BertEmbeddings(nn.Module):
    """The sum of token, position and segment embeddings."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, size, padding_idx=0)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size)
        self.LayerNorm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids: ox.Tensor, token_type_ids: ox.Tensor | None) -> ox.Tensor:
        length, places = input_ids.shape[1], self.position_embeddings.weight
        if length > len(places):
            raise ArgumentError(
                "the text is longer than the model's positions",
                expected=f"at most {len(places)} tokens",
                got=str(length),
                hint="tokenizer.enable_truncation",
            )
        kinds = self.token_type_embeddings
        segment = kinds.weight[0] if token_type_ids is None else kinds(token_type_ids)
        x: ox.Tensor = self.dropout(self.LayerNorm(self.word_embeddings(input_ids) + places[:length] + segment))
        return x


class BertSelfAttention(nn.Module):
    """Multi-head self-attention over all tokens except padding."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.heads, self.drop = config.num_attention_heads, config.attention_probs_dropout_prob
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: ox.Tensor, allowed: ox.Tensor | None) -> ox.Tensor:
        batch, length, size = x.shape
        shape = (batch, length, self.heads, size // self.heads)
        query, key, value = (part(x).reshape(shape).transpose(1, 2) for part in (self.query, self.key, self.value))
        drop = self.drop if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=allowed, dropout_p=drop)
        y: ox.Tensor = mixed.transpose(1, 2).reshape(batch, length, size)
        return y


class BertOutput(nn.Module):
    """A dense layer with a residual connection and layer normalization."""

    def __init__(self, inputs: int, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x: ox.Tensor, before: ox.Tensor) -> ox.Tensor:
        y: ox.Tensor = self.LayerNorm(self.dropout(self.dense(x)) + before)
        return y


class BertAttention(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.self = BertSelfAttention(config)
        self.output = BertOutput(config.hidden_size, config)

    def forward(self, x: ox.Tensor, allowed: ox.Tensor | None) -> ox.Tensor:
        y: ox.Tensor = self.output(self.self(x, allowed), x)
        return y


class BertIntermediate(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        return F.gelu(self.dense(x))


class BertLayer(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = BertAttention(config)
        self.intermediate = BertIntermediate(config)
        self.output = BertOutput(config.intermediate_size, config)

    def forward(self, x: ox.Tensor, allowed: ox.Tensor | None) -> ox.Tensor:
        x = self.attention(x, allowed)
        x = self.output(self.intermediate(x), x)
        return x


class BertEncoder(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList([BertLayer(config) for _ in range(config.num_hidden_layers)])

    def forward(self, x: ox.Tensor, allowed: ox.Tensor | None) -> ox.Tensor:
        for layer in self.layer:
            x = layer(x, allowed)
        return x


class BertPooler(nn.Module):
    """A dense layer on the first token, [CLS], which represents the whole text."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        y: ox.Tensor = F.tanh(self.dense(x[:, 0]))
        return y


class BertModel(nn.Module):
    """Tokens int64 [batch, length] and a mask of the same shape (0 for padding) to a vector for each token, [batch,
    length, hidden_size], and one for the whole text, [batch, hidden_size]."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)
        self.pooler = BertPooler(config)
        self.apply(_small)

    def forward(
        self, input_ids: ox.Tensor, attention_mask: ox.Tensor | None = None, token_type_ids: ox.Tensor | None = None
    ) -> tuple[ox.Tensor, ox.Tensor]:
        allowed = None if attention_mask is None else (attention_mask != 0)[:, None, None, :]
        x = self.encoder(self.embeddings(input_ids, token_type_ids), allowed)
        return x, self.pooler(x)


class BertForSequenceClassification(nn.Module):
    """Tokens and mask, as in `BertModel`, to one score per class, [batch, num_labels]."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.bert = BertModel(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        _small(self.classifier)

    def forward(
        self, input_ids: ox.Tensor, attention_mask: ox.Tensor | None = None, token_type_ids: ox.Tensor | None = None
    ) -> ox.Tensor:
        _, pooled = self.bert(input_ids, attention_mask, token_type_ids)
        logits: ox.Tensor = self.classifier(self.dropout(pooled))
        return logits


def _small(module: nn.Module) -> None:
    """Initial weights as in the paper: normal with a small deviation; biases 0."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        with ox.no_grad():
            module.weight[module.padding_idx] = 0


FIELDS: dict[str, type] = {name: type(value) for name, value in vars(BertConfig()).items()}
ONLY: dict[str, tuple[Any, ...]] = {
    "model_type": ("bert",),
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
}


def weights(config: BertConfig) -> int:
    """The number of weights of such a `BertModel`."""
    size, inner = config.hidden_size, config.intermediate_size
    tables = config.vocab_size + config.max_position_embeddings + config.type_vocab_size + 2
    each = size * (4 * size + 2 * inner + 9) + inner
    return size * (tables + size + 1) + config.num_hidden_layers * each


def from_pretrained(
    path: str | os.PathLike[str], num_labels: int | None = None
) -> tuple[BertForSequenceClassification, list[str]]:
    """A classifier with the weights of a checkpoint in Hugging Face's format. Like theirs it is in eval mode, without
    dropout, until `train`.

    Args:
        path: the folder with config.json and model.safetensors (or pytorch_model.bin), or that file. Names may begin
            with ``bert.`` or not, and may be the old ones, ``LayerNorm.gamma``; heads of other tasks (``cls.``) are
            left out.
        num_labels: classes; default those of the checkpoint's own classifier.

    Returns:
        the model, and the names that the checkpoint lacks, whose weights are new: of a checkpoint without a classifier,
        or with one for another number of classes, those of the classifier.

    Raises:
        LoadError: files are missing or damaged, other names or shapes do not fit, or settings are not implemented.
    """
    table, state = checkpoints.read(path)
    config = BertConfig(**checkpoints.settings(table, FIELDS, ONLY))
    own = state.get("classifier.weight")
    config = replace(config, num_labels=num_labels or (config.num_labels if own is None else len(own)))
    checkpoints.must_fill(state, weights(config) + (0 if num_labels else config.num_labels * config.hidden_size))
    model = BertForSequenceClassification(config)
    state = checkpoints.named(state, model, "bert.", _renamed)
    fresh = [name for name in model.state_dict() if name.startswith(("classifier.", "bert.pooler."))]
    if own is not None and len(own) != config.num_labels:
        state = {name: tensor for name, tensor in state.items() if not name.startswith("classifier.")}
    lacking = [name for name in fresh if name not in state]
    mine = model.state_dict()
    model.load_state_dict({name: mine[name] for name in lacking} | state)
    return model.eval(), lacking


def _renamed(name: str) -> str | None:
    if name.startswith("cls.") or name.endswith("embeddings.position_ids"):
        return None
    old = {".gamma": ".weight", ".beta": ".bias"}
    return next((name.removesuffix(end) + new for end, new in old.items() if name.endswith(end)), name)
