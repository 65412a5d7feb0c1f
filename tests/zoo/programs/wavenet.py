"""WaveNet: causal dilated convolutions with gates, mu-law, conditioning, and generation with queues."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import data


def mu_law_encode(audio, quantization_channels=32):
    mu = quantization_channels - 1.0
    safe_audio_abs = torch.minimum(audio.abs(), torch.tensor(1.0))
    magnitude = torch.log1p(mu * safe_audio_abs) / math.log1p(mu)
    signal = torch.sign(audio) * magnitude
    return ((signal + 1) / 2 * mu + 0.5).long()


def mu_law_decode(output, quantization_channels=32):
    mu = quantization_channels - 1
    signal = 2 * (output.float() / mu) - 1
    magnitude = (1 / mu) * ((1 + mu) ** torch.abs(signal) - 1)
    return torch.sign(signal) * magnitude


class Conv1d(torch.nn.Conv1d):
    """Extended nn.Conv1d for incremental dilated convolutions"""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.clear_buffer()
        self._linearized_weight = None
        self.register_backward_hook(self._clear_linearized_weight)

    def incremental_forward(self, input):
        # input: (B, T, C)
        if self.training:
            raise RuntimeError("incremental_forward only supports eval mode")
        for hook in self._forward_pre_hooks.values():
            hook(self, input)
        weight = self._get_linearized_weight()
        kw = self.kernel_size[0]
        dilation = self.dilation[0]
        bsz = input.size(0)
        if kw > 1:
            input = input.data
            if self.input_buffer is None:
                self.input_buffer = input.new(bsz, kw + (kw - 1) * (dilation - 1), input.size(2))
                self.input_buffer.zero_()
            else:
                # shift buffer
                self.input_buffer[:, :-1, :] = self.input_buffer[:, 1:, :].clone()
            # append next input
            self.input_buffer[:, -1, :] = input[:, -1, :]
            input = self.input_buffer
            if dilation > 1:
                input = input[:, 0::dilation, :].contiguous()
        output = F.linear(input.view(bsz, -1), weight, self.bias)
        return output.view(bsz, 1, -1)

    def clear_buffer(self):
        self.input_buffer = None

    def _get_linearized_weight(self):
        if self._linearized_weight is None:
            kw = self.kernel_size[0]
            if self.weight.size() == (self.out_channels, self.in_channels, kw):
                weight = self.weight.transpose(1, 2).contiguous()
            else:
                weight = self.weight.transpose(2, 1).transpose(1, 0).contiguous()
            assert weight.size() == (self.out_channels, kw, self.in_channels)
            self._linearized_weight = weight.view(self.out_channels, -1)
        return self._linearized_weight

    def _clear_linearized_weight(self, *args):
        self._linearized_weight = None


def Conv1d1x1(in_channels, out_channels, bias=True):
    return nn.utils.weight_norm(
        _init(Conv1d(in_channels, out_channels, kernel_size=1, padding=0, dilation=1, bias=bias))
    )


def _init(m, std_mul=1.0):
    std = math.sqrt((std_mul * (1.0 - 0.05)) / (m.kernel_size[0] * m.in_channels))
    m.weight.data.normal_(mean=0, std=std)
    if m.bias is not None:
        m.bias.data.zero_()
    return m


class ResidualConv1dGLU(nn.Module):
    """Residual dilated conv1d + Gated linear unit"""

    def __init__(
        self,
        residual_channels,
        gate_channels,
        kernel_size,
        skip_out_channels,
        cin_channels,
        gin_channels,
        dilation=1,
        dropout=1 - 0.95,
    ):
        super().__init__()
        self.dropout = dropout
        self.padding = (kernel_size - 1) * dilation
        self.conv = nn.utils.weight_norm(
            _init(Conv1d(residual_channels, gate_channels, kernel_size, padding=self.padding, dilation=dilation))
        )
        self.conv1x1c = Conv1d1x1(cin_channels, gate_channels, bias=False)
        self.conv1x1g = Conv1d1x1(gin_channels, gate_channels, bias=False)
        gate_out_channels = gate_channels // 2
        self.conv1x1_out = Conv1d1x1(gate_out_channels, residual_channels)
        self.conv1x1_skip = Conv1d1x1(gate_out_channels, skip_out_channels)

    def forward(self, x, c=None, g=None):
        return self._forward(x, c, g, False)

    def incremental_forward(self, x, c=None, g=None):
        return self._forward(x, c, g, True)

    def clear_buffer(self):
        for c in [self.conv, self.conv1x1_out, self.conv1x1_skip, self.conv1x1c, self.conv1x1g]:
            if c is not None:
                c.clear_buffer()

    def _forward(self, x, c, g, is_incremental):
        residual = x
        x = F.dropout(x, p=self.dropout, training=self.training)
        if is_incremental:
            splitdim = -1
            x = self.conv.incremental_forward(x)
        else:
            splitdim = 1
            x = self.conv(x)
            # remove future time steps
            x = x[:, :, : residual.size(-1)]
        a, b = x.split(x.size(splitdim) // 2, dim=splitdim)
        for conv, condition in ((self.conv1x1c, c), (self.conv1x1g, g)):
            if condition is not None:
                condition = conv.incremental_forward(condition) if is_incremental else conv(condition)
                ca, cb = condition.split(condition.size(splitdim) // 2, dim=splitdim)
                a, b = a + ca, b + cb
        x = torch.tanh(a) * torch.sigmoid(b)
        s = self.conv1x1_skip.incremental_forward(x) if is_incremental else self.conv1x1_skip(x)
        x = self.conv1x1_out.incremental_forward(x) if is_incremental else self.conv1x1_out(x)
        x = (x + residual) * math.sqrt(0.5)
        return x, s


class WaveNet(nn.Module):
    def __init__(
        self,
        out_channels=32,
        layers=4,
        stacks=2,
        residual_channels=8,
        gate_channels=16,
        skip_out_channels=8,
        kernel_size=2,
        cin_channels=4,
        gin_channels=3,
        n_speakers=2,
        upsample_scales=(2, 4),
    ):
        super().__init__()
        self.out_channels = out_channels
        assert layers % stacks == 0
        layers_per_stack = layers // stacks
        self.first_conv = Conv1d1x1(out_channels, residual_channels)
        self.conv_layers = nn.ModuleList(
            [
                ResidualConv1dGLU(
                    residual_channels,
                    gate_channels,
                    kernel_size,
                    skip_out_channels,
                    cin_channels,
                    gin_channels,
                    dilation=2 ** (layer % layers_per_stack),
                )
                for layer in range(layers)
            ]
        )
        self.last_conv_layers = nn.ModuleList(
            [
                nn.ReLU(inplace=True),
                Conv1d1x1(skip_out_channels, skip_out_channels),
                nn.ReLU(inplace=True),
                Conv1d1x1(skip_out_channels, out_channels),
            ]
        )
        self.embed_speakers = nn.Embedding(n_speakers, gin_channels)
        self.embed_speakers.weight.data.normal_(0, 0.1)
        self.upsample_net = nn.ModuleList()
        for scale in upsample_scales:
            conv = nn.Conv2d(1, 1, kernel_size=(3, scale * 2 + 1), padding=(1, scale), bias=False)
            conv.weight.data.fill_(1.0 / np.prod(conv.kernel_size))
            self.upsample_net.append(nn.Upsample(scale_factor=(1, scale), mode="nearest"))
            self.upsample_net.append(nn.utils.weight_norm(conv))
        self.receptive_field = (kernel_size - 1) * stacks * sum(2**i for i in range(layers_per_stack)) + 1

    def upsample(self, c):
        c = c.unsqueeze(1)
        for f in self.upsample_net:
            c = f(c)
        return c.squeeze(1)

    def forward(self, x, c=None, g=None, softmax=False):
        B, _, T = x.size()
        if g is not None:
            g = self.embed_speakers(g.view(B, -1)).transpose(1, 2)
            assert g.dim() == 3
            g = g.expand(B, -1, T)
        if c is not None:
            c = self.upsample(c)
            assert c.size(-1) == x.size(-1)
        x = self.first_conv(x)
        skips = 0
        for f in self.conv_layers:
            x, h = f(x, c, g)
            skips += h
        skips *= math.sqrt(1.0 / len(self.conv_layers))
        x = skips
        for f in self.last_conv_layers:
            x = f(x)
        return F.softmax(x, dim=1) if softmax else x

    def incremental_forward(self, c, g, T, test_inputs=None, softmax=True, quantize=True):
        self.clear_buffer()
        B = c.size(0)
        g_btc = self.embed_speakers(g.view(B, -1)).expand(B, T, -1)
        c = self.upsample(c).transpose(1, 2).contiguous()
        outputs = []
        current_input = torch.zeros(B, 1, self.out_channels)
        current_input[:, :, self.out_channels // 2] = 1
        for t in range(T):
            if test_inputs is not None and t < test_inputs.size(1):
                current_input = test_inputs[:, t, :].unsqueeze(1)
            elif t > 0:
                current_input = outputs[-1]
            x = self.first_conv.incremental_forward(current_input)
            skips = 0
            for f in self.conv_layers:
                x, h = f.incremental_forward(x, c[:, t, :].unsqueeze(1), g_btc[:, t, :].unsqueeze(1))
                skips += h
            skips *= math.sqrt(1.0 / len(self.conv_layers))
            x = skips
            for f in self.last_conv_layers:
                try:
                    x = f.incremental_forward(x)
                except AttributeError:
                    x = f(x)
            x = F.softmax(x.view(B, -1), dim=1) if softmax else x.view(B, -1)
            if quantize:
                dist = torch.distributions.OneHotCategorical(x)
                x = dist.sample()
            outputs += [x.data.unsqueeze(1)]
        outputs = torch.cat(outputs, 1)
        self.clear_buffer()
        return outputs.transpose(1, 2).contiguous()

    def clear_buffer(self):
        self.first_conv.clear_buffer()
        for f in self.conv_layers:
            f.clear_buffer()
        for f in self.last_conv_layers:
            try:
                f.clear_buffer()
            except AttributeError:
                pass

    def make_generation_fast_(self):
        def remove_weight_norm(m):
            try:
                nn.utils.remove_weight_norm(m)
            except ValueError:  # this module didn't have weight norm
                return

        self.apply(remove_weight_norm)


class Tones(data.Dataset):
    def __init__(self, n, length):
        self.n, self.length = n, length

    def __getitem__(self, idx):
        t = torch.arange(self.length).float()
        speaker = idx % 2
        audio = 0.6 * torch.sin(2 * math.pi * t * (1 + idx % 3) / 16) + 0.2 * torch.cos(t * (1 + speaker))
        c = torch.stack(
            [audio.view(-1, 8).mean(1), audio.view(-1, 8).std(1), audio.view(-1, 8).amax(1), audio.view(-1, 8).amin(1)]
        )
        return F.pad(mu_law_encode(audio), (1, 0), value=16), c, torch.tensor([speaker])

    def __len__(self):
        return self.n


class ExponentialMovingAverage(object):
    def __init__(self, decay):
        self.decay = decay
        self.shadow = {}

    def register(self, name, val):
        self.shadow[name] = val.clone()

    def update(self, name, x):
        assert name in self.shadow
        update_delta = self.shadow[name] - x
        self.shadow[name] -= (1.0 - self.decay) * update_delta


def sequence_mask(sequence_length, max_len=None):
    if max_len is None:
        max_len = sequence_length.data.max()
    batch_size = sequence_length.size(0)
    seq_range = torch.arange(0, max_len).long()
    seq_range_expand = seq_range.unsqueeze(0).expand(batch_size, max_len)
    seq_length_expand = sequence_length.unsqueeze(1).expand_as(seq_range_expand)
    return (seq_range_expand < seq_length_expand).float()


def noam_learning_rate_decay(init_lr, global_step, warmup_steps=4):
    step = global_step + 1.0
    return init_lr * warmup_steps**0.5 * np.minimum(step * warmup_steps**-1.5, step**-0.5)


class MaskedCrossEntropyLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.criterion = nn.CrossEntropyLoss(reduction="none")

    def forward(self, input, target, lengths):
        mask = sequence_mask(lengths, target.size(1))
        losses = self.criterion(input, target)
        return ((losses * mask).sum()) / mask.sum()


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = WaveNet().to(device)
print("receptive field", model.receptive_field, sum(p.numel() for p in model.parameters()))
ema = ExponentialMovingAverage(0.9)
for name, param in model.named_parameters():
    if param.requires_grad:
        ema.register(name, param.data)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, eps=1e-8, amsgrad=True)
loader = data.DataLoader(Tones(12, 32), batch_size=4, shuffle=True, drop_last=True)
criterion = MaskedCrossEntropyLoss()
global_step = 0
for epoch in range(2):
    for x, c, g in loader:
        current_lr = noam_learning_rate_decay(1e-2, global_step)
        for param_group in optimizer.param_groups:
            param_group["lr"] = current_lr
        x, y = x[:, :-1], x[:, 1:]
        inputs = F.one_hot(x, 32).transpose(1, 2).float()
        y_hat = model(inputs, c, g)
        loss = criterion(y_hat, y, torch.tensor([32, 24, 30, 16]))
        optimizer.zero_grad()
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        for name, param in model.named_parameters():
            if name in ema.shadow:
                ema.update(name, param.data)
        global_step += 1
        print("step {} lr {:.5f} loss {:.4f} {}".format(global_step, current_lr, loss.item(), grad_norm))

averaged = WaveNet().to(device)
state = averaged.state_dict()
for name in ema.shadow:
    state[name].copy_(ema.shadow[name])
model.eval()
with torch.no_grad():
    x, c, g = next(iter(data.DataLoader(Tones(2, 32), batch_size=2)))
    inputs = F.one_hot(x[:, :-1], 32).transpose(1, 2).float()
    offline = model(inputs, c, g, softmax=False)
    online = model.incremental_forward(c, g, 32, inputs.transpose(1, 2).contiguous(), softmax=False, quantize=False)
    print("online is offline", torch.allclose(offline, online, atol=1e-4), online.std().item())
    print("averaged", averaged.eval()(inputs, c, g).std().item())
    model.make_generation_fast_()
    generated = model.incremental_forward(c[:, :, :2], g, 16).max(1)[1]
    print(generated.tolist(), mu_law_decode(generated)[0, :4].tolist())
    print([n for n, _ in model.named_parameters()][:5])
example = (inputs, c, g)
