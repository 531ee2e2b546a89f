from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.versions import Version
from kernelyard.store import Store
from kernelyard.toolchain.cuda_toolkit import CudaToolkit
from kernelyard.toolchain.headers import TorchHeaders
from kernelyard.toolchain.parts import PartSource, _amount
from kernelyard.toolchain.pins import known_cuda, known_torch

if TYPE_CHECKING:
    from tests.toolchain.conftest import IndexServer

#: What the wheels of CUDA 13 have below `nvidia/cu13/`, as far as it matters here.
CUDA_FILES = {
    "nvidia-cuda-nvcc": (
        *("bin/nvcc", "bin/nvcc.profile", "bin/ptxas", "bin/cudafe++", "bin/fatbinary", "bin/nvlink", "bin/bin2c"),
        *("include/nvcc.h", "doc/skipped"),
    ),
    "nvidia-nvvm": ("nvvm/bin/cicc", "nvvm/libdevice/libdevice.10.bc", "lib/skipped.so"),
    "nvidia-cuda-runtime": ("include/cuda_runtime.h", "lib/libcudart.so.13", "lib/libcudadevrt.a"),
}


def add_cuda(server: IndexServer, *, without: tuple[str, ...] = ()) -> None:
    """Offer the wheels of CUDA 13.0 in the pinned versions; each file's content is its name."""
    pin = known_cuda()["13.0"]
    for wheel in pin["wheels"]:
        project, version = wheel["project"], wheel["version"]
        files = CUDA_FILES.get(project, (f"include/{project}.h", "lib/skipped.a"))
        members = {pin["strip"] + name: name.encode() for name in files if name not in without}
        filename = f"{project.replace('-', '_')}-{version}-py3-none-manylinux_2_17_x86_64.whl"
        server.add(project, filename, server.wheel({**members, "nvidia/LICENSE": b"skipped"}))


def add_torch(server: IndexServer, python: str = "cp312") -> None:
    version = known_torch()["2.11"]["version"]
    members = {"torch/include/ATen/ATen.h": b"ATen", "torch/include/torch/csrc/api.h": b"api", "torch/lib/x.so": b"x"}
    members["torch/include/google/protobuf/message.h"] = b"of no use to a kernel"
    server.add("torch", f"torch-{version}-{python}-{python}-manylinux_2_28_x86_64.whl", server.wheel(members))


@pytest.fixture
def source(tmp_path: Path) -> PartSource:
    """Return a source with an empty store, whose path has a space and letters that are not ASCII."""
    return PartSource(Store(tmp_path / "mein Läger ☃"))


def tree(folder: Path) -> set[str]:
    """Return the files of a part, without the one that describes it."""
    files = (path for path in folder.rglob("*") if not path.is_dir() and path.name != ".kernelyard-part.json")
    return {path.relative_to(folder).as_posix() for path in files}


def entries(source: PartSource) -> list[str]:
    """Return everything in the store that is an entry or on the way to become one."""
    return [path.name for path in source.store.root.glob("*/*") if path.parent.name != "locks"]


def failure(of: Callable[[], object]) -> EnvironmentProblemError:
    with pytest.raises(EnvironmentProblemError) as caught:
        of()
    assert caught.value.exit_code == 3
    return caught.value


def test_a_toolkit_is_laid_out_as_nvcc_and_cmake_want_it(server: IndexServer, source: PartSource) -> None:
    add_cuda(server)
    toolkit = source.cuda(Version("13.0"))
    assert toolkit.root.is_relative_to(source.store.root / "toolkits")
    assert tree(toolkit.root) == {
        *(name for files in CUDA_FILES.values() for name in files if "skipped" not in name),
        *(
            f"include/{wheel['project']}.h"
            for wheel in known_cuda()["13.0"]["wheels"][2:]
            if "runtime" not in str(wheel)
        ),
        "lib/libcudart.so",
    }
    assert toolkit.root.joinpath("lib64/libcudadevrt.a").read_bytes() == b"lib/libcudadevrt.a"
    assert toolkit.root.joinpath("lib/libcudart.so").read_bytes() == b"lib/libcudart.so.13"
    assert os.access(toolkit.nvcc, os.X_OK)
    assert os.access(toolkit.root / "nvvm/bin/cicc", os.X_OK)
    assert (toolkit.version, toolkit.release, toolkit.newest_gcc) == (Version("13.0"), "13.0.2", 15)
    assert toolkit.driver == Version("580.65.06")
    assert source.bytes_fetched == sum(request.sent for request in server.file_requests)


