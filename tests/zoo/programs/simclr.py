"""Two views of an image and NT-Xent, then BYOL's predictor and moving target on the same data, with LARS."""

import copy
import math
from functools import wraps

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Optimizer


class LARS(Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, eta=0.01):
        if lr < 0.0:
            raise ValueError("Invalid learning rate: {}".format(lr))
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, eta=eta))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                dp = p.grad
                if dp is None:
                    continue
                if p.ndim > 1:
                    dp = dp.add(p, alpha=g["weight_decay"])
                    param_norm = torch.norm(p)
                    update_norm = torch.norm(dp)
                    one = torch.ones_like(param_norm)
                    q = torch.where(
                        param_norm > 0.0, torch.where(update_norm > 0, (g["eta"] * param_norm / update_norm), one), one
                    )
                    dp = dp.mul(q)
                param_state = self.state[p]
                if "mu" not in param_state:
                    param_state["mu"] = torch.zeros_like(p)
                mu = param_state["mu"]
                mu.mul_(g["momentum"]).add_(dp)
                p.add_(mu, alpha=-g["lr"])


def nt_xent(features, temperature=0.5, n_views=2):
    n = features.shape[0] // n_views
    labels = torch.cat([torch.arange(n) for i in range(n_views)], dim=0)
    labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
    features = F.normalize(features, dim=1)
    similarity_matrix = torch.matmul(features, features.T)
    mask = torch.eye(labels.shape[0], dtype=torch.bool)
    labels = labels[~mask].view(labels.shape[0], -1)
    similarity_matrix = similarity_matrix[~mask].view(similarity_matrix.shape[0], -1)
    positives = similarity_matrix[labels.bool()].view(labels.shape[0], -1)
    negatives = similarity_matrix[~labels.bool()].view(similarity_matrix.shape[0], -1)
    logits = torch.cat([positives, negatives], dim=1)
    labels = torch.zeros(logits.shape[0], dtype=torch.long)
    return logits / temperature, labels


def supcon(features, labels, temperature=0.07):
    """The supervised contrastive loss over (bsz, n_views, dim)."""
    labels = labels.contiguous().view(-1, 1)
    mask = torch.eq(labels, labels.T).float()
    contrast_count = features.shape[1]
    contrast_feature = torch.cat(torch.unbind(features, dim=1), dim=0)
    anchor_dot_contrast = torch.div(torch.matmul(contrast_feature, contrast_feature.T), temperature)
    logits_max, _ = torch.max(anchor_dot_contrast, dim=1, keepdim=True)
    logits = anchor_dot_contrast - logits_max.detach()
    mask = mask.repeat(contrast_count, contrast_count)
    logits_mask = torch.scatter(
        torch.ones_like(mask), 1, torch.arange(features.shape[0] * contrast_count).view(-1, 1), 0
    )
    mask = mask * logits_mask
    exp_logits = torch.exp(logits) * logits_mask
    log_prob = logits - torch.log(exp_logits.sum(1, keepdim=True))
    mean_log_prob_pos = (mask * log_prob).sum(1) / mask.sum(1)
    return -mean_log_prob_pos.view(contrast_count, -1).mean()


def singleton(cache_key):
    def inner_fn(fn):
        @wraps(fn)
        def wrapper(self, *args, **kwargs):
            instance = getattr(self, cache_key)
            if instance is not None:
                return instance
            instance = fn(self, *args, **kwargs)
            setattr(self, cache_key, instance)
            return instance

        return wrapper

    return inner_fn


def set_requires_grad(model, val):
    for p in model.parameters():
        p.requires_grad = val


class EMA:
    def __init__(self, beta):
        self.beta = beta

    def update_average(self, old, new):
        if old is None:
            return new
        return old * self.beta + (1 - self.beta) * new


