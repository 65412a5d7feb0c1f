"""DeepLabV3+: atrous spatial pyramid pooling, output stride, frozen norms, mIoU, poly learning rate."""

import argparse
import math
from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn import init
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import data

Class = namedtuple("Class", ["name", "id", "train_id", "color"])
CLASSES = [
    Class("road", 0, 0, (128, 64, 128)),
    Class("car", 1, 1, (0, 0, 142)),
    Class("sky", 2, 2, (70, 130, 180)),
    Class("unlabeled", 3, 255, (0, 0, 0)),
]


def fixed_padding(inputs, kernel_size, dilation):
    kernel_size_effective = kernel_size + (kernel_size - 1) * (dilation - 1)
    pad_total = kernel_size_effective - 1
    pad_beg = pad_total // 2
    pad_end = pad_total - pad_beg
    padded_inputs = F.pad(inputs, (pad_beg, pad_end, pad_beg, pad_end))
    return padded_inputs


class SeparableConv2d(nn.Module):
    def __init__(self, inplanes, planes, kernel_size=3, stride=1, dilation=1, bias=False, BatchNorm=None):
        super(SeparableConv2d, self).__init__()
        self.conv1 = nn.Conv2d(inplanes, inplanes, kernel_size, stride, 0, dilation, groups=inplanes, bias=bias)
        self.bn = BatchNorm(inplanes)
        self.pointwise = nn.Conv2d(inplanes, planes, 1, 1, 0, 1, 1, bias=bias)

    def forward(self, x):
        x = fixed_padding(x, self.conv1.kernel_size[0], dilation=self.conv1.dilation[0])
        x = self.conv1(x)
        x = self.bn(x)
        x = self.pointwise(x)
        return x


class Normalize(object):
    """Normalize a tensor image with mean and standard deviation."""

    def __init__(self, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)):
        self.mean = torch.as_tensor(mean)
        self.std = torch.as_tensor(std)

    def __call__(self, tensor):
        return tensor.clone().sub_(self.mean[:, None, None]).div_(self.std[:, None, None])


class Block(nn.Module):
    def __init__(self, inplanes, planes, stride=1, dilation=1, BatchNorm=nn.BatchNorm2d, start_with_relu=True):
        super(Block, self).__init__()
        if planes != inplanes or stride != 1:
            self.skip = nn.Conv2d(inplanes, planes, 1, stride=stride, bias=False)
            self.skipbn = BatchNorm(planes)
        else:
            self.skip = None
        self.relu = nn.ReLU(inplace=True)
        rep = []
        rep.append(self.relu)
        rep.append(SeparableConv2d(inplanes, planes, 3, 1, dilation, BatchNorm=BatchNorm))
        rep.append(BatchNorm(planes))
        rep.append(self.relu)
        rep.append(SeparableConv2d(planes, planes, 3, stride, dilation, BatchNorm=BatchNorm))
        rep.append(BatchNorm(planes))
        if not start_with_relu:
            rep = rep[1:]
        self.rep = nn.Sequential(*rep)

    def forward(self, inp):
        x = self.rep(inp.clone())
        if self.skip is not None:
            skip = self.skipbn(self.skip(inp))
        else:
            skip = inp
        x = x + skip
        return x


class Backbone(nn.Module):
    def __init__(self, output_stride, BatchNorm):
        super().__init__()
        if output_stride == 8:
            strides, dilations = [2, 1, 1], [1, 2, 4]
        elif output_stride == 16:
            strides, dilations = [2, 2, 1], [1, 1, 2]
        else:
            raise NotImplementedError
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.bn1 = BatchNorm(8)
        self.block1 = Block(8, 8, strides[0], dilations[0], BatchNorm, start_with_relu=False)
        self.block2 = Block(8, 16, strides[1], dilations[1], BatchNorm)
        self.block3 = Block(16, 16, strides[2], dilations[2], BatchNorm)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = low_level_feat = self.block1(x)
        return self.block3(self.block2(x)), low_level_feat


