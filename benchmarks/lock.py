#!/usr/bin/env python3
"""Say what a lock costs: to make, to make again, to read, and to load a kernel by, for 50 kernels of 30 variants.

Everything is on a local hub in a folder. The kernels are made up: their files are small, their indexes are as large as
those of compiled kernels, with some hundred symbols for each variant. Nothing is measured of loading but finding and
reading the lock, choosing and verifying; each step is a new process, except where it says otherwise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from kernelyard import __version__
from kernelyard.formats.facts import Facts
from kernelyard.formats.index import FileEntry, Index, VariantEntry
from kernelyard.formats.lock import KernelLock
from kernelyard.formats.variant import VariantName
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub

KERNELS, VARIANTS, FILES, SYMBOLS = 50, 30, 6, 300
#: Names of variants: three toolkits for each of some torches, and one that runs anywhere.
NAMES = ["torch-universal"]
NAMES += [f"torch-stable-abi2{10 + number // 3}-cu13{number % 3}-x86_64-linux" for number in range(VARIANTS - 1)]


def publish(hub: Path, number: int, aside: Path) -> str:
    """Publish one kernel; return its name."""
    repo = f"bench/kernel-{number:02}"
    contents: dict[str, Path] = {}
    entries = []
    for name in NAMES:
        files = []
        metadata = {"name": f"kernel-{number:02}", "id": f"_k{number:02}_{name.replace('-', '_')}", "version": 1}
        metadata |= {"license": "MIT", "python-depends": [], "kernel-depends": [], "backend": {"type": "cpu"}}
        texts = {"metadata.json": json.dumps(metadata), "__init__.py": f"NAME = {name!r}\nNUMBER = {number}\n"}
        texts |= {f"part_{part}.py": f"# {repo} {name} {part}\n" for part in range(FILES - len(texts))}
        for path, text in sorted(texts.items()):
            content = text.encode()
            digest = hashlib.sha256(content).hexdigest()
            contents[digest] = aside / digest
            contents[digest].write_bytes(content)
            files.append(FileEntry(path, len(content), digest))
        symbols = tuple(f"_ZN3c10some{symbol:03}LongMangledNameOfTorchEv" for symbol in range(SYMBOLS))
        compiled = name != "torch-universal"
        facts = Facts.of_name(VariantName.parse(name))
        if compiled:
            facts = Facts(**{field: getattr(facts, field) for field in Facts.__slots__} | {"undefined": symbols})
        entries.append(VariantEntry(name, str(metadata["id"]), tuple(files), facts))
    index = Index(f"kernel-{number:02}", 1, "MIT", tuple(sorted(entries, key=lambda one: one.name)), release="1.0.0")
    StaticHub(DirectoryReader(hub)).publish(Publication(repo, index, contents, "v1"))
    return repo


def timed(function: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def run(*arguments: str | Path, env: dict[str, str]) -> None:
    """Run a process."""
    subprocess.run([sys.executable, *arguments], env=os.environ | env, check=True, capture_output=True)


def measure(folder: Path, times: int) -> dict[str, object]:
    """Return the figures: seconds but where the name says otherwise."""
    hub, project, aside = folder / "hub", folder / "project", folder / "aside"
    for one in (project, aside):
        one.mkdir()
    repos = [publish(hub, number, aside) for number in range(KERNELS)]
    declared = "".join(f'"{repo}" = ">=1,<2"\n' for repo in repos)
    (project / "pyproject.toml").write_text(f"[tool.kernelyard.dependencies]\n{declared}")
    env = {"KERNELYARD_HUB": str(hub), "KERNELYARD_CACHE": str(folder / "store")}
    command = ("-m", "kernelyard", "lock", project)
    empty = statistics.median(timed(lambda: run("-c", "import kernelyard.cli", env=env)) for _ in range(times))
    fresh = []
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(times):
        (project / "kernels.lock").unlink(missing_ok=True)
        fresh.append(timed(lambda: run(*command, env=env)))
    since = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = (since.ru_utime + since.ru_stime - used.ru_utime - used.ru_stime) / times
    again = [timed(lambda: run(*command, env=env)) for _ in range(times)]
    check = [timed(lambda: run(*command, "--check", env=env)) for _ in range(times)]
    text = (project / "kernels.lock").read_bytes()

    def read() -> None:
        KernelLock.from_json(text, path="kernels.lock").find(repos[KERNELS // 2]).files("torch-universal")

    def read_all() -> None:
        lock = KernelLock.from_json(text, path="kernels.lock")
        for kernel in lock.kernels.values():
            for name in kernel.variants:
                kernel.files(name)

    whole = KernelLock.from_json(text, path="kernels.lock")
    program = project / "program.py"
    program.write_text(
        "import time, kernelyard\nstarted = time.perf_counter()\nkernelyard.get_locked_kernel\n"
        "imports = time.perf_counter() - started\nstarted = time.perf_counter()\n"
        f"kernelyard.get_locked_kernel({repos[KERNELS // 2]!r})\n"
        "first = time.perf_counter() - started\nstarted = time.perf_counter()\n"
        f"kernelyard.get_locked_kernel({repos[KERNELS // 2]!r})\n"
        "print(imports, first, time.perf_counter() - started)\n"
    )
    loads = []
    for _ in range(times + 1):
        done = subprocess.run(
            [sys.executable, program], env=os.environ | env, check=True, capture_output=True, text=True
        )
        loads.append([float(number) for number in done.stdout.split()])
    warm = loads[1:]
    return {
        "size_mb": len(text) / 1e6,
        "lines": text.count(b"\n"),
        "start_of_the_command": empty,
        "lock": statistics.median(fresh),
        "lock_on_the_processor": processor,
        "lock_again": statistics.median(again),
        "check": statistics.median(check),
        "read_ms": 1000 * statistics.median(timed(read) for _ in range(20)),
        "read_all_files_ms": 1000 * statistics.median(timed(read_all) for _ in range(20)),
        "write_ms": 1000 * statistics.median(timed(whole.to_json) for _ in range(20)),
        "imports_ms": 1000 * statistics.median(imports for imports, _, _ in warm),
        "load_ms": 1000 * statistics.median(first for _, first, _ in warm),
        "load_again_ms": 1000 * statistics.median(second for _, _, second in warm),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--times", type=int, default=5, help="how often each step is done; the median counts")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), arguments.times)
    if arguments.json:
        print(json.dumps(figures, indent=2))
        return
    when = datetime.now(tz=timezone.utc).date()
    print(f"{KERNELS} kernels of {VARIANTS} variants of {FILES} files, Kernelyard {__version__}, {when},")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    for name, value in figures.items():
        print(f"{name:24} {value:10.2f}" if isinstance(value, float) else f"{name:24} {value:>10}")


if __name__ == "__main__":
    main()