def test_headers_stand_for_the_include_folder_of_the_wheel(server: IndexServer, source: PartSource) -> None:
    add_torch(server)
    headers = source.torch_headers(Version("2.11"))
    assert tree(headers.root) == {"ATen/ATen.h", "torch/csrc/api.h"}
    assert (headers.version, headers.cxx_standard) == (Version("2.11.0"), 17)


def test_headers_come_from_the_wheel_of_any_common_python(server: IndexServer, source: PartSource) -> None:
    add_torch(server, "cp314")
    assert source.torch_headers(Version("2.11")).root.joinpath("ATen/ATen.h").read_bytes() == b"ATen"


def test_what_is_in_the_store_needs_no_network(
    server: IndexServer, source: PartSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_cuda(server)
    add_torch(server)
    first = (source.cuda(Version("13.0")), source.torch_headers(Version("2.11")))
    count = len(server.requests)
    again = PartSource(source.store)
    assert (again.cuda(Version("13.0")), again.torch_headers(Version("2.11"))) == first
    assert len(server.requests) == count
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    offline = PartSource(source.store)
    assert (offline.cuda(Version("13.0")), offline.torch_headers(Version("2.11"))) == first
    assert offline.bytes_fetched == 0


def test_an_empty_store_without_a_network_says_so(no_network: str, source: PartSource) -> None:
    error = failure(lambda: source.cuda(Version("13.0")))
    assert error.code == "KY311"
    assert "cannot reach the package index, asked for nvidia-cuda-nvcc: " in str(error)
    assert str(error).startswith(no_network)
    assert "what is in the cache already needs no network" in error.hint
    assert entries(source) == []


@pytest.mark.usefixtures("no_network")
def test_an_unknown_version_is_refused_with_those_that_are_known(source: PartSource) -> None:
    error = failure(lambda: source.cuda(Version("9.2")))
    assert error.code == "KY315"
    assert "CUDA 9.2" in str(error)
    assert "13.0" in error.hint
    error = failure(lambda: source.torch_headers(Version("1.13")))
    assert error.code == "KY315"
    assert "torch 1.13" in str(error)
    assert "2.11, 2.12" in error.hint


def test_a_toolkit_that_fails_half_way_is_not_there_and_is_whole_the_next_time(
    server: IndexServer, source: PartSource
) -> None:
    add_cuda(server)
    last = next(name for name in server.files if name.startswith("nvidia_nvtx"))
    taken = server.files.pop(last)
    error = failure(lambda: source.cuda(Version("13.0")))
    assert error.code == "KY312"
    assert "nvidia-nvtx" in str(error)
    assert entries(source) == []
    server.files[last] = taken
    assert source.cuda(Version("13.0")).root.joinpath("include/nvidia-nvtx.h").is_file()
    assert len(entries(source)) == 1


def test_a_connection_cut_half_way_leaves_no_entry(server: IndexServer, source: PartSource) -> None:
    add_torch(server)
    server.cut_after = 100
    assert failure(lambda: source.torch_headers(Version("2.11"))).code == "KY311"
    assert entries(source) == []
    server.cut_after = None
    assert tree(source.torch_headers(Version("2.11")).root) == {"ATen/ATen.h", "torch/csrc/api.h"}


def test_a_wheel_without_the_files_wanted_is_refused(server: IndexServer, source: PartSource) -> None:
    version = known_torch()["2.11"]["version"]
    name = f"torch-{version}-cp312-cp312-manylinux_2_28_x86_64.whl"
    server.add("torch", name, server.wheel({"torch/lib/x.so": b"x"}))
    error = failure(lambda: source.torch_headers(Version("2.11")))
    assert error.code == "KY313"
    assert name in str(error)
    assert entries(source) == []


def test_a_toolkit_without_its_programs_is_refused(server: IndexServer, source: PartSource) -> None:
    add_cuda(server, without=("bin/nvlink", "nvvm/bin/cicc"))
    error = failure(lambda: source.cuda(Version("13.0")))
    assert error.code == "KY313"
    assert "lack bin/nvlink, nvvm/bin/cicc" in str(error)
    assert entries(source) == []


def test_a_full_disk_leaves_no_entry(server: IndexServer, full_disk: Path) -> None:
    version = known_torch()["2.11"]["version"]
    members = {f"torch/include/{number}.h": bytes(50_000) for number in range(10)}
    server.add("torch", f"torch-{version}-cp312-cp312-manylinux_2_28_x86_64.whl", server.wheel(members))
    source = PartSource(Store(full_disk / "store"))
    error = failure(lambda: source.torch_headers(Version("2.11")))
    assert error.code == "KY301"
    assert "KERNELYARD_CACHE" in error.hint
    assert str(error.place).startswith(str(full_disk))
    assert entries(source) == []


def test_one_file_of_a_wheel(server: IndexServer, source: PartSource) -> None:
    server.add("x", "x-1.0-py3-none-any.whl", server.wheel({"x/a/data.txt": b"a", "x/b/data.txt": b"b"}))
    first, second = source.member("x", "1.0", "x/a/data.txt"), source.member("x", "1.0", "x/b/data.txt")
    assert (first.name, first.read_bytes()) == ("data.txt", b"a")
    assert (second.name, second.read_bytes()) == ("data.txt", b"b")
    count = len(server.requests)
    assert source.member("x", "1.0", "x/a/data.txt") == first
    assert len(server.requests) == count


def test_one_file_of_the_wheels_for_two_platforms(server: IndexServer, source: PartSource) -> None:
    for cpu in ("x86_64", "aarch64"):
        server.add("x", f"x-1.0-cp312-cp312-manylinux_2_28_{cpu}.whl", server.wheel({"x/cpu": cpu.encode()}))
    other = PartSource(source.store, platform="aarch64-linux")
    assert source.member("x", "1.0", "x/cpu").read_bytes() == b"x86_64"
    assert other.member("x", "1.0", "x/cpu").read_bytes() == b"aarch64"


def test_a_file_that_the_wheel_does_not_have(server: IndexServer, source: PartSource) -> None:
    server.add("x", "x-1.0-py3-none-any.whl", server.wheel({"x/a.txt": b"a"}))
    error = failure(lambda: source.member("x", "1.0", "x/b.txt"))
    assert error.code == "KY313"
    assert entries(source) == []


@pytest.fixture(scope="module")
def real_parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, CudaToolkit, TorchHeaders]:
    """Fetch the toolkit of CUDA 13.0 and the headers of torch 2.11 into a store of their own."""
    source = PartSource(Store(tmp_path_factory.mktemp("real store")))
    parts = source.cuda(Version("13.0")), source.torch_headers(Version("2.11"))
    assert 50e6 < source.bytes_fetched < 150e6
    return source.store, *parts


