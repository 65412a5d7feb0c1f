"""A detector on a grid: anchors as buffers, targets built with masks and indexing, CIoU, non-maximum suppression."""

import math

import numpy as np
import torch
import torch.nn as nn


def xywh2xyxy(x):
    y = x.clone() if isinstance(x, torch.Tensor) else np.copy(x)
    y[..., 0] = x[..., 0] - x[..., 2] / 2
    y[..., 1] = x[..., 1] - x[..., 3] / 2
    y[..., 2] = x[..., 0] + x[..., 2] / 2
    y[..., 3] = x[..., 1] + x[..., 3] / 2
    return y


def box_iou(box1, box2, eps=1e-7):
    (a1, a2), (b1, b2) = box1.unsqueeze(1).chunk(2, 2), box2.unsqueeze(0).chunk(2, 2)
    inter = (torch.min(a2, b2) - torch.max(a1, b1)).clamp(0).prod(2)
    return inter / ((a2 - a1).prod(2) + (b2 - b1).prod(2) - inter + eps)


def bbox_ciou(box1, box2, eps=1e-7):
    (x1, y1, w1, h1), (x2, y2, w2, h2) = box1.chunk(4, -1), box2.chunk(4, -1)
    w1_, h1_, w2_, h2_ = w1 / 2, h1 / 2, w2 / 2, h2 / 2
    b1_x1, b1_x2, b1_y1, b1_y2 = x1 - w1_, x1 + w1_, y1 - h1_, y1 + h1_
    b2_x1, b2_x2, b2_y1, b2_y2 = x2 - w2_, x2 + w2_, y2 - h2_, y2 + h2_
    inter = (b1_x2.minimum(b2_x2) - b1_x1.maximum(b2_x1)).clamp(0) * (
        b1_y2.minimum(b2_y2) - b1_y1.maximum(b2_y1)
    ).clamp(0)
    union = w1 * h1 + w2 * h2 - inter + eps
    iou = inter / union
    cw = b1_x2.maximum(b2_x2) - b1_x1.minimum(b2_x1)
    ch = b1_y2.maximum(b2_y2) - b1_y1.minimum(b2_y1)
    c2 = cw**2 + ch**2 + eps
    rho2 = ((b2_x1 + b2_x2 - b1_x1 - b1_x2) ** 2 + (b2_y1 + b2_y2 - b1_y1 - b1_y2) ** 2) / 4
    v = (4 / math.pi**2) * (torch.atan(w2 / h2) - torch.atan(w1 / h1)).pow(2)
    with torch.no_grad():
        alpha = v / (v - iou + (1 + eps))
    return iou - (rho2 / c2 + v * alpha)


def autopad(k, p=None):
    return k // 2 if isinstance(k, int) else [x // 2 for x in k] if p is None else p


class Conv(nn.Module):
    default_act = nn.SiLU()

    def __init__(self, c1, c2, k=1, s=1, p=None, g=1, act=True):
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, s, autopad(k, p), groups=g, bias=False)
        self.bn = nn.BatchNorm2d(c2)
        self.act = self.default_act if act is True else act if isinstance(act, nn.Module) else nn.Identity()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))

    def forward_fuse(self, x):
        return self.act(self.conv(x))


