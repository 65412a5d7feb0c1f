"""Masked language modelling with BERT: configuration, embeddings, encoder, pooler, heads, and a Trainer's habits."""

import json
import logging
import math
import os
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Set, Tuple, Union

import torch
import torch.utils.checkpoint
from packaging import version
from torch import nn
from torch.nn import BCEWithLogitsLoss, CrossEntropyLoss, MSELoss
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler

logger = logging.getLogger(__name__)


class BertConfig:
    model_type = "bert"

    def __init__(
        self,
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_act="gelu",
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        max_position_embeddings=24,
        type_vocab_size=2,
        initializer_range=0.02,
        layer_norm_eps=1e-12,
        pad_token_id=0,
        **kwargs,
    ):
        for key, value in {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}.items():
            setattr(self, key, value)
        for key, value in kwargs.items():
            setattr(self, key, value)

    def to_json_string(self):
        return json.dumps(self.__dict__, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_dict(cls, config_dict):
        return cls(**config_dict)


ACT2FN = {
    "gelu": nn.functional.gelu,
    "relu": nn.functional.relu,
    "gelu_new": lambda x: nn.functional.gelu(x, approximate="tanh"),
}


class ModelOutput(dict):
    """A dict whose values are attributes, too; what is None is not in it."""

    def __init__(self, **kwargs):
        super().__init__({k: v for k, v in kwargs.items() if v is not None})

    def __getattr__(self, name):
        return self.get(name)

    def __getitem__(self, k):
        return tuple(self.values())[k] if isinstance(k, (int, slice)) else super().__getitem__(k)


class BertEmbeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        # self.LayerNorm is not snake-cased to stick with TensorFlow model variable name
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.register_buffer(
            "position_ids", torch.arange(config.max_position_embeddings).expand((1, -1)), persistent=False
        )
        self.register_buffer(
            "token_type_ids", torch.zeros(self.position_ids.size(), dtype=torch.long), persistent=False
        )

    def forward(self, input_ids=None, token_type_ids=None, position_ids=None, inputs_embeds=None):
        input_shape = input_ids.size() if input_ids is not None else inputs_embeds.size()[:-1]
        seq_length = input_shape[1]
        if position_ids is None:
            position_ids = self.position_ids[:, :seq_length]
        if token_type_ids is None:
            if hasattr(self, "token_type_ids"):
                buffered_token_type_ids = self.token_type_ids.expand(position_ids.shape[0], -1)
                buffered_token_type_ids = torch.gather(buffered_token_type_ids, dim=1, index=position_ids)
                token_type_ids = buffered_token_type_ids.expand(input_shape[0], seq_length)
            else:
                token_type_ids = torch.zeros(input_shape, dtype=torch.long, device=self.position_ids.device)
        if inputs_embeds is None:
            inputs_embeds = self.word_embeddings(input_ids)
        embeddings = inputs_embeds + self.token_type_embeddings(token_type_ids)
        embeddings += self.position_embeddings(position_ids)
        embeddings = self.LayerNorm(embeddings)
        return self.dropout(embeddings)


class BertSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        if config.hidden_size % config.num_attention_heads != 0 and not hasattr(config, "embedding_size"):
            raise ValueError(f"{config.hidden_size} is not a multiple of {config.num_attention_heads}")
        self.num_attention_heads = config.num_attention_heads
        self.attention_head_size = int(config.hidden_size / config.num_attention_heads)
        self.all_head_size = self.num_attention_heads * self.attention_head_size
        self.query = nn.Linear(config.hidden_size, self.all_head_size)
        self.key = nn.Linear(config.hidden_size, self.all_head_size)
        self.value = nn.Linear(config.hidden_size, self.all_head_size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def transpose_for_scores(self, x: torch.Tensor) -> torch.Tensor:
        new_x_shape = x.size()[:-1] + (self.num_attention_heads, self.attention_head_size)
        x = x.view(new_x_shape)
        return x.permute(0, 2, 1, 3)

    def forward(self, hidden_states, attention_mask=None, head_mask=None, output_attentions=False):
        query_layer = self.transpose_for_scores(self.query(hidden_states))
        key_layer = self.transpose_for_scores(self.key(hidden_states))
        value_layer = self.transpose_for_scores(self.value(hidden_states))
        attention_scores = torch.matmul(query_layer, key_layer.transpose(-1, -2))
        attention_scores = attention_scores / math.sqrt(self.attention_head_size)
        if attention_mask is not None:
            attention_scores = attention_scores + attention_mask
        attention_probs = nn.functional.softmax(attention_scores, dim=-1)
        attention_probs = self.dropout(attention_probs)
        if head_mask is not None:
            attention_probs = attention_probs * head_mask
        context_layer = torch.matmul(attention_probs, value_layer)
        context_layer = context_layer.permute(0, 2, 1, 3).contiguous()
        new_context_layer_shape = context_layer.size()[:-2] + (self.all_head_size,)
        context_layer = context_layer.view(new_context_layer_shape)
        return (context_layer, attention_probs) if output_attentions else (context_layer,)


class BertSelfOutput(nn.Module):
    def __init__(self, config, size=None):
        super().__init__()
        self.dense = nn.Linear(size or config.hidden_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: torch.Tensor, input_tensor: torch.Tensor) -> torch.Tensor:
        hidden_states = self.dense(hidden_states)
        hidden_states = self.dropout(hidden_states)
        hidden_states = self.LayerNorm(hidden_states + input_tensor)
        return hidden_states


def prune_linear_layer(layer: nn.Linear, index: torch.LongTensor, dim: int = 0) -> nn.Linear:
    index = index.to(layer.weight.device)
    W = layer.weight.index_select(dim, index).detach().clone()
    if layer.bias is not None:
        b = layer.bias.detach().clone() if dim == 1 else layer.bias[index].detach().clone()
    new_size = list(layer.weight.size())
    new_size[dim] = len(index)
    new_layer = nn.Linear(new_size[1], new_size[0], bias=layer.bias is not None).to(layer.weight.device)
    new_layer.weight.requires_grad = False
    new_layer.weight.copy_(W.contiguous())
    new_layer.weight.requires_grad = True
    if layer.bias is not None:
        new_layer.bias.requires_grad = False
        new_layer.bias.copy_(b.contiguous())
        new_layer.bias.requires_grad = True
    return new_layer


class BertAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self = BertSelfAttention(config)
        self.output = BertSelfOutput(config)
        self.pruned_heads: Set[int] = set()

    def prune_heads(self, heads):
        mask = torch.ones(self.self.num_attention_heads, self.self.attention_head_size)
        for head in heads:
            mask[head - sum(1 if h < head else 0 for h in self.pruned_heads)] = 0
        index = torch.arange(len(mask.view(-1)))[mask.view(-1).contiguous().eq(1)].long()
        self.self.query = prune_linear_layer(self.self.query, index)
        self.self.key = prune_linear_layer(self.self.key, index)
        self.self.value = prune_linear_layer(self.self.value, index)
        self.output.dense = prune_linear_layer(self.output.dense, index, dim=1)
        self.self.num_attention_heads = self.self.num_attention_heads - len(heads)
        self.self.all_head_size = self.self.attention_head_size * self.self.num_attention_heads
        self.pruned_heads = self.pruned_heads.union(heads)

    def forward(self, hidden_states, attention_mask=None, head_mask=None, output_attentions=False):
        self_outputs = self.self(hidden_states, attention_mask, head_mask, output_attentions)
        attention_output = self.output(self_outputs[0], hidden_states)
        return (attention_output,) + self_outputs[1:]


def apply_chunking_to_forward(forward_fn: Callable[..., torch.Tensor], chunk_size: int, chunk_dim: int, *input_tensors):
    if chunk_size > 0:
        num_chunks = input_tensors[0].shape[chunk_dim] // chunk_size
        input_tensors_chunks = tuple(t.chunk(num_chunks, dim=chunk_dim) for t in input_tensors)
        output_chunks = tuple(forward_fn(*chunks) for chunks in zip(*input_tensors_chunks))
        return torch.cat(output_chunks, dim=chunk_dim)
    return forward_fn(*input_tensors)


class BertLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.chunk_size_feed_forward = getattr(config, "chunk_size_feed_forward", 0)
        self.attention = BertAttention(config)
        self.intermediate = nn.Module()
        self.intermediate.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.act = ACT2FN[config.hidden_act] if isinstance(config.hidden_act, str) else config.hidden_act
        self.output = BertSelfOutput(config, config.intermediate_size)

    def forward(self, hidden_states, attention_mask=None, head_mask=None, output_attentions=False):
        outputs = self.attention(hidden_states, attention_mask, head_mask, output_attentions=output_attentions)
        layer_output = apply_chunking_to_forward(self.feed_forward_chunk, self.chunk_size_feed_forward, 1, outputs[0])
        return (layer_output,) + outputs[1:]

    def feed_forward_chunk(self, attention_output):
        return self.output(self.act(self.intermediate.dense(attention_output)), attention_output)


class BertEncoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layer = nn.ModuleList([BertLayer(config) for _ in range(config.num_hidden_layers)])
        self.gradient_checkpointing = False

    def forward(self, hidden_states, attention_mask, head_mask, output_attentions, output_hidden_states):
        all_hidden_states = () if output_hidden_states else None
        all_self_attentions = () if output_attentions else None
        for i, layer_module in enumerate(self.layer):
            if output_hidden_states:
                all_hidden_states = all_hidden_states + (hidden_states,)
            if self.gradient_checkpointing and self.training:

                def create_custom_forward(module):
                    def custom_forward(*inputs):
                        return module(*inputs, output_attentions)

                    return custom_forward

                layer_outputs = torch.utils.checkpoint.checkpoint(
                    create_custom_forward(layer_module), hidden_states, attention_mask, head_mask[i], use_reentrant=True
                )
            else:
                layer_outputs = layer_module(hidden_states, attention_mask, head_mask[i], output_attentions)
            hidden_states = layer_outputs[0]
            if output_attentions:
                all_self_attentions = all_self_attentions + (layer_outputs[1],)
        if output_hidden_states:
            all_hidden_states = all_hidden_states + (hidden_states,)
        return hidden_states, all_hidden_states, all_self_attentions


class PreTrainedModel(nn.Module):
    _keys_to_ignore_on_load_missing = [r"position_ids", r"predictions.decoder.bias"]
    base_model_prefix = "bert"

    def __init__(self, config, *inputs, **kwargs):
        super().__init__()
        self.config = config

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(p.dtype for p in self.parameters() if p.is_floating_point())

    def post_init(self):
        self.apply(self._init_weights)
        self.tie_weights()

    def _init_weights(self, module):
        """Initialize the weights"""
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(mean=0.0, std=self.config.initializer_range)
            if module.bias is not None:
                module.bias.data.zero_()
        elif isinstance(module, nn.Embedding):
            module.weight.data.normal_(mean=0.0, std=self.config.initializer_range)
            if module.padding_idx is not None:
                module.weight.data[module.padding_idx].zero_()
        elif isinstance(module, nn.LayerNorm):
            module.bias.data.zero_()
            module.weight.data.fill_(1.0)

    def tie_weights(self):
        pass

    def get_extended_attention_mask(self, attention_mask):
        if attention_mask.dim() == 3:
            extended_attention_mask = attention_mask[:, None, :, :]
        elif attention_mask.dim() == 2:
            extended_attention_mask = attention_mask[:, None, None, :]
        else:
            raise ValueError(f"Wrong shape for attention_mask (shape {attention_mask.shape})")
        extended_attention_mask = extended_attention_mask.to(dtype=self.dtype)  # fp16 compatibility
        return (1.0 - extended_attention_mask) * torch.finfo(self.dtype).min

    def get_head_mask(self, head_mask, num_hidden_layers):
        if head_mask is None:
            return [None] * num_hidden_layers
        if head_mask.dim() == 1:
            head_mask = head_mask.unsqueeze(0).unsqueeze(0).unsqueeze(-1).unsqueeze(-1)
            head_mask = head_mask.expand(num_hidden_layers, -1, -1, -1, -1)
        elif head_mask.dim() == 2:
            head_mask = head_mask.unsqueeze(1).unsqueeze(-1).unsqueeze(-1)
        assert head_mask.dim() == 5, f"head_mask.dim != 5, instead {head_mask.dim()}"
        return head_mask.to(dtype=self.dtype)

    def resize_token_embeddings(self, new_num_tokens):
        old = self.get_input_embeddings()
        old_num_tokens, old_embedding_dim = old.weight.size()
        new = nn.Embedding(new_num_tokens, old_embedding_dim)
        new.to(old.weight.device, dtype=old.weight.dtype)
        self._init_weights(new)
        n = min(old_num_tokens, new_num_tokens)
        new.weight.data[:n, :] = old.weight.data[:n, :]
        self.set_input_embeddings(new)
        self.config.vocab_size = new_num_tokens
        self.tie_weights()
        return self.get_input_embeddings()

    def save_pretrained(self, save_directory):
        os.makedirs(save_directory, exist_ok=True)
        with open(os.path.join(save_directory, "config.json"), "w") as f:
            f.write(self.config.to_json_string())
        torch.save(self.state_dict(), os.path.join(save_directory, "pytorch_model.bin"))

    @classmethod
    def from_pretrained(cls, path, **kwargs):
        with open(os.path.join(path, "config.json")) as f:
            config = BertConfig.from_dict({**json.load(f), **kwargs})
        model = cls(config)
        state_dict = torch.load(os.path.join(path, "pytorch_model.bin"), map_location="cpu")
        old_keys = [k for k in state_dict if "gamma" in k]
        for k in old_keys:
            state_dict[k.replace("gamma", "weight")] = state_dict.pop(k)
        result = model.load_state_dict(state_dict, strict=False)
        print(cls.__name__, "missing", result.missing_keys, "unexpected", result.unexpected_keys)
        model.eval()
        return model


class BertModel(PreTrainedModel):
    def __init__(self, config, add_pooling_layer=True):
        super().__init__(config)
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)
        self.pooler = (
            nn.Sequential(nn.Linear(config.hidden_size, config.hidden_size), nn.Tanh()) if add_pooling_layer else None
        )
        self.post_init()

    def get_input_embeddings(self):
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value):
        self.embeddings.word_embeddings = value

    def _prune_heads(self, heads_to_prune: Dict[int, List[int]]):
        for layer, heads in heads_to_prune.items():
            self.encoder.layer[layer].attention.prune_heads(heads)

    def forward(
        self,
        input_ids: Optional[torch.Tensor] = None,
        attention_mask: Optional[torch.Tensor] = None,
        token_type_ids: Optional[torch.Tensor] = None,
        head_mask: Optional[torch.Tensor] = None,
        inputs_embeds: Optional[torch.Tensor] = None,
        output_attentions: Optional[bool] = None,
        output_hidden_states: Optional[bool] = None,
        return_dict: bool = True,
    ) -> Union[Tuple[torch.Tensor], ModelOutput]:
        if input_ids is not None and inputs_embeds is not None:
            raise ValueError("You cannot specify both input_ids and inputs_embeds at the same time")
        input_shape = input_ids.size() if input_ids is not None else inputs_embeds.size()[:-1]
        batch_size, seq_length = input_shape
        device = input_ids.device if input_ids is not None else inputs_embeds.device
        if attention_mask is None:
            attention_mask = torch.ones(((batch_size, seq_length)), device=device)
        hidden_states, all_hidden, attentions = self.encoder(
            self.embeddings(input_ids=input_ids, token_type_ids=token_type_ids, inputs_embeds=inputs_embeds),
            self.get_extended_attention_mask(attention_mask),
            self.get_head_mask(head_mask, self.config.num_hidden_layers),
            output_attentions,
            output_hidden_states,
        )
        pooled = self.pooler(hidden_states[:, 0]) if self.pooler is not None else None
        if not return_dict:
            return (hidden_states, pooled, all_hidden, attentions)
        return ModelOutput(
            last_hidden_state=hidden_states, pooler_output=pooled, hidden_states=all_hidden, attentions=attentions
        )


