#!/usr/bin/env python3
"""Makes the embedded files from the published data sets.

    python3 extract.py mnist SOURCE_DIR
    python3 extract.py fashion SOURCE_DIR

For mnist, SOURCE_DIR holds train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
t10k-labels-idx1-ubyte. For fashion, it holds 0.json to 9.json, each {"data": [[784 numbers], ...]} of one class.
The output goes beside this script. What is selected is written in NOTICE.
Needs only the standard library, and the bytes of the output depend only on the input (and on zlib).
"""

import gzip
import io
import json
import struct
import sys
from pathlib import Path

DIGITS = (3, 7)
TRAIN_PER_DIGIT = 300

FASHION_SIDE = 28
FASHION_ROWS = {"train": range(0, 200), "test": range(6000, 6100)}


def read_idx(path):
    """Shape and payload of an IDX file of unsigned bytes."""
    data = path.read_bytes()
    zero, kind, rank = struct.unpack_from(">HBB", data)
    if zero != 0 or kind != 0x08:
        sys.exit(f"{path}: not an IDX file of unsigned bytes")
    shape = struct.unpack_from(f">{rank}I", data, 4)
    payload = data[4 + 4 * rank :]
    size = 1
    for extent in shape:
        size *= extent
    if len(payload) != size:
        sys.exit(f"{path}: {len(payload)} bytes for shape {shape}")
    return shape, payload


def write_idx(path, shape, payload):
    """A gzip member without name or time, so that the bytes are the same on every run."""
    header = struct.pack(f">HBB{len(shape)}I", 0, 0x08, len(shape), *shape)
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as out:
        out.write(header + payload)
    path.write_bytes(buffer.getvalue())


def select(source, stem, rows_of):
    """Images and labels of the chosen rows."""
    (count, height, width), images = read_idx(source / f"{stem}-images-idx3-ubyte")
    (label_count,), labels = read_idx(source / f"{stem}-labels-idx1-ubyte")
    if count != label_count:
        sys.exit(f"{stem}: {count} images but {label_count} labels")
    rows = rows_of(labels)
    size = height * width
    chosen = b"".join(images[i * size : (i + 1) * size] for i in rows)
    return (len(rows), height, width), chosen, bytes(labels[i] for i in rows)


def train_rows(labels):
    return [
        i
        for digit in DIGITS
        for i in [i for i, label in enumerate(labels) if label == digit][:TRAIN_PER_DIGIT]
    ]


def test_rows(labels):
    return [i for i, label in enumerate(labels) if label in DIGITS]


def mnist(source, here):
    for stem, name, rows_of in (("train", "train", train_rows), ("t10k", "test", test_rows)):
        shape, images, labels = select(source, stem, rows_of)
        write_idx(here / f"{name}-images.idx3.gz", shape, images)
        write_idx(here / f"{name}-labels.idx1.gz", shape[:1], labels)


def fashion_class(path):
    """The images of one class. The source has a few empty entries, which do not count."""
    size = FASHION_SIDE * FASHION_SIDE
    images = [bytes(image) for image in json.loads(path.read_bytes())["data"] if len(image) == size]
    if len(images) != 7000:
        sys.exit(f"{path}: {len(images)} images of {size} pixels; expected 7000")
    return images


def fashion(source, here):
    classes = [fashion_class(source / f"{k}.json") for k in range(10)]
    for name, rows in FASHION_ROWS.items():
        # One of each class in turn, so that the first rows are balanced whatever their number.
        pairs = [(k, images[row]) for row in rows for k, images in enumerate(classes)]
        shape = (len(pairs), FASHION_SIDE, FASHION_SIDE)
        write_idx(here / f"fashion-{name}-images.idx3.gz", shape, b"".join(image for _, image in pairs))
        write_idx(here / f"fashion-{name}-labels.idx1.gz", shape[:1], bytes(k for k, _ in pairs))


def main():
    makers = {"mnist": mnist, "fashion": fashion}
    if len(sys.argv) != 3 or sys.argv[1] not in makers:
        sys.exit(__doc__)
    makers[sys.argv[1]](Path(sys.argv[2]), Path(__file__).resolve().parent)


if __name__ == "__main__":
    main()
