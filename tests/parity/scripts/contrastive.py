"""SimCLR, BYOL's moving target, MoCo's queue, supervised contrastive, Barlow Twins: similarities and masks."""

import torch
import torch.nn as nn
import torch.nn.functional as F


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
        sim_i_j = torch.diag(sim, self.batch_size)
        sim_j_i = torch.diag(sim, -self.batch_size)
        positive_samples = torch.cat((sim_i_j, sim_j_i), dim=0).reshape(N, 1)
        negative_samples = sim[self.mask].reshape(N, -1)
        labels = torch.zeros(N).to(positive_samples.device).long()
        logits = torch.cat((positive_samples, negative_samples), dim=1)
        return self.criterion(logits, labels) / N


def info_nce_loss(features, n_views=2, temperature=0.1):
    half = features.shape[0] // n_views
    labels = torch.cat([torch.arange(half) for i in range(n_views)], dim=0)
    labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
    features = F.normalize(features, dim=1)
    similarity_matrix = torch.matmul(features, features.T)
    mask = torch.eye(labels.shape[0], dtype=torch.bool)
    labels = labels[~mask].view(labels.shape[0], -1)
    similarity_matrix = similarity_matrix[~mask].view(similarity_matrix.shape[0], -1)
    assert similarity_matrix.shape == labels.shape
    positives = similarity_matrix[labels.bool()].view(labels.shape[0], -1)
    negatives = similarity_matrix[~labels.bool()].view(similarity_matrix.shape[0], -1)
    logits = torch.cat([positives, negatives], dim=1)
    labels = torch.zeros(logits.shape[0], dtype=torch.long)
    return logits / temperature, labels


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
    return nll.mean(), (sim_argsort == 0).float().mean(), 1 + sim_argsort.float().mean()


def supcon(features, labels, temperature=0.2):
    labels = labels.contiguous().view(-1, 1)
    mask = torch.eq(labels, labels.T).float()
    anchor_dot_contrast = torch.div(torch.matmul(features, features.T), temperature)
    logits_max, _ = torch.max(anchor_dot_contrast, dim=1, keepdim=True)
    logits = anchor_dot_contrast - logits_max.detach()
    logits_mask = torch.scatter(torch.ones_like(mask), 1, torch.arange(len(mask)).view(-1, 1), 0)
    mask = mask * logits_mask
    exp_logits = torch.exp(logits) * logits_mask
    log_prob = logits - torch.log(exp_logits.sum(1, keepdim=True))
    mask_pos_pairs = mask.sum(1)
    mask_pos_pairs = torch.where(mask_pos_pairs < 1e-6, 1, mask_pos_pairs)
    return -((mask * log_prob).sum(1) / mask_pos_pairs).mean()


def off_diagonal(x):
    n, m = x.shape
    assert n == m
    return x.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()


class MoCo(nn.Module):
    def __init__(self, make, dim=6, K=16, m=0.9, T=0.07):
        super().__init__()
        self.K, self.m, self.T = K, m, T
        self.encoder_q, self.encoder_k = make(), make()
        for param_q, param_k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            param_k.data.copy_(param_q.data)
            param_k.requires_grad = False
        self.register_buffer("queue", torch.randn(dim, K))
        self.queue = F.normalize(self.queue, dim=0)
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def _momentum_update_key_encoder(self):
        for param_q, param_k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            param_k.data = param_k.data * self.m + param_q.data * (1.0 - self.m)

    @torch.no_grad()
    def _dequeue_and_enqueue(self, keys):
        batch_size = keys.shape[0]
        ptr = int(self.queue_ptr)
        assert self.K % batch_size == 0
        self.queue[:, ptr : ptr + batch_size] = keys.T
        ptr = (ptr + batch_size) % self.K
        self.queue_ptr[0] = ptr

    def forward(self, im_q, im_k):
        q = nn.functional.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            self._momentum_update_key_encoder()
            k = nn.functional.normalize(self.encoder_k(im_k), dim=1)
        l_pos = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        l_neg = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
        logits = torch.cat([l_pos, l_neg], dim=1)
        logits /= self.T
        labels = torch.zeros(logits.shape[0], dtype=torch.long)
        self._dequeue_and_enqueue(k)
        return logits, labels


def main(fill, numbers):
    def make():
        return nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.ReLU(inplace=True), nn.Linear(12, 6, bias=False))

    x = torch.from_numpy(numbers(8, 8))
    trace = []
    model = fill(make())
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6, eta_min=0, last_epoch=-1)
    nt = NTXent(8, 0.5)
    ys = torch.tensor([0, 1, 2, 3] * 4)
    for _ in range(6):
        a, b = x + 0.1 * torch.from_numpy(numbers(8, 8)), x * torch.from_numpy(numbers(8, 8)).gt(-1)
        features = model(torch.cat([a, b], dim=0))
        z1, z2 = torch.split(features, [8, 8], dim=0)
        l1 = nt(z1, z2)
        logits, labels = info_nce_loss(features)
        l2 = F.cross_entropy(logits, labels)
        l3, acc, rank = inplace_nce(features)
        l4 = supcon(F.normalize(features, dim=-1), ys)
        n1, n2 = ((z - z.mean(0)) / z.std(0) for z in (z1, z2))
        c = n1.T @ n2
        c.div_(8)
        on_diag = torch.diagonal(c).add_(-1).pow_(2).sum()
        off_diag = off_diagonal(c).pow_(2).sum()
        loss = l1 + l2 + l3 + l4 + on_diag + 0.005 * off_diag
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        trace += [v.item() for v in (l1, l2, l3, acc, rank, l4, on_diag, off_diag)]
    moco = MoCo(make)
    fill(moco)
    for pq, pk in zip(moco.encoder_q.parameters(), moco.encoder_k.parameters()):
        pk.data.copy_(pq.data)
    moco.queue.copy_(F.normalize(torch.from_numpy(numbers(6, 16)), dim=0))
    opt = torch.optim.SGD(moco.parameters(), 0.03, momentum=0.9)
    for _ in range(4):
        logits, labels = moco(x, x.flip(1))
        loss = F.cross_entropy(logits, labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        trace += [loss.item(), int(moco.queue_ptr), moco.queue.sum().item()]
    return trace
