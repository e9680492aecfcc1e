"""A CIFAR ResNet forgets 5 % of its rows by MUSO-S: the network and the steps are torch's, the labels muso's.

`python torch_resnet.py ROWS EPOCHS data_batch_*.bin` reads the binary version of CIFAR-10; without files images are made up.
"""

import copy
import sys

import muso.torch
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(before, width, 3, width // before, 1, bias=False), nn.BatchNorm2d(width))
        self.b = nn.Sequential(nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        self.stride, self.more = width // before, width - before

    def forward(self, x: Tensor) -> Tensor:
        skip = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))
        return F.relu(self.b(F.relu(self.a(x))) + skip)


def resnet20() -> nn.Sequential:
    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    blocks = [Block(before, width) for before, width in zip(widths, widths[1:], strict=False)]
    stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def train(net: nn.Module, x: Tensor, targets: Tensor, epochs: int) -> None:
    loader = DataLoader(TensorDataset(x, targets), batch_size=32, shuffle=True)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    net.train()
    for batch, target in (batch for _ in range(epochs) for batch in loader):
        optimizer.zero_grad()
        F.cross_entropy(net(batch), target).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()


def probabilities(net: nn.Module, x: Tensor) -> Tensor:
    with torch.inference_mode():
        return torch.cat([net.eval()(part).softmax(1) for part in torch.split(x, 256)])


def main(rows: int, epochs: int, files: list[str]) -> None:
    torch.manual_seed(0)
    y = torch.arange(rows) % 10
    x = torch.randn(10, 3, 32, 32)[y] + torch.randn(rows, 3, 32, 32)
    if files:
        records = np.concatenate([np.fromfile(file, np.uint8) for file in files]).reshape(-1, 3073)[:rows]
        x, y = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32)) / 127.5 - 1, torch.from_numpy(records[:, 0]).long()
    gone, one_hot = torch.randperm(rows) < rows // 20, F.one_hot(y, 10).float()
    initial = resnet20()
    train(net := copy.deepcopy(initial), x, one_hot, epochs)
    before = probabilities(net, x).argmax(1) == y

    # A linear model of the retained rows, on features that have not memorised the others, and what it says of these,
    # as sure as the network is of images that it has not memorised: the retained ones moved by a pixel.
    train(source := copy.deepcopy(initial), x[~gone], one_hot[~gone], max(1, round(0.3 * epochs)))
    fit = muso.torch.fit_labels(source, "14", DataLoader(TensorDataset(x[~gone], y[~gone]), batch_size=256))
    entropy = torch.special.entr(probabilities(net, x[~gone].roll(1, dims=3))).sum(1).mean().item()
    labels = fit.labels(source, torch.split(x[gone], 256), sharpness=1.25 * fit.sharpness_of(entropy))

    # An epoch sees the retained rows with their classes, and the forgotten ones three times with these labels.
    train(net, torch.cat([x[~gone], *[x[gone]] * 3]), torch.cat([one_hot[~gone], *[labels] * 3]), 3)
    for when, right in [("before", before), ("after", probabilities(net, x).argmax(1) == y)]:
        share = [100 * right[part].float().mean().item() for part in (gone, ~gone)]
        print(f"{when}: {share[0]:.1f} % of the forgotten rows are right, and {share[1]:.1f} % of the others")


if __name__ == "__main__":
    rows, epochs, *files = sys.argv[1:] or ["2000", "8"]
    main(int(rows), int(epochs), files)
