"""A densely connected network on synthetic images: checkpointed layers, names renamed in an older state dict."""

import argparse
import re
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint as cp
from torch import Tensor
from torch.utils.data import DataLoader, Dataset


class _DenseLayer(nn.Module):
    def __init__(self, num_input_features, growth_rate, bn_size, drop_rate, memory_efficient=False):
        super(_DenseLayer, self).__init__()
        self.norm1: nn.BatchNorm2d
        self.add_module("norm1", nn.BatchNorm2d(num_input_features))
        self.add_module("relu1", nn.ReLU(inplace=True))
        self.add_module("conv1", nn.Conv2d(num_input_features, bn_size * growth_rate, kernel_size=1, bias=False))
        self.add_module("norm2", nn.BatchNorm2d(bn_size * growth_rate))
        self.add_module("relu2", nn.ReLU(inplace=True))
        self.add_module(
            "conv2", nn.Conv2d(bn_size * growth_rate, growth_rate, kernel_size=3, stride=1, padding=1, bias=False)
        )
        self.drop_rate = float(drop_rate)
        self.memory_efficient = memory_efficient

    def bn_function(self, inputs):
        concated_features = torch.cat(inputs, 1)
        return self.conv1(self.relu1(self.norm1(concated_features)))

    def any_requires_grad(self, input):
        for tensor in input:
            if tensor.requires_grad:
                return True
        return False

    def call_checkpoint_bottleneck(self, input):
        def closure(*inputs):
            return self.bn_function(inputs)

        return cp.checkpoint(closure, *input, use_reentrant=False)

    def forward(self, input):
        prev_features = [input] if isinstance(input, Tensor) else input
        if self.memory_efficient and self.any_requires_grad(prev_features):
            if torch.jit.is_scripting():
                raise Exception("Memory Efficient not supported in JIT")
            bottleneck_output = self.call_checkpoint_bottleneck(prev_features)
        else:
            bottleneck_output = self.bn_function(prev_features)
        new_features = self.conv2(self.relu2(self.norm2(bottleneck_output)))
        if self.drop_rate > 0:
            new_features = F.dropout(new_features, p=self.drop_rate, training=self.training)
        return new_features


class _DenseBlock(nn.ModuleDict):
    _version = 2

    def __init__(self, num_layers, num_input_features, bn_size, growth_rate, drop_rate, memory_efficient=False):
        super(_DenseBlock, self).__init__()
        for i in range(num_layers):
            layer = _DenseLayer(num_input_features + i * growth_rate, growth_rate, bn_size, drop_rate, memory_efficient)
            self.add_module("denselayer%d" % (i + 1), layer)

    def forward(self, init_features):
        features = [init_features]
        for name, layer in self.items():
            new_features = layer(features)
            features.append(new_features)
        return torch.cat(features, 1)


class _Transition(nn.Sequential):
    def __init__(self, num_input_features, num_output_features):
        super(_Transition, self).__init__()
        self.add_module("norm", nn.BatchNorm2d(num_input_features))
        self.add_module("relu", nn.ReLU(inplace=True))
        self.add_module("conv", nn.Conv2d(num_input_features, num_output_features, kernel_size=1, bias=False))
        self.add_module("pool", nn.AvgPool2d(kernel_size=2, stride=2))


class DenseNet(nn.Module):
    def __init__(
        self,
        growth_rate=4,
        block_config=(2, 2),
        num_init_features=8,
        bn_size=2,
        drop_rate=0,
        num_classes=4,
        memory_efficient=False,
    ):
        super(DenseNet, self).__init__()
        self.features = nn.Sequential(
            OrderedDict(
                [
                    ("conv0", nn.Conv2d(3, num_init_features, kernel_size=7, stride=2, padding=3, bias=False)),
                    ("norm0", nn.BatchNorm2d(num_init_features)),
                    ("relu0", nn.ReLU(inplace=True)),
                    ("pool0", nn.MaxPool2d(kernel_size=3, stride=2, padding=1)),
                ]
            )
        )
        num_features = num_init_features
        for i, num_layers in enumerate(block_config):
            block = _DenseBlock(num_layers, num_features, bn_size, growth_rate, drop_rate, memory_efficient)
            self.features.add_module("denseblock%d" % (i + 1), block)
            num_features = num_features + num_layers * growth_rate
            if i != len(block_config) - 1:
                trans = _Transition(num_features, num_features // 2)
                self.features.add_module("transition%d" % (i + 1), trans)
                num_features = num_features // 2
        self.features.add_module("norm5", nn.BatchNorm2d(num_features))
        self.classifier = nn.Linear(num_features, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight)
            elif isinstance(m, nn.BatchNorm2d):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)
            elif isinstance(m, nn.Linear):
                nn.init.constant_(m.bias, 0)

    def forward(self, x):
        features = self.features(x)
        out = F.relu(features, inplace=True)
        out = F.adaptive_avg_pool2d(out, (1, 1))
        out = torch.flatten(out, 1)
        return self.classifier(out)


