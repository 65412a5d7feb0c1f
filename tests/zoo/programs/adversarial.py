"""Robustness and adaptation: FGSM and PGD, TRADES, virtual adversarial training, a reversed gradient, calibration."""

import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Function


class ReverseLayerF(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        output = grad_output.neg() * ctx.alpha
        return output, None


class DANN(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.feature = nn.Sequential()
        self.feature.add_module("f_conv1", nn.Conv2d(1, 8, kernel_size=3))
        self.feature.add_module("f_bn1", nn.BatchNorm2d(8))
        self.feature.add_module("f_pool1", nn.MaxPool2d(2))
        self.feature.add_module("f_relu1", nn.ReLU(True))
        self.class_classifier = nn.Sequential()
        self.class_classifier.add_module("c_fc1", nn.Linear(8 * 9, 16))
        self.class_classifier.add_module("c_drop1", nn.Dropout1d(0.1))
        self.class_classifier.add_module("c_softmax", nn.Sequential(nn.Linear(16, classes), nn.LogSoftmax(dim=1)))
        self.domain_classifier = nn.Sequential(nn.Linear(8 * 9, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, input_data, alpha):
        feature = self.feature(input_data)
        feature = feature.view(-1, 8 * 3 * 3)
        reverse_feature = ReverseLayerF.apply(feature, alpha)
        hidden = self.class_classifier.c_fc1(feature)
        class_output = self.class_classifier.c_softmax(self.class_classifier.c_drop1(hidden.unsqueeze(-1)).squeeze(-1))
        return class_output, F.log_softmax(self.domain_classifier(reverse_feature), dim=-1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 16, 3)

    def forward(self, x):
        x = F.max_pool2d(F.leaky_relu(self.bn(self.conv(x)), 0.1), 2)
        return self.fc(torch.flatten(x, 1))


def fgsm(model, x, y, eps):
    x = x.clone().detach().requires_grad_(True)
    loss = F.cross_entropy(model(x), y)
    model.zero_grad()
    loss.backward()
    data_grad = x.grad.data
    return torch.clamp(x + eps * data_grad.sign(), 0, 1).detach()


def pgd(model, x, y, eps, step, iters, norm="linf"):
    adv = x.detach() + torch.zeros_like(x).uniform_(-eps, eps)
    for _ in range(iters):
        adv.requires_grad_()
        with torch.enable_grad():
            loss = F.cross_entropy(model(adv), y)
        grad = torch.autograd.grad(loss, [adv])[0]
        if norm == "linf":
            adv = adv.detach() + step * torch.sign(grad.detach())
            adv = torch.min(torch.max(adv, x - eps), x + eps)
        else:
            norms = grad.view(len(x), -1).norm(p=2, dim=1).view(-1, 1, 1, 1)
            adv = adv.detach() + step * grad / (norms + 1e-8)
            delta = (adv - x).renorm(p=2, dim=0, maxnorm=eps * 8)
            adv = x + delta
        adv = torch.clamp(adv, 0.0, 1.0)
    return adv


def trades(model, x, y, eps=0.1, beta=3.0):
    criterion_kl = nn.KLDivLoss(reduction="sum")
    model.eval()
    adv = x.detach() + 0.05 * torch.randn(x.shape)
    for _ in range(2):
        adv.requires_grad_()
        with torch.enable_grad():
            loss_kl = criterion_kl(F.log_softmax(model(adv), dim=1), F.softmax(model(x), dim=1))
        grad = torch.autograd.grad(loss_kl, [adv])[0]
        adv = torch.clamp(torch.min(torch.max(adv.detach() + 0.05 * grad.sign(), x - eps), x + eps), 0.0, 1.0)
    model.train()
    natural = F.cross_entropy(model(x), y)
    robust = (1.0 / len(x)) * criterion_kl(F.log_softmax(model(adv), dim=1), F.softmax(model(x), dim=1))
    return natural + beta * robust


@contextlib.contextmanager
def _disable_tracking_bn_stats(model):
    def switch_attr(m):
        if hasattr(m, "track_running_stats"):
            m.track_running_stats ^= True

    model.apply(switch_attr)
    yield
    model.apply(switch_attr)


def _l2_normalize(d):
    d_reshaped = d.view(d.shape[0], -1, *(1 for _ in range(d.dim() - 2)))
    d /= torch.norm(d_reshaped, dim=1, keepdim=True) + 1e-8
    return d


class VATLoss(nn.Module):
    def __init__(self, xi=1e-1, eps=1.0, ip=1):
        super().__init__()
        self.xi, self.eps, self.ip = xi, eps, ip

    def forward(self, model, x):
        with torch.no_grad():
            pred = F.softmax(model(x), dim=1)
        d = torch.rand(x.shape).sub(0.5)
        d = _l2_normalize(d)
        with _disable_tracking_bn_stats(model):
            for _ in range(self.ip):
                d.requires_grad_()
                logp_hat = F.log_softmax(model(x + self.xi * d), dim=1)
                adv_distance = F.kl_div(logp_hat, pred, reduction="batchmean")
                adv_distance.backward()
                d = _l2_normalize(d.grad)
                model.zero_grad()
            logp_hat = F.log_softmax(model(x + d * self.eps), dim=1)
            return F.kl_div(logp_hat, pred, reduction="batchmean")


class ECELoss(nn.Module):
    def __init__(self, n_bins=5):
        super().__init__()
        bin_boundaries = torch.linspace(0, 1, n_bins + 1)
        self.bin_lowers, self.bin_uppers = bin_boundaries[:-1], bin_boundaries[1:]

    def forward(self, logits, labels):
        confidences, predictions = torch.max(F.softmax(logits, dim=1), 1)
        accuracies = predictions.eq(labels)
        ece = torch.zeros(1, device=logits.device)
        for bin_lower, bin_upper in zip(self.bin_lowers, self.bin_uppers):
            in_bin = confidences.gt(bin_lower.item()) * confidences.le(bin_upper.item())
            prop_in_bin = in_bin.float().mean()
            if prop_in_bin.item() > 0:
                accuracy_in_bin = accuracies[in_bin].float().mean()
                ece += torch.abs(confidences[in_bin].mean() - accuracy_in_bin) * prop_in_bin
        return ece


torch.manual_seed(3)
y = torch.arange(24) % 3
x = torch.rand(24, 1, 8, 8) * 0.5
for i in range(24):
    x[i, 0, :, 2 * y[i] : 2 * y[i] + 3] += 0.4
x.clamp_(0, 1)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, dampening=0.1)
vat = VATLoss()
for epoch in range(4):
    model.train()
    robust = trades(model, x[::2], y[::2])
    smooth = vat(model, x[1::2])
    optimizer.zero_grad()
    (robust + smooth).backward()
    optimizer.step()
    print(f"epoch {epoch} trades {robust.item():.4f} vat {smooth.item():.5f} {model.bn.num_batches_tracked.item()}")
model.eval()
for p in model.parameters():
    p.requires_grad_(False)
for name, adv in {
    "fgsm": fgsm(model, x, y, 0.05),
    "linf": pgd(model, x, y, 0.05, 0.02, 3),
    "l2": pgd(model, x, y, 0.05, 0.1, 2, "l2"),
}.items():
    logits = model(adv)
    distance = (adv - x).flatten(1).norm(p=float("inf"), dim=1).max()
    print(name, F.cross_entropy(logits, y).item(), (logits.argmax(1) == y).sum().item(), round(distance.item(), 4))
temperature = nn.Parameter(torch.ones(1) * 1.5)
opt = torch.optim.LBFGS([temperature], lr=0.1, max_iter=5)
logits = model(x)


def evaluate():
    opt.zero_grad()
    loss = F.cross_entropy(logits / temperature.unsqueeze(1).expand(logits.size(0), logits.size(1)), y)
    loss.backward()
    return loss


opt.step(evaluate)
print("temperature", temperature.item(), "ece", ECELoss()(logits / temperature, y).item())
dann = DANN()
opt = torch.optim.Adam(dann.parameters(), lr=1e-2)
loss_class, loss_domain = nn.NLLLoss(), nn.NLLLoss()
target = 1 - x
for i in range(3):
    alpha = 2.0 / (1.0 + torch.exp(torch.tensor(-10.0 * i / 3)).item()) - 1
    dann.zero_grad()
    class_output, domain_output = dann(input_data=x, alpha=alpha)
    err_s_label = loss_class(class_output, y)
    err_s_domain = loss_domain(domain_output, torch.zeros(24).long())
    _, domain_output = dann(input_data=target, alpha=alpha)
    err_t_domain = loss_domain(domain_output, torch.ones(24).long())
    err = err_t_domain + err_s_domain + err_s_label
    err.backward()
    opt.step()
    print("dann", i, round(alpha, 4), err_s_label.data.cpu().numpy(), err_s_domain.item(), err_t_domain.cpu().item())
example = x[:4]
