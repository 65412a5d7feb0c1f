"""A one-stage detector: anchors, box IoU by broadcasting, matching, smooth L1, focal loss, hard negatives, NMS."""

import itertools
import math
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F


def cxcy_to_xy(cxcy):
    return torch.cat([cxcy[:, :2] - (cxcy[:, 2:] / 2), cxcy[:, :2] + (cxcy[:, 2:] / 2)], 1)


def xy_to_cxcy(xy):
    return torch.cat([(xy[:, 2:] + xy[:, :2]) / 2, xy[:, 2:] - xy[:, :2]], 1)


def find_intersection(set_1, set_2):
    lower = torch.max(set_1[:, :2].unsqueeze(1), set_2[:, :2].unsqueeze(0))
    upper = torch.min(set_1[:, 2:].unsqueeze(1), set_2[:, 2:].unsqueeze(0))
    dims = torch.clamp(upper - lower, min=0)
    return dims[:, :, 0] * dims[:, :, 1]


def box_iou(a, b):
    inter = find_intersection(a, b)
    area_a = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area_b = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    return inter / (area_a.unsqueeze(1) + area_b.unsqueeze(0) - inter)


def giou(pred, target):
    lt = torch.maximum(pred[:, None, :2], target[:, :2])
    rb = torch.minimum(pred[:, None, 2:], target[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh.prod(-1)
    union = (
        ((pred[:, 2] - pred[:, 0]) * (pred[:, 3] - pred[:, 1]))[:, None]
        + ((target[:, 2:] - target[:, :2]).prod(1))
        - inter
    )
    full = (
        (torch.max(pred[:, None, 2:], target[:, 2:]) - torch.min(pred[:, None, :2], target[:, :2]))
        .clamp_min(0)
        .prod(-1)
    )
    return inter / union - (full - union) / full


def nms(boxes, scores, threshold=0.3, top=20):
    keep = scores.new(scores.size(0)).zero_().long()
    if boxes.numel() == 0:
        return keep, 0
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
        xx2 = torch.clamp(x2[idx], max=x2[i].item())
        yy2 = torch.clamp(y2[idx], max=y2[i].item())
        inter = torch.clamp(xx2 - xx1, min=0.0) * torch.clamp(yy2 - yy1, min=0.0)
        rem = torch.index_select(area, 0, idx)
        IoU = inter.float() / ((rem - inter) + area[i])
        idx = idx[IoU.le(threshold)]
    return keep, count


def sigmoid_focal_loss(inputs, targets, alpha: float = 0.25, gamma: float = 2):
    p = torch.sigmoid(inputs)
    ce = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    loss = ce * ((1 - p_t) ** gamma)
    return ((alpha * targets + (1 - alpha) * (1 - targets)) * loss).sum()


class Detector(nn.Module):
    def __init__(self, n_classes=4, boxes=2):
        super().__init__()
        self.n_classes = n_classes
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU6(), nn.Conv2d(8, 8, 3, 2, 1, groups=2), nn.Hardswish()
        )
        self.loc, self.cls = nn.Conv2d(8, boxes * 4, 3, padding=1), nn.Conv2d(8, boxes * n_classes, 3, padding=1)
        self.rescale_factors = nn.Parameter(torch.FloatTensor(1, 8, 1, 1))
        nn.init.constant_(self.rescale_factors, 2)
        self.register_buffer("priors", self.create_prior_boxes(4), persistent=False)

    def create_prior_boxes(self, n):
        prior_boxes = []
        for i, j in itertools.product(range(n), range(n)):
            for s, ratio in ((0.3, 1.0), (0.45, 2.0)):
                prior_boxes.append([(j + 0.5) / n, (i + 0.5) / n, s * math.sqrt(ratio), s / math.sqrt(ratio)])
        prior_boxes = torch.FloatTensor(prior_boxes)
        prior_boxes.clamp_(0, 1)
        return prior_boxes

    def forward(self, x):
        n = x.size(0)
        f = self.body(x)
        norm = f.pow(2).sum(dim=1, keepdim=True).sqrt() + 1e-6
        f = f / norm * self.rescale_factors
        loc = self.loc(f).permute(0, 2, 3, 1).contiguous().view(n, -1, 4)
        cls = self.cls(f).permute(0, 2, 3, 1).contiguous().view(n, -1, self.n_classes)
        return loc, cls


class MultiBoxLoss(nn.Module):
    def __init__(self, priors_cxcy, threshold=0.4, neg_pos_ratio=3, alpha=1.0):
        super().__init__()
        self.priors_cxcy, self.priors_xy = priors_cxcy, cxcy_to_xy(priors_cxcy)
        self.threshold, self.neg_pos_ratio, self.alpha = threshold, neg_pos_ratio, alpha
        self.smooth_l1 = nn.SmoothL1Loss()
        self.cross_entropy = nn.CrossEntropyLoss(reduction="none")

    def forward(self, predicted_locs, predicted_scores, boxes, labels):
        batch_size = predicted_locs.size(0)
        n_priors = self.priors_cxcy.size(0)
        true_locs = torch.zeros((batch_size, n_priors, 4), dtype=torch.float)
        true_classes = torch.zeros((batch_size, n_priors), dtype=torch.long)
        for i in range(batch_size):
            n_objects = boxes[i].size(0)
            overlap = box_iou(boxes[i], self.priors_xy)
            overlap_for_each_prior, object_for_each_prior = overlap.max(dim=0)
            _, prior_for_each_object = overlap.max(dim=1)
            object_for_each_prior[prior_for_each_object] = torch.LongTensor(range(n_objects))
            overlap_for_each_prior[prior_for_each_object] = 1.0
            label_for_each_prior = labels[i][object_for_each_prior]
            label_for_each_prior[overlap_for_each_prior < self.threshold] = 0
            true_classes[i] = label_for_each_prior
            c = xy_to_cxcy(boxes[i][object_for_each_prior])
            p = self.priors_cxcy
            true_locs[i] = torch.cat([(c[:, :2] - p[:, :2]) / (p[:, 2:] / 10), torch.log(c[:, 2:] / p[:, 2:]) * 5], 1)
        positive_priors = true_classes != 0
        loc_loss = self.smooth_l1(predicted_locs[positive_priors], true_locs[positive_priors])
        n_positives = positive_priors.sum(dim=1)
        n_hard_negatives = self.neg_pos_ratio * n_positives
        conf_loss_all = self.cross_entropy(
            predicted_scores.view(-1, predicted_scores.size(2)), true_classes.view(-1)
        ).view(batch_size, n_priors)
        conf_loss_pos = conf_loss_all[positive_priors]
        conf_loss_neg = conf_loss_all.clone()
        conf_loss_neg[positive_priors] = 0.0
        conf_loss_neg, _ = conf_loss_neg.sort(dim=1, descending=True)
        hardness_ranks = torch.LongTensor(range(n_priors)).unsqueeze(0).expand_as(conf_loss_neg)
        hard_negatives = hardness_ranks < n_hard_negatives.unsqueeze(1)
        conf_loss = (conf_loss_neg[hard_negatives].sum() + conf_loss_pos.sum()) / n_positives.sum().float()
        return conf_loss + self.alpha * loc_loss, positive_priors, true_classes


def collate_fn(batch):
    images, boxes, labels = [], [], []
    for b in batch:
        images.append(b[0])
        boxes.append(b[1])
        labels.append(b[2])
    return torch.stack(images, dim=0), boxes, labels


def average_precision(hits, total):
    tp = torch.cumsum(hits, dim=0)
    fp = torch.cumsum(1 - hits, dim=0)
    precision, recall = tp / (tp + fp + 1e-10), tp / total
    thresholds = torch.arange(start=0, end=1.1, step=0.1).tolist()
    precisions = torch.zeros((len(thresholds)), dtype=torch.float)
    for i, t in enumerate(thresholds):
        above = recall >= t
        precisions[i] = precision[above].max() if above.any() else 0.0
    return precisions.mean()


def main(fill, numbers):
    data = []
    for k in range(6):
        centers = torch.from_numpy(numbers(k % 3 + 1, 2)).sigmoid()
        sizes = torch.from_numpy(numbers(k % 3 + 1, 2)).sigmoid() * 0.4 + 0.2
        boxes = cxcy_to_xy(torch.cat([centers, sizes], 1)).clamp(0, 1)
        data.append(
            (torch.from_numpy(numbers(3, 16, 16)), boxes, torch.LongTensor([(k + m) % 3 + 1 for m in range(k % 3 + 1)]))
        )
    loader = torch.utils.data.DataLoader(data, batch_size=3, shuffle=False, collate_fn=collate_fn)
    model = fill(Detector())
    biases, others = list(), list()
    for name, param in model.named_parameters():
        if param.requires_grad:
            (biases if name.endswith(".bias") else others).append(param)
    optimizer = torch.optim.SGD(
        params=[{"params": biases, "lr": 2e-2}, {"params": others}], lr=1e-2, momentum=0.9, weight_decay=5e-4
    )
    criterion = MultiBoxLoss(model.priors)
    trace = []
    for epoch in range(3):
        for images, boxes, labels in loader:
            locs, scores = model(images)
            loss, positive, classes = criterion(locs, scores, boxes, labels)
            focal = sigmoid_focal_loss(scores, F.one_hot(classes, 4).to(scores.dtype)) / max(1, int(positive.sum()))
            decoded = cxcy_to_xy(
                torch.cat(
                    [
                        locs[0][:, :2] * model.priors[:, 2:] / 10 + model.priors[:, :2],
                        torch.exp(locs[0][:, 2:] / 5) * model.priors[:, 2:],
                    ],
                    1,
                )
            )
            g = giou(decoded, boxes[0]).max(dim=1).values
            total = loss + 0.1 * focal + 0.1 * (1 - g).mean()
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            trace += [loss.item(), focal.item(), g.mean().item()]
    with torch.no_grad():
        locs, scores = model(data[0][0][None])
        prob = F.softmax(scores, dim=2)[0]
        best, cls = prob[:, 1:].max(dim=-1)
        pick = torch.nonzero(best > best.median(), as_tuple=False).squeeze(1)
        b = cxcy_to_xy(model.priors)[pick]
        keep, count = nms(b, best[pick])
        trace += [count] + keep[:count].tolist()
        found = defaultdict(list)
        for k, c in zip(keep[:count], cls[pick][keep[:count]]):
            found[c.item()].append(k.item())
        trace += [len(found), average_precision(torch.tensor([1.0, 0, 1, 1, 0]), 4).item()]
        suppress = torch.zeros((len(b)), dtype=torch.uint8)
        iou = box_iou(b, b)
        for box in range(b.size(0)):
            if suppress[box] == 1:
                continue
            suppress = torch.max(suppress, (iou[box] > 0.5).to(torch.uint8))
            suppress[box] = 0
        trace.append((1 - suppress).sum().item())
    return trace
