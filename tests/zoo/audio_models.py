"""Models of sound."""

from __future__ import annotations

import math
from typing import Any

from architecture import architecture, integers, normal

import ox
import ox.nn.functional as F
from ox import nn


class WaveNet(nn.Module):
    """Van den Oord et al., "WaveNet", 2016: dilated causal convolutions, gated, with skips."""

    def __init__(self, channels: int = 8, classes: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(classes, channels)
        self.filters = nn.ModuleList([nn.Conv1d(channels, channels, 2, dilation=2**i) for i in range(4)])
        self.gates = nn.ModuleList([nn.Conv1d(channels, channels, 2, dilation=2**i) for i in range(4)])
        self.residual = nn.ModuleList([nn.Conv1d(channels, channels, 1) for _ in range(4)])
        self.skip = nn.ModuleList([nn.Conv1d(channels, 12, 1) for _ in range(4)])
        self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(12, 12, 1), nn.ReLU(), nn.Conv1d(12, classes, 1))

    def forward(self, samples: Any) -> Any:
        x = self.embed(samples).transpose(1, 2)
        skip: Any = 0
        for i in range(4):
            padded = F.pad(x, (2**i, 0))
            z = ox.tanh(self.filters[i](padded)) * ox.sigmoid(self.gates[i](padded))
            s = self.skip[i](z)
            skip = s if i == 0 else skip + s
            x = self.residual[i](z) + x
        return self.end(skip)


class KeywordSpotter(nn.Module):
    """A spectrogram on the mel scale inside the model, then convolutions of one dimension."""

    def __init__(self, n_fft: int = 64, hop: int = 16, n_mels: int = 10, rate: int = 1600) -> None:
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", ox.hann_window(n_fft))
        bins = ox.linspace(0, rate / 2, n_fft // 2 + 1)
        points = 700 * (10 ** (ox.linspace(0, 2595 * math.log10(1 + rate / 1400), n_mels + 2) / 2595) - 1)
        slopes = points.unsqueeze(0) - bins.unsqueeze(1)
        down, up = -slopes[:, :-2] / points.diff()[:-1], slopes[:, 2:] / points.diff()[1:]
        self.register_buffer("fb", ox.clamp(ox.minimum(down, up), min=0))
        self.conv, self.bn, self.fc = nn.Conv1d(n_mels, 8, 3, padding=1), nn.BatchNorm1d(8), nn.Linear(16, 6)

    def forward(self, waveform: Any) -> Any:
        spec = ox.stft(
            waveform,
            self.n_fft,
            hop_length=self.hop,
            window=self.window,
            center=True,
            pad_mode="reflect",
            return_complex=False,
        )
        power = spec.pow(2).sum(-1)
        mel = ox.log(ox.matmul(power.transpose(1, 2), self.fb) + 1e-6).transpose(1, 2)
        mel = (mel - mel.mean(dim=(1, 2), keepdim=True)) / (mel.std(dim=(1, 2), keepdim=True) + 1e-5)
        x = F.relu(self.bn(self.conv(mel)))
        return self.fc(ox.cat([x.mean(-1), x.amax(-1)], 1))


class Separator(nn.Module):
    """Luo and Mesgarani, "Conv-TasNet", 2018: learned bases in place of a spectrogram, masks for two sources."""

    def __init__(self, n: int = 8) -> None:
        super().__init__()
        self.encoder, self.decoder = (
            nn.Conv1d(1, n, 8, stride=4, bias=False),
            nn.ConvTranspose1d(n, 1, 8, stride=4, bias=False),
        )
        self.norm, self.bottleneck = nn.GroupNorm(1, n), nn.Conv1d(n, n, 1)
        self.tcn = nn.Sequential(
            nn.Conv1d(n, n, 3, padding=2, dilation=2, groups=n), nn.PReLU(), nn.Conv1d(n, 2 * n, 1)
        )

    def forward(self, mixture: Any) -> Any:
        length = mixture.shape[-1]
        rest = 4 - (length - 4) % 4
        w = F.relu(self.encoder(F.pad(mixture, (4, rest + 4)).unsqueeze(1)))
        masks = self.tcn(self.bottleneck(self.norm(w))).sigmoid()
        b, n, t = w.shape
        sources = masks.view(b, 2, n, t) * w.unsqueeze(1)
        y = self.decoder(sources.reshape(b * 2, n, t))
        return y.view(b, 2, -1)[:, :, 4 : 4 + length]


SOUND: dict[str, list[Any]] = {"waveform": ["batch", "time"]}

MODELS = {
    "WaveNet": architecture(
        WaveNet,
        lambda batch, time: (integers(16, batch, time),),
        {"samples": ["batch", "time"]},
        batch=(8, 3),
        time=(30, 47),
    ),
    "KeywordSpotter": architecture(
        KeywordSpotter, lambda batch, time: (normal(batch, time),), SOUND, batch=(8, 3), time=(320, 450), lowest=17
    ),
    "Separator": architecture(
        Separator,
        lambda batch, time: (normal(batch, time),),
        {"mixture": ["batch", "time"]},
        batch=(8, 3),
        time=(61, 90),
    ),
}