class _ASPPModule(nn.Module):
    def __init__(self, inplanes, planes, kernel_size, padding, dilation, BatchNorm):
        super(_ASPPModule, self).__init__()
        self.atrous_conv = nn.Conv2d(
            inplanes, planes, kernel_size=kernel_size, stride=1, padding=padding, dilation=dilation, bias=False
        )
        self.bn = BatchNorm(planes)
        self.relu = nn.ReLU()
        self._init_weight()

    def forward(self, x):
        x = self.atrous_conv(x)
        x = self.bn(x)
        return self.relu(x)

    def _init_weight(self):
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                torch.nn.init.kaiming_normal_(m.weight)
            elif isinstance(m, _BatchNorm):
                m.weight.data.fill_(1)
                m.bias.data.zero_()


class ASPP(nn.Module):
    def __init__(self, inplanes, output_stride, BatchNorm, planes=8):
        super(ASPP, self).__init__()
        dilations = [1, 6, 12, 18] if output_stride == 16 else [1, 12, 24, 36]
        self.aspp1 = _ASPPModule(inplanes, planes, 1, padding=0, dilation=dilations[0], BatchNorm=BatchNorm)
        for i in range(1, 4):
            setattr(self, f"aspp{i + 1}", _ASPPModule(inplanes, planes, 3, dilations[i], dilations[i], BatchNorm))
        self.global_avg_pool = nn.Sequential(
            nn.AdaptiveAvgPool2d((1, 1)),
            nn.Conv2d(inplanes, planes, 1, stride=1, bias=False),
            BatchNorm(planes),
            nn.ReLU(),
        )
        self.conv1 = nn.Conv2d(planes * 5, planes, 1, bias=False)
        self.bn1 = BatchNorm(planes)
        self.relu = nn.ReLU()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        x1, x2, x3, x4 = [getattr(self, f"aspp{i}")(x) for i in range(1, 5)]
        x5 = self.global_avg_pool(x)
        x5 = F.interpolate(x5, size=x4.size()[2:], mode="bilinear", align_corners=True)
        x = torch.cat((x1, x2, x3, x4, x5), dim=1)
        x = self.relu(self.bn1(self.conv1(x)))
        return self.dropout(x)


class DeepLab(nn.Module):
    def __init__(self, num_classes=3, output_stride=16, sync_bn=False, freeze_bn=False):
        super(DeepLab, self).__init__()
        BatchNorm = nn.SyncBatchNorm if sync_bn else nn.BatchNorm2d
        self.backbone = Backbone(output_stride, BatchNorm)
        self.aspp = ASPP(16, output_stride, BatchNorm)
        self.project = nn.Sequential(nn.Conv2d(8, 4, 1, bias=False), BatchNorm(4), nn.ReLU(True))
        self.last_conv = nn.Sequential(
            nn.Conv2d(12, 8, 3, padding=1, bias=False),
            BatchNorm(8),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Conv2d(8, num_classes, kernel_size=1, stride=1),
        )
        self.freeze = freeze_bn
        if freeze_bn:
            self.freeze_bn()

    def forward(self, input):
        x, low_level_feat = self.backbone(input)
        x = self.aspp(x)
        x = F.interpolate(x, size=low_level_feat.size()[2:], mode="bilinear", align_corners=True)
        x = self.last_conv(torch.cat((x, self.project(low_level_feat)), dim=1))
        x = F.interpolate(x, size=input.size()[2:], mode="bilinear", align_corners=True)
        return x

    def freeze_bn(self):
        for m in self.modules():
            if isinstance(m, nn.SyncBatchNorm):
                m.eval()
            elif isinstance(m, nn.BatchNorm2d):
                m.eval()

    def get_1x_lr_params(self):
        for m in self.backbone.named_modules():
            if isinstance(m[1], nn.Conv2d) or isinstance(m[1], nn.SyncBatchNorm) or isinstance(m[1], nn.BatchNorm2d):
                for p in m[1].parameters():
                    if p.requires_grad:
                        yield p

    def get_10x_lr_params(self):
        for module in [self.aspp, self.project, self.last_conv]:
            for m in module.named_modules():
                if isinstance(m[1], (nn.Conv2d, nn.SyncBatchNorm, nn.BatchNorm2d)):
                    for p in m[1].parameters():
                        if p.requires_grad:
                            yield p