class SPPF(nn.Module):
    def __init__(self, c1, c2, k=5):
        super().__init__()
        self.cv1, self.cv2 = Conv(c1, c1 // 2), Conv(c1 // 2 * 4, c2)
        self.m = nn.MaxPool2d(kernel_size=k, stride=1, padding=k // 2)

    def forward(self, x):
        x = self.cv1(x)
        y1 = self.m(x)
        y2 = self.m(y1)
        return self.cv2(torch.cat((x, y1, y2, self.m(y2)), 1))


class Concat(nn.Module):
    def __init__(self, dimension=1):
        super().__init__()
        self.d = dimension

    def forward(self, x):
        return torch.cat(x, self.d)


class Detect(nn.Module):
    stride = None
    export = False

    def __init__(self, nc=3, anchors=(), ch=()):
        super().__init__()
        self.nc, self.no, self.nl, self.na = nc, nc + 5, len(anchors), len(anchors[0]) // 2
        self.register_buffer("anchors", torch.tensor(anchors).float().view(self.nl, -1, 2))
        self.m = nn.ModuleList(nn.Conv2d(x, self.no * self.na, 1) for x in ch)

    def forward(self, x):
        z = []
        for i in range(self.nl):
            x[i] = self.m[i](x[i])
            bs, _, ny, nx = x[i].shape
            x[i] = x[i].view(bs, self.na, self.no, ny, nx).permute(0, 1, 3, 4, 2).contiguous()
            if not self.training:
                grid, anchor_grid = self._make_grid(nx, ny, i)
                xy, wh, conf = x[i].sigmoid().split((2, 2, self.nc + 1), 4)
                xy = (xy * 2 + grid) * self.stride[i]
                wh = (wh * 2) ** 2 * anchor_grid
                z.append(torch.cat((xy, wh, conf), 4).view(bs, self.na * nx * ny, self.no))
        return x if self.training else torch.cat(z, 1) if self.export else (torch.cat(z, 1), x)

    def _make_grid(self, nx, ny, i):
        d, t = self.anchors[i].device, self.anchors[i].dtype
        shape = 1, self.na, ny, nx, 2
        y, x = torch.arange(ny, device=d, dtype=t), torch.arange(nx, device=d, dtype=t)
        yv, xv = torch.meshgrid(y, x, indexing="ij")
        grid = torch.stack((xv, yv), 2).expand(shape) - 0.5
        anchor_grid = (self.anchors[i] * self.stride[i]).view((1, self.na, 1, 1, 2)).expand(shape)
        return grid, anchor_grid


class Model(nn.Module):
    """Layers with their sources beside them, as a configuration file lists them."""

    def __init__(self, nc=3):
        super().__init__()
        cfg = [
            [-1, Conv, (3, 8, 3, 2)],
            [-1, Conv, (8, 12, 3, 2)],
            [-1, SPPF, (12, 12)],
            [-1, nn.Upsample, (None, 2, "nearest")],
            [[-1, 0], Concat, (1,)],
            [[4, 2], Detect, (nc, [[1.0, 1.25, 2.0, 1.5], [1.5, 2.5, 2.5, 2.0]], (20, 12))],
        ]
        layers = []
        for i, (f, m, args) in enumerate(cfg):
            m_ = m(*args)
            m_.i, m_.f, m_.type = i, f, str(m)[8:-2].replace("__main__.", "")
            layers.append(m_)
        self.model, self.save = nn.Sequential(*layers), sorted({0, 2, 4})
        m = self.model[-1]
        m.stride = torch.tensor([32 / x.shape[-2] for x in self.forward(torch.zeros(1, 3, 32, 32))])
        self.stride = m.stride
        for mi, s in zip(m.m, m.stride):
            b = mi.bias.view(m.na, -1)
            b.data[:, 4] += math.log(8 / (64 / s) ** 2)
            b.data[:, 5 : 5 + m.nc] += math.log(0.6 / (m.nc - 0.99999))
            mi.bias = torch.nn.Parameter(b.view(-1), requires_grad=True)
        for m in self.modules():
            t = type(m)
            if t is nn.BatchNorm2d:
                m.eps, m.momentum = 1e-3, 0.03
            elif t in [nn.Hardswish, nn.LeakyReLU, nn.ReLU, nn.ReLU6, nn.SiLU]:
                m.inplace = True

    def forward(self, x):
        y = []
        for m in self.model:
            if m.f != -1:
                x = y[m.f] if isinstance(m.f, int) else [x if j == -1 else y[j] for j in m.f]
            x = m(x)
            y.append(x if m.i in self.save else None)
        return x

    def fuse(self):
        for m in self.model.modules():
            if isinstance(m, Conv) and hasattr(m, "bn"):
                m.conv = fuse_conv_and_bn(m.conv, m.bn)
                delattr(m, "bn")
                m.forward = m.forward_fuse
        return self


def fuse_conv_and_bn(conv, bn):
    fusedconv = nn.Conv2d(
        conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, groups=conv.groups, bias=True
    ).requires_grad_(False)
    w_conv = conv.weight.clone().view(conv.out_channels, -1)
    w_bn = torch.diag(bn.weight.div(torch.sqrt(bn.eps + bn.running_var)))
    fusedconv.weight.copy_(torch.mm(w_bn, w_conv).view(fusedconv.weight.shape))
    b_conv = torch.zeros(conv.weight.size(0)) if conv.bias is None else conv.bias
    b_bn = bn.bias - bn.weight.mul(bn.running_mean).div(torch.sqrt(bn.running_var + bn.eps))
    fusedconv.bias.copy_(torch.mm(w_bn, b_conv.reshape(-1, 1)).reshape(-1) + b_bn)
    return fusedconv


class ComputeLoss:
    def __init__(self, model):
        self.BCEcls = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0]))
        self.BCEobj = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.2]))
        m = model.model[-1]
        self.balance, self.na, self.nc, self.nl, self.anchors = [4.0, 1.0], m.na, m.nc, m.nl, m.anchors

    def __call__(self, p, targets):
        lcls, lbox, lobj = torch.zeros(1), torch.zeros(1), torch.zeros(1)
        tcls, tbox, indices, anchors = self.build_targets(p, targets)
        for i, pi in enumerate(p):
            b, a, gj, gi = indices[i]
            tobj = torch.zeros(pi.shape[:4], dtype=pi.dtype)
            if n := b.shape[0]:
                pxy, pwh, _, pcls = pi[b, a, gj, gi].split((2, 2, 1, self.nc), 1)
                pxy = pxy.sigmoid() * 2 - 0.5
                pwh = (pwh.sigmoid() * 2) ** 2 * anchors[i]
                iou = bbox_ciou(torch.cat((pxy, pwh), 1), tbox[i]).squeeze()
                lbox += (1.0 - iou).mean()
                iou = iou.detach().clamp(0).type(tobj.dtype)
                j = iou.argsort()
                b, a, gj, gi, iou, order = b[j], a[j], gj[j], gi[j], iou[j], j
                for k in range(n):
                    tobj[b[k], a[k], gj[k], gi[k]] = iou[k]
                t = torch.full_like(pcls, 0.0)
                t[range(n), tcls[i]] = 1.0
                lcls += self.BCEcls(pcls[order], t[order])
            lobj += self.BCEobj(pi[..., 4], tobj) * self.balance[i]
        lbox *= 0.05
        lcls *= 0.5
        return (lbox + lobj + lcls) * tobj.shape[0], torch.cat((lbox, lobj, lcls)).detach()

    def build_targets(self, p, targets):
        na, nt = self.na, targets.shape[0]
        tcls, tbox, indices, anch = [], [], [], []
        gain = torch.ones(7)
        ai = torch.arange(na).float().view(na, 1).repeat(1, nt)
        targets = torch.cat((targets.repeat(na, 1, 1), ai[..., None]), 2)
        g = 0.5
        off = torch.tensor([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1]]).float() * g
        for i in range(self.nl):
            anchors, shape = self.anchors[i], p[i].shape
            gain[2:6] = torch.tensor(shape)[[3, 2, 3, 2]]
            t = targets * gain
            if nt:
                r = t[..., 4:6] / anchors[:, None]
                j = torch.max(r, 1 / r).max(2)[0] < 4.0
                t = t[j]
                gxy = t[:, 2:4]
                gxi = gain[[2, 3]] - gxy
                j, k = ((gxy % 1 < g) & (gxy > 1)).T
                l, m = ((gxi % 1 < g) & (gxi > 1)).T  # noqa: E741
                j = torch.stack((torch.ones_like(j), j, k, l, m))
                t = t.repeat((5, 1, 1))[j]
                offsets = (torch.zeros_like(gxy)[None] + off[:, None])[j]
            bc, gxy, gwh, a = t.chunk(4, 1)
            a, (b, c) = a.long().view(-1), bc.long().T
            gij = (gxy - offsets).long()
            gi, gj = gij.T
            indices.append((b, a, gj.clamp_(0, shape[2] - 1), gi.clamp_(0, shape[3] - 1)))
            tbox.append(torch.cat((gxy - gij, gwh), 1))
            anch.append(anchors[a])
            tcls.append(c)
        return tcls, tbox, indices, anch


