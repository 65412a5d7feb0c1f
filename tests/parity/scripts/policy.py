"""Policy gradients: log-probabilities gathered, returns discounted and normalized, entropy, a custom Function."""

import torch
import torch.nn as nn


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bound):
        ctx.save_for_backward(x)
        ctx.bound = bound
        return x.clamp(-bound, bound)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() <= ctx.bound, grad, 0.1 * grad), None


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine = nn.Linear(5, 10)
        self.action, self.value = nn.Linear(10, 3), nn.Linear(10, 1)

    def forward(self, state):
        hidden = torch.tanh(self.affine(state))
        return Clip.apply(self.action(hidden), 2.0), self.value(hidden).squeeze(-1)


def main(fill, numbers):
    model = fill(Policy())
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-2)
    trace = []
    for _ in range(5):
        states = torch.tensor(numbers(9, 5))
        actions = torch.tensor(abs(numbers(9)) * 10).long() % 3
        rewards = torch.tensor(numbers(9)).tolist()
        returns, total = [], 0.0
        for reward in rewards[::-1]:
            total = reward + 0.9 * total
            returns.insert(0, total)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        logits, values = model(states)
        logp = torch.log_softmax(logits, dim=-1)
        chosen = logp.gather(1, actions.unsqueeze(1)).squeeze(1)
        advantage = returns - values.detach()
        entropy = -(logp.exp() * logp).sum(-1).mean()
        value_loss = nn.functional.smooth_l1_loss(values, returns)
        loss = -(chosen * advantage).mean() + value_loss - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trace += [loss.item(), entropy.item()]
    return trace
