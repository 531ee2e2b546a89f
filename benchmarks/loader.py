#!/usr/bin/env python3
"""Say what loading costs beside the public `kernels` package, in one run, on the same hub and the same files.

The hub is a look-alike of the Hugging Face Hub on this machine (`tests/hub/hugging_face_server.py`). What is timed runs
in new processes, by turns, so that other work on the machine is shared out; of each the least is told, which is what it
costs when nothing comes in between. Both sides have torch, and import it before anything is timed.

It needs torch. For the other side a virtual environment is made and the package installed, or `--with-kernels` names a
Python that has it and torch. To mount an overlay it has to be root; without, the store is only made read-only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from kernelyard import __version__  # noqa: E402
from kernelyard.hub.folder import FolderHub  # noqa: E402
from kernelyard.hub.protocol import Publication  # noqa: E402
from kernelyard.hub.static import DirectoryReader, StaticHub  # noqa: E402
from tests.hub.hugging_face_server import Hub, run  # noqa: E402

PUBLIC = "kernels==0.17.2"
MB = 1_000_000
PROCESSES = 64
#: Of the deliberately slow hub.
PAUSE_S, BYTES_PER_S = 0.1, 4 * MB

#: A kernel's first load and what follows, by either package. Prints milliseconds of both, of the
#: processor too, and microseconds of a further call.
LOAD = """
import json, sys, time
import torch
package, endpoint = sys.argv[1:3]
started, cpu = time.perf_counter(), time.process_time()
loader = __import__(package)
get_kernel = loader.get_kernel
imported, cpu_imported = time.perf_counter(), time.process_time()
kernel = get_kernel("org/gray", version=1, trust_remote_code=True)
loaded, cpu_loaded = time.perf_counter(), time.process_time()
print("LOADED", flush=True)
sys.stdin.readline()
again = time.perf_counter()
for _ in range(int(sys.argv[3])):
    get_kernel("org/gray", version=1, trust_remote_code=True)
each = (time.perf_counter() - again) / int(sys.argv[3])
wall = imported - started, loaded - imported
cpu = cpu_imported - cpu, cpu_loaded - cpu_imported
print(json.dumps([*(one * 1e3 for one in (*wall, *cpu)), each * 1e6]))
"""

DIGEST = """
import json, sys, time
from pathlib import Path
root = Path(sys.argv[2])
if sys.argv[1] == "kernelyard":
    from kernelyard.hub.folder import hash_tree as work
elif sys.argv[1] == "kernels":
    from kernels._rust import Digest, DigestAlgorithm
    def work(root):
        return Digest.hash_variant(DigestAlgorithm.SHA256, root)
else:
    import hashlib, os
    from concurrent.futures import ThreadPoolExecutor
    def one(path):
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256") if hasattr(hashlib, "file_digest") else whole(file)
    def whole(file):
        digest = hashlib.sha256()
        while chunk := file.read(1 << 18):
            digest.update(chunk)
        return digest
    def work(root):
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return list(pool.map(one, sorted(root.iterdir())))
def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024
Path("/proc/self/clear_refs").write_text("5")  # the most so far is forgotten
before = memory("VmRSS")
started = time.perf_counter()
work(root)
seconds = time.perf_counter() - started
print(json.dumps([seconds, memory("VmHWM") - before]))
"""

#: Processes that load at once; prints their CPU seconds and the wall time from the first's start to the last's end.
CROWD = """
import json, os, resource, sys, time
from kernelyard.load import get_kernel
hub, count = sys.argv[1], int(sys.argv[2])
begin_read, begin_write = os.pipe()
children = []
for _ in range(count):
    child = os.fork()
    if child == 0:
        os.close(begin_write)
        os.read(begin_read, 1)
        kernel = get_kernel("org/gray", version=1, hub=hub, trust_remote_code=True)
        os._exit(0 if kernel.GRAY else 1)
    children.append(child)