class BertLMPredictionHead(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        # Need a link between the two variables so that the bias is correctly resized with `resize_token_embeddings`
        self.decoder.bias = self.bias

    def forward(self, hidden_states):
        return self.decoder(self.LayerNorm(nn.functional.gelu(self.dense(hidden_states))))


class BertForMaskedLM(PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.cls = BertLMPredictionHead(config)
        self.post_init()

    def tie_weights(self):
        self.cls.decoder.weight = self.bert.embeddings.word_embeddings.weight
        pad = self.cls.decoder.weight.shape[0] - self.cls.decoder.bias.shape[0]
        if pad > 0:
            self.cls.decoder.bias.data = nn.functional.pad(self.cls.decoder.bias.data, (0, pad), "constant", 0)
            self.cls.decoder.out_features = self.cls.decoder.weight.shape[0]

    def get_input_embeddings(self):
        return self.bert.get_input_embeddings()

    def set_input_embeddings(self, value):
        self.bert.set_input_embeddings(value)

    def forward(self, input_ids, attention_mask=None, labels=None, **kwargs):
        outputs = self.bert(input_ids, attention_mask=attention_mask, **kwargs)
        prediction_scores = self.cls(outputs[0])
        masked_lm_loss = None
        if labels is not None:
            loss_fct = CrossEntropyLoss()  # -100 index = padding token
            masked_lm_loss = loss_fct(prediction_scores.view(-1, self.config.vocab_size), labels.view(-1))
        return ModelOutput(
            loss=masked_lm_loss,
            logits=prediction_scores,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class BertForSequenceClassification(PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.num_labels = getattr(config, "num_labels", 2)
        self.bert = BertModel(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, self.num_labels)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, labels=None):
        logits = self.classifier(self.dropout(self.bert(input_ids, attention_mask)[1]))
        loss = None
        if labels is not None:
            if self.num_labels == 1:
                loss = MSELoss()(logits.view(-1), labels.view(-1))
            elif labels.dtype in (torch.long, torch.int):
                loss = CrossEntropyLoss()(logits.view(-1, self.num_labels), labels.view(-1))
            else:
                loss = BCEWithLogitsLoss()(logits, labels)
        return ModelOutput(loss=loss, logits=logits)


class TextDataset(Dataset):
    def __init__(self, n, vocab_size):
        g = torch.Generator().manual_seed(5)
        self.lines = [
            ((torch.arange(int(length)) * 3 + int(start)) % (vocab_size - 4) + 3).tolist()
            for length, start in zip(torch.randint(6, 15, (n,), generator=g), torch.randint(0, 30, (n,), generator=g))
        ]

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i) -> Dict[str, List[int]]:
        return {"input_ids": [1, *self.lines[i], 2]}


@dataclass
class DataCollatorForLanguageModeling:
    mask_token_id: int
    vocab_size: int
    mlm_probability: float = 0.15
    pad_to_multiple_of: Optional[int] = 4

    def __call__(self, examples):
        longest = max(len(e["input_ids"]) for e in examples)
        longest = ((longest + self.pad_to_multiple_of - 1) // self.pad_to_multiple_of) * self.pad_to_multiple_of
        inputs = torch.full((len(examples), longest), 0, dtype=torch.long)
        for i, e in enumerate(examples):
            inputs[i, : len(e["input_ids"])] = torch.tensor(e["input_ids"])
        attention_mask = inputs.ne(0).long()
        labels = inputs.clone()
        probability_matrix = torch.full(labels.shape, self.mlm_probability)
        special_tokens_mask = torch.tensor([[t in (0, 1, 2) for t in row] for row in labels.tolist()], dtype=torch.bool)
        probability_matrix.masked_fill_(special_tokens_mask, value=0.0)
        masked_indices = torch.bernoulli(probability_matrix).bool()
        labels[~masked_indices] = -100
        indices_replaced = torch.bernoulli(torch.full(labels.shape, 0.8)).bool() & masked_indices
        inputs[indices_replaced] = self.mask_token_id
        indices_random = torch.bernoulli(torch.full(labels.shape, 0.5)).bool() & masked_indices & ~indices_replaced
        random_words = torch.randint(self.vocab_size, labels.shape, dtype=torch.long)
        inputs[indices_random] = random_words[indices_random]
        return {"input_ids": inputs, "attention_mask": attention_mask, "labels": labels}


def get_linear_schedule_with_warmup(optimizer: Optimizer, num_warmup_steps, num_training_steps, last_epoch=-1):
    def lr_lambda(current_step: int):
        if current_step < num_warmup_steps:
            return float(current_step) / float(max(1, num_warmup_steps))
        return max(0.0, float(num_training_steps - current_step) / float(max(1, num_training_steps - num_warmup_steps)))

    return LambdaLR(optimizer, lr_lambda, last_epoch)


def set_seed(seed):
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def main():
    set_seed(42)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    assert version.parse("1.6") < version.parse("2.0")
    config = BertConfig(chunk_size_feed_forward=4)
    model = BertForMaskedLM(config).to(device)
    model.bert.encoder.gradient_checkpointing = True
    dataset = TextDataset(24, config.vocab_size)
    collate = DataCollatorForLanguageModeling(mask_token_id=39, vocab_size=config.vocab_size, mlm_probability=0.3)
    loader = DataLoader(dataset, sampler=RandomSampler(dataset), batch_size=4, collate_fn=collate)
    no_decay = ["bias", "LayerNorm.weight"]
    groups = [
        {
            "params": [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)],
            "weight_decay": 0.01,
        },
        {"params": [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=5e-3, eps=1e-8)
    scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=2, num_training_steps=6)
    print([len(g["params"]) for g in groups], model.dtype == torch.float32, str(model.device))
    global_step, tr_loss, accumulation = 0, torch.tensor(0.0).to(device), 2
    model.zero_grad()
    for epoch in range(2):
        for step, batch in enumerate(loader):
            model.train()
            batch = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in batch.items()}
            outputs = model(**batch)
            loss = outputs["loss"] if isinstance(outputs, dict) else outputs[0]
            loss = loss / accumulation
            loss.backward()
            tr_loss += loss.detach()
            if (step + 1) % accumulation == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                model.zero_grad()
                global_step += 1
                print(
                    {"step": global_step, "loss": round(tr_loss.item(), 4), "learning_rate": scheduler.get_last_lr()[0]}
                )
                tr_loss -= tr_loss
    model.save_pretrained("out")
    torch.save(optimizer.state_dict(), os.path.join("out", "optimizer.pt"))
    torch.save(scheduler.state_dict(), os.path.join("out", "scheduler.pt"))
    scheduler.load_state_dict(torch.load(os.path.join("out", "scheduler.pt")))
    model = BertForMaskedLM.from_pretrained("out", chunk_size_feed_forward=0)
    assert model.cls.decoder.weight is model.bert.embeddings.word_embeddings.weight
    batch = next(iter(DataLoader(dataset, sampler=SequentialSampler(dataset), batch_size=3, collate_fn=collate)))
    with torch.no_grad():
        out = model(**batch, output_attentions=True, output_hidden_states=True, head_mask=torch.tensor([1.0, 0.0]))
    print(list(out.keys()), len(out.attentions), len(out.hidden_states), out.loss.item())
    print("perplexity", torch.exp(out.loss).item(), out.logits.topk(3, dim=-1).values[0, 1].tolist())
    active = batch["labels"].ne(-100)
    right = out.logits.argmax(-1).masked_select(active).eq(batch["labels"].masked_select(active)).float().mean()
    types = torch.zeros_like(batch["input_ids"]).index_fill_(1, torch.tensor([3, 4, 5]), 1)
    two = model(batch["input_ids"], batch["attention_mask"], token_type_ids=types).logits
    is_next = torch.ones(3, dtype=torch.long).scatter_(0, torch.tensor([1]), 0)
    weighted = nn.functional.cross_entropy(two[:, 0, :2], is_next, weight=torch.tensor([1.0, 0.5]))
    print(right.item(), types.sum().item(), two.std().item(), weighted.item(), torch.get_rng_state().dtype)
    model.resize_token_embeddings(44)
    print(
        tuple(model.cls.decoder.weight.shape), tuple(model.cls.bias.shape), model(batch["input_ids"]).logits.shape[-1]
    )
    model.bert._prune_heads({0: [1]})
    print("pruned", model(batch["input_ids"]).logits.std().item())
    classifier = BertForSequenceClassification.from_pretrained("out", num_labels=3)
    for param in classifier.bert.parameters():
        param.requires_grad = False
    labels = torch.tensor([0, 2, 1])
    loss = classifier(batch["input_ids"], batch["attention_mask"], labels=labels).loss
    loss.backward()
    print("classifier", loss.item(), [n for n, p in classifier.named_parameters() if p.grad is not None])
    return classifier, (batch["input_ids"], batch["attention_mask"])


if __name__ == "__main__":
    classifier, example = main()
    model = classifier
