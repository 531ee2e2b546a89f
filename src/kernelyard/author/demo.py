"""The whole way in one function: build, check, publish, load, run on a photograph, compare with a reference."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from kernelyard.author.environment import ensure_torch
from kernelyard.build.project import build_project
from kernelyard.check import UnfitError, check_variant, gather
from kernelyard.check.variant import CHECKS
from kernelyard.errors import BuildError
from kernelyard.publish import push_project
from kernelyard.records import record
from kernelyard.store import Store, writing
from kernelyard.toolchain.parts import PartSource

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Demo", "Step", "run_demo"]

_logger = logging.getLogger("kernelyard.author")

#: A photograph in the public domain (NASA), from a well-kept package; only this file of the package is fetched.
_PHOTOGRAPH = ("scikit-image", "0.26.0", "skimage/data/astronaut.png")
#: ITU-R BT.709 luma, as img2gray has it.
_WEIGHTS = (0.2126, 0.7152, 0.0722)
#: What img2gray promises for uint8: rounded once (0.5), by weights of 16 bits (0.003).
_TOLERANCE = 0.503

T = TypeVar("T")


@record(frozen=True, slots=True)
class Step:
    """One line of the demonstration: what was done, how long it took, and how many bytes it is about."""

    name: str
    detail: str
    seconds: float
    size: int | None = None


@record(frozen=True, slots=True)
class Demo:
    """What the demonstration did.

    Attributes:
        steps: In order.
        picture: The gray photograph.
        hub: The hub in a folder that the kernel was published to.
        largest_difference: From the float64 reference, over all pixels and devices, in gray levels.
        fetched: Bytes that came over the network for the toolchain and the photograph.
    """

    steps: tuple[Step, ...]
    picture: Path
    hub: Path
    largest_difference: float
    fetched: int


class _Recorder:
    def __init__(self) -> None:
        self.steps: list[Step] = []

    def timed(self, name: str, work: Callable[[], tuple[T, str, int | None]]) -> T:
        _logger.info("== %s", name)
        started = time.monotonic()
        result, detail, size = work()
        self.steps.append(Step(name, detail, time.monotonic() - started, size))
        return result


def run_demo(folder: Path, *, store: Store, install_torch: bool = False, jobs: int | None = None) -> Demo:
    """Take img2gray from its sources to a gray photograph.

    Args:
        folder: Where the project, the hub and the picture are put; the project in it is made anew.
        store: Where the toolchain and the fetched kernel are kept.
        install_torch: Whether a pinned torch may be installed where none can be imported.
        jobs: Compilers at the same time.

    Raises:
        KernelyardError: Whatever goes wrong on the way.
    """
    record, source = _Recorder(), PartSource(store)
    project, hub = folder / "img2gray", folder / "hub"
    with writing(folder):
        _copy_example(project)
    built = record.timed("build", lambda: _build(project, source, jobs))
    record.timed("check", lambda: _check(built))
    record.timed("publish", lambda: _publish(project, hub))
    photograph = record.timed("photograph", lambda: _fetch_photograph(source))
    record.timed("torch", lambda: (None, ensure_torch(install=install_torch), None))
    kernel = record.timed("load", lambda: _load(hub))
    picture = folder / "gray.png"
    difference = record.timed("run", lambda: _convert(kernel, photograph, picture))
    return Demo(tuple(record.steps), picture, hub, difference, source.bytes_fetched)


def _copy_example(project: Path) -> None:
    """Copy the example over a project of an earlier run, whose objects and results stay where they are."""
    packaged = files("kernelyard.author") / "examples" / "img2gray"
    origin = Path(str(packaged)) if packaged.is_dir() else _checkout() / "examples" / "img2gray"
    shutil.copytree(
        origin,
        project,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("build", ".kernelyard", "__pycache__", ".pytest_cache"),
    )


def _checkout() -> Path:
    """Return the repository of an editable installation, where examples are not beside the package."""
    return Path(__file__).resolve().parents[3]


def _build(project: Path, source: PartSource, jobs: int | None) -> tuple[list[Path], str, int]:
    built = build_project(project, source=source, jobs=jobs)
    names = ", ".join(variant.name for variant in built)
    return [variant.path for variant in built], names, sum(variant.entry.size for variant in built)


def _check(built: list[Path]) -> tuple[None, str, None]:
    for path in built:
        findings = check_variant(gather(path))
        if findings:
            raise UnfitError(str(path), findings)
    return None, f"{len(built)} variants fit: {'; '.join(CHECKS.values())}", None


def _publish(project: Path, hub: Path) -> tuple[None, str, int]:
    pushed = push_project(project, hub)
    return None, f"{pushed.repo} {pushed.branch} = {pushed.revision[:12]} in {hub}", pushed.size


def _fetch_photograph(source: PartSource) -> tuple[np.ndarray[Any, Any], str, int]:
    import numpy as np
    from PIL import Image

    path = source.member(*_PHOTOGRAPH)
    image = np.array(Image.open(path).convert("RGB"))
    height, width, _ = image.shape
    return image, f"{width} x {height} from {_PHOTOGRAPH[0]} {_PHOTOGRAPH[1]}", path.stat().st_size


def _load(hub: Path) -> tuple[ModuleType, str, None]:
    from kernelyard.load import get_kernel, get_loaded_kernels

    module = get_kernel("kernelyard/img2gray", version=1, hub=hub)
    loaded = next(kernel for kernel in get_loaded_kernels() if kernel.module is module)
    return module, f"{loaded.variant}, verified by {loaded.verification}", None


def _convert(kernel: ModuleType, photograph: np.ndarray[Any, Any], picture: Path) -> tuple[float, str, int]:
    import numpy as np
    import torch
    from PIL import Image

    reference = photograph.astype(np.float64) @ np.array(_WEIGHTS)
    devices = ["cpu", *(["cuda"] if _serves_cuda(kernel) else [])]
    largest = 0.0
    gray = np.empty(photograph.shape[:2], np.uint8)
    for device in devices:
        image = torch.from_numpy(photograph).to(device)
        gray = kernel.img2gray(image, layout="HWC").cpu().numpy()
        largest = max(largest, float(np.abs(gray - reference).max()))
    if largest > _TOLERANCE:
        raise BuildError("KY721", f"the result is off by {largest:.3f} gray levels, more than {_TOLERANCE}")
    with writing(picture):
        Image.fromarray(gray).save(picture)
    detail = f"on {' and '.join(devices)}: at most {largest:.3f} from the float64 reference (promised {_TOLERANCE})"
    return largest, detail, picture.stat().st_size


def _serves_cuda(kernel: ModuleType) -> bool:
    import torch

    return kernel.__kernel__.metadata.backend.backend_type.value == "cuda" and torch.cuda.is_available()
