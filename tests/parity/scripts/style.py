"""Features by forward hooks: Gram matrices and style transfer, Grad-CAM by backward hooks, saliency, deep dream."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim


class VGG(nn.Module):
    def __init__(self, cfg=(6, "M", 8, 8, "M")):
        super().__init__()
        layers, c = [], 3
        for v in cfg:
            if v == "M":
                layers += [nn.MaxPool2d(kernel_size=2, stride=2)]
            else:
                layers += [nn.Conv2d(c, v, kernel_size=3, padding=1), nn.ReLU(inplace=False)]
                c = v
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Linear(8 * 4 * 4, 10), nn.ReLU(True), nn.Linear(10, 4))

    def forward(self, x):
        x = self.features(x)
        x = torch.flatten(x, 1)
        return self.classifier(x)


class GradCAM:
    def __init__(self, model, target_layer):
        self.model = model
        self.activations = self.gradients = None
        self.handles = [
            target_layer.register_forward_hook(self.save_activation),
            target_layer.register_full_backward_hook(self.save_gradient),
        ]

    def save_activation(self, module, input, output):
        self.activations = output.detach()

    def save_gradient(self, module, grad_input, grad_output):
        self.gradients = grad_output[0].detach()

    def __call__(self, x, index=None):
        logits = self.model(x)
        if index is None:
            index = int(logits.argmax(dim=1)[0])
        self.model.zero_grad()
        one_hot = torch.zeros_like(logits)
        one_hot[:, index] = 1
        logits.backward(gradient=one_hot, retain_graph=True)
        weights = self.gradients.mean(dim=(2, 3), keepdim=True)
        cam = F.relu((weights * self.activations).sum(dim=1, keepdim=True))
        cam = F.interpolate(cam, size=x.shape[2:], mode="bilinear", align_corners=False)
        cam = cam - cam.min()
        cam = cam / (cam.max() + 1e-8)
        return cam[0, 0].cpu().numpy()

    def remove(self):
        for h in self.handles:
            h.remove()


def gram_matrix(input):
    a, b, c, d = input.size()
    features = input.view(a * b, c * d)
    G = torch.mm(features, features.t())
    return G.div(a * b * c * d)


class ContentLoss(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = target.detach()

    def forward(self, input):
        self.loss = F.mse_loss(input, self.target)
        return input


class StyleLoss(nn.Module):
    def __init__(self, target_feature):
        super().__init__()
        self.target = gram_matrix(target_feature).detach()

    def forward(self, input):
        self.loss = F.mse_loss(gram_matrix(input), self.target)
        return input


def total_variation(img):
    return (img[:, :, :, :-1] - img[:, :, :, 1:]).abs().sum() + torch.sum(
        torch.abs(img[:, :, :-1, :] - img[:, :, 1:, :])
    )


def get_style_model(cnn, style, content):
    model = nn.Sequential()
    losses = {"content": [], "style": []}
    i = 0
    for layer in cnn.children():
        if isinstance(layer, nn.Conv2d):
            i += 1
            name = f"conv_{i}"
        elif isinstance(layer, nn.ReLU):
            name = f"relu_{i}"
            layer = nn.ReLU(inplace=False)
        elif isinstance(layer, nn.MaxPool2d):
            name = f"pool_{i}"
        else:
            raise RuntimeError(f"Unrecognized layer: {layer.__class__.__name__}")
        model.add_module(name, layer)
        if name == "conv_2":
            model.add_module("content_loss", ContentLoss(model(content).detach()))
            losses["content"].append(model.content_loss)
        if name.startswith("conv"):
            model.add_module(f"style_loss_{i}", StyleLoss(model(style).detach()))
            losses["style"].append(model[-1])
    for i in range(len(model) - 1, -1, -1):
        if isinstance(model[i], (ContentLoss, StyleLoss)):
            break
    return model[: (i + 1)], losses


def main(fill, numbers):
    net = fill(VGG()).eval()
    image = torch.from_numpy(numbers(1, 3, 16, 16))
    trace = []
    cam = GradCAM(net, net.features[5])
    heat = cam(image)
    trace += [float(heat.sum()), float(heat.max()), float(heat[3, 4])]
    cam.remove()
    # a dictionary of activations
    activation = {}

    def get_activation(name):
        def hook(model, input, output):
            activation[name] = output.detach()

        return hook

    handles = []
    for name, module in net.named_modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            handles.append(module.register_forward_hook(get_activation(name)))
    with torch.no_grad():
        net(image)
    for h in handles:
        h.remove()
    for key, value in activation.items():
        trace += [float(value.abs().mean()), value.var(unbiased=False).item()]
    # saliency
    x = image.clone().requires_grad_(True)
    score, _ = torch.max(net(x), 1)
    score.backward()
    saliency, _ = torch.max(x.grad.data.abs(), dim=1)
    trace.append(saliency.sum().item())

    # guided backpropagation
    def guided(module, grad_in, grad_out):
        return (torch.clamp(grad_in[0], min=0.0),)

    hooks = [m.register_full_backward_hook(guided) for m in net.features if isinstance(m, nn.ReLU)]
    x.grad.zero_()
    net(x)[0, 1].backward()
    trace.append(x.grad.norm().item())
    [h.remove() for h in hooks]
    # style transfer by L-BFGS
    style = torch.from_numpy(numbers(1, 3, 16, 16))
    model, losses = get_style_model(net.features, style, image)
    input_img = image.clone()
    input_img.requires_grad_(True)
    model.eval()
    model.requires_grad_(False)
    optimizer = optim.LBFGS([input_img], max_iter=5)
    run = [0]
    while run[0] <= 10:

        def closure():
            with torch.no_grad():
                input_img.clamp_(-3, 3)
            optimizer.zero_grad()
            model(input_img)
            style_score = sum(sl.loss for sl in losses["style"]) * 1e4
            content_score = 0
            for cl in losses["content"]:
                content_score += cl.loss
            loss = style_score + content_score + 1e-4 * total_variation(input_img)
            loss.backward()
            run[0] += 1
            if run[0] < 6:
                trace.append(loss.item())
            return style_score + content_score

        optimizer.step(closure)
    # deep dream: normalized ascent with roll
    img = style.clone()
    for _ in range(3):
        img = img.roll(shifts=(1, 2), dims=(2, 3)).detach().requires_grad_(True)
        net.features[:3](img).norm().backward()
        with torch.no_grad():
            g = img.grad
            g /= g.abs().mean() + 1e-8
            img += 0.05 * g
        trace.append(img.abs().mean().item())
    return trace
