"""Speech recognition on tones: log-mel features, masking, a convolutional GRU, CTC, greedy decoding."""

import math
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.data as data
from torch import optim


class TextTransform:
    def __init__(self, chars="_'abcd"):
        self.char_map = {c: i for i, c in enumerate(chars)}
        self.index_map = {i: c for c, i in self.char_map.items()}

    def text_to_int(self, text):
        return [self.char_map[c] for c in text]

    def int_to_text(self, labels):
        return "".join(self.index_map[i] for i in labels)


def mel_filters(n_freqs, n_mels, sample_rate):
    to_mel, from_mel = lambda f: 2595.0 * math.log10(1.0 + f / 700.0), lambda m: 700.0 * (10.0 ** (m / 2595.0) - 1.0)
    all_freqs = torch.linspace(0, sample_rate // 2, n_freqs)
    m_pts = torch.linspace(to_mel(0.0), to_mel(sample_rate / 2), n_mels + 2)
    f_pts = from_mel(m_pts)
    f_diff = f_pts[1:] - f_pts[:-1]
    slopes = f_pts.unsqueeze(0) - all_freqs.unsqueeze(1)
    down_slopes = (-1.0 * slopes[:, :-2]) / f_diff[:-1]
    up_slopes = slopes[:, 2:] / f_diff[1:]
    return torch.max(torch.zeros(1), torch.min(down_slopes, up_slopes))


class LogMel(nn.Module):
    def __init__(self, sample_rate=2000, n_fft=64, hop=32, n_mels=12):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft), persistent=False)
        self.register_buffer("fb", mel_filters(n_fft // 2 + 1, n_mels, sample_rate))

    def forward(self, waveform):
        frames = F.pad(waveform.unsqueeze(1), (self.n_fft // 2,) * 2, mode="reflect").squeeze(1)
        frames = frames.unfold(-1, self.n_fft, self.hop) * self.window
        k = torch.arange(self.n_fft // 2 + 1).outer(torch.arange(self.n_fft)) * (2 * math.pi / self.n_fft)
        power = (frames @ k.cos().T).pow(2) + (frames @ k.sin().T).pow(2)
        return (power @ self.fb).clamp(min=1e-8).log().transpose(1, 2)


class Masking(nn.Module):
    """Stripes of frequency and of time set to zero, as SpecAugment does."""

    def __init__(self, freq, time):
        super().__init__()
        self.freq, self.time = freq, time

    def forward(self, spec):
        if not self.training:
            return spec
        spec = spec.clone()
        f, t = random.randint(0, self.freq), random.randint(0, self.time)
        f0 = random.randint(0, spec.size(1) - f)
        t0 = random.randint(0, spec.size(2) - t)
        spec[:, f0 : f0 + f] = 0
        spec[:, :, t0 : t0 + t] = 0.0
        return spec


class CNNLayerNorm(nn.Module):
    def __init__(self, n_feats):
        super(CNNLayerNorm, self).__init__()
        self.layer_norm = nn.LayerNorm(n_feats)

    def forward(self, x):
        x = x.transpose(2, 3).contiguous()
        x = self.layer_norm(x)
        return x.transpose(2, 3).contiguous()


class ResidualCNN(nn.Module):
    def __init__(self, channels, kernel, dropout, n_feats):
        super(ResidualCNN, self).__init__()
        self.cnn1 = nn.Conv2d(channels, channels, kernel, 1, padding=kernel // 2)
        self.cnn2 = nn.Conv2d(channels, channels, kernel, 1, padding="same")
        self.dropout1 = nn.Dropout(dropout)
        self.layer_norm1 = CNNLayerNorm(n_feats)
        self.layer_norm2 = CNNLayerNorm(n_feats)

    def forward(self, x):
        residual = x
        x = self.dropout1(self.cnn1(F.gelu(self.layer_norm1(x))))
        x = self.cnn2(F.gelu(self.layer_norm2(x)))
        x += residual
        return x


class BidirectionalGRU(nn.Module):
    def __init__(self, rnn_dim, hidden_size, batch_first):
        super(BidirectionalGRU, self).__init__()
        self.BiGRU = nn.GRU(rnn_dim, hidden_size, num_layers=1, batch_first=batch_first, bidirectional=True)
        self.layer_norm = nn.LayerNorm(rnn_dim)

    def forward(self, x):
        x, _ = self.BiGRU(F.gelu(self.layer_norm(x)))
        return x


class SpeechRecognitionModel(nn.Module):
    def __init__(self, n_class, n_feats=12, rnn_dim=16, stride=2, dropout=0.0):
        super(SpeechRecognitionModel, self).__init__()
        n_feats = n_feats // 2
        self.cnn = nn.Conv2d(1, 4, 3, stride=stride, padding=3 // 2)
        self.rescnn_layers = nn.Sequential(*[ResidualCNN(4, 3, dropout, n_feats) for _ in range(2)])
        self.fully_connected = nn.Linear(n_feats * 4, rnn_dim)
        self.birnn_layers = nn.Sequential(
            *[BidirectionalGRU(rnn_dim if i == 0 else rnn_dim, rnn_dim // 2, batch_first=i == 0) for i in range(1)]
        )
        self.classifier = nn.Sequential(nn.Linear(rnn_dim, rnn_dim), nn.GELU(), nn.Linear(rnn_dim, n_class))

    def forward(self, x):
        x = self.cnn(x)
        x = self.rescnn_layers(x)
        sizes = x.size()
        x = x.view(sizes[0], sizes[1] * sizes[2], sizes[3])
        x = x.transpose(1, 2)
        x = self.fully_connected(x)
        x = self.birnn_layers(x)
        return self.classifier(x)


text_transform = TextTransform()


class Tones(data.Dataset):
    def __init__(self, n):
        self.utterances = ["".join(random.choice("abcd") for _ in range(random.randint(2, 4))) for _ in range(n)]

    def __len__(self):
        return len(self.utterances)

    def __getitem__(self, i):
        t = torch.arange(256) / 2000
        tone = [torch.sin(2 * math.pi * 150 * (1 + text_transform.char_map[c]) * t) for c in self.utterances[i]]
        return torch.cat(tone), self.utterances[i]


def data_processing(batch, features, augment):
    spectrograms, labels, input_lengths, label_lengths = [], [], [], []
    for waveform, utterance in batch:
        spec = augment(features(waveform[None])).squeeze(0).transpose(0, 1)
        spectrograms.append(spec)
        label = torch.Tensor(text_transform.text_to_int(utterance))
        labels.append(label)
        input_lengths.append(spec.shape[0] // 2)
        label_lengths.append(len(label))
    spectrograms = nn.utils.rnn.pad_sequence(spectrograms, batch_first=True).unsqueeze(1).transpose(2, 3)
    labels = nn.utils.rnn.pad_sequence(labels, batch_first=True)
    return spectrograms, labels, input_lengths, label_lengths


def greedy_decoder(output, labels, label_lengths, blank_label=0, collapse_repeated=True):
    arg_maxes = torch.argmax(output, dim=2)
    decodes, targets = [], []
    for i, args in enumerate(arg_maxes):
        decode = []
        targets.append(text_transform.int_to_text(labels[i][: label_lengths[i]].tolist()))
        for j, index in enumerate(args):
            if index != blank_label:
                if collapse_repeated and j != 0 and index == args[j - 1]:
                    continue
                decode.append(index.item())
        decodes.append(text_transform.int_to_text(decode))
    return decodes, targets


def levenshtein(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]


if __name__ == "__main__":
    torch.manual_seed(7)
    random.seed(7)
    use_cuda = torch.cuda.is_available() and "GPU" in os.environ
    device = torch.device("cuda" if use_cuda else "cpu")
    kwargs = {"num_workers": 1, "pin_memory": True} if use_cuda else {}
    features, augment = LogMel(), Masking(3, 5)
    loader = data.DataLoader(
        dataset=Tones(12),
        batch_size=4,
        shuffle=True,
        collate_fn=lambda x: data_processing(x, features, augment),
        **kwargs,
    )
    model = SpeechRecognitionModel(6).to(device)
    print("Num Model Parameters", sum([param.nelement() for param in model.parameters()]), list(features.state_dict()))
    optimizer = optim.AdamW(model.parameters(), 5e-3)
    criterion = nn.CTCLoss(blank=0, zero_infinity=True).to(device)
    scheduler = optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=2e-2, steps_per_epoch=int(len(loader)), epochs=3, anneal_strategy="linear"
    )
    for epoch in range(3):
        for batch_idx, (spectrograms, labels, input_lengths, label_lengths) in enumerate(loader):
            model.train()
            spectrograms, labels = spectrograms.to(device), labels.to(device)
            optimizer.zero_grad()
            output = model(spectrograms)
            output = F.log_softmax(output, dim=2)
            output = output.transpose(0, 1)
            loss = criterion(output, labels, input_lengths, label_lengths)
            loss.backward()
            optimizer.step()
            scheduler.step()
            print(
                "Train Epoch: {} [{}/{}]\tLoss: {:.4f} lr {:.5f} {}".format(
                    epoch, batch_idx, len(loader), loss.item(), scheduler.get_last_lr()[0], tuple(spectrograms.shape)
                )
            )
    model.eval(), augment.eval()
    with torch.no_grad():
        decoded, targets = greedy_decoder(output.transpose(0, 1), labels, label_lengths)
        print(targets, sum(levenshtein(a, b) for a, b in zip(decoded, targets)))
        loss = F.ctc_loss(
            output, labels.long(), torch.tensor(input_lengths), torch.tensor(label_lengths), reduction="none"
        )
        print(loss)
    example = spectrograms[:2]