@pytest.mark.network
def test_the_real_parts_are_complete(real_parts: tuple[Store, CudaToolkit, TorchHeaders]) -> None:
    _, toolkit, headers = real_parts
    said = subprocess.run([toolkit.nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    assert "release 13.0" in said
    assert toolkit.root.joinpath("include/cuda_runtime.h").is_file()
    assert headers.root.joinpath("torch/csrc/stable/library.h").is_file()
    assert len(tree(headers.root)) > 9000


@pytest.mark.network
@pytest.mark.usefixtures("no_network")
def test_the_real_parts_are_not_fetched_twice(real_parts: tuple[Store, CudaToolkit, TorchHeaders]) -> None:
    store, *parts = real_parts
    source = PartSource(store)
    assert [source.cuda(Version("13.0")), source.torch_headers(Version("2.11"))] == parts
    assert source.bytes_fetched == 0


@pytest.mark.parametrize(
    ("fetched", "size", "said"),
    [
        (100_000, 40_000, "0.1 MB"),
        (37_600_000, 37_400_000, "37.6 MB"),
        (1_200_000, 37_400_000, "1.2 of 37.4 MB"),
        (5, None, "0.0 MB"),
    ],
)
def test_what_was_fetched_is_never_more_than_there_is(fetched: int, size: int | None, said: str) -> None:
    assert _amount(fetched, size) == said
