"""Knowledge distillation: a frozen teacher, soft targets, hints between layers, relations and attention transfer."""

from __future__ import print_function

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler


class DistillKL(nn.Module):
    """Distilling the Knowledge in a Neural Network"""

    def __init__(self, T):
        super(DistillKL, self).__init__()
        self.T = T

    def forward(self, y_s, y_t):
        p_s = F.log_softmax(y_s / self.T, dim=1)
        p_t = F.softmax(y_t / self.T, dim=1)
        loss = F.kl_div(p_s, p_t, reduction="sum") * (self.T**2) / y_s.shape[0]
        return loss


class Attention(nn.Module):
    """Paying More Attention to Attention"""

    def __init__(self, p=2):
        super(Attention, self).__init__()
        self.p = p

    def forward(self, g_s, g_t):
        return [self.at_loss(f_s, f_t) for f_s, f_t in zip(g_s, g_t)]

    def at_loss(self, f_s, f_t):
        s_H, t_H = f_s.shape[2], f_t.shape[2]
        if s_H > t_H:
            f_s = F.adaptive_avg_pool2d(f_s, (t_H, t_H))
        elif s_H < t_H:
            f_t = F.adaptive_avg_pool2d(f_t, (s_H, s_H))
        return (self.at(f_s) - self.at(f_t)).pow(2).mean()

    def at(self, f):
        return F.normalize(f.pow(self.p).mean(1).view(f.size(0), -1))


class RKDLoss(nn.Module):
    """Relational Knowledge Distillation"""

    def __init__(self, w_d=25, w_a=50):
        super(RKDLoss, self).__init__()
        self.w_d = w_d
        self.w_a = w_a

    def forward(self, f_s, f_t):
        student = f_s.view(f_s.shape[0], -1)
        teacher = f_t.view(f_t.shape[0], -1)
        # RKD distance loss
        with torch.no_grad():
            t_d = self.pdist(teacher, squared=False)
            mean_td = t_d[t_d > 0].mean()
            t_d = t_d / mean_td
        d = self.pdist(student, squared=False)
        mean_d = d[d > 0].mean()
        d = d / mean_d
        loss_d = F.smooth_l1_loss(d, t_d)
        # RKD Angle loss
        with torch.no_grad():
            td = teacher.unsqueeze(0) - teacher.unsqueeze(1)
            norm_td = F.normalize(td, p=2, dim=2)
            t_angle = torch.bmm(norm_td, norm_td.transpose(1, 2)).view(-1)
        sd = student.unsqueeze(0) - student.unsqueeze(1)
        norm_sd = F.normalize(sd, p=2, dim=2)
        s_angle = torch.bmm(norm_sd, norm_sd.transpose(1, 2)).view(-1)
        loss_a = F.smooth_l1_loss(s_angle, t_angle)
        return self.w_d * loss_d + self.w_a * loss_a

    @staticmethod
    def pdist(e, squared=False, eps=1e-12):
        e_square = e.pow(2).sum(dim=1)
        prod = e @ e.t()
        res = (e_square.unsqueeze(1) + e_square.unsqueeze(0) - 2 * prod).clamp(min=eps)
        if not squared:
            res = res.sqrt()
        res = res.clone()
        res[range(len(e)), range(len(e))] = 0
        return res


class HintLoss(nn.Module):
    """Fitnets: hints for thin deep nets"""

    def __init__(self, s_channels, t_channels):
        super().__init__()
        self.regressor = nn.Sequential(
            nn.Conv2d(s_channels, t_channels, 1), nn.BatchNorm2d(t_channels), nn.ReLU(inplace=True)
        )
        self.crit = nn.MSELoss()

    def forward(self, f_s, f_t):
        return self.crit(self.regressor(f_s), f_t)


