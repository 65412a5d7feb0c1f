"""A Transformer encoder that classifies sequences, with warm-up, accumulation and an EMA copy."""

import math
from copy import deepcopy

import torch
from torch import nn


class PositionalEncoding(nn.Module):
    def __init__(self, size, longest=50):
        super().__init__()
        position = torch.arange(longest).unsqueeze(1)
        rate = torch.exp(torch.arange(0, size, 2) * (-math.log(10000.0) / size))
        pe = torch.zeros(longest, 1, size)
        pe[:, 0, 0::2] = torch.sin(position * rate)
        pe[:, 0, 1::2] = torch.cos(position * rate)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[: x.size(0)]


class Classifier(nn.Module):
    def __init__(self, tokens=13, size=16):
        super().__init__()
        self.embed = nn.Embedding(tokens, size, padding_idx=0)
        self.position = PositionalEncoding(size)
        layer = nn.TransformerEncoderLayer(size, 4, 32, dropout=0.0, activation="gelu", norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(size), enable_nested_tensor=False)
        self.head = nn.Linear(size, 3)

    def forward(self, tokens):
        padding = tokens == 0
        x = self.position(self.embed(tokens).transpose(0, 1) * math.sqrt(16))
        x = self.encoder(x, src_key_padding_mask=padding)
        keep = (~padding).float().t().unsqueeze(-1)
        return self.head((x * keep).sum(0) / keep.sum(0).clamp(min=1.0))


def main(fill, numbers):
    tokens = torch.from_numpy((abs(numbers(12, 7)) * 9).astype("int64") % 13)
    tokens[:, 0] = 1
    tokens[3:6, 5:] = 0
    labels = tokens.sum(dim=1) % 3
    model = fill(Classifier())
    ema = deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1, eps=1e-6)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    trace = []
    for _ in range(5):
        for part, wanted in zip(tokens.chunk(2), labels.chunk(2)):
            loss = criterion(model(part), wanted) / 2
            loss.backward()
            trace.append(loss.item())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        scheduler.step()
        with torch.no_grad():
            for slow, fast in zip(ema.parameters(), model.parameters()):
                slow.mul_(0.9).add_(fast, alpha=0.1)
        ema.eval()
        trace.append(ema(tokens).std().item())
    return trace
