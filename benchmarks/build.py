#!/usr/bin/env python3
"""Say what building costs beside `torch.utils.cpp_extension`, in one run, with the same compilers and capabilities.

Two kernels are built (`benchmarks/kernels`): `lean`, whose `.cu` knows nothing of torch, and `heavy`, whose `.cu`
includes torch's headers; and `many`, with 200 `.cu`, whose CPU time for one torch is set beside that for all. Each step
begins where its name says: cold is without objects and with an empty cache of objects. nvcc is the one that Kernelyard
fetches, for both sides; g++ is this machine's. All toolchain parts are in the cache before anything is timed.

It needs the `build` extra, and a Python that has a CUDA build of torch and setuptools (`--python`); no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from kernelyard import __version__
from kernelyard.build.project import build_project
from kernelyard.formats.versions import Version
from kernelyard.store import Store
from kernelyard.toolchain.assemble import Toolchain, assemble
from kernelyard.toolchain.local_cuda import toolkit_at
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.pins import known_torch

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parent / "examples" / "img2gray"
CUDA = "13.0"
#: Seconds between two looks at the memory.
PAUSE_S = 0.1
#: What torch's own tool is asked to do, in the Python that has a torch.
EXTENSION = """
import json, sys, time
from torch.utils import cpp_extension
arguments = json.load(sys.stdin)
started = time.monotonic()
cpp_extension.load(**arguments)
print(json.dumps(time.monotonic() - started))
"""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that is built.

    Attributes:
        name: Its folder in `benchmarks/kernels`.
        sources: Those of its CUDA variant.
        tutorial: The same, as PyTorch's tutorial would write them.
        device: The `.cu` that is edited.
        shared: Files of the example that it needs besides.
    """

    name: str
    sources: tuple[str, ...]
    tutorial: tuple[str, ...]
    device: str
    shared: tuple[str, ...] = ()


#: Of the kernel that has many.
SOURCES = 200
PART = """#include <cstdint>
namespace {
template <typename T>
__global__ void part(T* out, const T* in, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    out[i] = in[i] * T(@number@) + out[i];
  }
}
}  // namespace
void part@number@(float* out, const float* in, int64_t count) { part<<<128, 256>>>(out, in, count); }
void part@number@(double* out, const double* in, int64_t count) { part<<<128, 256>>>(out, in, count); }
"""
LEAN = Kernel(
    "lean",
    ("torch_binding.cpp", "csrc/img2gray.cu", "csrc/img2gray_cpu.cpp"),
    ("tutorial_binding.cpp", "csrc/img2gray.cu", "csrc/img2gray_cpu.cpp"),
    "csrc/img2gray.cu",
    ("csrc", "torch-ext"),
)
HEAVY = Kernel(
    "heavy",
    ("torch_binding.cpp", "scale.cu", "scale_cpu.cpp"),
    ("tutorial_binding.cpp", "tutorial_scale.cu", "scale_cpu.cpp"),
    "scale.cu",
)

MANY = Kernel("many", (), (), "csrc/part7.cu")


@dataclass(frozen=True, slots=True)
class Row:
    """What one step took.

    Attributes:
        step: Its letter.
        what: In words.
        seconds: From start to end.
        cpu: Seconds of processors, of all its processes.
        peak: The most memory of all its processes together, in bytes.
    """

    step: str
    what: str
    seconds: float
    cpu: float
    peak: int


@dataclass(frozen=True, slots=True)
class Target:
    """A step takes at most so many times another one, or so many seconds where there is no other."""

    step: str
    most: float
    of: str | None

    def ratio(self, rows: Mapping[str, Row]) -> float:
        """Return what it is."""
        return rows[self.step].seconds / (rows[self.of].seconds if self.of else 1.0)

    def line(self, rows: Mapping[str, Row]) -> str:
        """Return the row of a table."""
        ratio = self.ratio(rows)
        unit = f"times {self.of}" if self.of else "s"
        met = "met" if ratio <= self.most else "missed"
        return f"| {self.step} | {ratio:.2f} {unit} | {self.most:g} | {met} |"


