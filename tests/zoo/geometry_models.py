"""Models of places: points, rays, sampled grids and regions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from architecture import architecture, normal

import ox
import ox.nn.functional as F
from ox import nn
from ox.vision.ops import roi_align


class SpatialTransformer(nn.Module):
    """Jaderberg et al., "Spatial Transformer Networks", 2015."""

    def __init__(self) -> None:
        super().__init__()
        self.localization = nn.Sequential(
            nn.Conv2d(1, 8, 7), nn.MaxPool2d(2, stride=2), nn.ReLU(True), nn.AdaptiveAvgPool2d(3)
        )
        self.fc_loc = nn.Sequential(nn.Linear(8 * 3 * 3, 16), nn.ReLU(True), nn.Linear(16, 3 * 2))
        self.fc_loc[2].weight.data.normal_(0, 0.1)
        self.fc_loc[2].bias.data.copy_(ox.tensor([1, 0, 0, 0, 1, 0], dtype=ox.float))
        self.conv, self.head = nn.Conv2d(1, 8, 5), nn.Linear(8, 10)

    def forward(self, x: Any) -> Any:
        xs = self.localization(x).view(-1, 8 * 3 * 3)
        theta = self.fc_loc(xs).view(-1, 2, 3)
        grid = F.affine_grid(theta, x.size(), align_corners=False)
        x = F.grid_sample(x, grid, align_corners=False)
        return F.log_softmax(self.head(F.relu(self.conv(x)).mean((2, 3))), dim=1)


class RoIHead(nn.Module):
    """He et al., "Mask R-CNN", 2017: the regions of boxes, pooled and classified."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Conv2d(3, 8, 3, stride=4, padding=1)
        self.fc, self.cls_score, self.bbox_pred = nn.Linear(8 * 3 * 3, 16), nn.Linear(16, 4), nn.Linear(16, 16)

    def forward(self, images: Any, rois: Any) -> Any:
        features = F.relu(self.backbone(images))
        x = roi_align(features, rois, output_size=(3, 3), spatial_scale=0.25, sampling_ratio=2, aligned=True)
        x = F.relu(self.fc(x.flatten(start_dim=1)))
        scores = F.softmax(self.cls_score(x), -1)
        deltas = self.bbox_pred(x).reshape(x.shape[0], -1, 4)
        labels = scores[:, 1:].max(1)[1] + 1
        return scores, deltas[ox.arange(x.shape[0]), labels]


class TNet(nn.Module):
    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k
        self.conv, self.bn, self.fc = nn.Conv1d(k, 16, 1), nn.BatchNorm1d(16), nn.Linear(16, k * k)

    def forward(self, x: Any) -> Any:
        batchsize = x.size()[0]
        x = F.relu(self.bn(self.conv(x)))
        x = ox.max(x, 2, keepdim=True)[0].view(-1, 16)
        identity = ox.eye(self.k).view(1, self.k * self.k).repeat(batchsize, 1)
        return (self.fc(x) + identity).view(-1, self.k, self.k)


class PointNet(nn.Module):
    """Qi et al., "PointNet", 2016: a class for the cloud, and one for each point."""

    def __init__(self) -> None:
        super().__init__()
        self.stn, self.conv1, self.conv2 = TNet(3), nn.Conv1d(3, 16, 1), nn.Conv1d(16, 32, 1)
        self.bn1, self.bn2 = nn.BatchNorm1d(16), nn.BatchNorm1d(32)
        self.head, self.seg = nn.Linear(32, 5), nn.Conv1d(48, 4, 1)

    def forward(self, points: Any) -> Any:
        x = points.transpose(2, 1)
        n_pts = x.size()[2]
        x = ox.bmm(x.transpose(2, 1), self.stn(x)).transpose(2, 1)
        local = F.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(local))
        glob = ox.max(x, 2, keepdim=True)[0].view(-1, 32)
        tiled = glob.view(-1, 32, 1).repeat(1, 1, n_pts)
        return self.head(glob), F.log_softmax(self.seg(ox.cat([tiled, local], 1)).transpose(2, 1), -1)


class PointNet2(nn.Module):
    """Qi et al., "PointNet++", 2017: features of the nearest neighbours of a part of the points."""

    def __init__(self, k: int = 4) -> None:
        super().__init__()
        self.k, self.mlp, self.head = k, nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16)), nn.Linear(16, 5)

    def forward(self, points: Any) -> Any:
        B = points.shape[0]
        centers = points[:, ::4]
        index = ox.cdist(centers, points).topk(self.k, dim=-1, largest=False)[1]
        batch = ox.arange(B).view(B, 1, 1)
        near = points[batch, index]
        features = ox.cat([near - centers[:, :, None], near], -1)
        return self.head(self.mlp(features).max(2)[0].mean(1))


