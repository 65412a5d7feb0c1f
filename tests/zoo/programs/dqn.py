"""Double DQN with a dueling head, prioritised replay and a target network that follows softly."""

import copy
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class ReplayMemory(object):
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DuelingDQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(n_observations, 32), nn.ReLU())
        self.value, self.advantage = nn.Linear(32, 1), nn.Linear(32, n_actions)

    def forward(self, x):
        x = self.features(x)
        a = self.advantage(x)
        return self.value(x) + a - a.mean(dim=1, keepdim=True)


random.seed(0), np.random.seed(0), torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() and False else "cpu")
policy_net = DuelingDQN(3, 3).to(device)
target_net = copy.deepcopy(policy_net)
for p in target_net.parameters():
    p.requires_grad_(False)
optimizer = optim.AdamW(policy_net.parameters(), lr=5e-3, amsgrad=True)
memory = ReplayMemory(200)
steps_done = 0


def select_action(state):
    global steps_done
    eps_threshold = 0.05 + 0.85 * np.exp(-1.0 * steps_done / 30)
    steps_done += 1
    if random.random() > eps_threshold:
        with torch.no_grad():
            return policy_net(state).max(1).indices.view(1, 1)
    return torch.tensor([[random.randrange(3)]], device=device, dtype=torch.long)


def optimize_model(batch_size=16, gamma=0.9):
    if len(memory) < batch_size:
        return None
    batch = Transition(*zip(*memory.sample(batch_size)))
    non_final_mask = torch.tensor(
        tuple(map(lambda s: s is not None, batch.next_state)), device=device, dtype=torch.bool
    )
    non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
    state_batch, action_batch, reward_batch = torch.cat(batch.state), torch.cat(batch.action), torch.cat(batch.reward)
    state_action_values = policy_net(state_batch).gather(1, action_batch)
    next_state_values = torch.zeros(batch_size, device=device)
    with torch.no_grad():
        best = policy_net(non_final_next_states).argmax(1, keepdim=True)
        next_state_values[non_final_mask] = target_net(non_final_next_states).gather(1, best).squeeze(1)
    expected = (next_state_values * gamma) + reward_batch
    loss = nn.SmoothL1Loss()(state_action_values, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    return loss.item()


for episode in range(6):
    state, losses, score = torch.tensor(np.random.randn(3), dtype=torch.float32).unsqueeze(0), [], 0.0
    for t in range(15):
        action = select_action(state)
        nxt = state * 0.8 + torch.nn.functional.one_hot(action.squeeze(1), 3) * 0.5
        reward = torch.tensor([-float((nxt - 0.5).abs().sum())], device=device)
        score += reward.item()
        memory.push(state, action, None if t == 14 else nxt, reward)
        state = nxt
        loss = optimize_model()
        losses += [loss] if loss is not None else []
        target_sd, policy_sd = target_net.state_dict(), policy_net.state_dict()
        for key in policy_sd:
            target_sd[key] = policy_sd[key] * 0.05 + target_sd[key] * 0.95
        target_net.load_state_dict(target_sd)
    print(f"episode {episode} score {score:.4f} loss {np.mean(losses) if losses else 0.0:.5f}")
model, example = policy_net, torch.randn(4, 3)