time.sleep(0.2)
started = time.perf_counter()
os.close(begin_write)
failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
seconds = time.perf_counter() - started
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([usage.ru_utime + usage.ru_stime, seconds, failed]))
"""

NODE = """
import json, sys, time
import torch
import kernelyard.load
from kernelyard.load import get_kernel
from kernelyard.load.stored import stamps
hash_tree, read = stamps.hash_tree, []
stamps.hash_tree = lambda root: read.append(root) or hash_tree(root)
print("READY", flush=True)
sys.stdin.readline()
started, cpu = time.perf_counter(), time.process_time()
kernel = get_kernel("org/gray", version=1, hub=sys.argv[1], trust_remote_code=True)
wall, cpu = time.perf_counter() - started, time.process_time() - cpu
print(json.dumps([wall * 1e3, cpu * 1e3, len(read), kernel.answer()]))
"""

EXTENSION = """
typedef struct { long count; void *type, *init; long index; void *copy; const char *name, *doc; long size;
                 void *methods, *slots, *traverse, *clear, *free; } Definition;
void *PyModuleDef_Init(Definition *);
extern const char large[];
static Definition definition = {1, 0, 0, 0, 0, "_large", 0, 0};
void *PyInit__large(void) { return large[0] > 1 ? 0 : PyModuleDef_Init(&definition); }
__asm__(".section .rodata\\n.global large\\n.hidden large\\nlarge: .incbin \\"@file@\\"\\n.previous");
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Attributes:
        what: In words.
        ours: Kernelyard's, in ``unit``.
        unit: ``ms``, ``µs``, ``GB/s``, ``times``, ``requests``, ...
        theirs: That of the public package; None where it has no such thing.
        target: The most that ours may be, or the least where ``least`` is set; None for none.
        least: Whether more is better.
    """

    what: str
    ours: float
    unit: str
    theirs: float | None = None
    target: float | None = None
    least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.target is None:
            return None
        return self.ours >= self.target if self.least else self.ours <= self.target

    def line(self) -> str:
        """Return the row of a table."""
        theirs = "" if self.theirs is None else f"{number(self.theirs)} {self.unit}"
        target = ""
        if self.target is not None:
            said = "at least" if self.least else "at most"
            target = f"{said} {number(self.target)}: {'met' if self.met else 'missed'}"
        return f"| {self.what} | {number(self.ours)} {self.unit} | {theirs} | {target} |"


def number(value: float) -> str:
    """Return a number with as many digits as say something."""
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"  # noqa: PLR2004


def main() -> int:
    """Do as the arguments say, print the result, and return 0."""
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="kernelyard-benchmark-") as folder:
        scratch = Path(folder)
        public = options.with_kernels or str(install_public(scratch / "public"))
        steps = {"import": imports, "load": loads, "digest": digests, "crowd": crowds, "node": node}
        rows = [
            row
            for name, step in steps.items()
            if name in options.only
            for row in step(scratch / name, public, options.repeat)
        ]
    about = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}",
        "load at the end": f"{os.getloadavg()[0]:.1f}",
        "versions": f"Kernelyard {__version__}, {PUBLIC}",
    }
    if options.json:
        print(json.dumps({"about": about, "rows": [asdict(row) | {"met": row.met} for row in rows]}, indent=2))
        return 0
    print("\n".join(f"{name}: {said}" for name, said in about.items()))
    print("\n| | Kernelyard | kernels 0.17.2 | target |\n|---|---|---|---|")
    print("\n".join(row.line() for row in rows))
    return 0


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["import", "load", "digest", "crowd", "node"]
    parser.add_argument("--with-kernels", metavar="PYTHON", help=f"one that has {PUBLIC} and torch")
    parser.add_argument("--only", action="append", choices=names, help="only this part; all by default")
    parser.add_argument("--repeat", type=int, default=10, help="processes of each kind")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    options.only = options.only or names
    return options


def install_public(folder: Path) -> Path:
    """Make an environment with the public package; torch, which is large, is the one of this Python."""
    progress(f"installing {PUBLIC}")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", PUBLIC], check=True)
    site = output([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
    Path(site, "outer.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    return python


def imports(folder: Path, public: str, repeat: int) -> Iterator[Row]:
    """Yield what it costs to import either package, over an interpreter that imports nothing."""
    folder.mkdir()
    kinds = {
        "bare": [sys.executable, "-c", "pass"],
        "ours": [sys.executable, "-c", "import kernelyard"],
        "public bare": [public, "-c", "pass"],
        "public": [public, "-c", "import kernels"],
    }
    took: dict[str, list[float]] = {name: [] for name in kinds}
    progress("imports")
    for _ in range(repeat + 1):  # the first time bytecode is written
        for name, command in kinds.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, env=environment())
            took[name].append((time.perf_counter() - started) * 1e3)
    least = {name: min(values[1:]) for name, values in took.items()}
    theirs = least["public"] - least["public bare"]
    yield Row("importing the package, over a bare interpreter", least["ours"] - least["bare"], "ms", theirs, 10)


def loads(folder: Path, public: str, repeat: int) -> Iterator[Row]:
    """Yield what the first load of a kernel of 1 MB takes that is in the store, and what further calls take."""
    running = run()
    try:
        put_kernel(running.hub)
        own = {"KERNELYARD_CACHE": str(folder / "store"), "HF_ENDPOINT": running.hub.endpoint}
        theirs = {"HF_HOME": str(folder / "hf"), "HF_ENDPOINT": running.hub.endpoint}
        sides = {"kernelyard": (sys.executable, own, 2000), "kernels": (public, theirs, 5)}
        found: dict[str, list[list[float]]] = {name: [] for name in sides}
        for number_ in range(repeat + 2):  # the first process fetches, the second leaves a stamp
            for package, (python, extra, calls) in sides.items():
                progress(f"first load {number_}: {package}")
                found[package].append(load_once(running.hub, python, package, extra, calls))
            time.sleep(0.1)
        ours, others = ([min(column) for column in zip(*found[name][2:], strict=True)] for name in sides)
    finally:
        running.stop()
    yield Row("first load, 1 MB, the call alone", ours[1], "ms", others[1], 10)
    yield Row("the same, CPU", ours[3], "ms", others[3])
    yield Row("the call, and importing what it takes", ours[0] + ours[1], "ms", others[0] + others[1])
    yield Row("the same, CPU", ours[2] + ours[3], "ms", others[2] + others[3])
    yield Row("requests of a first load from the store", ours[5], "requests", others[5], 0)
    yield Row("a further call", ours[4], "µs", others[4], 50)
    yield Row("requests of a further call", ours[6], "requests", others[6], 0)


def put_kernel(hub: Hub) -> None:
    """Put a kernel of 1 MB on the look-alike of the Hugging Face Hub, by the layout that both packages read."""
    metadata = {"name": "gray", "id": "_gray_0a1b2c3", "version": 1, "license": "MIT", "python-depends": []}
    files = {
        "__init__.py": b"GRAY = 1\n",
        "metadata.json": json.dumps({**metadata, "backend": {"type": "cpu"}}).encode(),
        "data.bin": os.urandom(MB),
    }
    hub.make("org/gray").put("v1", {f"build/torch-cpu/{name}": content for name, content in files.items()})


def load_once(hub: Hub, python: str, package: str, extra: Mapping[str, str], calls: int) -> list[float]:
    """Return what `LOAD` prints, and the requests of the first load and of each further call."""
    command = [python, "-c", LOAD, package, hub.endpoint, str(calls)]
    before = len(hub.requests)
    with subprocess.Popen(
        command, env=environment() | extra, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        if process.stdout.readline() != "LOADED\n":
            sys.exit(f"loader: {package} could not load the kernel")
        loaded = len(hub.requests)
        said, _ = process.communicate("\n")
    times: list[float] = json.loads(said)
    return [*times, loaded - before, (len(hub.requests) - loaded) / calls]


def digests(folder: Path, public: str, repeat: int) -> Iterator[Row]:
    """Yield how fast 1 GB in 16 files is hashed, and how much memory that takes."""
    folder.mkdir()
    for number_ in range(16):
        (folder / f"{number_:02}.bin").write_bytes(os.urandom(64 * MB))
    sides = {"hashlib": sys.executable, "kernelyard": sys.executable, "kernels": public}
    found: dict[str, list[list[float]]] = {name: [] for name in sides}
    for _ in range(max(3, repeat // 3)):
        for name, python in sides.items():
            progress(f"digest: {name}")
            found[name].append(json.loads(output([python, "-c", DIGEST, name, str(folder)])))
    seconds = {name: min(one[0] for one in values) for name, values in found.items()}
    memory = {name: max(one[1] for one in values) / MB for name, values in found.items()}
    speed = {name: 16 * 64 * MB / 1e9 / value for name, value in seconds.items()}
    what = f"digest of 1 GB (hashlib on all cores: {number(speed['hashlib'])} GB/s)"
    yield Row(what, speed["kernelyard"], "GB/s", speed["kernels"], 0.8 * speed["hashlib"], least=True)
    yield Row("memory for that", memory["kernelyard"], "MB", memory["kernels"], 64)


def publish(folder: Path, variant: Path) -> Path:
    """Publish a variant to a static hub in a folder."""
    found = FolderHub.find(variant.parent)
    assert found is not None  # noqa: S101
    hub = StaticHub(DirectoryReader(folder / "hub"))
    hub.publish(Publication("org/gray", found.index, found.files, "v1"))
    return folder / "hub"


def write_variant(folder: Path, name: str, init: str) -> Path:
    """Write the beginnings of a variant."""
    variant = folder / "build" / name
    variant.mkdir(parents=True)
    (variant / "__init__.py").write_text(init)
    metadata = {"name": "gray", "id": "_gray_0a1b2c3", "version": 1, "license": "MIT", "python-depends": []}
    (variant / "metadata.json").write_text(json.dumps({**metadata, "backend": {"type": "cpu"}}))
    return variant


@contextmanager
def served(root: Path, *, pause_s: float = 0.0, bytes_per_s: float = 0.0) -> Iterator[tuple[str, list[str]]]:
    """Serve a static hub, slowly; yield its address and what it was asked for."""
    asked: list[str] = []
    line = threading.Lock()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            time.sleep(pause_s)
            super().do_GET()

        def copyfile(self, source: object, outputfile: object) -> None:
            while chunk := source.read(1 << 16):  # type: ignore[attr-defined]
                if bytes_per_s:
                    with line:  # all share one line
                        time.sleep(len(chunk) / bytes_per_s)
                outputfile.write(chunk)  # type: ignore[attr-defined]

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        request_queue_size = 2 * PROCESSES

    server = Server(("127.0.0.1", 0), partial(Handler, directory=str(root)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def crowds(folder: Path, public: str, repeat: int) -> Iterator[Row]:
    """Yield what 64 processes cost that begin on an empty store at once, beside one."""
    del public
    variant = write_variant(folder, "torch-universal", "GRAY = 1\n")
    (variant / "data.bin").write_bytes(os.urandom(MB))
    root = publish(folder, variant)
    cpu: dict[int, list[float]] = {1: [], PROCESSES: []}
    wall: dict[int, list[float]] = {1: [], PROCESSES: []}
    downloads = 0
    for round_ in range(max(3, repeat // 3)):
        for count in (1, PROCESSES):
            progress(f"{count} processes on an empty store")
            with served(root, pause_s=PAUSE_S, bytes_per_s=BYTES_PER_S) as (address, asked):
                extra = {"KERNELYARD_CACHE": str(folder / f"store-{round_}-{count}")}
                command = [sys.executable, "-c", CROWD, address, str(count)]
                used, seconds, failed = json.loads(output(command, extra))
            if failed:
                sys.exit(f"loader: {failed} of {count} processes could not load")
            cpu[count].append(used / count)
            wall[count].append(seconds)
            downloads = max(downloads, *map(asked.count, asked))
    least = {count: min(values) * 1e3 for count, values in cpu.items()}
    ratio = least[PROCESSES] / least[1]
    what = f"CPU of each of {PROCESSES} processes on an empty store ({number(least[PROCESSES])} ms), over one"
    yield Row("how often any file is fetched for all of them", downloads, "times", target=1)
    yield Row(what, ratio, "times", target=1.5)
    slow = f"a hub with {PAUSE_S * 1e3:.0f} ms an answer and {BYTES_PER_S // MB} MB/s"
    yield Row(f"{slow}: one process", min(wall[1]), "s")
    yield Row(f"{slow}: {PROCESSES} processes, the last", min(wall[PROCESSES]), "s")


def node(folder: Path, public: str, repeat: int) -> Iterator[Row]:
    """Yield what 8 processes take for a kernel of 500 MB in a layer on a read-only overlay, first and then again."""
    del public, repeat
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        progress("no C compiler: 8 processes with a large extension are left out")
        return
    init = "from . import _large\ndef answer():\n    return _large.__name__\n"
    variant = write_variant(folder, "torch-cpu", init)
    (folder / "large").write_bytes(bytes(500 * MB))
    (folder / "large.c").write_text(EXTENSION.replace("@file@", str(folder / "large")))
    library = variant / "_large.abi3.so"
    subprocess.run([compiler, "-shared", "-fPIC", str(folder / "large.c"), "-o", str(library)], check=True)
    (folder / "large").unlink()
    root = publish(folder, variant)
    shutil.rmtree(variant)
    with served(root) as (address, asked):
        layer = folder / "layer"
        extra = {"KERNELYARD_CACHE": str(layer), "KERNELYARD_STATE": str(layer / "state")}
        progress("fetching a kernel of 500 MB")
        together(1, address, extra)
        with read_only(folder, layer) as (mounted, how):
            shutil.copytree(layer / "state" / "versions", folder / "state" / "versions")
            own = {"KERNELYARD_CACHE": str(folder / "none"), "KERNELYARD_LAYERS": str(mounted)}
            own["KERNELYARD_STATE"] = str(folder / "state")
            before = len(asked)
            progress("8 processes, none has hashed it")
            first = together(8, address, own)
            progress("8 processes, with a stamp")
            again = together(8, address, own)
            requests = len(asked) - before
    where = f"8 processes, 500 MB, {how}"
    yield Row(f"{where}: how many read the files, at first", sum(one[2] for one in first), "processes", target=1)
    yield Row(f"{where}: the slowest, at first", max(one[0] for one in first), "ms")
    yield Row(f"{where}: how many read the files, then", sum(one[2] for one in again), "processes", target=0)
    yield Row(f"{where}: the median, then", statistics.median(one[0] for one in again), "ms", target=50)
    yield Row(f"{where}: the slowest, then", max(one[0] for one in again), "ms", target=50)
    yield Row(f"{where}: the median of their CPU, then", statistics.median(one[1] for one in again), "ms")
    yield Row(f"{where}: requests", requests, "requests", target=0)


def together(count: int, address: str, extra: Mapping[str, str]) -> list[tuple[float, float, int]]:
    """Have processes load at once, after each has imported torch; return what each prints, but for the answer."""
    command = [sys.executable, "-c", NODE, address]
    processes = [
        subprocess.Popen(command, env=environment() | extra, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    for process in processes:
        if process.stdout is None or process.stdout.readline() != "READY\n":
            sys.exit("loader: a process did not start")
    with ThreadPoolExecutor(count) as pool:
        said = list(pool.map(lambda process: process.communicate("\n")[0], processes))
    return [(wall, cpu, read) for wall, cpu, read, _ in map(json.loads, said)]


@contextmanager
def read_only(folder: Path, layer: Path) -> Iterator[tuple[Path, str]]:
    """Yield the layer where it cannot be written, and how that was done."""
    (folder / "empty").mkdir()
    mounted = folder / "mounted"
    mounted.mkdir()
    mount = ["mount", "-t", "overlay", "overlay", "-o", f"ro,lowerdir={folder / 'empty'}:{layer}", str(mounted)]
    if subprocess.run(mount, check=False, capture_output=True).returncode == 0:
        try:
            yield mounted, "a read-only overlay"
        finally:
            subprocess.run(["umount", mounted], check=True)  # noqa: S607 - whichever undoes what `mount` did
        return
    for path in (layer, *layer.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield layer, "a folder without write permission"
    for path in (layer, *layer.rglob("*")):
        path.chmod(0o755)


def environment() -> dict[str, str]:
    """Return the environment of what is timed: nothing of the user's that loading goes by."""
    ours = ("KERNELYARD_", "HF_", "LOCAL_KERNELS", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


def output(command: Sequence[str], extra: Mapping[str, str] | None = None) -> str:
    """Run a command and return what it prints."""
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment() | (dict(extra or {})))
    return done.stdout


def progress(text: str) -> None:
    """Say what is being done."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
