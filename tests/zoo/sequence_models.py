"""Recurrent and convolutional models of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
from architecture import architecture, integers, normal

import ox
import ox.nn.functional as F
from ox import nn


class LSTMTagger(nn.Module):
    """Two layers in both directions over texts with padding, each read to its length."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 8, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.fc = nn.Linear(16, 5)

    def forward(self, tokens: Any, lengths: Any) -> Any:
        embedded = self.embedding(tokens)
        packed = nn.utils.rnn.pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        output, (hidden, _) = self.lstm(packed)
        output, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=True, total_length=tokens.shape[1])
        return self.fc(output), ox.cat((hidden[-2], hidden[-1]), dim=1)


class GRUForecaster(nn.Module):
    """A GRU that starts from zeros of the batch's size, and a linear layer on its last state."""

    def __init__(self, hidden: int = 12) -> None:
        super().__init__()
        self.hidden, self.gru, self.fc = hidden, nn.GRU(4, hidden, 2, batch_first=True), nn.Linear(hidden, 3)

    def forward(self, x: Any) -> Any:
        h0 = ox.zeros(2, x.size(0), self.hidden, device=x.device).requires_grad_()
        out, hn = self.gru(x, h0.detach())
        return self.fc(out[:, -1, :]), hn


class Seq2Seq(nn.Module):
    """Bahdanau et al., "Neural Machine Translation by Jointly Learning to Align and Translate", 2014: a cell for each
    step of five, attention to what was read."""

    def __init__(self, hidden: int = 8, steps: int = 5) -> None:
        super().__init__()
        self.steps = steps
        self.embed_src, self.embed_tgt = nn.Embedding(20, hidden), nn.Embedding(20, hidden)
        self.encoder, self.cell = nn.GRU(hidden, hidden, batch_first=True), nn.GRUCell(2 * hidden, hidden)
        self.Wa, self.Ua, self.Va = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 1)
        self.out = nn.Linear(hidden, 20)

    def forward(self, src: Any) -> Any:
        keys, hidden = self.encoder(self.embed_src(src))
        hidden = hidden.squeeze(0)
        token = ox.zeros(src.size(0), dtype=ox.long)
        outputs, attentions = [], []
        for _ in range(self.steps):
            scores = self.Va(ox.tanh(self.Wa(hidden.unsqueeze(1)) + self.Ua(keys))).squeeze(2)
            weights = F.softmax(scores, dim=-1)
            context = ox.bmm(weights.unsqueeze(1), keys).squeeze(1)
            hidden = self.cell(ox.cat([self.embed_tgt(token), context], 1), hidden)
            logits = self.out(hidden)
            _, topi = logits.topk(1)
            token = topi.squeeze(-1).detach()
            outputs.append(logits)
            attentions.append(weights)
        return F.log_softmax(ox.stack(outputs, 1), dim=-1), ox.stack(attentions, dim=1)


class CRF(nn.Module):
    """Lafferty et al., "Conditional Random Fields", 2001: the score of all paths, and the best one by Viterbi."""

    def __init__(self, tags: int = 4) -> None:
        super().__init__()
        self.emit, self.transitions = nn.Conv1d(6, tags, 3, padding=1), nn.Parameter(ox.randn(tags, tags))
        self.start, self.end = nn.Parameter(ox.randn(tags)), nn.Parameter(ox.randn(tags))

    def forward(self, x: Any) -> Any:
        emissions = self.emit(x.transpose(1, 2)).permute(2, 0, 1)

        def forward_step(score: Any, emission: Any) -> Any:
            score = ox.logsumexp(score.unsqueeze(2) + self.transitions + emission.unsqueeze(1), dim=1)
            return score, score

        def viterbi_step(score: Any, emission: Any) -> Any:
            best, back = (score.unsqueeze(2) + self.transitions).max(dim=1)
            return best + emission, back

        def follow(tag: Any, back: Any) -> Any:
            previous = back.gather(1, tag.unsqueeze(1)).squeeze(1)
            return previous, previous

        first = self.start + emissions[0]
        total, _ = ox.scan(forward_step, first, emissions[1:])
        best, backs = ox.scan(viterbi_step, first, emissions[1:])
        last = (best + self.end).argmax(1)
        _, path = ox.scan(follow, last, backs.flip(0))
        tags = ox.cat([path.flip(0), last.unsqueeze(0)], 0).transpose(0, 1)
        return ox.logsumexp(total + self.end, dim=1), tags


class CTCRecognizer(nn.Module):
    """Graves et al., "Connectionist Temporal Classification", 2006: the likelihood of a text, beside the greedy one."""

    def __init__(self) -> None:
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 1)), nn.BatchNorm2d(8))
        self.rnn, self.fc = nn.LSTM(8 * 4, 8, bidirectional=True), nn.Linear(16, 10)
        self.loss = nn.CTCLoss(blank=0, reduction="none", zero_infinity=True)

    def forward(self, images: Any, targets: Any) -> Any:
        x = self.cnn(images)
        b, c, h, w = x.size()
        x = x.view(b, c * h, w).permute(2, 0, 1)
        log_probs = F.log_softmax(self.fc(self.rnn(x)[0]), dim=2)
        input_lengths = ox.full((b,), w, dtype=ox.long)
        target_lengths = (targets > 0).sum(1)
        return self.loss(log_probs, targets, input_lengths, target_lengths), log_probs.argmax(2).transpose(0, 1)


