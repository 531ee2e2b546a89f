#!/usr/bin/env python3
"""Say what it costs to be ready to build for CUDA 13.0, in bytes and seconds, and what other ways cost, in one run.

Kernelyard starts from an empty cache of its own, once with this machine's g++ and once with the pinned one; each step
is a new process, and its seconds are those from its start to its end. It is compared with the wheel of torch and those
of nvcc, fetched whole, and with what the newest pip does for `pip download torch`. What would lead beyond `--limit` is
not fetched to its end, and said to be so; its size is then what the index tells. All that is fetched goes to a
temporary folder and is deleted.

Run it with the `build` extra. Bytes are those of the files and of the index's pages, without HTTP's headers; of pip's,
those of the files alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import requests
from newest_pip import NewestPip
from packaging.utils import parse_wheel_filename

from kernelyard import __version__
from kernelyard.errors import KernelyardError
from kernelyard.formats.versions import Version
from kernelyard.store import Store
from kernelyard.toolchain.assemble import assemble
from kernelyard.toolchain.package_index import PackageIndex, WheelLink, configured_endpoint
from kernelyard.toolchain.parts import HOST, PYTHONS, PartSource
from kernelyard.toolchain.pins import known_cuda, known_torch
from kernelyard.toolchain.remote_wheel import RemoteWheel

CUDA = "13.0"
#: The wheels without which nvcc compiles nothing. torch's CUDA headers want those of cuBLAS and others besides, which
#: are left out in favour of who fetches whole wheels.
NVCC = ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-cccl", "nvidia-cuda-runtime")
OWN, PINNED, WHOLE = "Kernelyard, g++ of this machine", "Kernelyard, pinned g++", "the wheels of torch and nvcc, whole"
MB = 1_000_000
#: Seconds between two looks at how much is on the disk.
PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Target:
    """At most so many bytes, and so many seconds."""

    size: int
    seconds: float | None = None

    def __str__(self) -> str:
        seconds = f", {self.seconds:.0f} s" if self.seconds is not None else ""
        return f"{self.size // MB} MB{seconds}"


FIRST = Target(120 * MB, 30)
FIRST_PINNED = Target(180 * MB)
FURTHER = Target(12 * MB)


@dataclass(frozen=True, slots=True)
class Row:
    """What something costs.

    Attributes:
        what: In words.
        size: In bytes.
        fetched: How many of them came in this run.
        seconds: That those took; None where nothing was timed.
        target: What it should cost at most.
    """

    what: str
    size: int
    fetched: int
    seconds: float | None = None
    target: Target | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.target is None:
            return None
        limit = self.target.seconds
        in_time = limit is None or (self.seconds is not None and self.seconds <= limit)
        return in_time and self.size <= self.target.size

    def cells(self, basis: int | None) -> list[str]:
        """Return the row of a table, with how many times a basis the size is where there is a basis."""
        seconds = f"{self.seconds:.1f}" if self.seconds is not None else ""
        if self.fetched < self.size:
            seconds = f"{seconds} for {self.fetched / MB:,.0f} MB, then stopped" if self.fetched else "not fetched"
        target = f"{self.target}: {'met' if self.met else 'missed'}" if self.target else ""
        times = [f"{self.size / basis:.1f}"] if basis else []
        digits = 2 if self.size < 100 * MB else 0
        return [self.what, f"{self.size / MB:,.{digits}f}", *times, seconds, target]


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one kind; where they are compared, with the first of them."""

    title: str
    rows: tuple[Row, ...]
    compared: bool = False

    def markdown(self) -> str:
        """Return the group as a table, without the columns that would be empty."""
        basis = self.rows[0].size if self.compared else None
        head = ["", "MB", *(["times"] if basis else []), "seconds", "target"]
        columns = zip(head, *(row.cells(basis) for row in self.rows), strict=True)
        kept = [column for column in columns if any(column[1:])]
        lines = [[column[0] for column in kept], ["---"] * len(kept)]
        lines += [list(cells) for cells in zip(*(column[1:] for column in kept), strict=True)]
        return "\n".join([f"{self.title}:", "", *(f"| {' | '.join(cells)} |" for cells in lines)])

    def as_data(self) -> dict[str, Any]:
        """Return the group for JSON."""
        return {"title": self.title, "rows": [asdict(row) | {"met": row.met} for row in self.rows]}


@dataclass(frozen=True, slots=True)
class Step:
    """A process that made a toolchain ready: bytes that came, its seconds, and the compiler that it took."""

    size: int
    seconds: float
    compiler: str


