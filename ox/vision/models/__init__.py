"""Networks for images with torchvision's names, so that its weights load: `torchvision.models`.

Nothing is downloaded: the weights come from a file, `model.load_state_dict(ox.load("resnet18.pth"))`.
"""

from ox.core.lazy import lazy_modules
from ox.vision.models.alexnet import AlexNet, alexnet
from ox.vision.models.mobilenet import MobileNetV2, mobilenet_v2
from ox.vision.models.resnet import BasicBlock, Bottleneck, ResNet, resnet18, resnet34, resnet50, resnet101, resnet152
from ox.vision.models.vgg import VGG, vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn

__all__ = [
    "VGG",
    "AlexNet",
    "BasicBlock",
    "Bottleneck",
    "MobileNetV2",
    "ResNet",
    "alexnet",
    "mobilenet_v2",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "vgg11",
    "vgg11_bn",
    "vgg13",
    "vgg13_bn",
    "vgg16",
    "vgg16_bn",
    "vgg19",
    "vgg19_bn",
]

__getattr__, __dir__ = lazy_modules(__name__)
