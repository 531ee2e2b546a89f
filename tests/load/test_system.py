from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from kernelyard.formats.versions import Version
from kernelyard.load.system.description import Torch, describe_system, find_torch
from kernelyard.load.system.nvml import Gpu


@pytest.mark.parametrize(
    ("text", "release", "numbers"),
    [
        ("2.11.0", (2, 11), (2, 11)),
        ("2.11.0+cu130", (2, 11), (2, 11)),
        ("2.13.0+cpu", (2, 13), (2, 13)),
        ("2.5.1.post3", (2, 5), (2, 5)),
        ("2.10.0+rocm6.4", (2, 10), (2, 10)),
        ("2.6.0a0+ecf3bae40a.nv25.01", None, (2, 6)),
        ("2.12.0.dev20260101+cu130", None, (2, 12)),
        ("2.9.0rc1", None, (2, 9)),
        ("2.9.0+gitabc1234", None, (2, 9)),
        ("2.8.0a0+git1234567", None, (2, 8)),
        ("2.7.0+computecanada", None, (2, 7)),
        ("strange", None, (0, 0)),
        (f"{'9' * 5000}.1", None, (0, 0)),
        (f"2.{'9' * 5000}", None, (0, 0)),
    ],
)
def test_only_plain_builds_are_releases(text: str, release: tuple[int, int] | None, numbers: tuple[int, int]) -> None:
    torch = Torch(text)
    assert torch.release == release
    assert torch.numbers == numbers
    assert torch.reaches(Version("1.13")) is (numbers > (1, 13))
    assert torch.reaches(Version(f"{numbers[0]}.{numbers[1]}")) is (release is not None)
    assert not torch.reaches(Version(f"{numbers[0]}.{numbers[1] + 1}"))


@pytest.fixture
def fake_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that puts a torch with a `version.py` on the module path."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(tmp_path)

    def fake(text: str) -> None:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch/__init__.py").write_text("raise RuntimeError('torch was imported')\n")
        (tmp_path / "torch/version.py").write_text(text)

    return fake


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "__version__ = '2.11.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n",
            Torch("2.11.0+cu130", Version("13.0")),
        ),
        ("__version__ = '2.1.0'\ncuda = '12.1'\nhip = None\n", Torch("2.1.0", Version("12.1"))),
        ('__version__ = "2.9.0"\ncuda: str | None = None\nhip: str | None = "6.4.1"\n', Torch("2.9.0", None, "6.4.1")),
        (
            "__version__ = '2.13.0+xpu'\ncuda: Optional[str] = None\nxpu: Optional[str] = '20260000'\n",
            Torch("2.13.0+xpu", xpu="20260000"),
        ),
    ],
)
def test_torch_is_described_from_its_files_without_importing_it(
    fake_torch: Callable[[str], None], text: str, expected: Torch
) -> None:
    fake_torch(text)
    assert find_torch() == expected
    assert "torch" not in sys.modules


@pytest.mark.parametrize(("symbol", "abi"), [(b"NSt7__cxx1112basic_string", True), (b"Ss", False), (b"x", None)])
def test_the_cxx_abi_is_read_from_the_library(
    fake_torch: Callable[[str], None],
    tmp_path: Path,
    symbol: bytes,
    abi: bool | None,  # noqa: FBT001
) -> None:
    fake_torch("__version__ = '2.5.0'\n")
    (tmp_path / "torch/lib").mkdir()
    (tmp_path / "torch/lib/libc10.so").write_bytes(b"\0_ZN3c105ErrorC2ENS_14SourceLocationE" + symbol + b"\0")
    found = find_torch()
    assert found is not None
    assert found.cxx11_abi is abi


@pytest.mark.parametrize("text", ["", "__version__ = ''\n", "__version__ = 1 / 0\n", "def f(:\n"])
def test_the_version_of_another_torch_on_the_path_is_not_that_of_the_first(
    fake_torch: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.syspath_prepend(_with_metadata(tmp_path / "further"))
    monkeypatch.syspath_prepend(tmp_path)
    fake_torch(text)
    assert find_torch() == Torch("unknown version")
    _with_metadata(tmp_path, "2.12.0")
    assert find_torch() == Torch("2.12.0")


def test_a_file_in_the_place_of_torch_has_nothing_of_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(_with_metadata(tmp_path / "further"))
    (tmp_path / "first").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "first")
    (tmp_path / "first/torch.py").write_text("__version__ = '1'\n")
    (tmp_path / "first/version.py").write_text("__version__ = '2.9.0'\n")
    found = find_torch()
    assert found == Torch("unknown version")
    assert found.folder == tmp_path / "first/torch.py"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes pipes")
def test_no_pipe_in_the_folder_of_torch_is_waited_for(fake_torch: Callable[[str], None], tmp_path: Path) -> None:
    fake_torch("")
    (tmp_path / "torch/version.py").unlink()
    (tmp_path / "torch/lib").mkdir()
    os.mkfifo(tmp_path / "torch/version.py")
    os.mkfifo(tmp_path / "torch/lib/libc10.so")
    assert find_torch() == Torch("unknown version")


def _with_metadata(folder: Path, version: str = "2.13.0") -> Path:
    info = folder / f"torch-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    os.utime(folder, ns=(0, 0))
    return folder


def test_no_torch_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert find_torch() is None


def test_this_machine_is_described_in_the_words_of_variant_names() -> None:
    system = describe_system()
    assert system is describe_system()
    assert system.python == sys.version_info[:2]
    assert system.cpu == {"amd64": "x86_64", "arm64": "aarch64"}.get(os.uname().machine, os.uname().machine)
    assert system.platform == f"{system.cpu}-{system.os}"


@pytest.mark.torch
def test_the_installed_torch_is_described_as_it_describes_itself() -> None:
    torch = pytest.importorskip("torch")
    found = find_torch()
    assert found is not None
    assert found.version == torch.__version__
    # A wheel's metadata may leave out the local part, as those of CUDA builds on the index do.
    assert found.version.partition("+")[0] == version("torch").partition("+")[0]
    assert (str(found.cuda) if found.cuda else None) == torch.version.cuda
    if sys.platform == "linux":
        assert found.cxx11_abi is torch.compiled_with_cxx11_abi()


def test_describing_imports_neither_torch_nor_anything_slow() -> None:
    program = (
        "import sys; from kernelyard.load.system.description import describe_system; describe_system();"
        "print([m for m in ('torch', 'packaging', 'urllib.request') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_order_of_the_gpus_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = (Gpu(0, "GPU-a", (7, 5)), Gpu(1, "GPU-b", (9, 0)))
    monkeypatch.setattr("kernelyard.load.system.description.read_gpus", lambda: (Version("590"), gpus))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for order, in_order in ((None, False), ("PCI_BUS_ID", True)):
        if order:
            monkeypatch.setenv("CUDA_DEVICE_ORDER", order)
        else:
            monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
        system = describe_system.__wrapped__()
        assert (system.gpus, system.gpus_in_order) == (gpus, in_order)