@dataclass(frozen=True, slots=True)
class Filled:
    """A cache: the steps that filled it, and the most bytes that it had on the disk."""

    cache: Path
    steps: tuple[Step, ...]
    peak: int


def total(what: str, steps: Sequence[Step], *, target: Target | None = None) -> Row:
    """Return the sum of what was fetched one after the other."""
    size = sum(step.size for step in steps)
    return Row(what, size, size, sum(step.seconds for step in steps), target)


def main() -> int:
    """Do as the arguments say, print the result, and return 0."""
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="kernelyard-benchmark-") as scratch:
        os.environ["TMPDIR"] = tempfile.tempdir = scratch
        about, groups, traffic = measure(Path(scratch), options.limit * MB)
    if options.json:
        print(
            json.dumps({"about": about, "traffic": traffic, "groups": [group.as_data() for group in groups]}, indent=2)
        )
    else:
        print("\n".join(f"{name}: {said}" for name, said in about.items()))
        print("\n".join(f"\n{group.markdown()}" for group in groups))
        print(f"\nfetched in this run: {traffic / MB:,.0f} MB")
    return 0


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=2000, metavar="MB", help="of all that is fetched; 2000 by default")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser.parse_args()


def measure(scratch: Path, limit: int) -> tuple[dict[str, str], list[Group], int]:
    """Return where and when was measured, what came out, and how many bytes came over the network.

    Args:
        scratch: A folder for everything.
        limit: Of those bytes.
    """
    about = system()
    newest, *older = [pin["version"] for pin in known_torch().values() if pin["cuda"] == CUDA][::-1]
    releases = [newest, *older]
    own = from_nothing(scratch / "own", releases)
    pinned = from_nothing(scratch / "pinned", releases, compiler=True)
    tools = step(pinned.cache, [newest], compiler=True, tools=True)
    warm = step(own.cache, [newest]), step(own.cache, releases)
    about |= {"g++ of this machine": own.steps[0].compiler, "pinned g++": pinned.steps[0].compiler}
    spent = sum(each.size for each in (*own.steps, *pinned.steps, tools))

    index = PackageIndex()
    torch = [index.find_wheel("torch", release, platform=HOST, python=PYTHONS) for release in releases]
    nvcc = [index.find_wheel(project, version, platform=HOST) for project, version in nvcc_wheels()]
    whole = fetch_whole(index, [torch[0], *nvcc], limit - spent)
    spent += whole.fetched
    progress("the newest pip")
    pip = NewestPip(scratch / "pip")
    about["versions"] += f", pip {pip.version}"
    all_of_it = pip_download(pip, index, newest, scratch / "download", limit - spent)
    spent += all_of_it.fetched

    first = (
        total(OWN, own.steps[:1], target=FIRST),
        total(PINNED, pinned.steps[:1], target=FIRST_PINNED),
        total(f"{PINNED}, CMake and Ninja, as for `--locked`", [pinned.steps[0], tools]),
        whole,
        all_of_it,
    )
    further = [total(f"torch {name}", [each], target=FURTHER) for name, each in zip(older, own.steps[1:], strict=True)]
    every = total(OWN, own.steps), total(PINNED, pinned.steps), Row(WHOLE, sizes(torch + nvcc), fetched=0)
    again = total(f"torch {newest}", warm[:1]), total(f"all {len(releases)} in one process", warm[1:])
    disk = Row(OWN, own.peak, own.peak), Row(PINNED, pinned.peak, pinned.peak)
    groups = [
        Group(f"From nothing to the first build for CUDA {CUDA}, with torch {newest}", first, compared=True),
        Group("Each further torch", tuple(further)),
        Group(f"From nothing to builds for all {len(releases)}", every, compared=True),
        Group("Again, with everything in the cache", again),
        Group(f"The cache on the disk at its largest, for all {len(releases)}", disk),
    ]
    return about, groups, spent


def from_nothing(cache: Path, releases: Sequence[str], *, compiler: bool = False) -> Filled:
    """Make ready for one torch after the other, and look at the cache meanwhile."""
    watch = DiskWatch(cache)
    try:
        steps = [step(cache, [release], compiler=compiler) for release in releases]
    finally:
        peak = watch.stop()
    return Filled(cache, tuple(steps), peak)


