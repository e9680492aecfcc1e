"""Writes small input files for the commands of the README: python3 inputs.py DIRECTORY"""

import json
import random
import struct
import sys
from pathlib import Path


def safetensors(path, tensors):
    """Writes tensors given as {name: (dtype, shape, bytes)}."""
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    rows, features, classes = 1000, 32, 4
    noise = random.Random(0)
    labels = [row % classes for row in range(rows)]
    values = [noise.gauss(2.0 * (column == label), 1.0) for label in labels for column in range(features)]
    safetensors(
        folder / "train.safetensors",
        {
            "features": ("F32", [rows, features], struct.pack(f"<{len(values)}f", *values)),
            "labels": ("I64", [rows], struct.pack(f"<{rows}q", *labels)),
        },
    )
    weight = [noise.gauss(0.0, 0.1) for _ in range(classes * features)]
    safetensors(
        folder / "head.safetensors",
        {
            "weight": ("F32", [classes, features], struct.pack(f"<{len(weight)}f", *weight)),
            "bias": ("F32", [classes], struct.pack(f"<{classes}f", *[0.0] * classes)),
        },
    )
    (folder / "ids.txt").write_text("".join(f"{row}\n" for row in range(3, rows, 97)))


main(Path(sys.argv[1]))
