"""Advantage actor-critic with several environments, n-step returns and an entropy bonus."""

from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

SavedAction = namedtuple("SavedAction", ["log_prob", "value", "entropy"])


class ActorCritic(nn.Module):
    def __init__(self, num_inputs, num_outputs, hidden_size):
        super().__init__()
        self.gru = nn.GRUCell(num_inputs, hidden_size)
        for name, param in self.gru.named_parameters():
            if "bias" in name:
                nn.init.constant_(param, 0)
            elif "weight" in name:
                nn.init.orthogonal_(param)
        self.actor = nn.Linear(hidden_size, num_outputs)
        self.critic = nn.Linear(hidden_size, 1)
        self.train()

    def forward(self, x, hxs, masks):
        hxs = self.gru(x, hxs * masks)
        return Categorical(logits=self.actor(hxs)), self.critic(hxs).squeeze(-1), hxs


def step_envs(state, action):
    state = 0.9 * state + 0.3 * np.eye(4)[action] - 0.05
    return state, -np.abs(state).sum(1), (state.sum(1) > 0.9)


torch.manual_seed(3)
n_envs, n_steps = 4, 5
net = ActorCritic(4, 4, 16)
optimizer = torch.optim.RMSprop(net.parameters(), lr=7e-3, eps=1e-5, alpha=0.99)
state, hxs = np.random.RandomState(0).randn(n_envs, 4), torch.zeros(n_envs, 16)
masks = torch.ones(n_envs, 1)
for update in range(6):
    saved, rewards, dones = [], [], []
    hxs = hxs.detach()
    for _ in range(n_steps):
        dist, value, hxs = net(torch.FloatTensor(state), hxs, masks)
        action = dist.sample()
        state, reward, done = step_envs(state, action.cpu().numpy())
        saved.append(SavedAction(dist.log_prob(action), value, dist.entropy()))
        masks = torch.FloatTensor([[0.0] if d else [1.0] for d in done])
        rewards.append(torch.FloatTensor(reward))
        dones.append(masks.squeeze(1))
    with torch.no_grad():
        R = net(torch.FloatTensor(state), hxs, masks)[1]
    returns = []
    for r, m in zip(reversed(rewards), reversed(dones)):
        R = r + 0.99 * R * m
        returns.insert(0, R)
    log_probs, values, entropies = (torch.stack(t) for t in zip(*saved))
    returns = torch.stack(returns)
    advantage = returns - values
    policy_loss = -(log_probs * advantage.detach()).mean()
    value_loss = F.smooth_l1_loss(values, returns)
    loss = policy_loss + 0.5 * value_loss - 0.01 * entropies.mean()
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.5)
    optimizer.step()
    print(
        f"update {update} policy {policy_loss.item():.4f} value {value_loss.item():.4f} "
        f"entropy {entropies.mean():.4f} grad {norm:.4f} actions {action.tolist()}"
    )