def nms(boxes, scores, threshold):
    order, keep = scores.argsort(descending=True), []
    while order.numel() > 0:
        i = order[0]
        keep.append(i.item())
        if order.numel() == 1:
            break
        iou = box_iou(boxes[i].unsqueeze(0), boxes[order[1:]]).squeeze(0)
        order = order[1:][iou <= threshold]
    return torch.tensor(keep, dtype=torch.long)


def non_max_suppression(prediction, conf_thres=0.01, iou_thres=0.45, max_det=5, max_wh=7680):
    nc = prediction.shape[2] - 5
    xc = prediction[..., 4] > conf_thres
    output = [torch.zeros((0, 6))] * prediction.shape[0]
    for xi, x in enumerate(prediction):
        x = x[xc[xi]]
        if not x.shape[0]:
            continue
        x[:, 5:] *= x[:, 4:5]
        box = xywh2xyxy(x[:, :4])
        i, j = (x[:, 5 : 5 + nc] > conf_thres).nonzero(as_tuple=False).T
        x = torch.cat((box[i], x[i, 5 + j, None], j[:, None].float()), 1)
        x = x[x[:, 4].argsort(descending=True)[:60]]
        c = x[:, 5:6] * max_wh
        output[xi] = x[nms(x[:, :4] + c, x[:, 4], iou_thres)[:max_det]]
    return output


