"""Meta-learning of sinusoids and of few-shot classes: gradients through inner steps, functional calls, first order."""

import argparse
import math
import random
from collections import OrderedDict
from copy import deepcopy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.func import grad as grad_of
from torch.func import hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap


class MetaLinear(nn.Linear):
    def forward(self, input, params=None):
        if params is None:
            params = OrderedDict(self.named_parameters())
        bias = params.get("bias", None)
        return F.linear(input, params["weight"], bias)


class MetaBatchNorm2d(nn.BatchNorm2d):
    def forward(self, input, params=None):
        self._check_input_dim(input)
        if params is None:
            params = OrderedDict(self.named_parameters())
        if self.momentum is None:
            exponential_average_factor = 0.0
        else:
            exponential_average_factor = self.momentum
        if self.training and self.track_running_stats:
            if self.num_batches_tracked is not None:
                self.num_batches_tracked += 1
                if self.momentum is None:
                    exponential_average_factor = 1.0 / float(self.num_batches_tracked)
        weight, bias = params.get("weight", None), params.get("bias", None)
        return F.batch_norm(
            input,
            self.running_mean,
            self.running_var,
            weight,
            bias,
            self.training or not self.track_running_stats,
            exponential_average_factor,
            self.eps,
        )


class Learner(nn.Module):
    """A network described by a list, whose weights may come from outside."""

    def __init__(self, config):
        super(Learner, self).__init__()
        self.config = config
        self.vars = nn.ParameterList()
        self.vars_bn = nn.ParameterList()
        for name, param in self.config:
            if name == "conv2d":
                w = nn.Parameter(torch.ones(*param[:4]))
                torch.nn.init.kaiming_normal_(w)
                self.vars.append(w)
                self.vars.append(nn.Parameter(torch.zeros(param[0])))
            elif name == "linear":
                w = nn.Parameter(torch.ones(*param))
                torch.nn.init.kaiming_normal_(w)
                self.vars.append(w)
                self.vars.append(nn.Parameter(torch.zeros(param[0])))
            elif name == "bn":
                self.vars.append(nn.Parameter(torch.ones(param[0])))
                self.vars.append(nn.Parameter(torch.zeros(param[0])))
                running_mean = nn.Parameter(torch.zeros(param[0]), requires_grad=False)
                running_var = nn.Parameter(torch.ones(param[0]), requires_grad=False)
                self.vars_bn.extend([running_mean, running_var])
            elif name in ["relu", "tanh", "max_pool2d", "flatten"]:
                continue
            else:
                raise NotImplementedError

    def forward(self, x, vars=None, bn_training=True):
        if vars is None:
            vars = self.vars
        idx, bn_idx = 0, 0
        for name, param in self.config:
            if name == "conv2d":
                w, b = vars[idx], vars[idx + 1]
                x = F.conv2d(x, w, b, stride=param[4], padding=param[5])
                idx += 2
            elif name == "linear":
                w, b = vars[idx], vars[idx + 1]
                x = F.linear(x, w, b)
                idx += 2
            elif name == "bn":
                w, b = vars[idx], vars[idx + 1]
                running_mean, running_var = self.vars_bn[bn_idx], self.vars_bn[bn_idx + 1]
                x = F.batch_norm(x, running_mean, running_var, weight=w, bias=b, training=bn_training)
                idx += 2
                bn_idx += 2
            elif name == "flatten":
                x = x.view(x.size(0), -1)
            elif name == "relu":
                x = F.relu(x, inplace=param[0])
            elif name == "tanh":
                x = F.tanh(x)
            elif name == "max_pool2d":
                x = F.max_pool2d(x, param[0], param[1], param[2])
        assert idx == len(vars) and bn_idx == len(self.vars_bn)
        return x

    def parameters(self):
        return self.vars


