"""Which step runs which test.

    python3 tests.py run STEP COMMAND   runs a `cargo test` command and keeps the names of the tests that it ran
    python3 tests.py check              lists all tests beside the steps that run them, in target/ci-tests.txt

The check fails when a test is run by no step. What tests there are is read from the sources, whatever features they need
and whether or not anything compiles them; a test that is ignored must say why, and one that is of another system is told apart.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

KEPT = Path("target/ci-tests")
LIST = Path("target/ci-tests.txt")


def listed(command, *more):
    """Asks a command that has run for its tests, as {(binary, test)}: the same arguments select the same tests."""
    words = " ".join((" " if " -- " in command else " -- ", "--list", *more))
    said = subprocess.run(
        ["bash", "-c", command + words], check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ).stdout
    found, binary = [], None
    for line in said.splitlines():
        if running := re.match(r"\s+Running (?:unittests )?(\S+) \((\S+)\)", line):
            binary = f"{Path(running[2]).name.rsplit('-', 1)[0]} {running[1]}"
        elif docs := re.match(r"\s+Doc-tests (\S+)", line):
            binary = f"{docs[1]} docs"
        elif test := re.match(r"(?:\[.*?\] )?(\S.*): test$", line):
            found.append((binary, test[1]))
        if running:
            found.append((binary, ""))
    return found


def run(step, command):
    subprocess.run(["bash", "-c", command], check=True)
    everything, ignored = listed(command), listed(command, "--ignored")
    KEPT.mkdir(parents=True, exist_ok=True)
    file = KEPT / f"{len(list(KEPT.iterdir())):02}.json"
    file.write_text(json.dumps({"step": step, "tests": everything, "ignored": [pair for pair in ignored if pair[1]]}))


class Test:
    """A test as the sources have it: a function of a module of some binaries."""

    def __init__(self, place, name, reason, binaries, modules):
        self.place, self.name, self.reason, self.binaries, self.modules = place, name, reason, binaries, modules

    def is_called(self, binary, test):
        parts = test.split("::")
        return binary in self.binaries and parts[: len(self.modules)] == self.modules and parts[-1] == self.name


def unit_tests(file, targets):
    """The functions of a source that are marked as tests. `targets` are pairs of a root source and its binary."""
    nearest = max(len(root.parts) for root, _ in targets if root.parent in file.parents)
    inside = [(root, binary) for root, binary in targets if root.parent in file.parents and len(root.parts) == nearest]
    own = [binary for root, binary in inside if root == file]
    modules = file.relative_to(inside[0][0].parent).with_suffix("").parts
    modules = [] if own else list(modules[:-1] if modules[-1] == "mod" else modules)
    binaries = own or [binary for _, binary in inside]

    lines = file.read_text().splitlines()
    for at, line in enumerate(lines):
        if line.strip() != "#[test]":
            continue
        # Its other attributes stand before and behind.
        first, last = at, at
        while re.match(r"\s*(#\[|//)", lines[first - 1]):
            first -= 1
        while not (function := re.match(r"\s*(?:async )?fn (\w+)", lines[last])):
            last += 1
        marks = " ".join(lines[first:last])
        reason = re.search(r'ignore = "([^"]*)"', marks) or re.search(r"#\[(cfg\(.*?(?:target_|windows|unix).*?\))\]", marks)
        if not reason and re.search(r"\bignore\b[\])]", marks):
            sys.exit(f"{file}:{at + 1}: {function[1]} is ignored without a reason")
        yield Test(f"{file}:{at + 1}", function[1], reason and reason[1], binaries, modules)


def doc_tests(file):
    """The lines at which examples that run begin in the docs of a source."""
    inside = False
    for number, line in enumerate(file.read_text().splitlines(), 1):
        fence = re.match(r"\s*//[/!] ?```(.*)$", line)
        if fence and not inside and fence[1].split(",")[0] in ("", "rust", "no_run", "should_panic", "compile_fail"):
            yield number
        inside ^= bool(fence)


def packages():
    """The packages of the repository: folder, sources and targets."""
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], check=True, text=True, stdout=subprocess.PIPE).stdout.split("\n")
    folders = sorted((Path(f).parent for f in files if Path(f).name == "Cargo.toml"), key=lambda f: -len(f.parts))
    sources = {folder: [] for folder in folders}
    for file in (Path(f) for f in files if f.endswith(".rs")):
        # The innermost package that it lies in.
        sources[next(folder for folder in folders if folder in file.parents)].append(file)
    for folder in folders:
        said = subprocess.run(
            ["cargo", "metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path", folder / "Cargo.toml"],
            check=True, text=True, stdout=subprocess.PIPE,
        ).stdout  # fmt: skip
        manifest = str((folder / "Cargo.toml").resolve())
        package = next(p for p in json.loads(said)["packages"] if p["manifest_path"] == manifest)
        yield folder, sources[folder], package["targets"]


def check():
    steps = [json.loads(file.read_text()) for file in sorted(KEPT.iterdir())]
    ran, skipped = {}, {}
    for step in steps:
        ignored = {tuple(pair) for pair in step["ignored"]}
        for pair in map(tuple, step["tests"]):
            (skipped if pair in ignored else ran).setdefault(pair, []).append(step["step"])
    missing, apart = [], []

    for folder, sources, targets in packages():
        roots = []
        for target in targets:
            name, root = target["name"].replace("-", "_"), Path(target["src_path"]).relative_to(Path.cwd())
            binary = f"{name} {root.relative_to(folder)}"
            roots.append((root, binary))
            # Those without libtest have no functions that are marked.
            if target["kind"] == ["test"] and (binary, "") not in ran:
                missing.append(f"{root}: no step runs the tests of {target['name']}")
            docs = [test for binary, test in ran if binary == f"{name} docs"]
            for file in sources if target["doctest"] else ():
                names = f"{file} - ", f"{file.relative_to(folder)} - "
                for line in doc_tests(file) if root.parent in file.parents else ():
                    if not any(test.startswith(names) and f"(line {line})" in test for test in docs):
                        missing.append(f"{file}:{line}: no step runs this example")
        for test in (test for file in sources for test in unit_tests(file, roots)):
            if any(test.is_called(*pair) for pair in ran):
                continue
            compiled = any(test.is_called(*pair) for pair in skipped)
            if test.reason and (compiled or test.reason.startswith("cfg(")):
                apart.append(f"{test.place}: {test.name}: {test.reason}")
            else:
                missing.append(f"{test.place}: no step runs {test.name}")

    tests = sorted(pair for pair in ran if pair[1])
    lines = [f"{binary:<40} {name:<90} {'; '.join(dict.fromkeys(ran[binary, name]))}" for binary, name in tests]
    lines += ["", "Run by no step of their own:", *apart]
    LIST.write_text("\n".join(lines) + "\n")
    for step in steps:
        print(f"{len(step['tests']) - len(step['ignored']) - sum(not t[1] for t in step['tests']):>6} tests by {step['step']}")
    print(f"{len(tests)} tests in all, each beside its steps in {LIST}; {len(apart)} ignored, with a reason each:")
    print("\n".join(f"  {line}" for line in apart))
    if missing:
        sys.exit("\n".join(["", *missing, f"{len(missing)} without a step"]))


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(*sys.argv[2:4])
    else:
        check()
