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
    rows, features, classes = 20_000, 64, 4
    noise = random.Random(0)
    labels = [row % classes for row in range(rows)]
    values = [noise.gauss(2.0 * (column == label), 1.0) for label in labels for column in range(features)]
    ids = range(3, rows, 20)
    # All rows, and those that are left without the thousand of the list.
    for name, kept in [("train", range(rows)), ("retained", [row for row in range(rows) if row not in ids])]:
        taken = [value for row in kept for value in values[row * features : (row + 1) * features]]
        safetensors(
            folder / f"{name}.safetensors",
            {
                "features": ("F32", [len(kept), features], struct.pack(f"<{len(taken)}f", *taken)),
                "labels": ("I64", [len(kept)], struct.pack(f"<{len(kept)}q", *[labels[row] for row in kept])),
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
    (folder / "ids.txt").write_text("".join(f"{row}\n" for row in ids))


main(Path(sys.argv[1]))
