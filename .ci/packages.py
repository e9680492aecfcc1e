"""Makes the packages that would be published, as a dry run; says what is in them, and builds the program from them.

    python3 .ci/packages.py           files and sizes: fails at an unexpected file or above 10 MB
    python3 .ci/packages.py --build   also unpacks them and builds `muso` with its default features from nothing else

Needs the index of crates.io. Cargo's own check of a package compiles everything anew in another profile; the build here
has the profile and the target folder of all other steps, so that what is compiled there is not compiled again.
"""

import json
import subprocess
import sys
import tarfile
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 10_000_000

# What each package may hold; `*` stands for any characters, `/` among them.
MADE_BY_CARGO = [".cargo_vcs_info.json", "Cargo.lock", "Cargo.toml", "Cargo.toml.orig"]
LICENCES = ["LICENSE-APACHE", "LICENSE-MIT"]
FILES = {
    "muso": [
        *["NOTICE", "README.md", "CHANGELOG.md", "CITATION.cff", "docs/*.md", "docs/*.svg"],
        *["build.rs", "kernels/*.cu", "kernels/*.cuh", "kernels/*.h", "kernels/toolkit.rs", "kernels/README.md"],
        *["src/*.rs", "include/muso.h", "include/muso.pc.in", "examples/0?_*.rs"],
        *["examples/06_from_c/CMakeLists.txt", "examples/06_from_c/main.c"],
        *["src/bench/peers/*.py", "src/outcome/paper.csv", "src/pipeline/networks/demo*.toml", "src/report/page.css"],
        *["src/data/embedded/NOTICE", "src/data/embedded/extract.py", "src/data/embedded/fashion-*.gz"],
    ],
    "muso-digits": [
        *["LICENSE-CC-BY-SA-3.0", "NOTICE", "src/lib.rs", "extract.py"],
        *[f"{part}-{kind}.gz" for part in ("train", "test") for kind in ("images.idx3", "labels.idx1")],
    ],
    "muso-models": ["src/*.rs", "examples/*.rs"],
}


def cargo(*arguments):
    """Runs to the end and returns what was printed."""
    done = subprocess.run(["cargo", *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"cargo {' '.join(arguments)}\n{done.stderr}")
    return done.stdout


def published():
    """Names and versions of the packages of this workspace that may be published, and the target folder."""
    metadata = json.loads(cargo("metadata", "--no-deps", "--format-version", "1"))
    # `publish = false` is an empty list of registries.
    packages = {p["name"]: p["version"] for p in metadata["packages"] if p["publish"] is None}
    return packages, Path(metadata["target_directory"])


def faults(name, archive):
    """What is wrong with a package, after a line on it."""
    size = archive.stat().st_size
    with tarfile.open(archive) as crate:
        files = [(m.name.split("/", 1)[1], m.size) for m in crate.getmembers() if m.isfile()]
    unpacked = sum(size for _, size in files)
    print(f"{name:<12} {size:>10,} bytes, {unpacked:>10,} unpacked, {len(files):>4} files")
    if size > LIMIT:
        yield f"{name}: {size:,} bytes; at most {LIMIT:,}"
    allowed = MADE_BY_CARGO + LICENCES + FILES.get(name, [])
    for file, _ in files:
        if not any(fnmatchcase(file, pattern) for pattern in allowed):
            yield f"{name}: {file} is not expected in it"
    for file in MADE_BY_CARGO[1:] + LICENCES:
        if file not in dict(files):
            yield f"{name}: {file} is missing"


def build(packages, target):
    """Builds the program from the unpacked packages, which know nothing of this repository."""
    with tempfile.TemporaryDirectory() as folder:
        patches = []
        for name, version in packages.items():
            with tarfile.open(target / "package" / f"{name}-{version}.crate") as crate:
                crate.extractall(folder, filter="data")
            if name != "muso":
                patches += ["--config", f'patch.crates-io.{name}.path="{folder}/{name}-{version}"']
        manifest = f"{folder}/muso-{packages['muso']}/Cargo.toml"
        command = ["cargo", "build", "--release", "--manifest-path", manifest, "--target-dir", str(target), *patches]
        subprocess.run(command, cwd=folder, check=True)
        demo = [str(target / "release" / "muso"), "--version"]
        subprocess.run(demo, cwd=folder, check=True)


def main(arguments):
    if arguments not in ([], ["--build"]):
        sys.exit(__doc__)
    packages, target = published()
    if packages.keys() != FILES.keys():
        sys.exit(f"would be published: {', '.join(packages)}; expected {', '.join(FILES)}")
    # The dry run leaves no packages where anyone may look for them, so they are made beside it.
    cargo("publish", "--workspace", "--dry-run", "--no-verify", "--allow-dirty")
    chosen = [word for name in packages for word in ("-p", name)]
    cargo("package", "--no-verify", "--allow-dirty", *chosen)
    found = [f for name, v in packages.items() for f in faults(name, target / "package" / f"{name}-{v}.crate")]
    if found:
        sys.exit("\n".join(found))
    if arguments:
        build(packages, target)


if __name__ == "__main__":
    main(sys.argv[1:])
