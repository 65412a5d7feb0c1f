"""A neural ODE fitted to a spiral: fixed-step solvers, the adjoint as an autograd function, an augmented classifier."""

import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim


class OdeintAdjointMethod(torch.autograd.Function):
    @staticmethod
    def forward(ctx, func, y0, t, flat_params, method):
        ctx.func, ctx.method = func, method
        with torch.no_grad():
            ans = odeint(func, y0, t, method=method)
        ctx.save_for_backward(t, flat_params, ans)
        return ans

    @staticmethod
    def backward(ctx, grad_output):
        t, flat_params, ans = ctx.saved_tensors
        func, f_params = ctx.func, tuple(ctx.func.parameters())
        with torch.no_grad():
            adj_y = grad_output[-1].clone()
            adj_params = torch.zeros_like(flat_params)

            def augmented(s, state):
                y, a, _ = state
                with torch.enable_grad():
                    y = y.detach().requires_grad_(True)
                    s = s.detach()
                    f = func(s, y)
                    vjp_y, *vjp_params = torch.autograd.grad(
                        f, (y,) + f_params, -a, allow_unused=True, retain_graph=True
                    )
                vjp_y = torch.zeros_like(y) if vjp_y is None else vjp_y
                flat = torch.cat(
                    [torch.zeros_like(p).view(-1) if g is None else g.reshape(-1) for g, p in zip(vjp_params, f_params)]
                )
                return f.detach(), vjp_y, flat

            for i in range(len(t) - 1, 0, -1):
                state = (ans[i], adj_y, adj_params)
                _, adj_y, adj_params = step_rk4(augmented, t[i], t[i - 1] - t[i], state)
                adj_y += grad_output[i - 1]
        return None, adj_y, None, adj_params, None


def add(state, k, h):
    return tuple(s + h * d for s, d in zip(state, k)) if isinstance(state, tuple) else state + h * k


def step_rk4(f, t, dt, y):
    k1 = f(t, y)
    k2 = f(t + dt / 2, add(y, k1, dt / 2))
    k3 = f(t + dt / 2, add(y, k2, dt / 2))
    k4 = f(t + dt, add(y, k3, dt))
    for k, w in ((k1, 1), (k2, 2), (k3, 2), (k4, 1)):
        y = add(y, k, dt * w / 6)
    return y


def step_euler(f, t, dt, y):
    return add(y, f(t, y), dt)


SOLVERS = {"rk4": step_rk4, "euler": step_euler}


def odeint(func, y0, t, method="rk4"):
    solution = [y0]
    for t0, t1 in zip(t[:-1], t[1:]):
        solution.append(SOLVERS[method](func, t0, t1 - t0, solution[-1]))
    return torch.stack(solution)


def odeint_adjoint(func, y0, t, method="rk4"):
    flat_params = torch.cat([p.contiguous().view(-1) for p in func.parameters()])
    return OdeintAdjointMethod.apply(func, y0, t, flat_params, method)


parser = argparse.ArgumentParser("ODE demo")
parser.add_argument("--method", type=str, choices=["rk4", "euler"], default="rk4")
parser.add_argument("--data_size", type=int, default=40)
parser.add_argument("--batch_time", type=int, default=5)
parser.add_argument("--batch_size", type=int, default=6)
parser.add_argument("--niters", type=int, default=6)
parser.add_argument("--test_freq", type=int, default=3)
parser.add_argument("--gpu", type=int, default=0)
args = parser.parse_args()
device = torch.device("cuda:" + str(args.gpu) if torch.cuda.is_available() and args.gpu > 0 else "cpu")
torch.manual_seed(0)
np.random.seed(0)
true_y0 = torch.tensor([[2.0, 0.0]]).to(device)
t = torch.linspace(0.0, 4.0, args.data_size).to(device)
true_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]]).to(device)


class Lambda(nn.Module):
    def forward(self, t, y):
        return torch.mm(y**3, true_A)