class NeRF(nn.Module):
    """Mildenhall et al., "NeRF", 2020: positions encoded by frequencies, colours summed along each ray."""

    def __init__(self, freqs: int = 4) -> None:
        super().__init__()
        self.register_buffer("bands", 2.0 ** ox.linspace(0.0, freqs - 1, steps=freqs), persistent=False)
        width = 3 + 3 * 2 * freqs
        self.density, self.feature, self.colour = nn.Linear(width, 16), nn.Linear(16, 17), nn.Linear(19, 3)

    def encoding(self, x: Any) -> Any:
        out = [x]
        for freq in self.bands:
            for fn in (ox.sin, ox.cos):
                out.append(fn(x * freq * math.pi))
        return ox.cat(out, -1)

    def forward(self, rays_o: Any, rays_d: Any, n_samples: int = 8) -> Any:
        viewdirs = rays_d / ox.norm(rays_d, dim=-1, keepdim=True)
        z_vals = ox.linspace(2.0, 6.0, n_samples).expand(rays_o.shape[0], n_samples)
        pts = rays_o[..., None, :] + rays_d[..., None, :] * z_vals[..., :, None]
        h = self.feature(F.relu(self.density(self.encoding(pts))))
        sigma, feature = h[..., 0], h[..., 1:]
        rgb = ox.sigmoid(self.colour(ox.cat([feature, viewdirs[:, None].expand(pts.shape)], -1)))
        dists = z_vals[..., 1:] - z_vals[..., :-1]
        dists = ox.cat([dists, ox.tensor([1e10]).expand(dists[..., :1].shape)], -1)
        alpha = 1.0 - ox.exp(-F.relu(sigma) * dists)
        ones = ox.ones((alpha.shape[0], 1))
        weights = alpha * ox.cumprod(ox.cat([ones, 1.0 - alpha + 1e-10], -1), -1)[:, :-1]
        return ox.sum(weights[..., None] * rgb, -2), ox.sum(weights * z_vals, -1)


class CapsNet(nn.Module):
    """Sabour et al., "Dynamic Routing Between Capsules", 2017."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.conv, self.primary = nn.Conv2d(1, 8, 5), nn.Conv2d(8, 16, 5, stride=2)
        self.classes, self.W = classes, nn.Parameter(0.1 * ox.randn(1, 256, classes, 8, 4))

    @staticmethod
    def squash(s: Any, dim: int = -1) -> Any:
        squared = ox.sum(s**2, dim=dim, keepdim=True)
        return squared / (1 + squared) * s / (ox.sqrt(squared) + 1e-8)

    def forward(self, x: Any) -> Any:
        u = self.primary(F.relu(self.conv(x)))
        u = self.squash(u.view(u.size(0), -1, 4))
        u_hat = ox.matmul(self.W, u[:, :, None, :, None]).squeeze(-1)
        b = ox.zeros(*u_hat.size()[:3], 1, device=x.device)
        for i in range(3):
            c = F.softmax(b, dim=2)
            v = self.squash((c * u_hat).sum(dim=1))
            if i < 2:
                b = b + (u_hat * v.unsqueeze(1)).sum(-1, keepdim=True)
        return v.norm(dim=-1)


def _regions(batch: int, h: int, w: int, boxes: int) -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    corners = random.uniform(0, 0.5, (boxes, 2)) * [w, h]
    ends = corners + random.uniform(0.2, 0.5, (boxes, 2)) * [w, h]
    which = np.zeros((boxes, 1))
    return normal(batch, 3, h, w), np.concatenate([which, corners, ends], 1).astype(np.float32)


MODELS = {
    "SpatialTransformer": architecture(
        SpatialTransformer,
        lambda batch, h, w: (normal(batch, 1, h, w),),
        {"x": ["batch", 1, "h", "w"]},
        batch=(8, 3),
        h=(20, 25),
        w=(20, 18),
        lowest=16,
    ),
    "RoIHead": architecture(
        RoIHead,
        _regions,
        {"images": ["batch", 3, "h", "w"], "rois": ["boxes", 5]},
        batch=(2, 1),
        h=(32, 40),
        w=(32, 28),
        boxes=(6, 9),
        varying=("batch", "boxes"),
        lowest=16,
        highest=21,
        alone=True,
    ),
    "PointNet": architecture(
        PointNet, lambda batch, n: (normal(batch, n, 3),), {"points": ["batch", "n", 3]}, batch=(8, 3), n=(24, 37)
    ),
    "PointNet++": architecture(
        PointNet2, lambda batch, n: (normal(batch, n, 3),), {"points": ["batch", "n", 3]}, batch=(8, 3), n=(24, 37)
    ),
    "NeRF": architecture(
        NeRF,
        lambda rays: (normal(rays, 3), normal(rays, 3, seed=1)),
        {"rays_o": ["rays", 3], "rays_d": ["rays", 3]},
        rays=(8, 13),
        varying=("rays",),
    ),
    "CapsNet": architecture(
        CapsNet, lambda batch: (normal(batch, 1, 23, 23),), {"x": ["batch", 1, 23, 23]}, batch=(8, 3)
    ),
}
