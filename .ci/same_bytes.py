"""The two halves of .ci/same-bytes that are no shell: makes the inputs, and compares the outputs.

Plain Python, so that it runs wherever there is one; the numbers are drawn by `random.Random`, whose sequence is fixed.
"""

import argparse
import fnmatch
import json
import math
import random
import re
import struct
import sys
from pathlib import Path

# --- inputs


def bf16(value):
    """The two bytes of a bfloat16: the upper half of an f32, rounded to nearest even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return struct.pack("<H", (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)


def encode(dtype, values):
    if dtype == "BF16":
        return b"".join(map(bf16, values))
    letter = {"F16": "e", "F32": "f", "F64": "d", "I64": "q"}[dtype]
    return struct.pack(f"<{len(values)}{letter}", *values)


def safetensors(path, **tensors):
    """Writes tensors given as (dtype, shape, values)."""
    header, body = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        data = encode(dtype, values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def npy(path, shape, values):
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + encode("F32", values))


def make_inputs(folder):
    folder.mkdir()
    draw = random.Random(19)

    def normal(count, scale=1.0):
        return [scale * draw.gauss(0.0, 1.0) for _ in range(count)]

    def rows(count, width, classes):
        """Rows around a centre for each class, and the classes."""
        centres = [normal(width) for _ in range(classes)]
        labels = [draw.randrange(classes) for _ in range(count)]
        return [c + x for label in labels for c, x in zip(centres[label], normal(width, 1.5))], labels

    def head(name, width, classes, scale, bias=True):
        tensors = {"weight": ("F64", [classes, width], normal(classes * width, scale))}
        if bias:
            tensors["bias"] = ("F64", [classes], normal(classes, scale))
        safetensors(folder / name, **tensors)

    def ids(name, count, share):
        text = "\n".join(str(i) for i in range(count) if draw.random() < share)
        (folder / name).write_text(text + "\n")

    # More rows than several blocks of every engine, and a width that is no multiple of any tile.
    count, width, classes = 2900, 71, 5
    values, labels = rows(count, width, classes)
    stored = ("I64", [count], labels)
    for dtype in ["F16", "BF16", "F32", "F64"]:
        safetensors(folder / f"{dtype.lower()}.safetensors", features=(dtype, [count, width], values), labels=stored)
    npy(folder / "f32.npy", (count, width), values)
    safetensors(folder / "labels.safetensors", labels=stored)
    targets = normal(count * classes)
    safetensors(folder / "targets.safetensors", features=("F32", [count, width], values), targets=("F32", [count, classes], targets))
    # A column that is three times another, and one that is zero: what is not a rank of its own has to be found out.
    dependent = list(values)
    for i in range(count):
        row = i * width
        dependent[row + 5] = 3.0 * struct.unpack("<f", struct.pack("<f", dependent[row + 1]))[0]
        dependent[row + 9] = 0.0
    safetensors(folder / "dependent.safetensors", features=("F64", [count, width], dependent), labels=stored)
    head("head.safetensors", width, classes, 0.1)
    head("init.safetensors", width, classes, 0.1)
    head("plain-head.safetensors", width, classes, 0.1, bias=False)
    ids("ids.txt", count, 0.04)
    # Fewer rows than features.
    count, width, classes = 130, 333, 3
    values, labels = rows(count, width, classes)
    safetensors(folder / "wide.safetensors", features=("F32", [count, width], values), labels=("I64", [count], labels))
    head("wide-head.safetensors", width, classes, 0.1)
    head("wide-init.safetensors", width, classes, 0.1)
    ids("wide-ids.txt", count, 0.1)


# --- comparison

# Fields that say how long something took, how much memory, or who made it.
NOT_COMPARED = re.compile(r"seconds|memory|^time_ratio$|^version$")
DURATION = re.compile(r"[\d.,]+ ?(?:ns|µs|us|ms|s|min|h)\b(?: ?\d+ ?s\b)?")
MEMORY = re.compile(r"[\d.,]+ ?(?:B|kB|KB|KiB|MB|MiB|GB|GiB)\b")
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
# A setting is spelt as an option here and as a field there; which of the two is not a matter of this script.
SETTING = re.compile(r"`\.[a-z_.]+(?: = [a-z]+)?`|--[a-z]+(?:-[a-z]+)*(?: (?:head|labels|ridge|interpolate)\b)?")
DTYPES = {"F16": ("e", 2), "F32": ("f", 4), "F64": ("d", 8), "I64": ("q", 8)}


class Difference:
    """The places where two outputs differ, each with how much, relatively; infinite where it is no matter of size."""

    def __init__(self):
        self.places = []

    def add(self, place, size):
        self.places.append((place, size))

    def numbers(self, place, a, b):
        if a == b or (math.isnan(a) and math.isnan(b)):
            return
        size = abs(a - b) / max(abs(a), abs(b))
        self.add(place, size if math.isfinite(size) else math.inf)


def named(item, index):
    """An entry of a list by what it is called, where it has a name."""
    if isinstance(item, dict):
        for key in ("method", "name", "scenario"):
            if isinstance(item.get(key), str):
                return item[key]
    return str(index)


def compare_json(found, place, a, b):
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys()):
            if NOT_COMPARED.search(key):
                continue
            if key in a and key in b:
                compare_json(found, f"{place}.{key}", a[key], b[key])
            else:
                found.add(f"{place}.{key}", math.inf)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b)):
            compare_json(found, f"{place}[{named(x, i)}]", x, y)
    elif isinstance(a, (int, float)) and isinstance(b, (int, float)) and not isinstance(a, bool):
        found.numbers(place, float(a), float(b))
    elif isinstance(a, str) and isinstance(b, str):
        compare_text(found, place, a, b)
    elif a != b:
        found.add(place, math.inf)


def plain(text):
    """The lines of a text without times and memory, and without the widths that those give to columns."""
    # A warning over several lines is one.
    text = re.sub(r"(?<=[^\n])\n {9}(?=\S)", " ", text)
    for pattern, word in [(DURATION, "TIME"), (MEMORY, "MEMORY"), (SETTING, "SETTING")]:
        text = pattern.sub(word, text)
    text = re.sub(r"[─━═-]{2,}", "—", text)
    lines = [line.split() for line in text.splitlines()]
    timed = False
    for words in lines:
        # A table whose last column is of times, up to an empty line.
        if timed and words:
            words[-1] = "TIME"
        timed = bool(words) and (timed or words[-1] in ("seconds", "ratio"))
    return [" ".join(words) for words in lines]


def compare_text(found, place, a, b):
    a, b = plain(a), plain(b)
    if len(a) != len(b):
        found.add(f"{place}, number of lines", math.inf)
        return
    for number, (x, y) in enumerate(zip(a, b), 1):
        if x == y:
            continue
        where = f"{place} line {number} {x[:24]}"
        if NUMBER.sub("0", x) != NUMBER.sub("0", y):
            found.add(where, math.inf)
            continue
        for p, q in zip(NUMBER.findall(x), NUMBER.findall(y)):
            found.numbers(where, float(p.replace(",", "")), float(q.replace(",", "")))


def tensors(data):
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    body = data[8 + length :]
    metadata = header.pop("__metadata__", {})
    return header, metadata, body


def decoded(entry, body):
    start, end = entry["data_offsets"]
    if entry["dtype"] == "BF16":
        halves = struct.unpack(f"<{(end - start) // 2}H", body[start:end])
        return [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in halves]
    letter, size = DTYPES[entry["dtype"]]
    return struct.unpack(f"<{(end - start) // size}{letter}", body[start:end])


def compare_tensors(found, a, b):
    """Relative to the largest value of each tensor."""
    if a == b:
        return
    (ha, ma, ba), (hb, mb, bb) = tensors(a), tensors(b)
    shape = lambda header: {name: (entry["dtype"], entry["shape"]) for name, entry in header.items()}
    if shape(ha) != shape(hb):
        found.add("tensors", math.inf)
        return
    if ma != mb:
        found.add("metadata", math.inf)
    before = len(found.places)
    for name in ha:
        x, y = decoded(ha[name], ba), decoded(hb[name], bb)
        if x != y:
            largest = max(max(map(abs, x)), max(map(abs, y)))
            size = max(abs(p - q) for p, q in zip(x, y)) / largest
            found.add(name, size if math.isfinite(size) else math.inf)
    if ma == mb and len(found.places) == before:
        found.add("the file but not its values", math.inf)


def compare_files(path, a, b):
    found = Difference()
    kind = path.suffix
    if kind == ".safetensors":
        compare_tensors(found, a, b)
    elif kind == ".json":
        compare_json(found, "", json.loads(a), json.loads(b))
    elif kind in (".txt", ".toml", ".csv"):
        compare_text(found, "", a.decode(), b.decode())
    elif a != b:
        found.add("bytes", math.inf)
    return found


# Progress and warnings, which are in the reports as well; pages, whose looks may change; traces.
NOT_OUTPUTS = {".err", ".html"}


def compare(before, after, allowed):
    def files(folder):
        found = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
        return {path for path in found if path.suffix not in NOT_OUTPUTS}

    names = sorted(files(before) | files(after))
    width = max(len(str(name)) for name in names)
    same, unexpected = 0, 0
    print(f"\n{'output':{width}}  outcome")
    for name in names:
        sides = [side / name for side in (before, after)]
        if not all(side.exists() for side in sides):
            print(f"{str(name):{width}}  DIFFERS: only {'before' if sides[0].exists() else 'after'}")
            unexpected += 1
            continue
        places = compare_files(name, *(side.read_bytes() for side in sides)).places
        if not places:
            print(f"{str(name):{width}}  same")
            same += 1
            continue

        def bound(place):
            fits = [limit for pattern, limit in allowed if fnmatch.fnmatch(f"{name}:{place}", pattern)]
            return max(fits, default=0.0)

        faults = [(place, size) for place, size in places if not size <= bound(place)]
        worst = max(places, key=lambda found: found[1])
        say = f"{len(places)} of its values, at most {worst[1]:.1e} relatively, at {worst[0]}"
        if faults:
            unexpected += 1
            print(f"{str(name):{width}}  DIFFERS in {say}")
            for place, size in faults[:5]:
                print(f"{'':{width}}    {size:.1e} {place}")
        else:
            print(f"{str(name):{width}}  within its bound: {say}")
    print(f"\n{len(names)} outputs: {same} same, {len(names) - same - unexpected} within a bound, {unexpected} not as expected")
    return unexpected


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("inputs").add_argument("folder", type=Path)
    both = commands.add_parser("compare")
    both.add_argument("before", type=Path)
    both.add_argument("after", type=Path)
    both.add_argument("--allow", action="append", default=[], metavar="UNIT=BOUND")
    args = parser.parse_args()
    if args.command == "inputs":
        make_inputs(args.folder)
        return
    allowed = []
    for text in args.allow:
        pattern, _, limit = text.rpartition("=")
        allowed.append((pattern if ":" in pattern else pattern + ":*", float(limit)))
    sys.exit(1 if compare(args.before, args.after, allowed) else 0)


if __name__ == "__main__":
    main()