class SegmentationLosses(object):
    def __init__(self, weight=None, ignore_index=255):
        self.ignore_index = ignore_index
        self.weight = weight

    def build_loss(self, mode="ce"):
        if mode == "ce":
            return self.CrossEntropyLoss
        elif mode == "focal":
            return self.FocalLoss
        return self.OhemLoss

    def CrossEntropyLoss(self, logit, target):
        criterion = nn.CrossEntropyLoss(weight=self.weight, ignore_index=self.ignore_index, reduction="mean")
        return criterion(logit, target.long())

    def FocalLoss(self, logit, target, gamma=2, alpha=0.5):
        criterion = nn.CrossEntropyLoss(weight=self.weight, ignore_index=self.ignore_index)
        logpt = -criterion(logit, target.long())
        pt = torch.exp(logpt)
        if alpha is not None:
            logpt *= alpha
        return -((1 - pt) ** gamma) * logpt

    def OhemLoss(self, logit, target, thresh=0.7, min_kept=100):
        n, c, h, w = logit.size()
        loss = F.cross_entropy(logit, target.long(), ignore_index=self.ignore_index, reduction="none").view(-1)
        prob = F.softmax(logit, dim=1)
        masked = target.masked_fill(target == self.ignore_index, 0).long()
        picked = prob.gather(1, masked.unsqueeze(1)).squeeze(1).contiguous().view(-1)
        valid = target.view(-1) != self.ignore_index
        sort_prob, sort_indices = picked[valid].contiguous().sort()
        threshold = max(sort_prob[min(min_kept, sort_prob.numel() - 1)].item(), thresh)
        return loss[valid][sort_indices][sort_prob < threshold].mean()


class Evaluator(object):
    def __init__(self, num_class):
        self.num_class = num_class
        self.confusion_matrix = np.zeros((self.num_class,) * 2)

    def Mean_Intersection_over_Union(self):
        MIoU = np.diag(self.confusion_matrix) / (
            np.sum(self.confusion_matrix, axis=1)
            + np.sum(self.confusion_matrix, axis=0)
            - np.diag(self.confusion_matrix)
        )
        return np.nanmean(MIoU)

    def _generate_matrix(self, gt_image, pre_image):
        mask = (gt_image >= 0) & (gt_image < self.num_class)
        label = self.num_class * gt_image[mask].astype("int") + pre_image[mask]
        count = np.bincount(label, minlength=self.num_class**2)
        return count.reshape(self.num_class, self.num_class)

    def add_batch(self, gt_image, pre_image):
        assert gt_image.shape == pre_image.shape
        self.confusion_matrix += self._generate_matrix(gt_image, pre_image)


def intersection_and_union(output, target, K, ignore_index=255):
    output, target = output.view(-1), target.view(-1)
    output[target == ignore_index] = ignore_index
    intersection = output[output == target]
    area_intersection = torch.histc(intersection.float(), bins=K, min=0, max=K - 1)
    area_output = torch.histc(output.float(), bins=K, min=0, max=K - 1)
    area_target = torch.histc(target.float(), bins=K, min=0, max=K - 1)
    return area_intersection, area_output + area_target - area_intersection


class Scenes(data.Dataset):
    id_to_train_id = np.array([c.train_id for c in CLASSES])

    def __init__(self, n, transform=None):
        self.n, self.transform = n, transform

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        rng = np.random.RandomState(index)
        raw = np.zeros((24, 24), dtype=np.uint8)
        raw[: 8 + index % 4] = 2
        y, x = rng.randint(10, 18, 2)
        raw[y : y + 5, x : x + 5] = 1
        raw[:, 0] = 3
        image = np.array([c.color for c in CLASSES], dtype=np.float32)[raw] / 255 + 0.1 * rng.randn(24, 24, 3).astype(
            np.float32
        )
        image = self.transform(torch.from_numpy(image).permute(2, 0, 1)) if self.transform else image
        return {"image": image, "label": torch.from_numpy(self.id_to_train_id[raw]).float()}


class LR_Scheduler(object):
    def __init__(self, mode, base_lr, num_epochs, iters_per_epoch=0, warmup_epochs=0):
        self.mode, self.lr, self.iters_per_epoch = mode, base_lr, iters_per_epoch
        self.N = num_epochs * iters_per_epoch
        self.warmup_iters = warmup_epochs * iters_per_epoch

    def __call__(self, optimizer, i, epoch):
        T = epoch * self.iters_per_epoch + i
        if self.mode == "cos":
            lr = 0.5 * self.lr * (1 + math.cos(1.0 * T / self.N * math.pi))
        else:
            lr = self.lr * pow((1 - 1.0 * T / self.N), 0.9)
        if self.warmup_iters > 0 and T < self.warmup_iters:
            lr = lr * 1.0 * T / self.warmup_iters
        optimizer.param_groups[0]["lr"] = lr
        for i in range(1, len(optimizer.param_groups)):
            optimizer.param_groups[i]["lr"] = lr * 10


