"""Momentum contrast: a queue of negatives in a buffer, a key encoder that follows, shuffled batches."""

import argparse
import builtins
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class MoCo(nn.Module):
    def __init__(self, base_encoder, dim=8, K=32, m=0.9, T=0.07, mlp=False):
        super(MoCo, self).__init__()
        self.K = K
        self.m = m
        self.T = T
        self.encoder_q = base_encoder(num_classes=dim)
        self.encoder_k = base_encoder(num_classes=dim)
        if mlp:
            dim_mlp = self.encoder_q.fc.weight.shape[1]
            self.encoder_q.fc = nn.Sequential(nn.Linear(dim_mlp, dim_mlp), nn.ReLU(), self.encoder_q.fc)
            self.encoder_k.fc = nn.Sequential(nn.Linear(dim_mlp, dim_mlp), nn.ReLU(), self.encoder_k.fc)
        for param_q, param_k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            param_k.data.copy_(param_q.data)
            param_k.requires_grad = False
        self.register_buffer("queue", torch.randn(dim, K))
        self.queue = nn.functional.normalize(self.queue, dim=0)
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

    @torch.no_grad()
    def _batch_shuffle(self, x):
        idx_shuffle = torch.randperm(x.shape[0])
        idx_unshuffle = torch.argsort(idx_shuffle)
        return x[idx_shuffle.view(1, -1)[0]], idx_unshuffle

    def forward(self, im_q, im_k):
        q = self.encoder_q(im_q)
        q = nn.functional.normalize(q, dim=1)
        with torch.no_grad():
            self._momentum_update_key_encoder()
            im_k, idx_unshuffle = self._batch_shuffle(im_k)
            k = self.encoder_k(im_k)
            k = nn.functional.normalize(k, dim=1)
            k = k[idx_unshuffle]
        l_pos = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        l_neg = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
        logits = torch.cat([l_pos, l_neg], dim=1)
        logits /= self.T
        labels = torch.zeros(logits.shape[0], dtype=torch.long)
        self._dequeue_and_enqueue(k)
        return logits, labels


class SmallNet(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer = nn.Conv2d(8, 12, 3, stride=2, padding=1)
        self.fc = nn.Linear(12, num_classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.layer(x))
        return self.fc(x.mean([2, 3]))


class GaussianBlur(object):
    def __init__(self, sigma):
        half = torch.arange(-2, 3).float()
        kernel = torch.exp(-0.5 * (half / sigma) ** 2)
        self.kernel = (kernel / kernel.sum()).view(1, 1, 1, 5).repeat(3, 1, 1, 1)

    def __call__(self, x):
        x = F.conv2d(x[None], self.kernel, padding=(0, 2), groups=3)
        return F.conv2d(x, self.kernel.transpose(2, 3), padding=(2, 0), groups=3).squeeze(0)


class TwoCropsTransform:
    def __init__(self, base_transform):
        self.base_transform = base_transform

    def __call__(self, x):
        return [self.base_transform(x), self.base_transform(x)]


def augment(x, blur=GaussianBlur(0.8)):
    if torch.rand(1) < 0.5:
        x = x.flip(-1)
    if torch.rand(()).item() < 0.5:
        x = blur(x)
    top, left = torch.randint(0, 3, (2,)).tolist()
    x = F.pad(x, (1, 1, 1, 1), mode="reflect")[:, top : top + 8, left : left + 8]
    return x * torch.empty(3, 1, 1).uniform_(0.8, 1.2)


class Images(Dataset):
    def __init__(self, n, transform):
        self.data, self.targets = torch.randn(n, 3, 8, 8), torch.arange(n) % 4
        self.data += self.targets[:, None, None, None] * 0.5
        self.transform = transform

    def __getitem__(self, i):
        return self.transform(self.data[i]), int(self.targets[i])

    def __len__(self):
        return len(self.data)


def adjust_learning_rate(optimizer, epoch, args):
    lr = args.lr
    if args.cos:
        lr *= 0.5 * (1.0 + math.cos(math.pi * epoch / args.epochs))
    else:
        for milestone in args.schedule:
            lr *= 0.1 if epoch >= milestone else 1.0
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        maxk = max(topk)
        _, pred = output.topk(maxk, 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / target.size(0)) for k in topk]


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", default=3, type=int)
parser.add_argument("--lr", default=0.03, type=float)
parser.add_argument("--schedule", default=[120, 160], nargs="*", type=int)
parser.add_argument("--mlp", action="store_true")
parser.add_argument("--cos", action="store_true")
args = parser.parse_args(["--mlp", "--cos"])
torch.manual_seed(8)
model = MoCo(SmallNet, mlp=args.mlp)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
loader = DataLoader(Images(18, TwoCropsTransform(augment)), batch_size=8, shuffle=True, drop_last=True)
for epoch in range(args.epochs):
    adjust_learning_rate(optimizer, epoch, args)
    model.train()
    for i, (images, _) in enumerate(loader):
        output, target = model(im_q=images[0], im_k=images[1])
        loss = criterion(output, target)
        acc1, acc5 = accuracy(output, target, topk=(1, 5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        builtins.print(f"[{epoch}][{i}] {loss.item():.4f} acc {acc1[0]:.2f} {acc5[0]:.2f} ptr {int(model.queue_ptr)}")
print(model.queue[:, :4], model.encoder_k.conv1.weight.norm(), model.encoder_k.fc[0].weight.grad)

# the linear probe: the query encoder's weights under new names, everything but the last layer frozen
state_dict = model.state_dict()
for k in list(state_dict.keys()):
    if k.startswith("encoder_q") and not k.startswith("encoder_q.fc"):
        state_dict[k[len("encoder_q.") :]] = state_dict[k]
    del state_dict[k]
probe = SmallNet(num_classes=4)
msg = probe.load_state_dict(state_dict, strict=False)
assert set(msg.missing_keys) == {"fc.weight", "fc.bias"}
print(msg)
for name, param in probe.named_parameters():
    if name not in ["fc.weight", "fc.bias"]:
        param.requires_grad = False
probe.fc.weight.data.normal_(mean=0.0, std=0.01)
probe.fc.bias.data.zero_()
parameters = list(filter(lambda p: p.requires_grad, probe.parameters()))
assert len(parameters) == 2
optimizer = torch.optim.SGD(parameters, 1.0)
data = Images(16, augment)
probe.eval()
for epoch in range(3):
    loss = criterion(probe(data.data), data.targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"probe {loss.item():.4f} {accuracy(probe(data.data), data.targets)[0].item():.2f}")
model, example = probe, data.data[:3]