class Chomp1d(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Any) -> Any:
        return x[:, :, : -self.size].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, n_in: int, n_out: int, dilation: int, kernel: int = 3) -> None:
        super().__init__()
        padding = (kernel - 1) * dilation
        conv1 = nn.utils.weight_norm(nn.Conv1d(n_in, n_out, kernel, padding=padding, dilation=dilation))
        conv2 = nn.utils.parametrizations.weight_norm(
            nn.Conv1d(n_out, n_out, kernel, padding=padding, dilation=dilation)
        )
        self.net = nn.Sequential(
            conv1, Chomp1d(padding), nn.ReLU(), nn.Dropout(0.2), conv2, Chomp1d(padding), nn.ReLU(), nn.Dropout(0.2)
        )
        self.downsample = nn.Conv1d(n_in, n_out, 1) if n_in != n_out else None

    def forward(self, x: Any) -> Any:
        out = self.net(x)
        res = x if self.downsample is None else self.downsample(x)
        return F.relu(out + res)


class TCN(nn.Module):
    """Bai et al., "An Empirical Evaluation of Generic Convolutional and Recurrent Networks", 2018."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(*[TemporalBlock(3 if i == 0 else 8, 8, 2**i) for i in range(3)])
        self.linear = nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        return self.linear(self.network(x)[:, :, -1])


class StateSpace(nn.Module):
    """Gu and Dao, "Mamba", 2023: a state that is carried from step to step, by a scan."""

    def __init__(self, d: int = 8, n: int = 4) -> None:
        super().__init__()
        self.in_proj, self.conv = nn.Linear(d, 2 * d), nn.Conv1d(d, d, 4, padding=3, groups=d)
        self.x_proj, self.dt_proj = nn.Linear(d, 2 + 2 * n), nn.Linear(2, d)
        self.A_log, self.D, self.n = (
            nn.Parameter(ox.log(ox.arange(1, n + 1).float().repeat(d, 1))),
            nn.Parameter(ox.ones(d)),
            n,
        )
        self.out_proj = nn.Linear(d, d)

    def forward(self, x: Any) -> Any:
        b, l, d = x.shape
        x, res = self.in_proj(x).chunk(2, dim=-1)
        x = F.silu(self.conv(x.transpose(1, 2))[:, :, :l].transpose(1, 2))
        delta, B, C = self.x_proj(x).split([2, self.n, self.n], dim=-1)
        delta, A = F.softplus(self.dt_proj(delta)), -ox.exp(self.A_log)
        decay = ox.exp(delta.unsqueeze(-1) * A)
        moved = delta.unsqueeze(-1) * B.unsqueeze(2) * x.unsqueeze(-1)

        def step(state: Any, now: Any) -> Any:
            a, u, c = now
            state = a * state + u
            return state, (state * c.unsqueeze(1)).sum(-1)

        _, y = ox.scan(step, ox.zeros(b, d, self.n), (decay.transpose(0, 1), moved.transpose(0, 1), C.transpose(0, 1)))
        return self.out_proj((y.transpose(0, 1) + x * self.D) * F.silu(res))


def _with_lengths(batch: int, length: int) -> tuple[Any, ...]:
    lengths = integers(length + 1, batch, low=2)
    tokens = integers(30, batch, length, low=1)
    return np.where(np.arange(length) < lengths[:, None], tokens, 0), lengths


def _lines(batch: int, width: int, letters: int) -> tuple[Any, ...]:
    targets = integers(10, batch, letters, low=1)
    targets[::2, -1] = 0
    return normal(batch, 1, 8, width), targets


SERIES: dict[str, list[Any]] = {"x": ["batch", "time", 4]}

MODELS = {
    "LSTMTagger": architecture(
        LSTMTagger, _with_lengths, {"tokens": ["batch", "length"], "lengths": ["batch"]}, batch=(8, 3), length=(9, 14)
    ),
    "GRUForecaster": architecture(
        GRUForecaster, lambda batch, time: (normal(batch, time, 4),), SERIES, batch=(8, 3), time=(9, 14)
    ),
    "Seq2Seq": architecture(
        Seq2Seq,
        lambda batch, length: (integers(20, batch, length),),
        {"src": ["batch", "length"]},
        batch=(8, 3),
        length=(9, 14),
    ),
    "CRF": architecture(
        CRF,
        lambda batch, time: (normal(batch, time, 6),),
        {"x": ["batch", "time", 6]},
        batch=(8, 3),
        time=(9, 14),
        alone=True,
    ),
    "CTC": architecture(
        CTCRecognizer,
        _lines,
        {"images": ["batch", 1, 8, "width"], "targets": ["batch", "letters"]},
        batch=(8, 3),
        width=(20, 31),
        letters=(4, 5),
    ),
    "TCN": architecture(
        TCN, lambda batch, time: (normal(batch, 3, time),), {"x": ["batch", 3, "time"]}, batch=(8, 3), time=(20, 33)
    ),
    "StateSpace": architecture(
        StateSpace,
        lambda batch, time: (normal(batch, time, 8),),
        {"x": ["batch", "time", 8]},
        batch=(8, 3),
        time=(9, 14),
        alone=True,
    ),
}