class NetWrapper(nn.Module):
    """Catches the output of a named layer of a network with a forward hook, and projects it."""

    def __init__(self, net, projection_size, hidden, layer=-2):
        super().__init__()
        self.net = net
        self.layer = layer
        self.projector = None
        self.projection_size, self.hidden_size = projection_size, hidden
        self.hidden = {}
        self.hook_registered = False

    def _find_layer(self):
        if type(self.layer) is str:
            return dict([*self.net.named_modules()]).get(self.layer, None)
        return [*self.net.children()][self.layer]

    def _hook(self, _, input, output):
        self.hidden[input[0].device] = output.reshape(output.shape[0], -1)

    def _register_hook(self):
        layer = self._find_layer()
        assert layer is not None, f"hidden layer ({self.layer}) not found"
        layer.register_forward_hook(self._hook)
        self.hook_registered = True

    @singleton("projector")
    def _get_projector(self, hidden):
        _, dim = hidden.shape
        projector = nn.Sequential(
            nn.Linear(dim, self.hidden_size),
            nn.BatchNorm1d(self.hidden_size),
            nn.ReLU(inplace=True),
            nn.Linear(self.hidden_size, self.projection_size),
        )
        return projector.to(hidden)

    def forward(self, x, return_projection=True):
        if not self.hook_registered:
            self._register_hook()
        self.hidden.clear()
        _ = self.net(x)
        hidden = self.hidden[x.device]
        self.hidden.clear()
        if not return_projection:
            return hidden
        return self._get_projector(hidden)(hidden)


def loss_fn(x, y):
    x = F.normalize(x, dim=-1, p=2)
    y = F.normalize(y, dim=-1, p=2)
    return 2 - 2 * (x * y).sum(dim=-1)


class BYOL(nn.Module):
    def __init__(self, net, projection_size=8, hidden=16, moving_average_decay=0.9):
        super().__init__()
        self.net = net
        self.online_encoder = NetWrapper(net, projection_size, hidden, layer="pool")
        self.target_encoder = None
        self.target_ema_updater = EMA(moving_average_decay)
        self.online_predictor = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
        self.forward(torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8))

    @singleton("target_encoder")
    def _get_target_encoder(self):
        target_encoder = copy.deepcopy(self.online_encoder)
        set_requires_grad(target_encoder, False)
        return target_encoder

    def update_moving_average(self):
        for current, moving in zip(self.online_encoder.parameters(), self.target_encoder.parameters()):
            moving.data = self.target_ema_updater.update_average(moving.data, current.data)

    def forward(self, one, two):
        assert not (self.training and one.shape[0] == 1), "you must have greater than 1 sample when training"
        images = torch.cat((one, two), dim=0)
        predictions = self.online_predictor(self.online_encoder(images))
        online_pred_one, online_pred_two = predictions.chunk(2, dim=0)
        with torch.no_grad():
            target_encoder = self._get_target_encoder()
            target_projections = target_encoder(images).detach()
            target_one, target_two = target_projections.chunk(2, dim=0)
        loss = loss_fn(online_pred_one, target_two.detach()) + loss_fn(online_pred_two, target_one.detach())
        return loss.mean()


class Net(nn.Module):
    def __init__(self, out=8):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ELU(), nn.Conv2d(8, 12, 3, 2, 1))
        self.pool = nn.AdaptiveMaxPool2d(1)
        self.backbone_fc = nn.Linear(12, out)

    def forward(self, x):
        return self.backbone_fc(self.pool(self.body(x).relu()).squeeze(-1).squeeze(-1))


def views(x):
    noise = torch.randn_like(x) * 0.1
    keep = torch.bernoulli(torch.full((x.shape[0], 1, 8, 8), 0.9))
    return (x + noise) * keep, x.roll(1, -1) * (0.9 + 0.2 * torch.rand(x.shape[0], 1, 1, 1))


class NTXent(nn.Module):
    def __init__(self, batch_size, temperature):
        super().__init__()
        self.batch_size, self.temperature = batch_size, temperature
        self.mask = self.mask_correlated_samples(batch_size)
        self.criterion = nn.CrossEntropyLoss(reduction="sum")
        self.similarity_f = nn.CosineSimilarity(dim=2)

    def mask_correlated_samples(self, batch_size):
        N = 2 * batch_size
        mask = torch.ones((N, N), dtype=bool)
        mask = mask.fill_diagonal_(0)
        for i in range(batch_size):
            mask[i, batch_size + i] = 0
            mask[batch_size + i, i] = 0
        return mask

    def forward(self, z_i, z_j):
        N = 2 * self.batch_size
        z = torch.cat((z_i, z_j), dim=0)
        sim = self.similarity_f(z.unsqueeze(1), z.unsqueeze(0)) / self.temperature
        sim_i_j, sim_j_i = torch.diag(sim, self.batch_size), torch.diag(sim, -self.batch_size)
        positive_samples = torch.cat((sim_i_j, sim_j_i), dim=0).reshape(N, 1)
        negative_samples = sim[self.mask].reshape(N, -1)
        labels = torch.zeros(N).to(positive_samples.device).long()
        return self.criterion(torch.cat((positive_samples, negative_samples), dim=1), labels) / N


