"""Pre-activation ResNet on images of our own, with hooks that take features out."""

import argparse
import os

import numpy as np
import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset


class PreActBlock(nn.Module):
    """Pre-activation version of the BasicBlock."""

    expansion = 1

    def __init__(self, in_planes, planes, stride=1):
        super(PreActBlock, self).__init__()
        self.bn1 = nn.BatchNorm2d(in_planes)
        self.conv1 = nn.Conv2d(in_planes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, stride=1, padding=1, bias=False)
        if stride != 1 or in_planes != self.expansion * planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_planes, self.expansion * planes, kernel_size=1, stride=stride, bias=False)
            )

    def forward(self, x):
        out = F.relu(self.bn1(x))
        shortcut = self.shortcut(out) if hasattr(self, "shortcut") else x
        out = self.conv1(out)
        out = self.conv2(F.relu(self.bn2(out)))
        out += shortcut
        return out


class PreActResNet(nn.Module):
    def __init__(self, block, num_blocks, num_classes=10, width=8):
        super(PreActResNet, self).__init__()
        self.in_planes = width
        self.conv1 = nn.Conv2d(3, width, kernel_size=3, stride=1, padding=1, bias=False)
        self.layer1 = self._make_layer(block, width, num_blocks[0], stride=1)
        self.layer2 = self._make_layer(block, width * 2, num_blocks[1], stride=2)
        self.layer3 = self._make_layer(block, width * 4, num_blocks[2], stride=2)
        self.linear = nn.Linear(width * 4 * block.expansion, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)

    def _make_layer(self, block, planes, num_blocks, stride):
        strides = [stride] + [1] * (num_blocks - 1)
        layers = []
        for stride in strides:
            layers.append(block(self.in_planes, planes, stride))
            self.in_planes = planes * block.expansion
        return nn.Sequential(*layers)

    def forward(self, x):
        out = self.conv1(x)
        out = self.layer3(self.layer2(self.layer1(out)))
        out = F.avg_pool2d(out, 4)
        out = out.view(out.size(0), -1)
        return self.linear(out)


class Shapes(Dataset):
    """Images with a bright quadrant: which one is the label."""

    def __init__(self, n, train=True, transform=None):
        rng = np.random.RandomState(0 if train else 1)
        self.targets = rng.randint(0, 4, n)
        self.data = rng.rand(n, 16, 16, 3).astype(np.float32)
        for image, t in zip(self.data, self.targets):
            image[8 * (t // 2) : 8 * (t // 2) + 8, 8 * (t % 2) : 8 * (t % 2) + 8] += 0.5
        self.transform = transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        image, target = torch.from_numpy(self.data[index]).permute(2, 0, 1), int(self.targets[index])
        return self.transform(image) if self.transform else image, target


class FeatureExtractor(object):
    """Keeps what the named layers give, and what comes back to them."""

    def __init__(self, model, names):
        self.activations, self.gradients, self.handles = {}, {}, []
        modules = dict([*model.named_modules()])
        for name in names:
            self.handles.append(modules[name].register_forward_hook(self.save_activation(name)))
            self.handles.append(modules[name].register_full_backward_hook(self.save_gradient(name)))

    def save_activation(self, name):
        def hook(module, input, output):
            self.activations[name] = output.detach().clone()

        return hook

    def save_gradient(self, name):
        def hook(module, grad_input, grad_output):
            self.gradients[name] = grad_output[0].detach()

        return hook

    def remove(self):
        [handle.remove() for handle in self.handles]


def train(epoch):
    net.train()
    train_loss, correct, total = 0, 0, 0
    for batch_idx, (inputs, targets) in enumerate(trainloader):
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        train_loss += loss.item()
        _, predicted = outputs.max(1)
        total += targets.size(0)
        correct += predicted.eq(targets).sum().item()
        print(
            batch_idx,
            len(trainloader),
            "Loss: %.3f | Acc: %.3f%% (%d/%d)"
            % (train_loss / (batch_idx + 1), 100.0 * correct / total, correct, total),
        )


def test(epoch):
    global best_acc
    net.eval()
    test_loss, correct, total = 0, 0, 0
    with torch.no_grad():
        for inputs, targets in testloader:
            inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
            outputs = net(inputs)
            test_loss += criterion(outputs, targets).item()
            _, predicted = outputs.max(1)
            total += targets.size(0)
            correct += predicted.eq(targets).sum().item()
    acc = 100.0 * correct / total
    print("Test loss %.4f acc %.2f" % (test_loss / len(testloader), acc))
    if acc > best_acc:
        print("Saving..")
        state = {"net": net.state_dict(), "acc": acc, "epoch": epoch}
        if not os.path.isdir("checkpoint"):
            os.mkdir("checkpoint")
        torch.save(state, "./checkpoint/ckpt.pth")
        best_acc = acc


parser = argparse.ArgumentParser(description="PyTorch CIFAR10 Training")
parser.add_argument("--lr", default=0.05, type=float, help="learning rate")
parser.add_argument("--resume", "-r", action="store_true", help="resume from checkpoint")
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
best_acc = -1
mean, std = torch.tensor([0.5, 0.5, 0.5]).view(3, 1, 1), torch.tensor([0.3, 0.3, 0.3]).view(3, 1, 1)
transform = lambda image: (image - mean).div_(std)
trainloader = DataLoader(Shapes(64, True, transform), batch_size=16, shuffle=True, num_workers=0, pin_memory=False)
testloader = DataLoader(Shapes(32, False, transform), batch_size=16, shuffle=False)

print("==> Building model..")
net = PreActResNet(PreActBlock, [1, 1, 1], num_classes=4)
net = net.to(device)
if device == "cuda":
    net = torch.nn.DataParallel(net)
    cudnn.benchmark = True
print(net)
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
for epoch in range(3):
    print("\nEpoch: %d" % epoch, scheduler.get_last_lr())
    train(epoch)
    test(epoch)
    scheduler.step()

checkpoint = torch.load("./checkpoint/ckpt.pth")
net.load_state_dict(checkpoint["net"])
print(checkpoint["epoch"], checkpoint["acc"])

# Grad-CAM of the last layers
extractor = FeatureExtractor(net, ["layer2.0.bn2", "layer3"])
net.eval()
images = torch.stack([testloader.dataset[i][0] for i in range(4)])
scores = net(images)
one_hot = torch.zeros_like(scores)
one_hot[torch.arange(4), scores.argmax(dim=1)] = 1
net.zero_grad()
scores.backward(gradient=one_hot, retain_graph=True)
for name, activation in extractor.activations.items():
    weights = extractor.gradients[name].mean(dim=(2, 3), keepdim=True)
    cam = F.relu((weights * activation).sum(1, keepdim=True))
    cam = F.interpolate(cam, size=images.shape[2:], mode="bilinear", align_corners=False)
    cam -= cam.flatten(1).min(1)[0][:, None, None, None]
    cam /= cam.amax(dim=(1, 2, 3), keepdim=True) + 1e-7
    print(name, tuple(cam.shape), cam.mean().item(), cam[0, 0, ::5, ::5].tolist())
extractor.remove()
handle = net.layer1.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 0.5,))
print("halved", net(images).sum().item())
handle.remove()
model, example = net, images
