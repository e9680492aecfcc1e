#!/usr/bin/env python3
"""Measures the memory that `muso unlearn` takes with its default method as the rows grow.

    .ci/memory.py [PROGRAM] [ROWS ...]          [default: target/release/muso 2000 10000 50000]

Makes MNIST files of random digits of so many rows, trains a small network for one epoch, forgets a class, and prints the
peak resident memory beside what images (uint8) and scores (rows × classes, f32) must take. Needs Python 3 on Unix.
"""

import os
import random
import struct
import sys
import tempfile

CLASSES, SIDE = 10, 28


def write_set(folder, rows):
    """Writes training and test sets as IDX files: each class is a bright square in a place of its own, in noise."""
    draw = random.Random(0)
    for name, rows in (("train", rows), ("t10k", 1000)):
        labels = bytes(i % CLASSES for i in range(rows))
        with open(os.path.join(folder, f"{name}-labels-idx1-ubyte"), "wb") as file:
            file.write(struct.pack(">II", 0x801, rows) + labels)
        with open(os.path.join(folder, f"{name}-images-idx3-ubyte"), "wb") as file:
            file.write(struct.pack(">IIII", 0x803, rows, SIDE, SIDE))
            for label in labels:
                image = bytearray(draw.randbytes(SIDE * SIDE))
                top, left = 14 * (label % 2), 5 * (label // 2)
                for row in range(top, top + 8):
                    image[row * SIDE + left : row * SIDE + left + 5] = b"\xff" * 5
                file.write(image)


def peak(command):
    """Runs a command and returns its peak resident memory in MB."""
    child = os.spawnvp(os.P_NOWAIT, command[0], command)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit(f"memory: {' '.join(command)} failed")
    unit = 1 if sys.platform == "darwin" else 1024
    return usage.ru_maxrss * unit / 1e6


def main():
    program = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/muso")
    counts = [int(n) for n in sys.argv[2:]] or [2000, 10000, 50000]
    print(f"{'rows':>8} {'peak MB':>8} {'images MB':>10} {'scores MB':>10} {'rest MB':>8}")
    for rows in counts:
        with tempfile.TemporaryDirectory() as folder:
            write_set(folder, rows)
            run, out = os.path.join(folder, "run"), os.path.join(folder, "out.safetensors")
            quiet = ["sh", "-c", 'exec "$@" >/dev/null 2>&1', "sh", program]
            peak([*quiet, "train", "--data", "mnist", "--data-path", folder, "--epochs", "1", "--width", "4", "--out", run])
            used = peak([*quiet, "unlearn", "--run", run, "--forget-class", "3", "--out", out])
            images, scores = (rows + 1000) * SIDE * SIDE / 1e6, rows * CLASSES * 4 / 1e6
            rest = used - images - scores
            print(f"{rows:>8} {used:>8.1f} {images:>10.1f} {scores:>10.1f} {rest:>8.1f}", flush=True)


if __name__ == "__main__":
    main()