class Meta(nn.Module):
    def __init__(self, args, config):
        super(Meta, self).__init__()
        self.update_lr = args.update_lr
        self.update_step = args.update_step
        self.net = Learner(config)
        self.meta_optim = optim.Adam(self.net.parameters(), lr=args.meta_lr)

    def forward(self, x_spt, y_spt, x_qry, y_qry):
        task_num = x_spt.size(0)
        losses_q = [0 for _ in range(self.update_step + 1)]
        corrects = [0 for _ in range(self.update_step + 1)]
        for i in range(task_num):
            logits = self.net(x_spt[i], vars=None, bn_training=True)
            loss = F.cross_entropy(logits, y_spt[i])
            grad = torch.autograd.grad(loss, self.net.parameters(), create_graph=True)
            fast_weights = list(map(lambda p: p[1] - self.update_lr * p[0], zip(grad, self.net.parameters())))
            with torch.no_grad():
                logits_q = self.net(x_qry[i], self.net.parameters(), bn_training=True)
                losses_q[0] += F.cross_entropy(logits_q, y_qry[i])
                corrects[0] += torch.eq(F.softmax(logits_q, dim=1).argmax(dim=1), y_qry[i]).sum().item()
            for k in range(1, self.update_step + 1):
                logits_q = self.net(x_qry[i], fast_weights, bn_training=True)
                loss_q = F.cross_entropy(logits_q, y_qry[i])
                losses_q[k] += loss_q
                with torch.no_grad():
                    corrects[k] += torch.eq(logits_q.argmax(dim=1), y_qry[i]).sum().item()
                if k < self.update_step:
                    loss = F.cross_entropy(self.net(x_spt[i], fast_weights, bn_training=True), y_spt[i])
                    grad = torch.autograd.grad(loss, fast_weights, create_graph=True)
                    fast_weights = [w - self.update_lr * g for g, w in zip(grad, fast_weights)]
        loss_q = losses_q[-1] / task_num
        self.meta_optim.zero_grad()
        loss_q.backward()
        self.meta_optim.step()
        return np.array(corrects) / (x_qry.size(1) * task_num), loss_q.item()

    def finetunning(self, x_spt, y_spt, x_qry, y_qry):
        net = deepcopy(self.net)
        loss = F.cross_entropy(net(x_spt), y_spt)
        grad = torch.autograd.grad(loss, net.parameters())
        fast_weights = list(map(lambda p: p[1] - self.update_lr * p[0], zip(grad, net.parameters())))
        with torch.no_grad():
            acc = net(x_qry, fast_weights, bn_training=True).argmax(dim=1).eq(y_qry).float().mean().item()
        del net
        return acc


def sine_task():
    amplitude, phase = np.random.uniform(0.1, 5.0), np.random.uniform(0, math.pi)
    x = torch.from_numpy(np.random.uniform(-5, 5, (16, 1))).float()
    return x, amplitude * torch.sin(x + phase)


argparser = argparse.ArgumentParser()
argparser.add_argument("--n_way", type=int, default=3)
argparser.add_argument("--k_spt", type=int, default=2)
argparser.add_argument("--meta_lr", type=float, default=1e-2)
argparser.add_argument("--update_lr", type=float, default=0.2)
argparser.add_argument("--update_step", type=int, default=2)
args = argparser.parse_args()
torch.manual_seed(222)
np.random.seed(222)
random.seed(222)
config = [
    ("conv2d", [6, 1, 3, 3, 2, 0]),
    ("relu", [True]),
    ("bn", [6]),
    ("conv2d", [6, 6, 2, 2, 1, 0]),
    ("tanh", []),
    ("max_pool2d", [2, 1, 0]),
    ("flatten", []),
    ("linear", [args.n_way, 6]),
]
maml = Meta(args, config)
tmp = filter(lambda x: x.requires_grad, maml.parameters())
print("Total trainable tensors:", sum(map(lambda x: np.prod(x.shape), tmp)), len(maml.state_dict()))
prototypes = torch.randn(args.n_way, 1, 8, 8)
for step in range(3):
    order = torch.stack([torch.randperm(args.n_way) for _ in range(3)])
    y_spt, y_qry = order.repeat(1, args.k_spt), order.repeat(1, 3)
    x_spt = prototypes[y_spt] + 0.1 * torch.randn(3, args.n_way * args.k_spt, 1, 8, 8)
    x_qry = prototypes[y_qry] + 0.1 * torch.randn(3, args.n_way * 3, 1, 8, 8)
    accs, loss = maml(x_spt, y_spt, x_qry, y_qry)
    print("step:", step, "\ttraining acc:", accs, "loss", loss)
