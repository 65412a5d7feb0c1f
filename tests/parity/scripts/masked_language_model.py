"""A masked language model: random masks, ignore_index and masked_select, layer-wise rates, checkpoints of dicts."""

import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F


class BertEmbeddings(nn.Module):
    def __init__(self, vocab, hidden, longest):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab, hidden, padding_idx=0)
        self.position_embeddings = nn.Embedding(longest, hidden)
        self.token_type_embeddings = nn.Embedding(2, hidden)
        self.LayerNorm = nn.LayerNorm(hidden, eps=1e-12)
        self.register_buffer("position_ids", torch.arange(longest).expand((1, -1)), persistent=False)

    def forward(self, input_ids, token_type_ids=None):
        if token_type_ids is None:
            token_type_ids = torch.zeros(input_ids.shape, dtype=torch.long, device=input_ids.device)
        seq_length = input_ids.shape[1]
        emb = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        emb += self.position_embeddings(self.position_ids[:, :seq_length])
        return self.LayerNorm(emb)


class BertModel(nn.Module):
    def __init__(self, vocab=20, hidden=16, longest=10):
        super().__init__()
        self.embeddings = BertEmbeddings(vocab, hidden, longest)
        self.attention = nn.ModuleList(nn.MultiheadAttention(hidden, 4, batch_first=True) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
        self.feed = nn.ModuleList(
            nn.Sequential(nn.Linear(hidden, 24), nn.GELU(), nn.Linear(24, hidden), nn.Dropout(0.0)) for _ in range(2)
        )
        self.cls = nn.Linear(hidden, vocab)
        self.cls.weight = self.embeddings.word_embeddings.weight
        self.nsp = nn.Linear(hidden, 2)

    def get_extended_attention_mask(self, mask, dtype):
        extended = mask[:, None, None, :].to(dtype=dtype)
        return (1.0 - extended) * torch.finfo(dtype).min

    def forward(self, input_ids, attention_mask, types):
        x = self.embeddings(input_ids, types)
        bias = self.get_extended_attention_mask(attention_mask, x.dtype)
        bias = bias.expand(-1, 4, x.size(1), -1).reshape(-1, x.size(1), x.size(1))
        for attention, norm, feed in zip(self.attention, self.norms, self.feed):
            y, weights = attention(x, x, x, attn_mask=bias, need_weights=True)
            x = norm(x + y)
            x = x + feed(x)
        return self.cls(x), self.nsp(torch.tanh(x[:, 0]))


def mask_tokens(inputs, special, numbers):
    labels = inputs.clone()
    probability_matrix = torch.full(labels.shape, 0.4)
    probability_matrix.masked_fill_(special, value=0.0)
    torch.bernoulli(probability_matrix).bool()
    masked_indices = torch.from_numpy(abs(numbers(*labels.shape)) % 1) < probability_matrix
    labels[~masked_indices] = -100
    indices_replaced = torch.bernoulli(torch.full(labels.shape, 1.0)).bool() & masked_indices
    inputs[indices_replaced] = 3
    indices_random = torch.bernoulli(torch.full(labels.shape, 0.0)).bool() & masked_indices & ~indices_replaced
    random_words = torch.randint(20, labels.shape, dtype=torch.long)
    inputs[indices_random] = random_words[indices_random]
    return inputs, labels


def main(fill, numbers):
    torch.manual_seed(0)
    model = fill(BertModel())
    no_decay = ["bias", "LayerNorm.weight"]
    groups = [
        {
            "params": [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)],
            "weight_decay": 0.01,
        },
        {
            "params": [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)],
            "weight_decay": 0.0,
            "lr": 5e-3,
        },
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, eps=1e-8)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=2)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, decay], milestones=[2])
    trace, best, path = [], float("inf"), os.path.join(tempfile.mkdtemp(), "best.pt")
    ids = torch.from_numpy((abs(numbers(6, 9)) * 12).astype("int64") % 16 + 4)
    ids[:, 0] = 1
    ids[2:4, 7:] = 0
    for epoch in range(4):
        inputs, labels = mask_tokens(ids.clone(), (ids == 0) | (ids == 1), numbers)
        mask = (ids != 0).long()
        types = torch.zeros_like(ids).index_fill_(1, torch.tensor([5, 6, 7, 8]), 1)
        logits, nsp = model(inputs, mask, types)
        mlm = nn.CrossEntropyLoss()(logits.view(-1, 20), labels.view(-1))
        is_next = torch.ones(6, dtype=torch.long).scatter_(0, torch.tensor([1, 3]), 0)
        loss = mlm + F.cross_entropy(nsp, is_next, weight=torch.tensor([1.0, 0.5]))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
        scheduler.step()
        active = labels.ne(-100)
        right = logits.argmax(-1).masked_select(active).eq(labels.masked_select(active)).float().mean()
        trace += [loss.item(), right.item(), *scheduler.get_last_lr()]
        if mlm.item() < best:
            best = mlm.item()
            torch.save(
                {
                    "epoch": epoch,
                    "model_state_dict": model.state_dict(),
                    "optimizer_state_dict": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "rng": torch.get_rng_state(),
                    "loss": loss,
                    "args": {"lr": 1e-2, "name": "tiny"},
                },
                path,
            )
    checkpoint = torch.load(path, map_location="cpu", weights_only=False)
    again = BertModel()
    missing = again.load_state_dict(checkpoint["model_state_dict"], strict=False)
    assert not missing.missing_keys and not missing.unexpected_keys
    optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
    scheduler.load_state_dict(checkpoint["scheduler"])
    again.eval()
    with torch.no_grad():
        logits, _ = again(inputs, mask, types)
    trace += [best, checkpoint["loss"].item(), float(checkpoint["epoch"]), logits.abs().mean().item()]
    return trace + [group["lr"] for group in optimizer.param_groups]
