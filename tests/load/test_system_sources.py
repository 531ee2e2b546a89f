"""What the description of a system is made of, each read from a look-alike of what it is on some machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelyard.formats.versions import Version
from kernelyard.load.system import libcuda
from kernelyard.load.system.amd import amd_architectures
from kernelyard.load.system.c_library import glibc_version, musl_version
from kernelyard.load.system.description import describe_system
from kernelyard.load.system.libcuda import ask_cuda, driver_of_release, may_have_driver
from kernelyard.load.system.nvml import Gpu
from kernelyard.load.system.packages import installed_packages, installed_version
from kernelyard.load.system.shadows import Shadow, find_shadows, library_folders, shadowing_driver

# The C library


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\x7fELF\0\0musl libc\0" + b"1.2.5\0\nVersion %s\0", "1.2.5"),
        (b"\x7fELF\x00" + b"1.2.4-git-12-g1234abc\0", "1.2.4"),
        (b"\x7fELF\0nothing of the kind 1.2.5\0", None),
    ],
)
def test_the_version_of_musl_is_read_from_its_linker(tmp_path: Path, content: bytes, expected: str | None) -> None:
    (tmp_path / "ld-musl-x86_64.so.1").write_bytes(content)
    assert musl_version(tmp_path) == (Version(expected) if expected else None)


def test_without_a_linker_of_musl_there_is_no_musl(tmp_path: Path) -> None:
    (tmp_path / "ld-linux-x86-64.so.2").write_bytes(b"\0" + b"1.2.5\0")
    assert musl_version(tmp_path) is None


def test_a_system_has_glibc_or_says_that_it_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("asks the C library of Linux")
    for answer, expected in (("glibc 2.28", Version("2.28")), ("NPTL 2.28", None), ("glibc strange", None), ("", None)):
        monkeypatch.setattr(os, "confstr", lambda _, answer=answer: answer)
        assert glibc_version() == expected

    def unknown(name: str) -> str:
        raise ValueError(f"unrecognized configuration name {name}")  # as Python on musl does

    monkeypatch.setattr(os, "confstr", unknown)
    assert glibc_version() is None


def test_where_there_is_no_glibc_musl_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelyard.load.system.description.glibc_version", lambda: None)
    monkeypatch.setattr("kernelyard.load.system.description.musl_version", lambda: Version("1.2.5"))
    system = describe_system.__wrapped__()
    assert (system.glibc, system.musl) == (None, Version("1.2.5"))
    assert "musl 1.2.5" in str(system)


# The CPU


@pytest.mark.parametrize(
    ("platform", "build", "machine", "expected"),
    [
        ("win32", "win-amd64", "AMD64", "x86_64-windows"),
        ("win32", "win-arm64", "ARM64", "aarch64-windows"),
        # Python for x86_64 runs on ARM as well, and takes extensions for x86_64.
        ("win32", "win-amd64", "ARM64", "x86_64-windows"),
        ("darwin", "macosx-11.0-arm64", "arm64", "aarch64-darwin"),
        ("linux", "linux-aarch64", "aarch64", "aarch64-linux"),
        ("linux", "linux-x86_64", "x86_64", "x86_64-linux"),
    ],
)
def test_cpus_have_the_names_of_variants(
    monkeypatch: pytest.MonkeyPatch, platform: str, build: str, machine: str, expected: str
) -> None:
    uname = os.uname_result(("Any", "host", "1", "1", machine))
    monkeypatch.setattr("kernelyard.load.system.description.macos_version", lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr("sysconfig.get_platform", lambda: build)
        patch.setattr(os, "uname", lambda: uname)
        patch.setattr(sys, "platform", platform)
        system = describe_system.__wrapped__()
    assert system.platform == expected


# AMD GPUs


def test_amd_gpus_are_read_from_the_topology_of_their_driver(tmp_path: Path) -> None:
    nodes = {"0": 0, "1": 90402, "2": 90010, "3": 110501, "10": 120001, "4": 100300}
    for node, version in nodes.items():
        (tmp_path / node).mkdir()
        text = f"cpu_cores_count 0\nsimd_count 1216\ngfx_target_version {version}\nvendor_id 4098\n"
        (tmp_path / node / "properties").write_text(text)
    (tmp_path / "5").mkdir()
    (tmp_path / "strange").mkdir()
    assert amd_architectures(tmp_path) == ("gfx942", "gfx90a", "gfx1151", "gfx1030", "gfx1201")
    assert amd_architectures(tmp_path / "none") == ()


# Libraries that are put first


def test_libraries_on_the_path_of_the_linker_are_told_the_first_of_each(tmp_path: Path) -> None:
    for folder, names in {"a": ["libcudart.so.12", "libfoo.so"], "b": ["libcudart.so.12", "libc10.so"]}.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).touch()
    environment = {"LD_LIBRARY_PATH": f"{tmp_path}/none:{tmp_path}/a:{tmp_path}/b:"}
    assert find_shadows(environment) == (
        Shadow("libcudart.so.12", f"{tmp_path}/a/libcudart.so.12", "LD_LIBRARY_PATH"),
        Shadow("libc10.so", f"{tmp_path}/b/libc10.so", "LD_LIBRARY_PATH"),
    )
    assert library_folders(environment)[-1] == "."
    assert find_shadows({}) == ()
    assert find_shadows({"LD_LIBRARY_PATH": ""}) == ()


def test_what_is_preloaded_by_its_path_goes_before_all(tmp_path: Path) -> None:
    (tmp_path / "libstdc++.so.6").touch()
    preloaded = f"{tmp_path}/pre/libstdc++.so.6"
    environment = {"LD_PRELOAD": f"libjemalloc.so.2 {preloaded}:libtorch.so", "LD_LIBRARY_PATH": str(tmp_path)}
    assert find_shadows(environment) == (Shadow("libstdc++.so.6", preloaded, "LD_PRELOAD"),)


def test_the_systems_own_folders_put_nothing_in_the_place_of_its_own_libraries() -> None:
    folders = "/usr/lib/x86_64-linux-gnu:/lib64:/usr/lib/aarch64-linux-gnu/"
    found = {shadow.library for shadow in find_shadows({"LD_LIBRARY_PATH": folders})}
    assert not found & {"libstdc++.so.6", "libgcc_s.so.1", "libcuda.so.1"}


def test_a_compatibility_package_is_the_driver_that_programs_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libcuda.so.590.44.01").touch()
    (tmp_path / "libcuda.so.1").symlink_to("libcuda.so.590.44.01")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert shadowing_driver(find_shadows()) == Version("590.44.01")
    monkeypatch.setattr("kernelyard.load.system.description.read_gpus", lambda: (Version("535.54.03"), ()))
    assert describe_system.__wrapped__().driver == Version("590.44.01")
    # Images have it where there is no GPU and no driver at all.
    monkeypatch.setattr("kernelyard.load.system.description.read_gpus", lambda: (None, ()))
    monkeypatch.setattr("kernelyard.load.system.description.may_have_driver", lambda: False)
    assert describe_system.__wrapped__().driver is None


def test_the_driver_s_own_library_puts_nothing_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libcuda.so.580.65.06").touch()
    (tmp_path / "libcuda.so.1").symlink_to("libcuda.so.580.65.06")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    for driver, count in (("580.65.06", 0), ("570.26", 1)):
        monkeypatch.setattr("kernelyard.load.system.description.read_gpus", lambda driver=driver: (Version(driver), ()))
        system = describe_system.__wrapped__()
        assert (system.driver, len(system.shadows)) == (Version("580.65.06"), count)


# CUDA, asked in another process

FAKE_CUDA = r"""
#include <cstdlib>
#include <cstring>
extern "C" {
int cuDriverGetVersion(int* version) { *version = 12060; return 0; }
int cuInit(unsigned) { return std::getenv("FAKE_CUDA_FAILS") ? 100 : 0; }
int cuDeviceGetCount(int* count) { *count = 3; return 0; }
int cuDeviceGet(int* device, int number) { *device = number; return number == 1 ? 999 : 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
    *value = attribute == 75 ? 8 : attribute == 76 ? 7 - device : -1;
    return 0;
}
int cuDeviceGetUuid(unsigned char* uuid, int device) { if (device == 0) std::memset(uuid, 0xab, 16); return 0; }
int cuDeviceGetName(char* name, int, int) { std::strcpy(name, "Orin"); return 0; }
}
"""


@pytest.fixture
def fake_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(libcuda, "_MODULE", tmp_path / "version")
    (tmp_path / "cuda.cpp").write_text(FAKE_CUDA)
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, tmp_path / "cuda.cpp"], check=True)
    return str(library)


@pytest.mark.compile
def test_where_there_is_no_nvml_another_process_asks_cuda(fake_cuda: str) -> None:
    driver, gpus = ask_cuda(fake_cuda)
    assert driver == Version("560.28.03")
    assert gpus == (
        Gpu(0, "GPU-abababab-abab-abab-abab-abababababab", (8, 7), "Orin"),
        Gpu(1, "", (8, 5), "Orin"),
    )


@pytest.mark.compile
def test_the_driver_s_own_word_on_its_version_is_taken(fake_cuda: str, tmp_path: Path) -> None:
    (tmp_path / "version").write_text("540.4.0\n")
    assert ask_cuda(fake_cuda)[0] == Version("540.4.0")


@pytest.mark.compile
def test_a_driver_without_gpus_is_a_driver(fake_cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUDA_FAILS", "1")
    assert ask_cuda(fake_cuda) == (Version("560.28.03"), ())


def test_no_library_and_no_interpreter_are_no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask_cuda(str(tmp_path / "libcuda.so.1")) == (None, ())
    # Where Python is inside of another program there may be none to start.
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    assert ask_cuda() == (None, ())


@pytest.mark.parametrize("device", ["nvidiactl", "dxg", "nvgpu"])
def test_cuda_is_asked_only_where_a_driver_has_left_a_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    assert not may_have_driver(tmp_path)
    (tmp_path / device).touch()
    assert may_have_driver(tmp_path)
    asked = (Version("560.28.03"), (Gpu(0, "GPU-a", (8, 7)), Gpu(1, "GPU-b", (9, 0))))
    monkeypatch.setattr("kernelyard.load.system.description.read_gpus", lambda: (None, ()))
    monkeypatch.setattr("kernelyard.load.system.description.may_have_driver", lambda: True)
    monkeypatch.setattr("kernelyard.load.system.description.ask_cuda", lambda: asked)
    system = describe_system.__wrapped__()
    assert (system.driver, system.gpus, system.gpus_in_order) == (*asked, True)


@pytest.mark.parametrize(
    ("cuda", "driver"),
    [("10.2", None), ("11.8", "520.61.05"), ("12.9", "575.51.03"), ("13.0", "580.65.06"), ("14.1", "610")],
)
def test_the_driver_of_a_release_of_cuda_is_the_first_with_it(cuda: str, driver: str | None) -> None:
    assert driver_of_release(Version(cuda)) == (Version(driver) if driver else None)


def test_nothing_that_describes_opens_cuda_in_this_process() -> None:
    # NVML maps the driver's library by itself, which initialises nothing; what counts is that nobody here asks it.
    program = (
        "import ctypes; loaded = []; real = ctypes.CDLL.__init__\n"
        "def init(self, name, *a, **k): loaded.append(str(name)); real(self, name, *a, **k)\n"
        "ctypes.CDLL.__init__ = init\n"
        "from kernelyard.load.system.description import describe_system; describe_system()\n"
        "print([name for name in loaded if 'cuda' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]"]
    assert "cuInit" in libcuda._PROGRAM


@pytest.mark.gpu
def test_after_describing_a_child_can_use_the_gpu() -> None:
    system = describe_system()
    if not system.gpus or system.torch is None or system.torch.cuda is None:
        pytest.skip("there is no GPU, or no torch that can use it")
    program = (
        "import os, torch\n"
        "from kernelyard.load.system.description import describe_system\n"
        "assert describe_system().gpus\n"
        "assert not torch.cuda.is_initialized()\n"
        "if os.fork() == 0: print(torch.ones(3, device='cuda').sum().item(), flush=True); os._exit(0)\n"
        "os.wait()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3.0"]


# Python and its packages


def test_the_free_threaded_python_is_known_by_its_abi(monkeypatch: pytest.MonkeyPatch) -> None:
    for flags, expected in (("t", True), ("td", True), ("d", False), ("", False)):
        monkeypatch.setattr(sys, "abiflags", flags)
        assert describe_system.__wrapped__().free_threaded is expected
    # As on Windows.
    monkeypatch.delattr(sys, "abiflags")
    monkeypatch.setattr("sysconfig.get_config_var", lambda name: 1 if name == "Py_GIL_DISABLED" else None)
    assert describe_system.__wrapped__().free_threaded is True


def test_versions_of_packages_are_those_that_importlib_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    every = installed_packages()
    assert {name: installed_version(name) for name in every} == every
    assert installed_version("no-such-package-anywhere") is None
    monkeypatch.setattr("kernelyard.load.system.packages._in_folder", lambda _: {})
    assert installed_version("pytest") == every["pytest"]


def test_a_package_that_is_installed_again_or_half_removed_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "none"), str(tmp_path)])
    assert installed_version("my-pack") is None

    def install(folder: str, version: str) -> Path:
        info = tmp_path / folder
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: My.Pack\nVersion: {version}\n")
        os.utime(tmp_path, ns=(0, len(list(tmp_path.iterdir())) + int(version[0])))
        return info

    first = install("My.Pack-1.0+local.dist-info", "1.0+local")
    assert installed_version("my-pack") == "1.0+local"
    (first / "METADATA").unlink()
    install("my_pack-2.0.dist-info", "2.0")
    assert installed_version("my-pack") == "2.0"