print("test acc", maml.finetunning(x_spt[0], y_spt[0], x_qry[0], y_qry[0]), maml.net.vars_bn[0][:3].data)

regressor = nn.Sequential(
    OrderedDict(l1=MetaLinear(1, 20), relu1=nn.ReLU(), l2=MetaLinear(20, 20), relu2=nn.ReLU(), l3=MetaLinear(20, 1))
)
meta = optim.Adam(regressor.parameters(), lr=1e-2)
for step in range(4):
    outer = torch.tensor(0.0)
    for _ in range(2):
        x, y = sine_task()
        params = OrderedDict(regressor.named_parameters())
        inner = F.mse_loss(torch.func.functional_call(regressor, params, (x[:8],)), y[:8])
        grads = torch.autograd.grad(inner, params.values(), create_graph=step % 2 == 0)
        updated = OrderedDict((name, p - 0.01 * g) for (name, p), g in zip(params.items(), grads))
        outer += F.mse_loss(torch.func.functional_call(regressor, updated, (x[8:],)), y[8:])
    outer.div_(2)
    meta.zero_grad()
    outer.backward()
    meta.step()
    print("sine", step, inner.item(), outer.item(), regressor.l1.weight.grad.norm().item())
x, y = sine_task()
weights = {k: v.detach() for k, v in regressor.named_parameters()}
loss_of = lambda w, a, b: F.mse_loss(torch.func.functional_call(regressor, w, (a,)), b)
per_sample = torch.vmap(torch.func.grad(loss_of), in_dims=(None, 0, 0))(weights, x[:, None], y[:, None])
print({k: tuple(v.shape) for k, v in per_sample.items()}, per_sample["l3.weight"].norm(dim=(1, 2))[:4])
norms = torch.stack([g.flatten(1).norm(2, dim=1) for g in per_sample.values()], dim=1).norm(dim=1)
clip = (1.0 / norms).clamp(max=1.0)
print(norms, sum((g * clip.view(-1, *[1] * (g.dim() - 1))).sum() for g in per_sample.values()).item())
f = lambda v: torch.func.functional_call(regressor, weights, (v.view(1, 1),)).squeeze()
print(grad_of(f)(torch.tensor(0.3)).item(), hessian(lambda v: (v**3).sum() + v.prod())(torch.arange(1.0, 4.0)))
weight, point = torch.randn(3, 4), torch.randn(4)
predict = lambda v: (weight @ v).tanh()
j1, j2 = jacrev(predict)(point), jacfwd(predict)(point)
print(torch.allclose(j1, j2, atol=1e-6), torch.allclose(j1, torch.autograd.functional.jacobian(predict, point)))
_, pulled = vjp(predict, point)
value, tangent = jvp(predict, (point,), (torch.ones(4),))
print(j1, pulled(torch.ones(3))[0], tangent, vmap(torch.dot)(weight, weight))
ensemble = [nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1)) for _ in range(3)]
stacked, buffers = stack_module_state(ensemble)
call = lambda p, b, v: torch.func.functional_call(ensemble[0], (p, b), (v,))
out = vmap(call, in_dims=(0, 0, None))(stacked, buffers, x)
print(out.shape, F.l1_loss(out[0], y).item(), [p.grad for p in ensemble[0].parameters()])
norm = MetaBatchNorm2d(1, momentum=None)
print(
    norm(x_spt[0]).std().item(), norm(x_spt[1], OrderedDict(weight=torch.tensor([2.0]))).std().item(), norm.running_var
)
model, example = regressor, x[:5]
