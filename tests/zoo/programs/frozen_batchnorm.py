"""Fine-tuning a small backbone whose early stages stay frozen, batch norms included, as detectors do."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class FrozenBatchNorm2d(nn.Module):
    """Statistics and affine parameters are buffers; older checkpoints carry a counter that is dropped."""

    def __init__(self, n):
        super(FrozenBatchNorm2d, self).__init__()
        self.register_buffer("weight", torch.ones(n))
        self.register_buffer("bias", torch.zeros(n))
        self.register_buffer("running_mean", torch.zeros(n))
        self.register_buffer("running_var", torch.ones(n))

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        key = prefix + "num_batches_tracked"
        if key in state_dict:
            del state_dict[key]
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def forward(self, x):
        w, b = self.weight.reshape(1, -1, 1, 1), self.bias.reshape(1, -1, 1, 1)
        scale = w * (self.running_var.reshape(1, -1, 1, 1) + 1e-5).rsqrt()
        return x * scale + (b - self.running_mean.reshape(1, -1, 1, 1) * scale)


class Stage(nn.Sequential):
    def __init__(self, cin, cout, norm, frozen=False):
        super().__init__(nn.Conv2d(cin, cout, 3, 2, 1, bias=False), norm(cout), nn.ReLU(inplace=True))
        self.frozen = frozen
        if frozen:
            for p in self.parameters():
                p.requires_grad = False

    def train(self, mode=True):
        return super().train(mode and not self.frozen)


class Backbone(nn.Module):
    def __init__(self, norm=nn.BatchNorm2d, frozen=0, classes=5):
        super().__init__()
        widths = [3, 8, 12, 16]
        self.stages = nn.ModuleList(
            Stage(a, b, norm if i else FrozenBatchNorm2d if frozen else norm, i < frozen)
            for i, (a, b) in enumerate(zip(widths[:-1], widths[1:]))
        )
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean(dim=(2, 3)))


def main(args):
    torch.manual_seed(args.seed)
    pretrained = Backbone()
    with torch.no_grad():
        pretrained(torch.randn(16, 3, 16, 16))  # moves the running statistics
    model = Backbone(frozen=2)
    missing, unexpected = model.load_state_dict(pretrained.state_dict(), strict=False)
    print("missing", missing, "unexpected", unexpected)
    data = TensorDataset(torch.randn(48, 3, 16, 16), torch.randint(0, 5, (48,)))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)
    params = [p for p in model.parameters() if p.requires_grad]
    print("trainable", sum(p.numel() for p in params))
    optimizer = torch.optim.SGD(params, lr=args.lr, momentum=0.9, weight_decay=1e-4, nesterov=True)
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            loss.backward()
            optimizer.step()
            total += loss.item() * x.size(0)
        print(f"epoch {epoch} loss {total / len(data):.5f} mode {[s.training for s in model.stages]}")
    print("running", [round(float(s[1].running_mean.abs().sum()), 4) for s in model.stages])
    return model, torch.randn(4, 3, 16, 16)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    model, example = main(parser.parse_args())
