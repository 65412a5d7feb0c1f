"""Neural style transfer: layers put into a network as it is walked, Gram matrices, L-BFGS over the pixels."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

device = torch.device("cuda" if torch.cuda.is_available() and False else "cpu")
torch.set_default_dtype(torch.float32)
torch.manual_seed(0)


class ContentLoss(nn.Module):
    def __init__(self, target):
        super(ContentLoss, self).__init__()
        # detached: a stated value, not a variable
        self.target = target.detach()

    def forward(self, input):
        self.loss = F.mse_loss(input, self.target)
        return input


def gram_matrix(input):
    a, b, c, d = input.size()
    features = input.view(a * b, c * d)
    G = torch.mm(features, features.t())
    return G.div(a * b * c * d)


class StyleLoss(nn.Module):
    def __init__(self, target_feature):
        super(StyleLoss, self).__init__()
        self.target = gram_matrix(target_feature).detach()

    def forward(self, input):
        G = gram_matrix(input)
        self.loss = F.mse_loss(G, self.target)
        return input


class Normalization(nn.Module):
    def __init__(self, mean, std):
        super(Normalization, self).__init__()
        self.mean = torch.tensor(mean).view(-1, 1, 1)
        self.std = torch.tensor(std).view(-1, 1, 1)

    def forward(self, img):
        return (img - self.mean) / self.std


def features(cfg=(6, 6, "M", 8, 8)):
    layers, channels = [], 3
    for v in cfg:
        if v == "M":
            layers += [nn.MaxPool2d(kernel_size=2, stride=2)]
        else:
            layers += [nn.Conv2d(channels, v, kernel_size=3, padding=1), nn.ReLU(inplace=True)]
            channels = v
    return nn.Sequential(*layers)


def get_style_model_and_losses(cnn, mean, std, style_img, content_img, content_layers, style_layers):
    normalization = Normalization(mean, std)
    content_losses, style_losses = [], []
    model = nn.Sequential(normalization)
    i = 0
    for layer in cnn.children():
        if isinstance(layer, nn.Conv2d):
            i += 1
            name = "conv_{}".format(i)
        elif isinstance(layer, nn.ReLU):
            name = "relu_{}".format(i)
            layer = nn.ReLU(inplace=False)
        elif isinstance(layer, nn.MaxPool2d):
            name = "pool_{}".format(i)
        elif isinstance(layer, nn.BatchNorm2d):
            name = "bn_{}".format(i)
        else:
            raise RuntimeError("Unrecognized layer: {}".format(layer.__class__.__name__))
        model.add_module(name, layer)
        if name in content_layers:
            target = model(content_img).detach()
            content_loss = ContentLoss(target)
            model.add_module("content_loss_{}".format(i), content_loss)
            content_losses.append(content_loss)
        if name in style_layers:
            target_feature = model(style_img).detach()
            style_loss = StyleLoss(target_feature)
            model.add_module("style_loss_{}".format(i), style_loss)
            style_losses.append(style_loss)
    for i in range(len(model) - 1, -1, -1):
        if isinstance(model[i], ContentLoss) or isinstance(model[i], StyleLoss):
            break
    model = model[: (i + 1)]
    return model, style_losses, content_losses


def total_variation(img):
    return (img[:, :, :, :-1] - img[:, :, :, 1:]).abs().mean() + (img[:, :, :-1] - img[:, :, 1:]).abs().mean()


def run_style_transfer(cnn, content_img, style_img, input_img, num_steps=12, style_weight=1e4, content_weight=1):
    model, style_losses, content_losses = get_style_model_and_losses(
        cnn, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225], style_img, content_img, ["conv_2"], ["conv_1", "conv_3"]
    )
    print([n for n, _ in model.named_children()], len(model))
    input_img.requires_grad_(True)
    model.eval()
    model.requires_grad_(False)
    optimizer = optim.LBFGS([input_img], max_iter=4, lr=0.5)
    run = [0]
    while run[0] <= num_steps:

        def closure():
            with torch.no_grad():
                input_img.clamp_(0, 1)
            optimizer.zero_grad()
            model(input_img)
            style_score = 0
            content_score = 0
            for sl in style_losses:
                style_score += sl.loss
            for cl in content_losses:
                content_score += cl.loss
            style_score *= style_weight
            content_score *= content_weight
            loss = style_score + content_score + 0.1 * total_variation(input_img)
            loss.backward()
            run[0] += 1
            if run[0] % 4 == 0:
                print("run {}: Style {:4f} Content {:4f}".format(run, style_score.item(), content_score.item()))
            return style_score + content_score

        optimizer.step(closure)
    with torch.no_grad():
        input_img.clamp_(0, 1)
    return input_img


class TransformerNet(nn.Module):
    """The feed-forward way: reflection padding, instance norms, upsampled convolutions."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.ReflectionPad2d(4), nn.Conv2d(3, 6, 9, 1), nn.InstanceNorm2d(6, affine=True))
        self.res = nn.Conv2d(6, 6, 3, 1, 1, padding_mode="reflect")
        self.up = nn.Conv2d(6, 3, 3, 1, 1, padding_mode="replicate")

    def forward(self, x):
        y = F.relu(self.down(x))
        y = y + self.res(y)
        y = F.interpolate(F.avg_pool2d(y, 2), scale_factor=2, mode="nearest")
        return self.up(y).sigmoid()


cnn = features().to(device).eval()
content_img, style_img = torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 16).pow(2)
input_img = content_img.clone()
output = run_style_transfer(copy.deepcopy(cnn), content_img, style_img, input_img)
print(output.mean().item(), output.std().item(), (output - content_img).abs().max().item() > 0.01, cnn[0].weight.grad)
model = TransformerNet()
opt = optim.Adam(model.parameters(), 1e-2)
gram = [gram_matrix(f) for f in (cnn[:2](style_img), cnn(style_img))]
for step in range(3):
    opt.zero_grad()
    y = model(content_img)
    loss = sum(F.mse_loss(gram_matrix(f), g.detach()) for f, g in zip((cnn[:2](y), cnn(y)), gram)) * 1e3
    loss = loss + F.mse_loss(cnn[:7](y), cnn[:7](content_img))
    loss.backward()
    opt.step()
    print("fast", step, loss.item())
x = content_img.clone().requires_grad_(True)
score, _ = torch.max(cnn(x).mean((2, 3)), 1)
score.backward()
saliency, _ = torch.max(x.grad.data.abs(), dim=1)
print("saliency", saliency.sum().item())


def guided(module, grad_in, grad_out):
    return (torch.clamp(grad_in[0], min=0.0),)


plain = nn.Sequential(*[nn.ReLU() if isinstance(m, nn.ReLU) else m for m in cnn])
hooks = [m.register_full_backward_hook(guided) for m in plain if isinstance(m, nn.ReLU)]
x.grad.zero_()
plain(x)[0, 1].sum().backward()
print("guided", x.grad.norm().item())
[h.remove() for h in hooks]
img = style_img.clone()
for _ in range(3):  # a deep dream: normalized ascent
    img = img.roll(shifts=(1, 2), dims=(2, 3)).detach().requires_grad_(True)
    plain[:3](img).norm().backward()
    with torch.no_grad():
        g = img.grad
        g /= g.abs().mean() + 1e-8
        img += 0.05 * g
    print("dream", img.abs().mean().item())
example = torch.rand(3, 3, 16, 16)
