from os.path import splitext

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor, optim
from torch.utils.data import DataLoader, Dataset, random_split

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None

""" Parts of the U-Net model """


class DoubleConv(nn.Module):
    """(convolution => [BN] => ReLU) * 2"""

    def __init__(self, in_channels, out_channels, mid_channels=None):
        super().__init__()
        if not mid_channels:
            mid_channels = out_channels
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, mid_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(mid_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(mid_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    """Downscaling with maxpool then double conv"""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(in_channels, out_channels))

    def forward(self, x):
        return self.maxpool_conv(x)


class AttentionGate(nn.Module):
    def __init__(self, gating, skip, inter):
        super().__init__()
        self.W_g = nn.Conv2d(gating, inter, 1)
        self.W_x = nn.Conv2d(skip, inter, 1, bias=False)
        self.psi = nn.Sequential(nn.Conv2d(inter, 1, 1), nn.Sigmoid())

    def forward(self, g, x):
        return x * self.psi(F.relu(self.W_g(g) + self.W_x(x), inplace=True)).expand_as(x)


class Up(nn.Module):
    """Upscaling then double conv"""

    def __init__(self, in_channels, out_channels, bilinear=True):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv = DoubleConv(in_channels, out_channels, in_channels // 2)
            self.gate = AttentionGate(in_channels // 2, in_channels // 2, 4)
        else:
            self.up = nn.ConvTranspose2d(in_channels, in_channels // 2, kernel_size=2, stride=2)
            self.conv = DoubleConv(in_channels, out_channels)
            self.gate = None

    def forward(self, x1, x2):
        x1 = self.up(x1)
        # input is CHW
        diffY = x2.size()[2] - x1.size()[2]
        diffX = x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [diffX // 2, diffX - diffX // 2, diffY // 2, diffY - diffY // 2])
        if self.gate is not None:
            x2 = self.gate(x1, x2)
        x = torch.cat([x2, x1], dim=1)
        return self.conv(x)


class OutConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super(OutConv, self).__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=1)

    def forward(self, x):
        return self.conv(x)


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, bilinear=False, width=4):
        super(UNet, self).__init__()
        self.n_channels = n_channels
        self.n_classes = n_classes
        self.bilinear = bilinear
        self.inc = DoubleConv(n_channels, width)
        self.down1 = Down(width, width * 2)
        factor = 2 if bilinear else 1
        self.down2 = Down(width * 2, width * 4 // factor)
        self.up1 = Up(width * 4, width * 2 // factor, bilinear)
        self.up2 = Up(width * 2, width, bilinear)
        self.outc = OutConv(width, n_classes)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x = self.up1(x3, x2)
        x = self.up2(x, x1)
        return self.outc(x)

    def use_checkpointing(self):
        self.inc = torch.utils.checkpoint.checkpoint(self.inc)


class OriginalUNet(nn.Module):
    """Without padding: what comes across is cropped in the middle."""

    def __init__(self, n_classes, width=4):
        super().__init__()

        def block(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3), nn.ReLU(), nn.Conv2d(b, b, 3), nn.ReLU())

        self.down, self.mid, self.last = block(1, width), block(width, 2 * width), block(2 * width, width)
        self.up = nn.ConvTranspose2d(2 * width, width, 3, stride=2, padding=1)
        self.out = nn.Conv2d(width, n_classes, 1)

    @staticmethod
    def center_crop(layer, target_size):
        _, _, layer_height, layer_width = layer.size()
        diff_y = (layer_height - target_size[0]) // 2
        diff_x = (layer_width - target_size[1]) // 2
        return layer[:, :, diff_y : (diff_y + target_size[0]), diff_x : (diff_x + target_size[1])]

    def forward(self, x):
        skip = self.down(x)
        x = self.mid(F.max_pool2d(skip, 2))
        x = self.up(x, output_size=[2 * s for s in x.shape[2:]])
        return self.out(self.last(torch.cat([self.center_crop(skip, x.shape[2:]), x], 1)))


def dice_coeff(input: Tensor, target: Tensor, reduce_batch_first: bool = False, epsilon: float = 1e-6):
    # Average of Dice coefficient for all batches, or for a single mask
    assert input.size() == target.size()
    assert input.dim() == 3 or not reduce_batch_first
    sum_dim = (-1, -2) if input.dim() == 2 or not reduce_batch_first else (-1, -2, -3)
    inter = 2 * (input * target).sum(dim=sum_dim)
    sets_sum = input.sum(dim=sum_dim) + target.sum(dim=sum_dim)
    sets_sum = torch.where(sets_sum == 0, inter, sets_sum)
    dice = (inter + epsilon) / (sets_sum + epsilon)
    return dice.mean()


def multiclass_dice_coeff(input: Tensor, target: Tensor, reduce_batch_first: bool = False, epsilon: float = 1e-6):
    return dice_coeff(input.flatten(0, 1), target.flatten(0, 1), reduce_batch_first, epsilon)


def dice_loss(input: Tensor, target: Tensor, multiclass: bool = False):
    fn = multiclass_dice_coeff if multiclass else dice_coeff
    return 1 - fn(input, target, reduce_batch_first=True)


class BasicDataset(Dataset):
    def __init__(self, n, size=18, classes=1):
        self.ids = [f"{i:03d}.png" for i in range(n)]
        self.size, self.classes = size, classes
        self.mask_values = list(range(classes + 1))

    def __len__(self):
        return len(self.ids)

    @staticmethod
    def preprocess(mask_values, img, is_mask):
        if is_mask:
            mask = np.zeros(img.shape, dtype=np.int64)
            for i, v in enumerate(mask_values):
                mask[img == v] = i
            return mask
        if img.ndim == 2:
            img = img[np.newaxis, ...]
        else:
            img = img.transpose((2, 0, 1))
        if (img > 1).any():
            img = img / 255.0
        return img

    def __getitem__(self, idx):
        rng = np.random.RandomState(int(splitext(self.ids[idx])[0]))
        yy, xx = np.mgrid[: self.size, : self.size]
        cy, cx, r = rng.uniform(5, self.size - 5), rng.uniform(5, self.size - 5), rng.uniform(3, 5)
        inside = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
        mask = np.where(inside, 1 + (idx % self.classes), 0)
        img = (rng.rand(self.size, self.size, 3) * 90 + 120 * inside[..., None]).astype(np.uint8)
        return {
            "image": torch.as_tensor(self.preprocess(self.mask_values, img, is_mask=False).copy()).float().contiguous(),
            "mask": torch.as_tensor(self.preprocess(self.mask_values, mask, is_mask=True).copy()).long().contiguous(),
        }


@torch.inference_mode()
def evaluate(net, dataloader, device, amp):
    net.eval()
    num_val_batches = len(dataloader)
    dice_score = 0
    with torch.autocast(device.type if device.type != "mps" else "cpu", enabled=amp):
        for batch in dataloader:
            image, mask_true = batch["image"], batch["mask"]
            image = image.to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
            mask_true = mask_true.to(device=device, dtype=torch.long)
            mask_pred = net(image)
            if net.n_classes == 1:
                assert mask_true.min() >= 0 and mask_true.max() <= 1, "True mask indices should be in [0, 1]"
                mask_pred = (F.sigmoid(mask_pred) > 0.5).float()
                dice_score += dice_coeff(mask_pred.squeeze(1), mask_true.float(), reduce_batch_first=False)
            else:
                assert mask_true.min() >= 0 and mask_true.max() < net.n_classes
                mask_true = F.one_hot(mask_true, net.n_classes).permute(0, 3, 1, 2).float()
                mask_pred = F.one_hot(mask_pred.argmax(dim=1), net.n_classes).permute(0, 3, 1, 2).float()
                dice_score += multiclass_dice_coeff(mask_pred[:, 1:], mask_true[:, 1:], reduce_batch_first=False)
    net.train()
    return dice_score / max(num_val_batches, 1)


def train_model(model, device, dataset, epochs=2, batch_size=4, learning_rate=1e-3, val_percent=0.25, amp=False):
    n_val = int(len(dataset) * val_percent)
    n_train = len(dataset) - n_val
    train_set, val_set = random_split(dataset, [n_train, n_val], generator=torch.Generator().manual_seed(0))
    loader_args = dict(batch_size=batch_size, num_workers=0, pin_memory=False)
    train_loader = DataLoader(train_set, shuffle=True, **loader_args)
    val_loader = DataLoader(val_set, shuffle=False, drop_last=True, **loader_args)
    optimizer = optim.RMSprop(model.parameters(), lr=learning_rate, weight_decay=1e-8, momentum=0.9, foreach=True)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=0)  # goal: maximize Dice score
    grad_scaler = torch.amp.GradScaler("cuda", enabled=amp)
    criterion = nn.CrossEntropyLoss() if model.n_classes > 1 else nn.BCEWithLogitsLoss()
    global_step = 0
    for epoch in range(1, epochs + 1):
        model.train()
        epoch_loss = 0
        for batch in train_loader:
            images, true_masks = batch["image"], batch["mask"]
            assert images.shape[1] == model.n_channels
            images = images.to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
            true_masks = true_masks.to(device=device, dtype=torch.long)
            with torch.autocast(device.type if device.type != "mps" else "cpu", enabled=amp):
                masks_pred = model(images)
                if model.n_classes == 1:
                    loss = criterion(masks_pred.squeeze(1), true_masks.float())
                    loss += dice_loss(F.sigmoid(masks_pred.squeeze(1)), true_masks.float(), multiclass=False)
                else:
                    loss = criterion(masks_pred, true_masks)
                    loss += dice_loss(
                        F.softmax(masks_pred, dim=1).float(),
                        F.one_hot(true_masks, model.n_classes).permute(0, 3, 1, 2).float(),
                        multiclass=True,
                    )
            optimizer.zero_grad(set_to_none=True)
            grad_scaler.scale(loss).backward()
            grad_scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            grad_scaler.step(optimizer)
            grad_scaler.update()
            global_step += 1
            epoch_loss += loss.item()
        val_score = evaluate(model, val_loader, device, amp)
        scheduler.step(val_score)
        print(
            "epoch {} loss {:.5f} Validation Dice score: {:.5f} lr {}".format(
                epoch, epoch_loss / len(train_loader), val_score, optimizer.param_groups[0]["lr"]
            )
        )
        state_dict = model.state_dict()
        state_dict["mask_values"] = dataset.mask_values
        torch.save(state_dict, "checkpoint_epoch{}.pth".format(epoch))
    return global_step


def predict_img(net, full_img, device, out_threshold=0.5, size=(20, 20)):
    net.eval()
    img = full_img.unsqueeze(0).to(device=device, dtype=torch.float32)
    with torch.no_grad():
        output = net(img).cpu()
        output = F.interpolate(output, size, mode="bilinear")
        mask = output.argmax(dim=1) if net.n_classes > 1 else torch.sigmoid(output) > out_threshold
    return mask[0].long().squeeze().numpy()


if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for classes, bilinear in ((1, False), (2, True)):
        torch.manual_seed(0)
        model = UNet(n_channels=3, n_classes=classes if classes == 1 else classes + 1, bilinear=bilinear)
        model = model.to(memory_format=torch.channels_last)
        print(
            f"Network:\n\t{model.n_channels} input channels\n\t{model.n_classes} output channels (classes)\n"
            f"\t{'Bilinear' if model.bilinear else 'Transposed conv'} upscaling"
        )
        dataset = BasicDataset(16, classes=classes)
        train_model(model.to(device=device), device, dataset)
        state_dict = torch.load("checkpoint_epoch2.pth", map_location=device)
        print("mask values", state_dict.pop("mask_values", [0, 1]))
        model.load_state_dict(state_dict)
        mask = predict_img(model, dataset[0]["image"], device)
        print(mask.shape, mask.dtype, mask.sum(), np.bincount(mask.reshape(-1)).tolist())

    original = OriginalUNet(2)
    print(original(torch.randn(1, 1, 28, 28)).shape, original(torch.ones(1, 1, 20, 20)).mean().item())
    probe = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding="same"), nn.GroupNorm(2, 4), nn.SiLU(), nn.AvgPool2d(2), nn.Conv2d(4, 1, 1)
    )
    optimizer = optim.SGD(probe.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=3)
    for step in range(3):
        images = torch.randn(3, 3, 8, 8).requires_grad_()
        masks = (images.detach().sum(1, keepdim=True) > 0).float()
        logits = F.interpolate(probe(images), scale_factor=2, mode="bilinear", align_corners=False)
        loss = F.binary_cross_entropy_with_logits(logits, masks)
        (slope,) = torch.autograd.grad(loss, images, create_graph=True)
        total = loss + slope.square().sum().sqrt()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        scheduler.step()
        print("probe", loss.item(), total.item(), scheduler.get_last_lr()[0])
    example = torch.stack([dataset[i]["image"] for i in range(2)])