with torch.no_grad():
    true_y = odeint(Lambda(), true_y0, t, method="rk4")


def get_batch():
    s = torch.from_numpy(
        np.random.choice(np.arange(args.data_size - args.batch_time, dtype=np.int64), args.batch_size, replace=False)
    )
    batch_y0 = true_y[s]
    batch_t = t[: args.batch_time]
    batch_y = torch.stack([true_y[s + i] for i in range(args.batch_time)], dim=0)
    return batch_y0.to(device), batch_t.to(device), batch_y.to(device)


class ODEFunc(nn.Module):
    def __init__(self):
        super(ODEFunc, self).__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)
        self.nfe = 0

    def forward(self, t, y):
        self.nfe += 1
        return self.net(y**3)


class RunningAverageMeter(object):
    def __init__(self, momentum=0.99):
        self.momentum = momentum
        self.reset()

    def reset(self):
        self.val = None
        self.avg = 0

    def update(self, val):
        self.avg = val if self.val is None else self.avg * self.momentum + val * (1 - self.momentum)
        self.val = val


func = ODEFunc().to(device)
optimizer = optim.RMSprop(func.parameters(), lr=1e-2)
end = time.time()
loss_meter, time_meter = RunningAverageMeter(0.97), RunningAverageMeter(0.97)
for itr in range(1, args.niters + 1):
    optimizer.zero_grad()
    batch_y0, batch_t, batch_y = get_batch()
    solver = odeint_adjoint if itr % 2 else odeint
    pred_y = solver(func, batch_y0, batch_t).to(device)
    loss = torch.mean(torch.abs(pred_y - batch_y))
    loss.backward()
    grads = torch.cat([p.grad.flatten() for p in func.parameters()])
    optimizer.step()
    time_meter.update(time.time() - end)
    loss_meter.update(loss.item())
    print("Iter {:04d} | batch {:.6f} | grad {:.5f} | nfe {}".format(itr, loss.item(), grads.norm(), func.nfe))
    func.nfe = 0
    if itr % args.test_freq == 0:
        with torch.no_grad():
            pred_y = odeint(func, true_y0, t, method=args.method)
            loss = torch.mean(torch.abs(pred_y - true_y))
            print("Total Loss {:.6f} average {:.6f}".format(loss.item(), loss_meter.avg))
x0 = true_y[::8].clone().requires_grad_()
torch.manual_seed(3)
direct = torch.autograd.grad(odeint(func, x0, t[:3])[-1].pow(2).sum(), [x0, *func.parameters()])
adjoint = torch.autograd.grad(odeint_adjoint(func, x0, t[:3])[-1].pow(2).sum(), [x0, *func.parameters()])
print([(a.norm().item(), torch.allclose(a, b, rtol=1e-2, atol=1e-3)) for a, b in zip(direct, adjoint)])


class ODENet(nn.Module):
    """Augmented with zeros, solved inside forward with Euler's method."""

    def __init__(self, augment=2, steps=4):
        super().__init__()
        self.augment, self.steps = augment, steps
        self.f = nn.Sequential(nn.Linear(2 + augment + 1, 12), nn.Softplus(), nn.Linear(12, 2 + augment))
        self.head = nn.Linear(2 + augment, 2)

    def forward(self, x):
        h = torch.cat([x, x.new_zeros(x.shape[0], self.augment)], dim=1)
        for i in range(self.steps):
            t = torch.full_like(h[:, :1], i / self.steps)
            h = h + self.f(torch.cat([h, t], 1)) / self.steps
        return self.head(h)


model = ODENet()
points = torch.randn(40, 2)
labels = (points.norm(dim=1) > 1.1).long()
optimizer = optim.Adamax(model.parameters(), lr=0.02)
for epoch in range(5):
    loss = nn.functional.cross_entropy(model(points), labels)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    print(epoch, loss.item(), model(points).argmax(1).eq(labels).float().mean().item())
example = points[:6]
