"""ResNet on small pictures: warm-up and cosine, label smoothing, top-k accuracy, a checkpoint saved and resumed."""

import argparse
import os
import shutil
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch import Tensor
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader, Dataset


def conv3x3(in_planes: int, out_planes: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_planes, out_planes, kernel_size=3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    expansion: int = 1

    def __init__(self, inplanes, planes, stride=1, downsample=None, norm_layer=None):
        super().__init__()
        if norm_layer is None:
            norm_layer = nn.BatchNorm2d
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = norm_layer(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, block, layers, num_classes=10, zero_init_residual=False):
        super().__init__()
        self.inplanes = 8
        self.conv1 = conv3x3(3, 8)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._make_layer(block, 8, layers[0])
        self.layer2 = self._make_layer(block, 16, layers[1], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16 * block.expansion, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)
        if zero_init_residual:
            for m in self.modules():
                if isinstance(m, BasicBlock) and m.bn2.weight is not None:
                    nn.init.constant_(m.bn2.weight, 0)

    def _make_layer(self, block, planes, blocks, stride=1):
        downsample = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            downsample = nn.Sequential(
                nn.Conv2d(self.inplanes, planes * block.expansion, 1, stride, bias=False),
                nn.BatchNorm2d(planes * block.expansion),
            )
        layers = [block(self.inplanes, planes, stride, downsample)]
        self.inplanes = planes * block.expansion
        for _ in range(1, blocks):
            layers.append(block(self.inplanes, planes))
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer2(self.layer1(x))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class AverageMeter:
    def __init__(self, name, fmt=":f"):
        self.name, self.fmt = name, fmt
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        fmtstr = "{name} {val" + self.fmt + "} ({avg" + self.fmt + "})"
        return fmtstr.format(**self.__dict__)


def accuracy(output, target, topk=(1,)):
    """The precision@k for the given values of k"""
    with torch.no_grad():
        maxk = max(topk)
        batch_size = target.size(0)
        _, pred = output.topk(maxk, 1, True, True)
        pred = pred.t()
        correct = pred.eq(target.view(1, -1).expand_as(pred))
        res = []
        for k in topk:
            correct_k = correct[:k].reshape(-1).float().sum(0, keepdim=True)
            res.append(correct_k.mul_(100.0 / batch_size))
        return res


class Pictures(Dataset):
    def __init__(self, images, labels, transform=None):
        self.images, self.labels, self.transform = images, labels, transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, idx):
        if torch.is_tensor(idx):
            idx = idx.tolist()
        sample = self.images[idx]
        if self.transform:
            sample = self.transform(sample)
        return sample, int(self.labels[idx])


class Normalize:
    def __init__(self, mean, std):
        self.mean = torch.tensor(mean).view(-1, 1, 1)
        self.std = torch.tensor(std).view(-1, 1, 1)

    def __call__(self, img):
        return (torch.from_numpy(img) - self.mean) / self.std


def save_checkpoint(state, is_best, filename):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, filename.replace("checkpoint", "best"))


def main(fill, numbers):
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", default=0.05, type=float)
    parser.add_argument("--epochs", default=3, type=int)
    args = parser.parse_args([])
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    images = numbers(20, 3, 16, 16)
    labels = (abs(images.mean((1, 2, 3))) * 300).astype("int64") % 10
    train = Pictures(images, labels, Normalize([0.49, 0.48, 0.44], [0.2, 0.2, 0.2]))
    loader = DataLoader(train, batch_size=8, shuffle=False, num_workers=0, pin_memory=False)
    model = fill(ResNet(BasicBlock, [1, 2])).to(device)
    n = sum(p.numel() for p in model.parameters() if p.requires_grad)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1).to(device)
    decay = [p for name, p in model.named_parameters() if p.ndim > 1]
    plain = [p for name, p in model.named_parameters() if p.dim() <= 1]
    optimizer = optim.SGD(
        [{"params": decay, "weight_decay": 5e-4}, {"params": plain, "weight_decay": 0.0}], args.lr, momentum=0.9
    )
    warm = LinearLR(optimizer, start_factor=0.1, total_iters=2)
    scheduler = SequentialLR(optimizer, [warm, CosineAnnealingLR(optimizer, T_max=args.epochs)], milestones=[2])
    trace = [float(n)]
    best = 0.0
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "checkpoint.pth.tar")
    for epoch in range(args.epochs):
        model.train()
        losses, top1, top5 = (
            AverageMeter("Loss", ":.2e"),
            AverageMeter("Acc@1", ":6.2f"),
            AverageMeter("Acc@5", ":6.2f"),
        )
        for i, (x, y) in enumerate(loader):
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            output = model(x)
            loss = criterion(output, y)
            acc1, acc5 = accuracy(output, y, topk=(1, 5))
            losses.update(loss.item(), x.size(0))
            top1.update(acc1[0].item(), x.size(0))
            top5.update(acc5[0].item(), x.size(0))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        scheduler.step()
        s = str(losses) + str(top1)
        assert "Loss" in s
        is_best = top1.avg >= best
        best = max(top1.avg, best)
        save_checkpoint(
            {
                "epoch": epoch + 1,
                "arch": "resnet",
                "state_dict": model.state_dict(),
                "best_acc1": best,
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
            },
            is_best,
            path,
        )
        trace += [losses.avg, top1.avg, top5.avg, optimizer.param_groups[0]["lr"]]
    checkpoint = torch.load(path, map_location=device, weights_only=True)
    again = ResNet(BasicBlock, [1, 2], zero_init_residual=True)
    again = nn.DataParallel(again) if torch.cuda.device_count() > 1 else again
    missing, unexpected = again.load_state_dict(checkpoint["state_dict"], strict=False)
    assert not missing and not unexpected
    assert str(again.load_state_dict(checkpoint["state_dict"])) == "<All keys matched successfully>"
    optimizer2 = optim.SGD([{"params": decay}, {"params": plain}], 1.0)
    optimizer2.load_state_dict(checkpoint["optimizer"])
    trace += [
        checkpoint["epoch"],
        checkpoint["best_acc1"],
        optimizer2.param_groups[0]["momentum"],
        optimizer2.param_groups[0]["lr"],
    ]
    again.eval()
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            a, b = again(x), model(x)
            assert torch.equal(a, b) and torch.allclose(a, b)
            trace.append(F.softmax(a, dim=1).max(1)[0].sum().item())
    # transfer: drop the head
    pretrained = {k: v for k, v in checkpoint["state_dict"].items() if not k.startswith("fc.")}
    small = ResNet(BasicBlock, [1, 2], num_classes=3)
    state = small.state_dict()
    state.update(pretrained)
    small.load_state_dict(state)
    for p in small.parameters():
        p.requires_grad = False
    small.fc = fill(nn.Linear(small.fc.in_features, 4))
    opt = optim.Adam(filter(lambda p: p.requires_grad, small.parameters()), lr=1e-3)
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(small(x), y % 4, weight=torch.tensor([1.0, 2.0, 1.0, 0.5]))
        loss.backward()
        opt.step()
        trace.append(loss.item())
    del state["fc.weight"]
    state["bogus"] = torch.zeros(2)
    try:
        again.load_state_dict(state)
    except RuntimeError as e:
        trace.append(float("fc.weight" in str(e) and "bogus" in str(e)))
    res = again.load_state_dict({k: v for k, v in state.items() if "fc" not in k}, strict=False)
    trace += [len(res.missing_keys), len(res.unexpected_keys)]
    return trace