class ConvNet(nn.Module):
    def __init__(self, width, num_classes=5):
        super().__init__()
        self.width = width
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width * 2, 3, padding=1, stride=2), nn.BatchNorm2d(width * 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(width * 2, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                n = m.kernel_size[0] * m.kernel_size[1] * m.out_channels
                m.weight.data.normal_(0, (2.0 / n) ** 0.5)
                if m.bias is not None:
                    m.bias.data.zero_()
            elif isinstance(m, nn.BatchNorm2d):
                m.weight.data.fill_(1)
                m.bias.data.zero_()

    def forward(self, x, is_feat=False, preact=False):
        f0 = x = self.bn1(self.conv1(x))
        f1_pre = x = self.bn2(self.conv2(F.relu(x)))
        x = F.relu(x, inplace=False)
        f1 = x
        f2 = x = torch.flatten(self.avgpool(x), 1)
        x = self.fc(x)
        if is_feat:
            return ([f0, f1_pre, f2] if preact else [F.relu(f0), f1, f2]), x
        return x


class CIFARInstance(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator()
        g.manual_seed(seed)
        self.targets = torch.randint(0, 5, (n,), generator=g).tolist()
        self.data = torch.rand((n, 3, 8, 8), generator=g)
        for i, t in enumerate(self.targets):
            self.data[i, t % 3, :, t : t + 3].add_(0.8)

    def __getitem__(self, index):
        img, target = self.data[index], self.targets[index]
        return img, target, index

    def __len__(self):
        return len(self.targets)


class AverageMeter(object):
    """Computes and stores the average and current value"""

    def __init__(self):
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def accuracy(output, target, topk=(1,)):
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


def adjust_learning_rate(epoch, opt, optimizer):
    steps = sum(epoch > e for e in opt.lr_decay_epochs)
    if steps > 0:
        for param_group in optimizer.param_groups:
            param_group["lr"] = opt.learning_rate * (opt.lr_decay_rate**steps)


def train_distill(epoch, train_loader, module_list, criterion_list, optimizer, opt):
    for module in module_list:
        module.train()
    module_list[-1].eval()
    criterion_cls, criterion_div, criterion_kd = criterion_list
    model_s, model_t = module_list[0], module_list[-1]
    losses, top1 = AverageMeter(), AverageMeter()
    end = time.time()
    for idx, data in enumerate(train_loader):
        input, target, index = data
        input = input.float()
        if torch.cuda.is_available():
            input, target, index = input.cuda(), target.cuda(), index.cuda()
        feat_s, logit_s = model_s(input, is_feat=True, preact=opt.distill == "abound")
        with torch.no_grad():
            feat_t, logit_t = model_t(input, is_feat=True, preact=False)
            feat_t = [f.detach() for f in feat_t]
        loss_cls = criterion_cls(logit_s, target)
        loss_div = criterion_div(logit_s, logit_t)
        if opt.distill == "kd":
            loss_kd = 0
        elif opt.distill == "hint":
            loss_kd = criterion_kd(feat_s[1], feat_t[1])
        elif opt.distill == "attention":
            loss_kd = sum(criterion_kd(feat_s[:-1], feat_t[:-1]))
        else:
            loss_kd = criterion_kd(feat_s[-1], feat_t[-1])
        loss = opt.gamma * loss_cls + opt.alpha * loss_div + opt.beta * loss_kd
        acc1, acc3 = accuracy(logit_s, target, topk=(1, 3))
        losses.update(loss.item(), input.size(0))
        top1.update(acc1[0], input.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(
            "Epoch: [{0}][{1}] Loss {loss.val:.4f} ({loss.avg:.4f}) Acc@1 {top1.val:.3f} ({top1.avg:.3f}) {2}".format(
                epoch, idx, acc3, loss=losses, top1=top1
            )
        )
    assert time.time() - end < 3600
    return top1.avg, losses.avg


parser = argparse.ArgumentParser("argument for training")
parser.add_argument("--distill", nargs="*", default=["kd", "hint", "attention", "rkd"])
parser.add_argument("--learning_rate", type=float, default=0.05)
parser.add_argument("--lr_decay_epochs", type=str, default="1,3", help="where to decay lr, can be a list")
parser.add_argument("--lr_decay_rate", type=float, default=0.1)
parser.add_argument("-r", "--gamma", type=float, default=0.5, help="weight for classification")
parser.add_argument("-a", "--alpha", type=float, default=0.9, help="weight balance for KD")
parser.add_argument("-b", "--beta", type=float, default=0.5, help="weight balance for other losses")
parser.add_argument("--kd_T", type=float, default=4, help="temperature for KD distillation")
opt = parser.parse_args()
opt.lr_decay_epochs = [int(it) for it in opt.lr_decay_epochs.split(",")]

torch.manual_seed(0)
train_set, val_set = CIFARInstance(48, 0), CIFARInstance(16, 1)
counts = torch.bincount(torch.tensor(train_set.targets), minlength=5).clamp(min=1)
sampler = WeightedRandomSampler((1.0 / counts)[train_set.targets], num_samples=48, replacement=True)
train_loader = DataLoader(train_set, batch_size=16, sampler=sampler, num_workers=0)
val_loader = DataLoader(val_set, batch_size=8, shuffle=False)

teacher = ConvNet(8)
optimizer = optim.SGD(teacher.parameters(), lr=0.1, momentum=0.9)
for epoch in range(2):
    for input, target, _ in train_loader:
        loss = nn.CrossEntropyLoss()(teacher(input), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("teacher", epoch, loss.item())
torch.save({"epoch": epoch, "model": teacher.state_dict(), "optimizer": optimizer.state_dict()}, "teacher.pth")

for distill in opt.distill:
    torch.manual_seed(3)
    run = argparse.Namespace(**{**vars(opt), "distill": distill})
    model_t = ConvNet(8)
    model_t.load_state_dict(torch.load("teacher.pth")["model"])
    model_t.requires_grad_(False)
    model_s = ConvNet(4)
    module_list, trainable_list = nn.ModuleList([model_s]), nn.ModuleList([model_s])
    criterion_kd = {"kd": DistillKL(run.kd_T), "hint": HintLoss(8, 16), "attention": Attention(), "rkd": RKDLoss(1, 2)}[
        distill
    ]
    if distill == "hint":
        module_list.append(criterion_kd.regressor)
        trainable_list.append(criterion_kd.regressor)
    criterion_list = nn.ModuleList([nn.CrossEntropyLoss(), DistillKL(run.kd_T), criterion_kd])
    optimizer = optim.SGD(trainable_list.parameters(), lr=run.learning_rate, momentum=0.9, weight_decay=5e-4)
    module_list.append(model_t)
    for epoch in range(2):
        adjust_learning_rate(epoch, run, optimizer)
        print(
            "==> training...",
            distill,
            len(module_list),
            *train_distill(epoch, train_loader, module_list, criterion_list, optimizer, run),
        )
    assert all(p.grad is None for p in model_t.parameters())
    model_s.eval()
    with torch.no_grad():
        top1 = torch.cat([accuracy(model_s(x), y)[0] for x, y, _ in val_loader])
    print("test", top1, {k: v.sum().item() for k, v in model_s.state_dict().items() if "running" in k})
model, example = model_s, train_set.data[:2]
