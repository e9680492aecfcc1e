#!/usr/bin/env python3
"""Makes the data files of this crate from the published MNIST.

    python3 extract.py SOURCE_DIR

SOURCE_DIR holds train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte.
The output goes beside this script. What is selected is written in NOTICE.
Needs only the standard library, and the bytes of the output depend only on the input (and on zlib).
"""

import gzip
import io
import struct
import sys
from pathlib import Path

DIGITS = (3, 7)
TRAIN_PER_DIGIT = 300


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


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    source, here = Path(sys.argv[1]), Path(__file__).resolve().parent
    for stem, name, rows_of in (("train", "train", train_rows), ("t10k", "test", test_rows)):
        shape, images, labels = select(source, stem, rows_of)
        write_idx(here / f"{name}-images.idx3.gz", shape, images)
        write_idx(here / f"{name}-labels.idx1.gz", shape[:1], labels)


if __name__ == "__main__":
    main()