parser = argparse.ArgumentParser(description="PyTorch DeeplabV3Plus Training")
parser.add_argument("--out-stride", type=int, default=16)
parser.add_argument(
    "--loss-type", type=str, nargs="*", default=["ce", "focal", "ohem"], choices=["ce", "focal", "ohem"]
)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--use-balanced-weights", action="store_true", default=True)
parser.add_argument("--no-cuda", action="store_true", default=False)
args = parser.parse_args()
args.cuda = not args.no_cuda and torch.cuda.is_available()

transform = Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
for loss_type in args.loss_type:
    torch.manual_seed(1)
    kwargs = {"num_workers": 0, "pin_memory": args.cuda}
    train_loader = data.DataLoader(Scenes(12, transform), batch_size=4, shuffle=True, **kwargs)
    model = DeepLab(output_stride=args.out_stride)
    for m in model.modules():
        if isinstance(m, nn.Conv2d) and m.groups == 1:
            init.kaiming_normal_(m.weight, a=0, mode="fan_out")
    weight = None
    if args.use_balanced_weights:
        z = np.zeros((3,))
        for sample in data.DataLoader(Scenes(12), batch_size=1):
            y = sample["label"].numpy()
            z += np.bincount(y[(y >= 0) & (y < 3)].astype(np.uint8), minlength=3)
        weight = torch.from_numpy((1 / np.log(1.02 + z / z.sum())).astype(np.float32))
    optimizer = torch.optim.SGD(
        [
            {"params": model.get_1x_lr_params(), "lr": args.lr},
            {"params": model.get_10x_lr_params(), "lr": args.lr * 10},
        ],
        momentum=0.9,
        weight_decay=5e-4,
        nesterov=True,
    )
    criterion = SegmentationLosses(weight=weight).build_loss(mode=loss_type)
    scheduler = LR_Scheduler("poly", args.lr, 2, len(train_loader))
    for epoch in range(2):
        model.train()
        for i, sample in enumerate(train_loader):
            image, target = sample["image"], sample["label"]
            if args.cuda:
                image, target = image.cuda(), target.cuda()
            scheduler(optimizer, i, epoch)
            optimizer.zero_grad()
            output = model(image)
            loss = criterion(output, target)
            loss.backward()
            optimizer.step()
            print(
                "{} [Epoch: {}, batch: {}] Loss: {:.4f} lr {:.5f}".format(
                    loss_type, epoch, i, loss.item(), optimizer.param_groups[1]["lr"]
                )
            )
    model.eval()
    evaluator = Evaluator(3)
    inter, union = torch.zeros(3), torch.zeros(3)
    for sample in train_loader:
        image, target = sample["image"], sample["label"]
        with torch.no_grad():
            output = model(image)
        pred = output.data.cpu().numpy()
        evaluator.add_batch(target.cpu().numpy(), np.argmax(pred, axis=1))
        a, b = intersection_and_union(output.max(1)[1], target.long(), 3)
        inter += a
        union += b
    print("mIoU: {:.4f}".format(evaluator.Mean_Intersection_over_Union()), (inter / (union + 1e-10)).mean().item())

torch.save(
    {"epoch": 2, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "best_pred": 0.0},
    "model_best.pth.tar",
)
checkpoint = torch.load("model_best.pth.tar")
frozen = DeepLab(output_stride=8, freeze_bn=True)
model_dict = frozen.state_dict()
pretrain_dict = {
    k: v for k, v in checkpoint["state_dict"].items() if k in model_dict and model_dict[k].size() == v.size()
}
model_dict.update(pretrain_dict)
frozen.load_state_dict(model_dict)
optimizer.load_state_dict(checkpoint["optimizer"])
before = frozen.backbone.bn1.running_mean.clone()
print(
    len(pretrain_dict),
    len(model_dict),
    frozen(image).std().item(),
    torch.equal(before, frozen.backbone.bn1.running_mean),
)
palette = torch.tensor([2**25 - 1, 2**15 - 1, 2**21 - 1])
colors = torch.as_tensor([i for i in range(3)])[:, None] * palette
colors = (colors % 255).numpy().astype("uint8")
print(colors.tolist())
example = image