def step(cache: Path, releases: Sequence[str], *, compiler: bool = False, tools: bool = False) -> Step:
    """Make a toolchain ready in a process of its own.

    Args:
        cache: Of that process.
        releases: Of torch.
        compiler: Take the pinned g++.
        tools: Take the pinned CMake and Ninja.
    """
    progress(f"Kernelyard, {'pinned' if compiler else 'own'} g++, torch {', '.join(releases)}")
    started = time.monotonic()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        size, banner = process.submit(make_ready, cache, releases, compiler=compiler, tools=tools).result()
    return Step(size, time.monotonic() - started, banner)


def make_ready(cache: Path, releases: Sequence[str], *, compiler: bool, tools: bool) -> tuple[int, str]:
    """Make a toolchain ready, and return how many bytes that took, and which compiler it has.

    Raises:
        RuntimeError: It failed. It carries the error's text, for such errors do not get from one process to another.
    """
    source = PartSource(Store(cache), pinned_compiler=compiler)
    pages = PageMeter(source.index.session)
    torch = [Version(release) for release in releases]
    try:
        toolchain = assemble(source, backend="cuda", cuda=Version(CUDA), torch=torch, pinned=tools)
    except KernelyardError as error:
        raise RuntimeError(str(error)) from None
    if toolchain.compiler.part is not None and not compiler:
        raise RuntimeError("this machine has no g++ to measure with")
    return source.bytes_fetched + pages.size, toolchain.compiler.banner


class PageMeter:
    """Counts the bytes of the pages that an index's session receives, as they come over the network."""

    def __init__(self, session: requests.Session) -> None:
        self.size = 0
        session.hooks["response"].append(self._count)

    def _count(self, response: requests.Response, **how: Any) -> None:
        if not how.get("stream"):  # files are streamed, and counted by who reads them
            _ = response.content
            self.size += response.raw.tell()


class DiskWatch:
    """Looks again and again at how much a folder has on the disk, until it is stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._peak = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def stop(self) -> int:
        """Look once more, and return the most that was seen, in bytes."""
        self._end.set()
        self._thread.join()
        return self._peak

    def _look(self) -> None:
        command: list[str | Path] = ["/usr/bin/du", "-s", "--block-size=1", self._folder]
        ended = False
        while not ended:
            ended = self._end.wait(PAUSE_S)
            # Files come and go meanwhile, of which du complains and then goes on.
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self._peak = max(self._peak, int(done.stdout.split()[0]) if done.stdout else 0)


def nvcc_wheels() -> list[tuple[str, str]]:
    """Return projects and versions of the wheels that nvcc consists of."""
    wheels = {wheel["project"]: wheel["version"] for wheel in known_cuda()[CUDA]["wheels"]}
    return [(project, wheels[project]) for project in NVCC]


def fetch_whole(index: PackageIndex, links: Sequence[WheelLink], allowance: int) -> Row:
    """Fetch wheels one after the other and compare each with its sha256, as far as they fit into so many bytes."""
    started, before = time.monotonic(), index.bytes_fetched
    for link in links:
        if index.bytes_fetched - before + (link.size or 0) > allowance:
            break
        progress(f"whole: {link.filename}")
        RemoteWheel(index, link, whole=True)
    fetched = index.bytes_fetched - before
    return Row(WHOLE, sizes(links), fetched, time.monotonic() - started if fetched else None)


def sizes(links: Iterable[WheelLink]) -> int:
    """Return the bytes of some wheels, as the index tells them."""
    return sum(link.size or 0 for link in links)


def pip_download(pip: NewestPip, index: PackageIndex, release: str, folder: Path, allowance: int) -> Row:
    """Fetch torch and all that it depends on as pip does, to its end or so many bytes."""
    files = pip.wheels(release)
    size = sum(find_size(index, file) for file in files)
    progress(f"pip download torch=={release}, at most {allowance / MB:,.0f} MB")
    fetched, seconds = pip.download(release, folder, allowance)
    return Row(f"`pip download torch`, {len(files)} wheels", size, size if fetched is None else fetched, seconds)


def find_size(index: PackageIndex, file: str) -> int:
    """Return a wheel's size as the index tells it."""
    project, version, _, _ = parse_wheel_filename(file)
    return index.find_file(project, str(version), file).size or 0


def system() -> dict[str, str]:
    """Return where and when something is measured."""
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.freedesktop_os_release()['PRETTY_NAME']}",
        "load at the start": f"{os.getloadavg()[0]:.1f}",
        "index": "as configured" if configured_endpoint() else "the default one",
        "versions": f"Kernelyard {__version__}, Python {platform.python_version()}",
    }


def progress(text: str) -> None:
    """Say what is being done."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KernelyardError, RuntimeError) as error:
        sys.exit(f"toolchain: {error}")
