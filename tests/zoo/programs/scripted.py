"""A model that goes through torch.jit's doors: scripted, traced, ignored and exported methods, saved state, fx.wrap."""

from typing import Dict, Final, List, NamedTuple, Optional, Tuple, Union

import torch
import torch.fx
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


class State(NamedTuple):
    h: Tensor
    c: Tensor


def _make_divisible(v: float, divisor: int, min_value: Optional[int] = None) -> int:
    if min_value is None:
        min_value = divisor
    new_v = max(min_value, int(v + divisor / 2) // divisor * divisor)
    if new_v < 0.9 * v:
        new_v += divisor
    return new_v


@torch.jit.script
def swish_jit_fwd(x):
    return x.mul(torch.sigmoid(x))


@torch.jit.script
def swish_jit_bwd(x, grad_output):
    x_sigmoid = torch.sigmoid(x)
    return grad_output * (x_sigmoid * (1 + x * (1 - x_sigmoid)))


class SwishJitAutoFn(torch.autograd.Function):
    """Memory-efficient: the input is kept and the sigmoid computed again."""

    @staticmethod
    def symbolic(g, x):
        return g.op("Mul", x, g.op("Sigmoid", x))

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return swish_jit_fwd(x)

    @staticmethod
    def backward(ctx, grad_output):
        x = ctx.saved_tensors[0]
        return swish_jit_bwd(x, grad_output)


@torch.fx.wrap
def scale_by(x: Tensor, factor: float) -> Tensor:
    return x * factor


class LSTMCell(torch.jit.ScriptModule):
    def __init__(self, input_size, hidden_size):
        super(LSTMCell, self).__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.weight_ih = nn.Parameter(torch.randn(4 * hidden_size, input_size) * 0.3)
        self.weight_hh = nn.Parameter(torch.randn(4 * hidden_size, hidden_size) * 0.3)
        self.bias_ih = nn.Parameter(torch.zeros(4 * hidden_size))
        self.bias_hh = nn.Parameter(torch.zeros(4 * hidden_size))

    @torch.jit.script_method
    def forward(self, input: Tensor, state: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        hx, cx = state
        gates = torch.mm(input, self.weight_ih.t()) + self.bias_ih + torch.mm(hx, self.weight_hh.t()) + self.bias_hh
        ingate, forgetgate, cellgate, outgate = gates.chunk(4, 1)
        ingate, forgetgate, outgate = torch.sigmoid(ingate), torch.sigmoid(forgetgate), torch.sigmoid(outgate)
        cy = (forgetgate * cx) + (ingate * torch.tanh(cellgate))
        hy = outgate * torch.tanh(cy)
        return hy, (hy, cy)


class LSTMLayer(nn.Module):
    def __init__(self, cell, *cell_args):
        super(LSTMLayer, self).__init__()
        self.cell = cell(*cell_args)

    def forward(self, input: Tensor, state: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        inputs = input.unbind(0)
        outputs = torch.jit.annotate(List[Tensor], [])
        for i in range(len(inputs)):
            out, state = self.cell(inputs[i], state)
            outputs += [out]
        return torch.stack(outputs), state


class InvertedResidual(nn.Module):
    __constants__ = ["use_res_connect"]
    stride: Final[int]

    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: int) -> None:
        super().__init__()
        self.stride = stride
        hidden_dim = int(round(inp * expand_ratio))
        self.use_res_connect = self.stride == 1 and inp == oup
        layers: List[nn.Module] = []
        if expand_ratio != 1:
            layers.extend(
                [nn.Conv2d(inp, hidden_dim, 1, bias=False), nn.BatchNorm2d(hidden_dim), nn.ReLU6(inplace=True)]
            )
        layers.extend(
            [
                nn.Conv2d(hidden_dim, hidden_dim, 3, stride, 1, groups=hidden_dim, bias=False),
                nn.BatchNorm2d(hidden_dim),
                nn.ReLU6(inplace=True),
                nn.Conv2d(hidden_dim, oup, 1, bias=False),
                nn.BatchNorm2d(oup),
            ]
        )
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        if self.use_res_connect:
            return x + self.conv(x)
        else:
            return self.conv(x)


class Net(nn.Module):
    transform_input: torch.jit.Final[bool]

    def __init__(self, transform_input: bool = True) -> None:
        super().__init__()
        self.transform_input = transform_input
        self.features = nn.Sequential(
            InvertedResidual(3, 8, 2, 1), InvertedResidual(8, 8, 1, 2), nn.Conv2d(8, _make_divisible(10.0, 4), 1)
        )
        self.aux: Optional[nn.Module] = None
        self.head = nn.Linear(12, 3)
        self.calls: Dict[str, int] = {}

    @torch.jit.unused
    def count(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1

    @torch.jit.ignore
    def note(self, x: Tensor) -> None:
        if not torch.jit.is_tracing():
            self.count("tensor" if torch.is_tensor(x) else "other")

    @torch.jit.export
    def pooled(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(self.features(x), (1, 1)).flatten(1)

    def forward(self, x: Tensor, scale: Optional[float] = None) -> Union[Tensor, Tuple[Tensor, Tensor]]:
        torch._assert(x.dim() == 4, "expected a batch of images")
        if self.transform_input:
            x_ch0 = torch.unsqueeze(x[:, 0], 1) * (0.229 / 0.5) + (0.485 - 0.5) / 0.5
            x = torch.cat((x_ch0, x[:, 1:]), 1)
        if not torch.jit.is_scripting() and not torch.jit.is_tracing():
            self.note(x)
        x = SwishJitAutoFn.apply(self.pooled(x))
        if scale is not None:
            x = scale_by(x, scale)
        return self.head(x)


torch.manual_seed(5)
net = Net()
scripted = torch.jit.script(net)
optimizer = torch.optim.ASGD(net.parameters(), lr=0.05)
x, y = torch.randn(12, 3, 8, 8), torch.randint(0, 3, (12,))
for step in range(5):
    scripted.train()
    loss = F.cross_entropy(scripted(x, 1.5) if step % 2 else scripted(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
net.eval()
traced = torch.jit.trace(net, x[:4])
print(torch.allclose(traced(x), net(x), atol=1e-6), traced(x)[0].data)
layer = LSTMLayer(LSTMCell, 4, 5)
seq, state = torch.randn(6, 2, 4), State(torch.zeros(2, 5), torch.zeros(2, 5))
reference = nn.LSTM(4, 5)
with torch.no_grad():
    reference.weight_ih_l0.copy_(layer.cell.weight_ih)
    reference.weight_hh_l0.copy_(layer.cell.weight_hh)
    reference.bias_ih_l0.zero_()
    reference.bias_hh_l0.zero_()
out, (h, c) = layer(seq, state)
expected, _ = reference(seq, (state.h[None], state.c[None]))
print("lstm", (out - expected).abs().max().item() < 1e-5, out.sum().item(), h.norm().item())
loops = torch.jit.script(lambda n: n) if False else None
print(loops, torch.jit.is_scripting(), [torch.jit.fork(torch.add, x[0, 0, 0], 1).sum().item() if False else 0])
out.sum().backward()
print({n: p.grad.norm().item() for n, p in layer.named_parameters()})
compiled = torch.compile(net) if False else net
print(compiled(x[:2]).argmax(1).tolist(), sorted(dict(net.named_buffers()))[:2])
model, example = net, x[:3]