TARGETS = {
    "lean": (
        Target("b", 0.9, "a'"),
        Target("c", 2, "a"),
        Target("c", 5, "a'"),
        Target("d", 2, None),
        Target("e", 1.3, "nvcc"),
        Target("e", 1.3, "nvcc'"),
    ),
    "heavy": (Target("c", 4, "a"), Target("d", 2, None)),
}


def main() -> int:
    """Do as the arguments say, print the result, and return 0."""
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="kernelyard-benchmark-") as scratch:
        results = {
            kernel.name: measure(kernel, Path(scratch) / kernel.name, options)
            for kernel in (LEAN, HEAVY)
            if kernel.name in options.kernel
        }
        many = measure_many(Path(scratch) / "many", options) if "many" in options.kernel else []
    about = system(options)
    if options.json:
        timed = {name: list(map(asdict, rows)) for name, rows in results.items()}
        print(json.dumps({"about": about} | timed | ({"many": many} if many else {}), indent=2))
        return 0
    print("\n".join(f"{name}: {said}" for name, said in about.items()))
    for name, rows in results.items():
        print(f"\n{markdown(name, rows)}")
    if many:
        print("\n" + "\n".join(many))
    return 0


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="one with a CUDA build of torch; this one by default")
    parser.add_argument("--kernel", action="append", choices=["lean", "heavy", "many"], help="only this one")
    parser.add_argument("--capability", action="append", metavar="X.Y", help="compile for it; 8.0 and 9.0 by default")
    parser.add_argument("--cuda-home", help="take this toolkit in place of the one that Kernelyard fetches")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="compilers at the same time")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    options.kernel = options.kernel or ["lean", "heavy", "many"]
    options.capability = options.capability or ["8.0", "9.0"]
    return options


def measure(kernel: Kernel, folder: Path, options: argparse.Namespace) -> list[Row]:
    """Return what each step took, in the order of the steps."""
    project = write_project(kernel, folder / "project", options.capability)
    theirs = Version(torch_version(options.python))
    release = f"{theirs.major}.{theirs.minor}"
    source = part_source(options)
    torch = [Version(pin["version"]) for pin in known_torch().values() if pin["cuda"] == CUDA]
    toolchain = assemble(source, backend="cuda", cuda=Version(CUDA), torch=torch)
    one = f"torch{release.replace('.', '')}-*-cu130-*"
    os.environ["SCCACHE_DIR"] = str(folder / "objects")

    def build(*arguments: str) -> Callable[[], None]:
        program = Path(sysconfig.get_path("scripts")) / "kernelyard"
        command = [program, "build", project, *common(options), *arguments]
        return lambda: run(command) and None

    def cold() -> None:
        for place in (project / ".kernelyard", project / "build", folder / "objects"):
            shutil.rmtree(place, ignore_errors=True)

    def extension(sources: Sequence[str], name: str) -> Row:
        progress(f"{kernel.name}: {name}")
        before = cpu_seconds()
        seconds, peak = cpp_extension(kernel, folder, sources, toolchain, options)
        return Row(name, "", seconds, cpu_seconds() - before, peak)

    def timed(step: str, what: str, work: Callable[[], None]) -> Row:
        progress(f"{kernel.name}: {what}")
        with memory_watch() as peak:
            started, before = time.monotonic(), cpu_seconds()
            work()
            seconds, cpu = time.monotonic() - started, cpu_seconds() - before
        return Row(step, what, seconds, cpu, peak())

    warm_caches = build("--variant", one, "--no-cache")
    warm_caches()  # headers of every torch are read once, for both sides
    a = extension(kernel.tutorial, "a")
    a_same = extension(kernel.sources, "a'")
    cold()
    b = timed("b", f"one CUDA variant, torch {release}, cold", build("--variant", one))
    cold()
    c = timed("c", f"the matrix, {len(torch)} torch for CUDA {CUDA} and CPU, cold", build())
    d = timed("d", "the matrix again, nothing to do", build())
    for place in (project / ".kernelyard", project / "build"):
        shutil.rmtree(place)
    d_cached = timed("d'", "the matrix, without objects, from the cache of objects", build())
    cold()
    c_bare = timed("c'", "the matrix, cold, `--no-cache`", build("--no-cache"))
    loop = in_this_process(project, one, options)
    loop()
    edit(project / kernel.device)
    e = timed("e", f"edit the `.cu`, build for torch {release} and one capability, in one process", loop)
    nvcc = timed("nvcc", "nvcc alone, that file and capability", bare_nvcc(kernel, project, toolchain, options, theirs))
    same = timed("nvcc'", "nvcc alone, with the very flags that are used here", same_nvcc(kernel, project))
    names = {
        "a": f"`cpp_extension`, as the tutorial has it, torch {release}, one variant",
        "a'": "`cpp_extension`, the very sources that are used here",
    }
    a, a_same = (replace(row, what=names[row.step]) for row in (a, a_same))
    return [a, a_same, b, c, c_bare, d, d_cached, e, nvcc, same]


