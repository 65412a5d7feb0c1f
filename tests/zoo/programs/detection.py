"""A one-stage detector: anchors, matching by IoU, focal and smooth L1 losses, non-maximum suppression."""

import math
from typing import Dict, List, Tuple

import torch
import torch.nn as nn
from torch import Tensor


def calc_iou(a: Tensor, b: Tensor) -> Tensor:
    area = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    iw = torch.min(torch.unsqueeze(a[:, 2], dim=1), b[:, 2]) - torch.max(torch.unsqueeze(a[:, 0], 1), b[:, 0])
    ih = torch.min(torch.unsqueeze(a[:, 3], dim=1), b[:, 3]) - torch.max(torch.unsqueeze(a[:, 1], 1), b[:, 1])
    iw, ih = torch.clamp(iw, min=0), torch.clamp(ih, min=0)
    ua = torch.unsqueeze((a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1]), dim=1) + area - iw * ih
    return iw * ih / torch.clamp(ua, min=1e-8)


def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    keep = []
    order = scores.argsort(descending=True)
    while order.numel() > 0:
        i = order[0]
        keep.append(i.item())
        if order.numel() == 1:
            break
        iou = calc_iou(boxes[i].unsqueeze(0), boxes[order[1:]])[0]
        order = order[1:][iou <= threshold]
    return torch.tensor(keep, dtype=torch.int64)


class FocalLoss(nn.Module):
    def forward(self, cls: Tensor, reg: Tensor, anchors: Tensor, annotations: Tensor, alpha=0.25, gamma=2.0):
        cls_losses, reg_losses = [], []
        wh, ctr = anchors[:, 2:] - anchors[:, :2], (anchors[:, 2:] + anchors[:, :2]) / 2
        for j in range(cls.shape[0]):
            c, boxes = torch.clamp(cls[j], 1e-4, 1.0 - 1e-4), annotations[j]
            boxes = boxes[boxes[:, 4] != -1]
            iou_max, iou_argmax = torch.max(calc_iou(anchors, boxes[:, :4]), dim=1)
            targets = torch.ones(c.shape) * -1
            targets[torch.lt(iou_max, 0.3), :] = 0
            positive = torch.ge(iou_max, 0.4)
            assigned = boxes[iou_argmax, :]
            targets[positive, :] = 0
            targets[positive, assigned[positive, 4].long()] = 1
            alpha_factor = torch.where(torch.eq(targets, 1.0), torch.ones_like(targets) * alpha, 1.0 - alpha)
            focal = alpha_factor * torch.pow(torch.where(torch.eq(targets, 1.0), 1.0 - c, c), gamma)
            bce = -(targets * torch.log(c) + (1.0 - targets) * torch.log(1.0 - c))
            loss = torch.where(torch.ne(targets, -1.0), focal * bce, torch.zeros_like(bce))
            cls_losses.append(loss.sum() / torch.clamp(positive.sum().float(), min=1.0))
            if positive.sum() > 0:
                a = assigned[positive, :]
                gt_wh, gt_ctr = torch.clamp(a[:, 2:4] - a[:, :2], min=1), (a[:, 2:4] + a[:, :2]) / 2
                t = torch.cat([(gt_ctr - ctr[positive]) / wh[positive], torch.log(gt_wh / wh[positive])], dim=1)
                t = t / torch.Tensor([[0.1, 0.1, 0.2, 0.2]])
                diff = torch.abs(t - reg[j, positive, :])
                reg_losses.append(
                    torch.where(torch.le(diff, 1.0 / 9.0), 0.5 * 9.0 * torch.pow(diff, 2), diff - 0.5 / 9.0).mean()
                )
            else:
                reg_losses.append(torch.tensor(0).float())
        return torch.stack(cls_losses).mean(dim=0, keepdim=True), torch.stack(reg_losses).mean(dim=0, keepdim=True)


class Detector(nn.Module):
    def __init__(self, num_classes=3, num_anchors=3):
        super().__init__()
        self.num_classes = num_classes
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU())
        self.cls, self.reg = (
            nn.Conv2d(16, num_anchors * num_classes, 3, padding=1),
            nn.Conv2d(16, num_anchors * 4, 3, padding=1),
        )
        self.cls.weight.data.fill_(0)
        self.cls.bias.data.fill_(-math.log((1.0 - 0.1) / 0.1))

    def forward(self, x) -> Tuple[Tensor, Tensor]:
        x = self.body(x)
        c = self.cls(x).permute(0, 2, 3, 1).contiguous()
        return torch.sigmoid(c.view(x.size(0), -1, self.num_classes)), self.reg(x).permute(0, 2, 3, 1).reshape(
            x.size(0), -1, 4
        )


def make_anchors(size: int, stride: int) -> Tensor:
    shift = (torch.arange(0, size // stride) + 0.5) * stride
    y, x = torch.meshgrid(shift, shift, indexing="ij")
    ctr = torch.stack([x, y], -1).view(-1, 1, 2)
    half = torch.tensor([[5.0, 5.0], [3.5, 7.0], [7.0, 3.5]])
    return torch.cat([ctr - half, ctr + half], dim=-1).flatten(0, 1)


torch.manual_seed(0)
images = torch.randn(2, 3, 32, 32)
annotations = torch.tensor([[[4, 4, 15, 16, 0], [18, 8, 28, 30, 2.0]], [[10, 10, 22, 18, 1], [-1, -1, -1, -1, -1]]])
model, anchors, criterion = Detector(), make_anchors(32, 4), FocalLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(8):
    classification_loss, regression_loss = criterion(*model(images), anchors, annotations)
    loss = classification_loss + regression_loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step {} | cls {:1.5f} | reg {:1.5f}".format(step, float(classification_loss), float(regression_loss)))
with torch.no_grad():
    scores, deltas = model(images)
    wh, ctr = anchors[:, 2:] - anchors[:, :2], (anchors[:, 2:] + anchors[:, :2]) / 2
    c, s = ctr + deltas[0, :, :2] * 0.1 * wh, torch.exp(deltas[0, :, 2:] * 0.2) * wh
    boxes = torch.cat([c - s / 2, c + s / 2], 1).clamp_(0, 32)
    best, labels = scores[0].max(1)
    top = best.topk(20).indices
    keep = nms(boxes[top], best[top], 0.5)
    result: Dict[str, List] = {"boxes": boxes[top][keep].tolist(), "labels": labels[top][keep].tolist()}
print(result)
example = images
