"""Sequence to sequence with Bahdanau attention: packed GRU encoder, GRUCell decoder, teacher forcing."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

SOS, EOS, PAD = 1, 2, 0


class Pairs(Dataset):
    def __init__(self, numbers):
        self.rows = []
        for i in range(10):
            n = 3 + i % 4
            self.rows.append((abs(numbers(n)) * 5).astype("int64") % 7 + 3)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        source = torch.from_numpy(self.rows[index])
        return source, torch.cat([source.flip(0), torch.LongTensor([EOS])])


def collate(batch):
    batch.sort(key=lambda pair: len(pair[0]), reverse=True)
    sources, targets = zip(*batch)
    lengths = torch.tensor([len(s) for s in sources])
    return pad_sequence(sources, batch_first=True, padding_value=PAD), lengths, pad_sequence(targets, batch_first=True)


class EncoderRNN(nn.Module):
    def __init__(self, tokens, size, dropout_p=0.0):
        super().__init__()
        self.embedding = nn.Embedding(tokens, size, padding_idx=PAD)
        self.gru = nn.GRU(size, size, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(size * 2, size)

    def forward(self, input, lengths):
        embedded = self.embedding(input)
        packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True)
        output, hidden = self.gru(packed)
        output, _ = pad_packed_sequence(output, batch_first=True)
        return output, torch.tanh(self.fc(torch.cat((hidden[-2, :, :], hidden[-1, :, :]), dim=1)))


class BahdanauAttention(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.Wa = nn.Linear(size, size)
        self.Ua = nn.Linear(2 * size, size)
        self.Va = nn.Linear(size, 1)

    def forward(self, query, keys, mask):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys)))
        scores = scores.squeeze(2).unsqueeze(1)
        scores.data.masked_fill_(mask.unsqueeze(1) == 0, -float("inf"))
        weights = F.softmax(scores, dim=-1)
        return torch.bmm(weights, keys), weights


class AttnDecoder(nn.Module):
    def __init__(self, size, tokens):
        super().__init__()
        self.embedding = nn.Embedding(tokens, size)
        self.attention = BahdanauAttention(size)
        self.cell = nn.GRUCell(3 * size, size)
        self.out = nn.Linear(size, tokens)

    def forward(self, outputs, hidden, mask, target=None, longest=8, forcing=0.5):
        batch = outputs.size(0)
        step_input = torch.empty(batch, 1, dtype=torch.long, device=outputs.device).fill_(SOS)
        decoded, attentions = [], []
        steps = longest if target is None else target.size(1)
        for i in range(steps):
            embedded = self.embedding(step_input)
            context, weights = self.attention(hidden.unsqueeze(1), outputs, mask)
            hidden = self.cell(torch.cat((embedded, context), dim=2).squeeze(1), hidden)
            logits = self.out(hidden)
            decoded.append(logits)
            attentions.append(weights)
            if target is not None and random.random() < forcing:
                step_input = target[:, i].unsqueeze(1)
            else:
                _, topi = logits.topk(1)
                step_input = topi.detach()
        decoded = F.log_softmax(torch.stack(decoded, dim=1), dim=-1)
        return decoded, hidden, torch.cat(attentions, dim=1)


def main(fill, numbers):
    random.seed(3)
    loader = DataLoader(Pairs(numbers), batch_size=5, shuffle=False, collate_fn=collate, drop_last=True)
    encoder, decoder = fill(EncoderRNN(10, 8)), fill(AttnDecoder(8, 10))
    encoder_optimizer = optim.Adam(encoder.parameters(), lr=0.01)
    decoder_optimizer = optim.Adam(decoder.parameters(), lr=0.01)
    criterion = nn.NLLLoss(ignore_index=PAD)
    trace = []
    for epoch in range(2):
        total = 0
        for source, lengths, target in loader:
            encoder_optimizer.zero_grad()
            decoder_optimizer.zero_grad()
            mask = torch.arange(source.size(1))[None, :] < lengths[:, None]
            outputs, hidden = encoder(source, lengths)
            decoded, _, attention = decoder(outputs, hidden, mask, target)
            loss = criterion(decoded.view(-1, decoded.size(-1)), target.view(-1))
            loss.backward()
            nn.utils.clip_grad_norm_([*encoder.parameters(), *decoder.parameters()], 1)
            encoder_optimizer.step()
            decoder_optimizer.step()
            total += loss.item()
            trace += [loss.item(), attention[0].std().item()]
        trace.append(total / len(loader))
    encoder.eval(), decoder.eval()
    with torch.no_grad():
        outputs, hidden = encoder(source, lengths)
        decoded, _, _ = decoder(outputs, hidden, mask)
        for ids in decoded.argmax(-1):
            words = []
            for idx in ids:
                if idx.item() == EOS:
                    break
                words.append(idx.item())
            trace.append(float(len(words)))
    return trace