def part_source(options: argparse.Namespace) -> PartSource:
    """Return what provides toolkits and headers."""
    home = toolkit_at(options.cuda_home) if options.cuda_home else None
    return PartSource(Store.default(), cuda_home=home)


def common(options: argparse.Namespace) -> list[str]:
    """Return the arguments that all builds have."""
    toolkit = ["--cuda-home", options.cuda_home] if options.cuda_home else []
    return ["--jobs", str(options.jobs), *toolkit]


def in_this_process(project: Path, variant: str, options: argparse.Namespace) -> Callable[[], None]:
    """Return what builds one variant for one capability, as `kernelyard.author.watch` does."""

    def build() -> None:
        build_project(
            project,
            source=part_source(options),
            variants=[variant],
            capabilities=options.capability[-1:],
            jobs=options.jobs,
            cached=False,
            watch=lambda _: None,
        )

    return build


def measure_many(folder: Path, options: argparse.Namespace) -> list[str]:
    """Return a table of the CPU time of a kernel with many `.cu`, for one torch and for all."""
    project = write_project(MANY, folder / "project", options.capability)
    write_many(project)
    releases = [Version(pin["version"]) for pin in known_torch().values() if pin["cuda"] == CUDA]
    oldest = f"torch{releases[0].major}{releases[0].minor}-*-cu130-*"

    def build(what: str, *arguments: str) -> tuple[float, int, int]:
        progress(f"many: {what}")
        program = Path(sysconfig.get_path("scripts")) / "kernelyard"
        command = [program, "build", project, *common(options), "--no-cache", "--json", *arguments]
        before = cpu_seconds()
        with memory_watch() as peak:
            variants = json.loads(run(command))
        return cpu_seconds() - before, peak(), max(variant["compiled"] for variant in variants)

    one, peak, compiled = build(f"{SOURCES} sources for one torch", "--variant", oldest)
    edit(project / "torch_binding.cpp")
    binding, _, _ = build("the binding edited", "--variant", oldest)
    rest, rest_peak, _ = build(f"all {len(releases)} torch", "--variant", "*-cu130-*")
    edit(project / "csrc" / "part7.cu")
    _, _, edited = build("one source edited", "--variant", oldest)
    device = one - binding
    bindings = len(releases) * binding
    ratio = (one + rest) / (device + bindings)
    return [
        f"`many`, {SOURCES} `.cu`, {len(options.capability)} capabilities, {len(releases)} torch for CUDA {CUDA}:",
        "",
        "| | CPU seconds |",
        "|---|---|",
        f"| one variant ({compiled} objects), cold | {one:.0f} |",
        f"| its binding alone | {binding:.0f} |",
        f"| the other {len(releases) - 1} variants | {rest:.0f} |",
        f"| all, in relation to the device code of one and {len(releases)} bindings (at most 1.1) | {ratio:.2f} |",
        "",
        f"Most memory: {max(peak, rest_peak) / 1e9:.1f} GB. One `.cu` edited: {edited} objects compiled.",
    ]