torch.manual_seed(4)
np.random.seed(4)
model = Model()
print([(m.i, m.f, m.type.split(".")[-1]) for m in model.model], model.stride, model.model[-1].anchors.shape)
g = [], [], []
for v in model.modules():
    for name, p in v.named_parameters(recurse=False):
        if name == "bias":
            g[2].append(p)
        elif isinstance(v, nn.BatchNorm2d):
            g[1].append(p)
        else:
            g[0].append(p)
optimizer = torch.optim.SGD(g[2], lr=0.02, momentum=0.9, nesterov=True)
optimizer.add_param_group({"params": g[0], "weight_decay": 5e-4})
optimizer.add_param_group({"params": g[1], "weight_decay": 0.0})
print([len(each["params"]) for each in optimizer.param_groups])
imgs = torch.rand(4, 3, 32, 32)
targets = []
for b in range(4):
    for _ in range(2):
        c, xy, wh = np.random.randint(3), np.random.uniform(0.25, 0.75, 2), np.random.uniform(0.1, 0.4, 2)
        targets.append([b, c, *xy, *wh])
        x1, y1 = (xy - wh / 2) * 32
        x2, y2 = (xy + wh / 2) * 32
        imgs[b, c, int(y1) : int(y2), int(x1) : int(x2)] = 1.0
targets = torch.tensor(targets, dtype=torch.float32)
compute_loss = ComputeLoss(model)
for ni in range(5):
    for j, x in enumerate(optimizer.param_groups):
        x["lr"] = np.interp(ni, [0, 3], [0.1 if j == 0 else 0.0, 0.02])
        if "momentum" in x:
            x["momentum"] = np.interp(ni, [0, 3], [0.8, 0.937])
    loss, loss_items = compute_loss(model(imgs), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(ni, loss.item(), loss_items)
model.eval()
with torch.no_grad():
    pred, _ = model(imgs)
    fused = model.fuse()(imgs)[0]
    print(pred.shape, (pred - fused).abs().max().item() < 1e-2, hasattr(model.model[0], "bn"))
    for det in non_max_suppression(pred, conf_thres=0.002):
        print(len(det), det[:2, 4:].numpy().round(3).tolist())
model.model[-1].export = True
example = imgs
