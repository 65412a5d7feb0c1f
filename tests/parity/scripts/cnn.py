"""A small convolutional network on images, with a schedule and a validation pass."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.dropout = nn.Dropout(0.0)
        self.fc1 = nn.Linear(16 * 3 * 3, 32)
        self.fc2 = nn.Linear(32, 4)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.max_pool2d(F.leaky_relu(self.conv2(x), 0.1), 2)
        x = self.dropout(torch.flatten(x, 1))
        x = self.fc2(F.relu(self.fc1(x)))
        return F.log_softmax(x, dim=1)


def evaluate(model, device, loader):
    model.eval()
    loss, correct = 0.0, 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            loss += F.nll_loss(output, target, reduction="sum").item()
            correct += output.argmax(dim=1, keepdim=True).eq(target.view_as(output.argmax(1, True))).sum().item()
    return loss / len(loader.dataset), correct


def main(fill, numbers):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(1)
    images = torch.from_numpy(numbers(24, 1, 14, 14))
    labels = (images.mean(dim=(1, 2, 3)) * 20).long().abs() % 4
    dataset = TensorDataset(images, labels)
    loader = DataLoader(dataset, batch_size=8, shuffle=False, pin_memory=False, drop_last=True)
    model = fill(Net()).to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    trace = []
    for _ in range(3):
        model.train()
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            trace.append(loss.item())
        trace.extend(evaluate(model, device, loader))
        scheduler.step()
        trace.append(optimizer.param_groups[0]["lr"])
    return trace
