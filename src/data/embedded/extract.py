#!/usr/bin/env python3
"""Makes the embedded Fashion-MNIST from the published one.

    python3 extract.py SOURCE_DIR

SOURCE_DIR holds 0.json to 9.json, each {"data": [[784 numbers], ...]} of one class.
The output goes beside this script. What is selected is written in NOTICE.
Needs only the standard library, and the bytes of the output depend only on the input (and on zlib).
"""

import gzip
import io
import json
import struct
import sys
from pathlib import Path

SIDE = 28
ROWS = {"train": range(0, 200), "test": range(6000, 6100)}


def write_idx(path, shape, payload):
    """A gzip member without name or time, so that the bytes are the same on every run."""
    header = struct.pack(f">HBB{len(shape)}I", 0, 0x08, len(shape), *shape)
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as out:
        out.write(header + payload)
    path.write_bytes(buffer.getvalue())


def read_class(path):
    """The images of one class. The source has a few empty entries, which do not count."""
    size = SIDE * SIDE
    images = [bytes(image) for image in json.loads(path.read_bytes())["data"] if len(image) == size]
    if len(images) != 7000:
        sys.exit(f"{path}: {len(images)} images of {size} pixels; expected 7000")
    return images


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    source, here = Path(sys.argv[1]), Path(__file__).resolve().parent
    classes = [read_class(source / f"{k}.json") for k in range(10)]
    for name, rows in ROWS.items():
        # One of each class in turn, so that the first rows are balanced whatever their number.
        pairs = [(k, images[row]) for row in rows for k, images in enumerate(classes)]
        shape = (len(pairs), SIDE, SIDE)
        write_idx(here / f"fashion-{name}-images.idx3.gz", shape, b"".join(image for _, image in pairs))
        write_idx(here / f"fashion-{name}-labels.idx1.gz", shape[:1], bytes(k for k, _ in pairs))


if __name__ == "__main__":
    main()
