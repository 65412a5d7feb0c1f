"""Sparse and constrained weights: iterative pruning with rewinding, masks in hooks, parametrisations, SWA of survivors."""

import copy
from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize
import torch.nn.utils.prune as prune
from torch.nn.utils import parametrizations, remove_weight_norm, weight_norm


class LeNet(nn.Module):
    def __init__(self):
        super(LeNet, self).__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.conv2 = nn.Conv2d(6, 8, 3)
        self.fc1 = nn.Linear(8 * 2 * 2, 20)
        self.fc2 = nn.Linear(20, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), (2, 2))
        x = F.relu(self.conv2(x))
        x = x.view(-1, int(x.nelement() / x.shape[0]))
        return self.fc2(F.relu(self.fc1(x)))


class FooBarPruningMethod(prune.BasePruningMethod):
    """Every other entry."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask.view(-1)[::2] = 0
        return mask


def foobar_unstructured(module, name):
    FooBarPruningMethod.apply(module, name)
    return module


class Symmetric(nn.Module):
    def forward(self, X):
        return X.triu() + X.triu(1).transpose(-1, -2)

    def right_inverse(self, A):
        return A.triu()


def original_initialization(mask_temp, initial_state_dict, model):
    step = 0
    for name, param in model.named_parameters():
        if "weight" in name:
            weight_dev = param.device
            param.data = torch.from_numpy(mask_temp[step] * initial_state_dict[name].cpu().numpy()).to(weight_dev)
            step = step + 1
        if "bias" in name:
            param.data = initial_state_dict[name]


def prune_by_percentile(model, mask, percent):
    step = 0
    for name, param in model.named_parameters():
        if "weight" in name:
            tensor = param.data.cpu().numpy()
            alive = tensor[np.nonzero(tensor)]
            percentile_value = np.percentile(abs(alive), percent)
            new_mask = np.where(abs(tensor) < percentile_value, 0, mask[step])
            param.data = torch.from_numpy(tensor * new_mask).to(param.device)
            mask[step] = new_mask
            step += 1


def train(model, x, y, steps=3, freeze=False):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-4)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if freeze:
            for name, p in model.named_parameters():
                if "weight" in name:
                    tensor, grad_tensor = p.data.cpu().numpy(), p.grad.data.cpu().numpy()
                    grad_tensor = np.where(tensor == 0, 0, grad_tensor)
                    p.grad.data = torch.from_numpy(grad_tensor).to(p.device)
        optimizer.step()
    return loss.item()


def sparsity(module):
    return 100.0 * float(torch.sum(module.weight == 0)) / float(module.weight.nelement())


torch.manual_seed(2)
x, y = torch.randn(16, 1, 10, 10), torch.arange(16) % 4
x[torch.arange(16), 0, y] += 2.0
model = LeNet()
initial_state_dict = copy.deepcopy(model.state_dict())
mask = [np.ones_like(p.data.cpu().numpy()) for n, p in model.named_parameters() if "weight" in n]
for ite in range(3):
    loss = train(model, x, y, freeze=True)
    prune_by_percentile(model, mask, 30)
    original_initialization(mask, initial_state_dict, model)
    print("lottery", ite, loss, [round(sparsity(m), 2) for m in model.modules() if hasattr(m, "weight")])
model = LeNet()
module = model.conv1
prune.random_unstructured(module, name="weight", amount=0.3)
prune.l1_unstructured(module, name="bias", amount=3)
print([n for n, _ in module.named_parameters()], [n for n, _ in module.named_buffers()], len(module._forward_pre_hooks))
print(module.bias.detach(), int(module.weight_mask.sum()))
prune.ln_structured(module, name="weight", amount=0.5, n=2, dim=0)
for hook in module._forward_pre_hooks.values():
    if hook._tensor_name == "weight":
        break
print(type(hook).__name__, [type(m).__name__ for m in hook], sparsity(module))
parameters_to_prune = ((model.conv2, "weight"), (model.fc1, "weight"), (model.fc2, "weight"))
prune.global_unstructured(parameters_to_prune, pruning_method=prune.L1Unstructured, amount=0.2)
foobar_unstructured(model.fc2, name="bias")
print([round(sparsity(m), 2) for m, _ in parameters_to_prune], model.fc2.bias_mask, prune.is_pruned(model))
before = sparsity(model.conv2)
print("pruned", train(model, x, y), sparsity(model.conv2) == before, model.fc1.weight_orig.grad.norm().item())
state = model.state_dict()
fresh = LeNet()
for m, name in ((module, "weight"), (module, "bias"), *parameters_to_prune, (model.fc2, "bias")):
    prune.remove(m, name)
fresh.load_state_dict(OrderedDict((k, v) for k, v in model.state_dict().items()))
print(sorted(state)[:4], len(state), torch.equal(fresh(x), model(x)), prune.is_pruned(model))
sym = nn.Linear(4, 4)
parametrize.register_parametrization(sym, "weight", Symmetric())
ortho = parametrizations.orthogonal(nn.Linear(4, 4))
spectral = parametrizations.spectral_norm(nn.Linear(4, 4), n_power_iterations=2)
weighted = weight_norm(nn.Linear(4, 4), name="weight")
newer = parametrizations.weight_norm(nn.Linear(4, 3), dim=0)
stack = nn.Sequential(sym, nn.Tanh(), ortho, nn.Tanh(), spectral, nn.Tanh(), weighted, newer)
optimizer = torch.optim.Adadelta(stack.parameters(), lr=1.0)
data, target = torch.randn(10, 4), torch.randn(10, 3)
for step in range(3):
    loss = F.mse_loss(stack(data), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    w = ortho.weight
    print(
        step, loss.item(), torch.allclose(sym.weight, sym.weight.T), (w.T @ w - torch.eye(4)).abs().max().item() < 1e-4
    )
print(
    sorted(n for n, _ in stack.named_parameters())[:5],
    parametrize.is_parametrized(sym),
    weighted.weight_g.detach().squeeze(),
)
stack.eval()
out = stack(data)
remove_weight_norm(weighted)
parametrize.remove_parametrizations(sym, "weight")
parametrize.remove_parametrizations(newer, "weight", leave_parametrized=True)
print(torch.allclose(out, stack(data), atol=1e-5), [n for n, _ in weighted.named_parameters()])
example = x[:3]