def inplace_nce(z, temperature=0.5):
    n = z.size(0)
    cos_sim = F.cosine_similarity(z[:, None, :], z[None, :, :], dim=-1)
    self_mask = torch.eye(n, dtype=torch.bool, device=cos_sim.device)
    cos_sim.masked_fill_(self_mask, -9e15)
    pos_mask = self_mask.roll(shifts=n // 2, dims=0)
    cos_sim = cos_sim / temperature
    nll = -cos_sim[pos_mask] + torch.logsumexp(cos_sim, dim=-1)
    comb_sim = torch.cat([cos_sim[pos_mask][:, None], cos_sim.masked_fill(pos_mask, -9e15)], dim=-1)
    sim_argsort = comb_sim.argsort(dim=-1, descending=True).argmin(dim=-1)
    return nll.mean(), (sim_argsort == 0).float().mean()


def barlow_twins(one, two):
    """What correlates should be the same feature of both views, and no other."""
    n1, n2 = ((z - z.mean(0)) / z.std(0) for z in (one, two))
    c = n1.T @ n2
    c.div_(len(one))
    n, m = c.shape
    off_diagonal = c.flatten()[:-1].view(n - 1, m + 1)[:, 1:].flatten().pow(2).sum()
    return torch.diagonal(c).add(-1).pow_(2).sum() + 0.005 * off_diagonal


torch.manual_seed(21)
x, y = torch.randn(12, 3, 8, 8), torch.arange(12) % 3
net = Net()
dim_mlp = net.backbone_fc.in_features
net.backbone_fc = nn.Sequential(nn.Linear(dim_mlp, dim_mlp), nn.ReLU(), net.backbone_fc)
optimizer = LARS(net.parameters(), lr=0.5, weight_decay=1e-6)
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda e: (e + 1) / 2 if e < 2 else 0.5 * (1 + math.cos(math.pi * (e - 2) / 4))
)
criterion = torch.nn.CrossEntropyLoss()
for step in range(5):
    one, two = views(x)
    features = net(torch.cat([one, two], dim=0))
    logits, labels = nt_xent(features)
    loss = criterion(logits, labels)
    sup = supcon(F.normalize(torch.stack(features.chunk(2), dim=1), dim=-1), y)
    optimizer.zero_grad()
    (loss + 0.1 * sup).backward()
    optimizer.step()
    scheduler.step()
    print(f"simclr {step} {loss:.4f} supcon {sup:.4f} lr {scheduler.get_lr()[0]:.4f}")
optimizer = torch.optim.Adam(net.parameters(), 3e-3, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6, eta_min=0, last_epoch=-1)
for step in range(3):
    one, two = torch.split(net(torch.cat(views(x), dim=0)), [12, 12], dim=0)
    nce, accuracy = inplace_nce(torch.cat([one, two]))
    losses = [NTXent(12, 0.5)(one, two), nce, barlow_twins(one, two)]
    optimizer.zero_grad()
    sum(losses).backward()
    optimizer.step()
    scheduler.step()
    print("others", step, [each.item() for each in losses], accuracy.item(), scheduler.get_last_lr()[0])
learner = BYOL(net)
print(learner.target_encoder.net.body[0].weight.requires_grad, len(learner.online_encoder.projector))
opt = torch.optim.Adam(learner.parameters(), lr=3e-3)
for step in range(4):
    loss = learner(*views(x))
    opt.zero_grad()
    loss.backward()
    opt.step()
    learner.update_moving_average()
    print("byol", step, loss.item())
distance = sum(
    (a - b).pow(2).sum() for a, b in zip(learner.online_encoder.parameters(), learner.target_encoder.parameters())
)
print("distance", distance.item(), len(learner.state_dict()))
model, example = net, x[:3]
