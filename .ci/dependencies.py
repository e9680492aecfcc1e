#!/usr/bin/env python3
"""Checks what muso depends on, in seconds: python3 .ci/dependencies.py

- exact versions only behind the feature `cuda`: elsewhere they would keep out a patch release that another crate needs
- every dependency of what is published is used by its sources
- the stated Rust version is not older than what a dependency states
- builds, tests, benches and examples see the same features of what they share, so that burn is compiled once

Licences, bans and sources are cargo-deny's to check: deny.toml.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

faults = []


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def fault(text):
    faults.append(text)
    print(f"dependencies: {text}", file=sys.stderr)


def published(metadata):
    """The members that are published."""
    members = set(metadata["workspace_members"])
    return [package for package in metadata["packages"] if package["id"] in members and package["publish"] != []]


def exact(package):
    """Exact versions of a package that are switched on by anything but `cuda` and what needs it."""
    by_cuda = {"cuda", "capi"}
    for dep in package["dependencies"]:
        if dep["kind"] == "dev" or not dep["req"].startswith("="):
            continue
        name = dep["rename"] or dep["name"]
        by = {feature for feature, list_ in package["features"].items() if {name, f"dep:{name}"} & set(list_)}
        if not dep["optional"] or not by <= by_cuda:
            fault(f"{package['name']} needs {name} {dep['req']} exactly, not only with `cuda`")


def unused(package):
    """Dependencies of a package that its sources do not name."""
    folder = Path(package["manifest_path"]).parent
    files = [*(folder / "src").rglob("*.rs"), *folder.glob("build.rs")]
    text = "\n".join(file.read_text() for file in files)
    for dep in package["dependencies"]:
        name = (dep["rename"] or dep["name"]).replace("-", "_")
        if dep["kind"] != "dev" and not re.search(rf"\b{name}(::|;)", text):
            fault(f"{package['name']} depends on {name} and does not use it")


def rust_version(metadata):
    """The Rust version that is stated, and the newest that a dependency states."""
    number = lambda package: [int(part) for part in package["rust_version"].split(".")][:2]
    ours = published(metadata)[0]
    lines = tree("--workspace", "--all-features", "--edges=normal,build,dev", "--target=all")
    used = {tuple(line.split()[:2]) for line in lines}
    stated = [package for package in metadata["packages"] if package["source"] and package["rust_version"]]
    newest = max((package for package in stated if (package["name"], f"v{package['version']}") in used), key=number)
    if number(newest) > number(ours):
        fault(f"{newest['name']} needs Rust {newest['rust_version']}, and rust-version is {ours['rust_version']}")
    print(f"Rust {ours['rust_version']}; of {len(used)} packages {newest['name']} needs the newest, {newest['rust_version']}")


def tree(*arguments):
    """Packages with their features, as a build with these arguments sees them."""
    printed = cargo("tree", "--locked", "--prefix=none", "--format={p} [{f}]", *arguments)
    return {line.removesuffix(" (*)") for line in printed.splitlines() if line}


def once():
    """A package whose features differ between a build and a test is compiled twice, and all that depends on it."""
    for choice in ([], ["--features=cuda"]):
        for line in sorted(tree("--edges=normal,build", *choice) - tree("--edges=normal,build,dev", *choice)):
            fault(f"tests and benches see other features than builds do: {line}; see tests/once")


def main():
    metadata = json.loads(cargo("metadata", "--format-version=1", "--locked", "--all-features"))
    for package in published(metadata):
        exact(package)
        unused(package)
    rust_version(metadata)
    once()
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
