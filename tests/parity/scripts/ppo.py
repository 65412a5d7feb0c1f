"""PPO with a Gaussian and a categorical policy from torch.distributions, generalised advantages, clipped ratios."""

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical, Normal, kl_divergence


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(4, 8)), nn.Tanh(), layer_init(nn.Linear(8, 1), std=1.0))
        self.actor_mean = nn.Sequential(layer_init(nn.Linear(4, 8)), nn.Tanh(), layer_init(nn.Linear(8, 2), std=0.01))
        self.actor_logstd = nn.Parameter(torch.zeros(1, 2))
        self.discrete = nn.Linear(4, 3)

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None, choice=None):
        action_mean = self.actor_mean(x)
        action_std = torch.exp(self.actor_logstd.expand_as(action_mean))
        probs = Normal(action_mean, action_std)
        cat = Categorical(logits=self.discrete(x))
        if action is None:
            action = probs.sample()
            choice = cat.sample()
        return (
            action,
            choice,
            probs.log_prob(action).sum(1) + cat.log_prob(choice),
            probs.entropy().sum(1) + cat.entropy(),
            self.critic(x),
        )


def main(fill, numbers):
    agent = fill(Agent())
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-2, eps=1e-5)
    steps, envs, trace = 6, 2, []
    obs = torch.zeros((steps, envs) + (4,))
    actions, choices = torch.zeros((steps, envs, 2)), torch.zeros((steps, envs), dtype=torch.long)
    logprobs, rewards = torch.zeros((steps, envs)), torch.zeros((steps, envs))
    dones, values = torch.zeros((steps, envs)), torch.zeros((steps, envs))
    for update in range(1, 3):
        frac = 1.0 - (update - 1.0) / 3
        optimizer.param_groups[0]["lr"] = frac * 3e-2
        next_obs, next_done = torch.Tensor(numbers(envs, 4).astype(np.float64)), torch.zeros(envs)
        for step in range(steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, choice, _, _, value = agent.get_action_and_value(next_obs)
                assert action.shape == (envs, 2) and choice.shape == (envs,)
                action = torch.from_numpy(numbers(envs, 2))
                choice = torch.from_numpy((abs(numbers(envs)) * 5).astype(np.int64) % 3)
                _, _, logprob, _, _ = agent.get_action_and_value(next_obs, action, choice)
                values[step] = value.flatten()
            actions[step], choices[step], logprobs[step] = action, choice, logprob
            reward = -abs(action.cpu().numpy()).sum(1)
            rewards[step] = torch.tensor(reward).view(-1)
            next_obs, next_done = torch.Tensor(numbers(envs, 4)), torch.Tensor([float(step == 3), 0])
        with torch.no_grad():
            next_value = agent.get_value(next_obs).reshape(1, -1)
            advantages = torch.zeros_like(rewards)
            lastgaelam = 0
            for t in reversed(range(steps)):
                nextnonterminal = 1.0 - (next_done if t == steps - 1 else dones[t + 1])
                nextvalues = next_value if t == steps - 1 else values[t + 1]
                delta = rewards[t] + 0.99 * nextvalues * nextnonterminal - values[t]
                advantages[t] = lastgaelam = delta + 0.99 * 0.95 * nextnonterminal * lastgaelam
            returns = advantages + values
        b_obs, b_logprobs = obs.reshape((-1, 4)), logprobs.reshape(-1)
        b_actions, b_choices = actions.reshape((-1, 2)), choices.reshape(-1)
        b_advantages, b_returns, b_values = advantages.reshape(-1), returns.reshape(-1), values.reshape(-1)
        b_inds, clipfracs = np.arange(steps * envs), []
        for epoch in range(2):
            b_inds = b_inds[::-1].copy()
            for start in range(0, steps * envs, 4):
                mb_inds = b_inds[start : start + 4]
                _, _, newlogprob, entropy, newvalue = agent.get_action_and_value(
                    b_obs[mb_inds], b_actions[mb_inds], b_choices[mb_inds]
                )
                logratio = newlogprob - b_logprobs[mb_inds]
                ratio = logratio.exp()
                with torch.no_grad():
                    approx_kl = ((ratio - 1) - logratio).mean()
                    clipfracs += [((ratio - 1.0).abs() > 0.2).float().mean().item()]
                mb_advantages = b_advantages[mb_inds]
                mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
                pg_loss1 = -mb_advantages * ratio
                pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - 0.2, 1 + 0.2)
                pg_loss = torch.max(pg_loss1, pg_loss2).mean()
                newvalue = newvalue.view(-1)
                v_clipped = b_values[mb_inds] + torch.clamp(newvalue - b_values[mb_inds], -0.2, 0.2)
                v_loss = (
                    0.5 * torch.max((newvalue - b_returns[mb_inds]) ** 2, (v_clipped - b_returns[mb_inds]) ** 2).mean()
                )
                loss = pg_loss - 0.01 * entropy.mean() + v_loss * 0.5
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                trace += [loss.item(), approx_kl.item()]
        y_pred, y_true = b_values.cpu().numpy(), b_returns.cpu().numpy()
        var_y = np.var(y_true)
        trace += [float(1 - np.var(y_true - y_pred) / var_y), float(np.mean(clipfracs))]
    old = Normal(torch.zeros(2), torch.ones(2))
    new = Normal(agent.actor_logstd.detach()[0], torch.ones(2) * 2)
    return trace + [kl_divergence(old, new).sum().item(), Categorical(torch.tensor([0.2, 0.3, 0.5])).entropy().item()]
