"""MAML: inner steps with create_graph, functional_call; torch.func: per-sample gradients, Jacobians, Hessians."""

import math
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            OrderedDict(
                [
                    ("l1", nn.Linear(1, 10)),
                    ("relu1", nn.ReLU()),
                    ("l2", nn.Linear(10, 10)),
                    ("act", nn.Tanh()),
                    ("l3", nn.Linear(10, 1)),
                ]
            )
        )

    def forward(self, x):
        return self.net(x)


def forward_with(weights, x):
    x = F.relu(F.linear(x, weights[0], weights[1]))
    x = torch.tanh(F.linear(x, weights[2], weights[3]))
    return F.linear(x, weights[4], weights[5])


def main(fill, numbers):
    model = fill(Net())
    meta_opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    trace = []
    for step in range(3):
        meta_opt.zero_grad()
        meta_loss = 0.0
        for task in range(2):
            phase, amplitude = float(numbers()) * math.pi, abs(float(numbers())) + 0.5
            xs, xq = torch.from_numpy(numbers(5, 1)), torch.from_numpy(numbers(5, 1))
            ys, yq = amplitude * torch.sin(xs + phase), amplitude * torch.sin(xq + phase)
            weights = [w for w in model.parameters()]
            for _ in range(2):
                loss = F.mse_loss(forward_with(weights, xs), ys)
                grads = torch.autograd.grad(loss, weights, create_graph=True)
                weights = [w - 0.05 * g for w, g in zip(weights, grads)]
            meta_loss = meta_loss + F.mse_loss(forward_with(weights, xq), yq)
            params = dict(model.named_parameters())
            inner = F.mse_loss(functional_call(model, params, (xs,)), ys)
            grads = torch.autograd.grad(inner, tuple(params.values()), create_graph=True)
            fast = {n: p - 0.01 * g for (n, p), g in zip(params.items(), grads)}
            meta_loss = meta_loss + F.l1_loss(functional_call(model, fast, xq), yq)
        meta_loss.backward()
        meta_opt.step()
        trace.append(meta_loss.item())

    params = {k: v.detach() for k, v in model.named_parameters()}
    buffers = {k: v.detach() for k, v in model.named_buffers()}

    def compute_loss(params, buffers, sample, target):
        batch, targets = sample.unsqueeze(0), target.unsqueeze(0)
        predictions = functional_call(model, (params, buffers), (batch,))
        return F.mse_loss(predictions, targets)

    ft_compute_sample_grad = vmap(grad(compute_loss), in_dims=(None, None, 0, 0))
    per_sample = ft_compute_sample_grad(params, buffers, xs, ys)
    norms = torch.stack([g.flatten(1).norm(2, dim=1) for g in per_sample.values()], dim=1).norm(dim=1)
    clipped = {
        k: (g * (1.0 / norms).clamp(max=1.0).view(-1, *[1] * (g.dim() - 1))).sum(0) for k, g in per_sample.items()
    }
    trace += norms.tolist() + [sum(g.sum() for g in clipped.values()).item()]

    def f(x):
        return forward_with([params[n] for n in params], x.view(1, 1)).squeeze()

    x = torch.tensor(0.3)
    trace += [grad(f)(x).item(), hessian(lambda v: (v**3).sum() + v.prod())(torch.arange(1.0, 4.0)).sum().item()]
    weight, point = torch.from_numpy(numbers(3, 4)), torch.from_numpy(numbers(4))
    predict = lambda v: (weight @ v).tanh()
    j1, j2 = jacrev(predict)(point), jacfwd(predict)(point)
    assert torch.allclose(j1, j2, atol=1e-6) and torch.allclose(j1, torch.autograd.functional.jacobian(predict, point))
    _, pulled = vjp(predict, point)
    value, tangent = jvp(predict, (point,), (torch.ones(4),))
    trace += [j1.norm().item(), pulled(torch.ones(3))[0].sum().item(), tangent.sum().item()]
    models = [fill(Net()) for _ in range(3)]
    stacked, stacked_buffers = stack_module_state(models)
    out = vmap(lambda p, b, v: functional_call(models[0], (p, b), (v,)), in_dims=(0, 0, None))(
        stacked, stacked_buffers, xs
    )
    return trace + [out.shape[0], out.std().item(), vmap(torch.dot)(weight, weight).sum().item()]
