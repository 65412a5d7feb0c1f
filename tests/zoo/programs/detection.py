"""A one-stage detector: anchors, matching by IoU, focal and smooth L1 losses, non-maximum suppression."""

import math
from typing import Dict, List, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F
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


def giou(pred: Tensor, target: Tensor) -> Tensor:
    lt, rb = torch.maximum(pred[:, None, :2], target[:, :2]), torch.minimum(pred[:, None, 2:], target[:, 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    area = (pred[:, 2:] - pred[:, :2]).prod(1)[:, None] + (target[:, 2:] - target[:, :2]).prod(1) - inter
    low, high = torch.min(pred[:, None, :2], target[:, :2]), torch.max(pred[:, None, 2:], target[:, 2:])
    full = (high - low).clamp_min(0).prod(-1)
    return inter / area - (full - area) / full


def nms_in_place(boxes, scores, threshold=0.3, top=20):
    keep = scores.new(scores.size(0)).zero_().long()
    x1, y1, x2, y2 = boxes[:, 0], boxes[:, 1], boxes[:, 2], boxes[:, 3]
    area = torch.mul(x2 - x1, y2 - y1)
    v, idx = scores.sort(0)
    idx = idx[-top:]
    count = 0
    while idx.numel() > 0:
        i = idx[-1]
        keep[count] = i
        count += 1
        if idx.size(0) == 1:
            break
        idx = idx[:-1]
        xx1 = torch.index_select(x1, 0, idx).clamp(min=x1[i])
        yy1 = torch.index_select(y1, 0, idx).clamp(min=y1[i].item())
        xx2, yy2 = torch.clamp(x2[idx], max=x2[i].item()), torch.clamp(y2[idx], max=y2[i].item())
        inter = torch.clamp(xx2 - xx1, min=0.0) * torch.clamp(yy2 - yy1, min=0.0)
        IoU = inter.float() / ((torch.index_select(area, 0, idx) - inter) + area[i])
        idx = idx[IoU.le(threshold)]
    return keep, count


class MultiBoxLoss(nn.Module):
    """Every object has its best prior, and the hardest negatives count, three for each positive."""

    def __init__(self, priors, threshold=0.4, neg_pos_ratio=3):
        super().__init__()
        self.priors, self.threshold, self.neg_pos_ratio = priors, threshold, neg_pos_ratio
        self.smooth_l1, self.cross_entropy = nn.SmoothL1Loss(), nn.CrossEntropyLoss(reduction="none")

    def forward(self, locs, scores, boxes, labels):
        batch_size, n_priors = locs.size(0), self.priors.size(0)
        true_locs = torch.zeros((batch_size, n_priors, 4), dtype=torch.float)
        true_classes = torch.zeros((batch_size, n_priors), dtype=torch.long)
        for i in range(batch_size):
            overlap = calc_iou(boxes[i], self.priors)
            overlap_for_each_prior, object_for_each_prior = overlap.max(dim=0)
            _, prior_for_each_object = overlap.max(dim=1)
            object_for_each_prior[prior_for_each_object] = torch.LongTensor(range(boxes[i].size(0)))
            overlap_for_each_prior[prior_for_each_object] = 1.0
            label_for_each_prior = labels[i][object_for_each_prior]
            label_for_each_prior[overlap_for_each_prior < self.threshold] = 0
            true_classes[i] = label_for_each_prior
            true_locs[i] = (boxes[i][object_for_each_prior] - self.priors) / 10
        positive = true_classes != 0
        loc_loss = self.smooth_l1(locs[positive], true_locs[positive])
        n_positives = positive.sum(dim=1)
        conf_all = self.cross_entropy(scores.view(-1, scores.size(2)), true_classes.view(-1)).view(batch_size, n_priors)
        conf_neg = conf_all.clone()
        conf_neg[positive] = 0.0
        conf_neg, _ = conf_neg.sort(dim=1, descending=True)
        ranks = torch.LongTensor(range(n_priors)).unsqueeze(0).expand_as(conf_neg)
        hard = ranks < (self.neg_pos_ratio * n_positives).unsqueeze(1)
        return (conf_neg[hard].sum() + conf_all[positive].sum()) / n_positives.sum().float() + loc_loss


def sigmoid_focal_loss(inputs, targets, alpha: float = 0.25, gamma: float = 2):
    p = torch.sigmoid(inputs)
    ce = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    return ((alpha * targets + (1 - alpha) * (1 - targets)) * ce * ((1 - p_t) ** gamma)).sum()


def average_precision(hits, total):
    tp, fp = torch.cumsum(hits, dim=0), torch.cumsum(1 - hits, dim=0)
    precision, recall = tp / (tp + fp + 1e-10), tp / total
    thresholds = torch.arange(start=0, end=1.1, step=0.1).tolist()
    precisions = torch.zeros((len(thresholds)), dtype=torch.float)
    for i, t in enumerate(thresholds):
        above = recall >= t
        precisions[i] = precision[above].max() if above.any() else 0.0
    return precisions.mean()


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
single = Detector(num_classes=4)
biases = [p for name, p in single.named_parameters() if name.endswith(".bias")]
others = [p for name, p in single.named_parameters() if not name.endswith(".bias")]
optimizer = torch.optim.SGD(
    params=[{"params": biases, "lr": 2e-2}, {"params": others}], lr=1e-2, momentum=0.9, weight_decay=5e-4
)
objects = [a[a[:, 4] != -1] for a in annotations]
boxes, labels = [a[:, :4] for a in objects], [a[:, 4].long() + 1 for a in objects]
criterion = MultiBoxLoss(anchors)
for step in range(3):
    scores, locs = single(images)
    loss = criterion(locs, scores, boxes, labels)
    focal = sigmoid_focal_loss(scores[0, :9], F.one_hot(torch.arange(9) % 4, 4).to(scores.dtype))
    g = giou(anchors + locs[0], boxes[0]).max(dim=1).values
    optimizer.zero_grad()
    (loss + 0.1 * focal + 0.1 * (1 - g).mean()).backward()
    optimizer.step()
    print(step, loss.item(), focal.item(), g.mean().item())
with torch.no_grad():
    b = anchors[torch.nonzero(best > best.median(), as_tuple=False).squeeze(1)]
    keep, count = nms_in_place(b, best[best > best.median()])
    print(count, keep[:count].tolist(), average_precision(torch.tensor([1.0, 0, 1, 1, 0]), 4).item())
    suppress, iou = torch.zeros((len(b)), dtype=torch.uint8), calc_iou(b, b)
    for box in range(b.size(0)):
        if suppress[box] == 1:
            continue
        suppress = torch.max(suppress, (iou[box] > 0.5).to(torch.uint8))
        suppress[box] = 0
    print((1 - suppress).sum().item())
example = images
