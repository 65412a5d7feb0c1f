"""Soft actor-critic: a squashed Gaussian by reparametrisation, two critics and a learnt temperature."""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal, TanhTransform, TransformedDistribution

LOG_SIG_MIN, LOG_SIG_MAX = -5, 2


def weights_init_(m):
    if isinstance(m, nn.Linear):
        torch.nn.init.xavier_uniform_(m.weight, gain=1)
        torch.nn.init.constant_(m.bias, 0)


class QNetwork(nn.Module):
    def __init__(self, obs, act):
        super().__init__()
        self.q1 = nn.Sequential(nn.Linear(obs + act, 32), nn.ReLU(), nn.Linear(32, 1))
        self.q2 = nn.Sequential(nn.Linear(obs + act, 32), nn.ReLU(), nn.Linear(32, 1))
        self.apply(weights_init_)

    def forward(self, state, action):
        xu = torch.cat([state, action], 1)
        return self.q1(xu), self.q2(xu)


class GaussianPolicy(nn.Module):
    def __init__(self, obs, act, low=-2.0, high=2.0):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs, 32), nn.ReLU())
        self.mean_linear, self.log_std_linear = nn.Linear(32, act), nn.Linear(32, act)
        self.register_buffer("action_scale", torch.FloatTensor([(high - low) / 2.0]))
        self.register_buffer("action_bias", torch.FloatTensor([(high + low) / 2.0]))
        self.apply(weights_init_)

    def forward(self, state):
        x = self.trunk(state)
        return self.mean_linear(x), torch.clamp(self.log_std_linear(x), min=LOG_SIG_MIN, max=LOG_SIG_MAX)

    def sample(self, state):
        mean, log_std = self.forward(state)
        x_t = (normal := Normal(mean, log_std.exp())).rsample()
        y_t = torch.tanh(x_t)
        log_prob = normal.log_prob(x_t) - torch.log(self.action_scale * (1 - y_t.pow(2)) + 1e-6)
        return y_t * self.action_scale + self.action_bias, log_prob.sum(1, keepdim=True), torch.tanh(mean)


torch.manual_seed(0)
rng = np.random.default_rng(0)
replay = [torch.as_tensor(rng.normal(size=s), dtype=torch.float32) for s in [(128, 3), (128, 2), (128, 1), (128, 3)]]
policy, critic = GaussianPolicy(3, 2), QNetwork(3, 2)
critic_target = copy.deepcopy(critic)
log_alpha = torch.zeros(1, requires_grad=True)
policy_optim = torch.optim.Adam(policy.parameters(), lr=3e-3)
critic_optim = torch.optim.Adam(critic.parameters(), lr=3e-3)
alpha_optim = torch.optim.Adam([log_alpha], lr=3e-3)
for update in range(6):
    idx = torch.from_numpy(rng.integers(0, 128, size=32))
    state, action, reward, next_state = (t[idx] for t in replay)
    alpha = log_alpha.exp().detach()
    with torch.no_grad():
        next_action, next_log_pi, _ = policy.sample(next_state)
        q1_next, q2_next = critic_target(next_state, next_action)
        next_q = reward + 0.99 * (torch.min(q1_next, q2_next) - alpha * next_log_pi)
    qf1, qf2 = critic(state, action)
    qf_loss = F.mse_loss(qf1, next_q) + F.mse_loss(qf2, next_q)
    critic_optim.zero_grad()
    qf_loss.backward()
    critic_optim.step()
    pi, log_pi, _ = policy.sample(state)
    policy_loss = ((alpha * log_pi) - torch.min(*critic(state, pi))).mean()
    policy_optim.zero_grad()
    policy_loss.backward()
    policy_optim.step()
    alpha_loss = -(log_alpha * (log_pi + -2.0).detach()).mean()
    alpha_optim.zero_grad()
    alpha_loss.backward()
    alpha_optim.step()
    for target_param, param in zip(critic_target.parameters(), critic.parameters()):
        target_param.data.copy_(target_param.data * 0.95 + param.data * 0.05)
    print("update", update, qf_loss.item(), policy_loss.item(), alpha_loss.item(), log_alpha.exp().item())
squashed = TransformedDistribution(Normal(torch.zeros(2), torch.ones(2)), [TanhTransform(cache_size=1)])
z = squashed.rsample((3,))
print(z.tolist(), squashed.log_prob(z).sum(-1).tolist())
model, example = policy, replay[0][:4]
