"""The networks of `muso-models` in PyTorch, with the names and the order of its tensors."""

import torch
from torch import nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    def __init__(self, fan_in, planes, stride, padded):
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        self.missing = 0
        if stride != 1 or fan_in != planes:
            if padded:
                self.missing = planes - fan_in
            else:
                conv = nn.Conv2d(fan_in, planes, 1, stride, bias=False)
                self.downsample = nn.Sequential(conv, nn.BatchNorm2d(planes))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            x = self.downsample(x)
        elif self.missing:
            before = self.missing // 2
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, before, self.missing - before))
        out += x
        return F.relu(out, inplace=True)


def stage(fan_in, planes, blocks, stride, padded):
    layers = [BasicBlock(fan_in, planes, stride, padded)]
    layers += [BasicBlock(planes, planes, 1, padded) for _ in range(blocks - 1)]
    return nn.Sequential(*layers)


class ResNet(nn.Module):
    def __init__(self, blocks, classes, image, w):
        super().__init__()
        large = min(image[1:]) >= 64
        self.conv1 = nn.Conv2d(image[0], w, 7, 2, 3, bias=False) if large else nn.Conv2d(image[0], w, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(w)
        self.pool = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
        self.layer1 = stage(w, w, blocks[0], 1, False)
        self.layer2 = stage(w, 2 * w, blocks[1], 2, False)
        self.layer3 = stage(2 * w, 4 * w, blocks[2], 2, False)
        self.layer4 = stage(4 * w, 8 * w, blocks[3], 2, False)
        self.fc = nn.Linear(8 * w, classes)

    def features(self, x):
        x = self.pool(F.relu(self.bn1(self.conv1(x)), inplace=True))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return F.adaptive_avg_pool2d(x, 1).flatten(1)

    def forward(self, x):
        return self.fc(self.features(x))


class CifarResNet(nn.Module):
    def __init__(self, classes, image, w):
        super().__init__()
        self.conv1 = nn.Conv2d(image[0], w, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(w)
        self.layer1 = stage(w, w, 3, 1, True)
        self.layer2 = stage(w, 2 * w, 3, 2, True)
        self.layer3 = stage(2 * w, 4 * w, 3, 2, True)
        self.linear = nn.Linear(4 * w, classes)

    def features(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.layer3(self.layer2(self.layer1(x)))
        return F.adaptive_avg_pool2d(x, 1).flatten(1)

    def forward(self, x):
        return self.linear(self.features(x))


class Vgg(nn.Module):
    def __init__(self, classes, image, w):
        super().__init__()
        layers, fan_in = [], image[0]
        for count, factor in [(2, 1), (2, 2), (3, 4), (3, 8), (3, 8)]:
            for _ in range(count):
                layers += [nn.Conv2d(fan_in, factor * w, 3, 1, 1), nn.BatchNorm2d(factor * w), nn.ReLU(inplace=True)]
                fan_in = factor * w
            layers.append(nn.MaxPool2d(2, 2))
        body = nn.Sequential(*layers)
        self.add_module("features", body)
        self.classifier = nn.Linear(8 * w, classes)
        self.body = [body]

    def forward(self, x):
        return self.classifier(F.adaptive_avg_pool2d(self.body[0](x), 1).flatten(1))


class SmallCnn(nn.Module):
    def __init__(self, classes, image, w, norm):
        super().__init__()
        self.conv1 = nn.Conv2d(image[0], w, 3, 1, 1)
        self.bn1 = nn.BatchNorm2d(w) if norm else nn.Identity()
        self.conv2 = nn.Conv2d(w, 2 * w, 3, 1, 1)
        self.bn2 = nn.BatchNorm2d(2 * w) if norm else nn.Identity()
        self.fc1 = nn.Linear(2 * w * (image[1] // 4) * (image[2] // 4), 128)
        self.fc2 = nn.Linear(128, classes)

    def features(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return F.relu(self.fc1(x.flatten(1)))

    def forward(self, x):
        return self.fc2(self.features(x))


def build(architecture, classes, image, width=None, norm=False):
    """The network of a `NetworkConfig`."""
    if architecture == "small-cnn":
        return SmallCnn(classes, image, width or 16, norm)
    if architecture == "resnet18":
        return ResNet([2, 2, 2, 2], classes, image, width or 64)
    if architecture == "resnet34":
        return ResNet([3, 4, 6, 3], classes, image, width or 64)
    if architecture == "resnet20":
        return CifarResNet(classes, image, width or 16)
    return Vgg(classes, image, width or 64)


def fill(net, flat):
    """Puts all tensors, end to end in the network's order, into the network."""
    flat, begin = torch.from_numpy(flat).reshape(-1), 0
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if not name.endswith("num_batches_tracked"):
                tensor.copy_(flat[begin : begin + tensor.numel()].reshape(tensor.shape))
                begin += tensor.numel()
    assert begin == flat.numel(), f"{flat.numel()} values for {begin}"
    return net


def extraction(arrays, options):
    """Feature rows in evaluation mode."""
    net = fill(build(**options), arrays["weights"]).eval()
    images = torch.from_numpy(arrays["images"]).reshape(-1, *options["image"])
    last, wide = net.to(memory_format=torch.channels_last), images.contiguous(memory_format=torch.channels_last)

    def run(net, images):
        with torch.inference_mode():
            return net.features(images)

    plain = fill(build(**options), arrays["weights"]).eval()
    return {
        "torch": lambda: run(plain, images),
        "torch channels_last": lambda: run(last, wide),
    }


def training(arrays, options):
    """A step of SGD in training mode; gives the gradient of the first convolution."""

    def variant(memory_format):
        net = fill(build(**options), arrays["weights"]).train().to(memory_format=memory_format)
        images = torch.from_numpy(arrays["images"]).reshape(-1, *options["image"])
        images = images.contiguous(memory_format=memory_format)
        labels = torch.from_numpy(arrays["labels"]).reshape(-1).long()
        # A rate of zero costs what any other does, and every step is the first.
        optimiser = torch.optim.SGD(net.parameters(), lr=0.0)

        def run():
            optimiser.zero_grad(set_to_none=True)
            F.cross_entropy(net(images), labels).backward()
            optimiser.step()
            return next(net.parameters()).grad.contiguous().reshape(1, -1).clone()

        return run

    return {
        "torch": variant(torch.contiguous_format),
        "torch channels_last": variant(torch.channels_last),
    }
