"""A recurrent language model: embedding, LSTM, tied weights, truncated backpropagation, clipped gradients."""

import math

import torch
import torch.nn as nn


class RNNModel(nn.Module):
    def __init__(self, tokens, size, layers):
        super().__init__()
        self.drop = nn.Dropout(0.0)
        self.encoder = nn.Embedding(tokens, size)
        self.rnn = nn.LSTM(size, size, layers, dropout=0.0)
        self.decoder = nn.Linear(size, tokens)
        self.decoder.weight = self.encoder.weight
        self.layers, self.size = layers, size

    def forward(self, tokens, hidden):
        emb = self.drop(self.encoder(tokens))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output))
        return decoded.view(-1, decoded.size(-1)), hidden

    def init_hidden(self, batch):
        weight = next(self.parameters())
        return (
            weight.new_zeros(self.layers, batch, self.size),
            weight.new_zeros(self.layers, batch, self.size),
        )


def repackage(hidden):
    return hidden.detach() if isinstance(hidden, torch.Tensor) else tuple(repackage(h) for h in hidden)


def main(fill, numbers):
    text = torch.from_numpy((numbers(120) * 50).astype("int64") % 11)
    batch, bptt, lr = 4, 5, 0.5
    data = text.narrow(0, 0, (text.size(0) // batch) * batch).view(batch, -1).t().contiguous()
    model = fill(RNNModel(11, 8, 2))
    criterion = nn.CrossEntropyLoss()
    hidden = model.init_hidden(batch)
    trace = []
    for i in range(0, data.size(0) - 1, bptt):
        length = min(bptt, len(data) - 1 - i)
        source, target = data[i : i + length], data[i + 1 : i + 1 + length].reshape(-1)
        model.zero_grad()
        hidden = repackage(hidden)
        output, hidden = model(source, hidden)
        loss = criterion(output, target)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        trace += [loss.item(), math.exp(loss.item()), float(norm)]
    return trace