def _load_state_dict(model, state_dict):
    """Older files wrote `norm.1` where the module is called `norm1`."""
    pattern = re.compile(
        r"^(.*denselayer\d+\.(?:norm|relu|conv))\.((?:[12])\.(?:weight|bias|running_mean|running_var))$"
    )
    for key in list(state_dict.keys()):
        res = pattern.match(key)
        if res:
            new_key = res.group(1) + res.group(2)
            state_dict[new_key] = state_dict[key]
            del state_dict[key]
    return model.load_state_dict(state_dict, strict=False)


class Blobs(Dataset):
    def __init__(self, n, transform=None):
        self.images = torch.randn(n, 3, 32, 32)
        self.labels = torch.randint(4, (n,))
        self.images[torch.arange(n), 0] += self.labels.view(-1, 1, 1).float()
        self.transform = transform

    def __getitem__(self, index):
        image, target = self.images[index], self.labels[index].item()
        return (self.transform(image) if self.transform else image), target

    def __len__(self):
        return len(self.images)


class AverageMeter(object):
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def accuracy(output, target, topk=(1,)):
    maxk = max(topk)
    batch_size = target.size(0)
    _, pred = output.topk(maxk, 1, True, True)
    pred = pred.t()
    correct = pred.eq(target.view(1, -1).expand_as(pred))
    return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / batch_size) for k in topk]


def main(args):
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")
    model = DenseNet(memory_efficient=args.memory_efficient, drop_rate=0.1).to(device)
    print(sum(p.data.nelement() for p in model.parameters()), [n for n, _ in model.features.named_children()])
    loader = DataLoader(Blobs(24, lambda t: t.sub(0.1).div_(1.1)), batch_size=8, shuffle=True, pin_memory=False)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, nesterov=True, weight_decay=1e-4)
    for epoch in range(args.epochs):
        losses, top1, top2 = AverageMeter(), AverageMeter(), AverageMeter()
        lr = args.lr * (0.1 ** (epoch // 1))
        for param_group in optimizer.param_groups:
            param_group["lr"] = lr
        model.train()
        for i, (input, target) in enumerate(loader):
            target = target.to(device, non_blocking=True)
            output = model(input.to(device))
            loss = criterion(output, target)
            prec1, prec2 = accuracy(output.data, target, topk=(1, 2))
            losses.update(loss.data.item(), input.size(0))
            top1.update(prec1.item(), input.size(0))
            top2.update(prec2[0], input.size(0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print("Epoch: [{0}][{1}]\tLoss {loss.val:.4f} ({loss.avg:.4f})".format(epoch, i, loss=losses))
        print("lr {:.3f} Prec@1 {:.2f} Prec@2 {:.2f}".format(lr, top1.avg, top2.avg.item()))
    state = {k.replace("norm1.", "norm.1."): v for k, v in model.state_dict().items()}
    torch.save({"epoch": epoch, "state_dict": state, "optimizer": optimizer.state_dict()}, "checkpoint.pth.tar")
    fresh = DenseNet()
    checkpoint = torch.load("checkpoint.pth.tar", map_location=device)
    print(_load_state_dict(fresh, checkpoint["state_dict"]))
    fresh.eval(), model.eval()
    with torch.no_grad():
        print("same", torch.equal(fresh(input), model(input)), fresh(input).abs().mean().item())
    state = fresh.state_dict()
    del state["classifier.weight"]
    state["bogus"] = torch.zeros(2)
    try:
        fresh.load_state_dict(state)
    except RuntimeError as e:
        print("classifier.weight" in str(e), "bogus" in str(e))
    print(fresh.load_state_dict(model.state_dict()))
    return model, input[:2]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="DenseNet training")
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("--lr", "--learning-rate", default=0.05, type=float)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--no-cuda", action="store_true", default=True)
    parser.add_argument("--memory-efficient", action="store_false")
    model, example = main(parser.parse_args())