def write_many(project: Path) -> None:
    """Write the sources of `many`: each has a kernel of its own, and one calls the launchers of all."""
    folder = project / "csrc"
    folder.mkdir()
    for number in range(SOURCES):
        (folder / f"part{number}.cu").write_text(PART.replace("@number@", str(number)))
    names = ", ".join(f'"csrc/part{number}.cu"' for number in range(SOURCES))
    manifest = project / "build.toml"
    manifest.write_text(manifest.read_text().replace('"@parts@"', names))


def write_project(kernel: Kernel, project: Path, capabilities: Sequence[str]) -> Path:
    """Lay out a kernel's project."""
    shutil.copytree(HERE / "kernels" / kernel.name, project)
    for name in kernel.shared:
        shutil.copytree(EXAMPLE / name, project / name, ignore=shutil.ignore_patterns("torch_binding.cpp"))
    manifest = project / "build.toml"
    listed = ", ".join(json.dumps(capability) for capability in capabilities)
    manifest.write_text(manifest.read_text().replace("@capabilities@", listed))
    return project


def cpp_extension(
    kernel: Kernel, folder: Path, sources: Sequence[str], toolchain: Toolchain, options: argparse.Namespace
) -> tuple[float, int]:
    """Build with torch's own tool, cold; return the seconds from the program's start to the library, and the memory."""
    assert toolchain.cuda is not None  # noqa: S101 - it was asked for
    out = folder / "extension"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    project = folder / "project"
    registration = project / ".kernelyard" / "cu130" / "cmake" / "include"
    request = {
        "name": f"{kernel.name}_extension",
        "sources": [str(project / source) for source in sources],
        "extra_include_paths": [str(project / "csrc"), str(registration), str(toolchain.cuda.include / "cccl")],
        "extra_cflags": ["-O3", "-DCUDA_KERNEL"],
        "extra_cuda_cflags": ["-O3"],
        "build_directory": str(out),
        "with_cuda": True,
        "is_python_module": False,
    }
    environment = {
        **os.environ,
        "CUDA_HOME": str(toolchain.cuda.nvcc.parents[1]),
        "MAX_JOBS": str(options.jobs),
        "PATH": f"{ninja_alone(folder)}:{os.defpath}",
        "TORCH_CUDA_ARCH_LIST": ";".join(options.capability),
    }
    began = time.time()
    with memory_watch() as peak:
        done = subprocess.run(
            [options.python, "-c", EXTENSION],
            input=json.dumps(request),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if not list(out.glob("*.so")):
        sys.exit(f"build: cpp_extension failed\n{done.stdout}{done.stderr}")
    # It is loaded as well, which needs a GPU's driver on some machines: the library's time tells when it was done.
    return max(path.stat().st_mtime for path in out.glob("*.so")) - began, peak()


def ninja_alone(folder: Path) -> Path:
    """Return a folder with Ninja and nothing else: torch's tool uses an sccache that it finds."""
    place = folder / "ninja"
    place.mkdir(exist_ok=True)
    link = place / "ninja"
    link.unlink(missing_ok=True)
    link.symlink_to(Path(sysconfig.get_path("scripts")) / "ninja")
    return place


def bare_nvcc(
    kernel: Kernel, project: Path, toolchain: Toolchain, options: argparse.Namespace, torch: Version
) -> Callable[[], None]:
    """Return what compiles the `.cu` with nvcc, as somebody would by hand."""
    assert toolchain.cuda is not None  # noqa: S101 - it was asked for
    architecture = options.capability[-1].replace(".", "")
    include = [project / "csrc", toolchain.cuda.include / "cccl"]
    if kernel is HEAVY:
        headers = next(one.root for version, one in toolchain.torch.items() if Version(version).minor == torch.minor)
        include += [headers, headers / "torch/csrc/api/include"]
    command: list[str | Path] = [toolchain.cuda.nvcc, "-O3", "-std=c++20", f"-arch=sm_{architecture}"]
    command += ["-Xcompiler", "-fPIC", *(f"-I{folder}" for folder in include)]
    return lambda: run([*command, "-c", project / kernel.device, "-o", project / "bare.o"])


def same_nvcc(kernel: Kernel, project: Path) -> Callable[[], None]:
    """Return what compiles the `.cu` once more as the last build did."""
    objects = project / ".kernelyard" / "cu130" / "objects"
    commands = json.loads((objects / "compile_commands.json").read_bytes())
    (command,) = [one["command"] for one in commands if one["file"] == str(project / kernel.device)]
    words = shlex.split(command.replace(str(objects.parent / "launch"), ""))
    words[words.index("-o") + 1] = str(project / "same.o")
    return lambda: run(words) and None


def edit(path: Path) -> None:
    """Change a source so that it compiles to something else."""
    name = f"edited_{path.stem}"
    path.write_text(f'{path.read_text()}\nextern "C" int {name}() {{ return {time.time_ns() % 1_000_000}; }}\n')


def run(command: Sequence[str | Path]) -> str:
    """Run a program to its end, and return what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"build: {command[0]} failed\n{done.stdout}{done.stderr}")
    return done.stdout


def torch_version(python: str) -> str:
    """Return the release of the torch that another Python has."""
    code = "import torch; print(torch.__version__, torch.version.cuda)"
    done = subprocess.run([python, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    version, _, cuda = done.stdout.strip().partition(" ")
    if not cuda.startswith("13."):
        sys.exit(f"build: {python} has no torch for CUDA 13: name one that has with --python\n{done.stderr}")
    return version.partition("+")[0]


def cpu_seconds() -> float:
    """Return the seconds of processors of this process and of all that have ended of those that it started."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


@contextmanager
def memory_watch() -> Iterator[Callable[[], int]]:
    """Watch the memory of all processes below this one; yield what tells the most of it, in bytes."""
    most, end = [0], threading.Event()

    def look() -> None:
        while not end.wait(PAUSE_S):
            most[0] = max(most[0], memory_below(os.getpid()))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield lambda: most[0]
    finally:
        end.set()
        thread.join()


def memory_below(root: int) -> int:
    """Return the resident memory of the processes that a process has started, and of those that they have, in bytes."""
    children: dict[int, list[tuple[int, int]]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append((int(stat.parent.name), int(fields[21])))
    total, waiting = 0, [root]
    while waiting:
        for process, pages in children.get(waiting.pop(), []):
            total += pages * os.sysconf("SC_PAGE_SIZE")
            waiting.append(process)
    return total


def markdown(name: str, rows: Sequence[Row]) -> str:
    """Return two tables: what each step took, and what the targets are."""
    lines = [f"`{name}`:", "", "| | | seconds | CPU seconds | memory, GB |", "|---|---|---|---|---|"]
    lines += [f"| {row.step} | {row.what} | {row.seconds:.1f} | {row.cpu:.1f} | {row.peak / 1e9:.1f} |" for row in rows]
    by_step = {row.step: row for row in rows}
    lines += ["", "| | is | at most | |", "|---|---|---|---|", *(target.line(by_step) for target in TARGETS[name])]
    return "\n".join(lines)


def system(options: argparse.Namespace) -> dict[str, str]:
    """Return where and when something is measured."""
    gcc = subprocess.run(
        [shutil.which("g++") or "g++", "-dumpfullversion"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": f"{platform.machine()}, {options.jobs} cores, {platform.freedesktop_os_release()['PRETTY_NAME']}",
        "load at the end": f"{os.getloadavg()[0]:.1f}",
        "capabilities": ", ".join(options.capability),
        "versions": f"Kernelyard {__version__}, nvcc {CUDA}, g++ {gcc}, torch {torch_version(options.python)} there",
    }


def progress(text: str) -> None:
    """Say what is being done."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
