"""Toolkits that the machine has, and the ways in which people point at them."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.versions import Version
from kernelyard.store import Store
from kernelyard.toolchain import local_cuda
from kernelyard.toolchain.local_cuda import find_toolkit, found_toolkits, toolkit_at
from kernelyard.toolchain.parts import PartSource

NVCC = """#!/bin/sh
top=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd -P)
case $1 in
  --version) echo "Cuda compilation tools, release {version}, V{version}.93" ;;
  *) echo "#$ TOP=$top/bin/.." >&2; exit 1 ;;
esac
"""


@pytest.fixture(autouse=True)
def nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what the machine says of toolkits, and what is remembered of them."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(local_cuda, "_INSTALLED", tmp_path / "usr-local")
    path = [folder for folder in os.environ["PATH"].split(os.pathsep) if not Path(folder, "nvcc").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    local_cuda._ask.cache_clear()


def write_toolkit(root: Path, version: str = "12.8", *, newest_gcc: int = 14, libraries: str = "lib64") -> Path:
    """Write what makes a folder a toolkit."""
    files = {
        "bin/nvcc": NVCC.format(version=version),
        "bin/ptxas": "ptxas",
        "nvvm/bin/cicc": "cicc",
        "include/cuda_runtime.h": "// the runtime",
        "include/crt/host_config.h": f"#if defined(__GNUC__)\n#if __GNUC__ > {newest_gcc}\n#error\n#endif\n#endif\n"
        "#if (__clang_major__ >= 20) || (__clang_major__ < 3)\n#if (__clang_major__ >= 19) || (__clang_major__ < 3)\n",
        f"{libraries}/libcudart_static.a": "",
        f"{libraries}/libcudart.so": "",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return root


def failure(of: Callable[[], object]) -> EnvironmentProblemError:
    with pytest.raises(EnvironmentProblemError) as caught:
        of()
    assert (caught.value.code, caught.value.exit_code) == ("KY362", 3)
    return caught.value


@pytest.mark.parametrize("form", ["{}", "{}/", "{}/bin", "{}/bin/", "{}/bin/nvcc", "{}/nvvm/.."])
def test_every_path_that_leads_to_it_is_taken(tmp_path: Path, form: str) -> None:
    root = write_toolkit(tmp_path / "a toolkit")
    toolkit = toolkit_at(form.format(root)).toolkit()
    assert (toolkit.version, toolkit.release, toolkit.root) == (Version("12.8"), "12.8.93", root)
    assert (toolkit.newest_gcc, toolkit.newest_clang) == (14, 18)
    assert (toolkit.driver, toolkit.part) == (Version("525.60.13"), None)
    assert (toolkit.nvcc, toolkit.include) == (root / "bin" / "nvcc", root / "include")
    assert toolkit.runtime == root / "lib64" / "libcudart_static.a"


def test_a_link_to_it_or_to_its_nvcc_is_the_same_toolkit(tmp_path: Path) -> None:
    root = write_toolkit(tmp_path / "cuda-12.8")
    (tmp_path / "cuda").symlink_to(root)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").symlink_to(root / "bin" / "nvcc")
    digests = {toolkit_at(path).toolkit().digest for path in (root, tmp_path / "cuda", tmp_path / "bin" / "nvcc")}
    assert len(digests) == 1
    assert toolkit_at(tmp_path / "cuda").root == root


def test_it_goes_by_its_content_and_not_by_its_path(tmp_path: Path) -> None:
    root = write_toolkit(tmp_path / "one")
    first = toolkit_at(root).toolkit()
    copy = shutil.copytree(root, tmp_path / "two", symlinks=True)
    assert toolkit_at(copy).toolkit().digest == first.digest
    for name in ("nvvm/bin/cicc", "include/cuda_runtime.h"):
        before = (root / name).read_text()
        (root / name).write_text(f"{before}\nanother")
        assert toolkit_at(root).toolkit().digest != first.digest
        (root / name).write_text(before)
    (root / "lib64" / "libcudart.so").write_text("libraries that are not linked decide nothing")
    assert toolkit_at(root).toolkit().digest == first.digest


def test_a_script_in_usr_bin_leads_to_where_debian_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_toolkit(tmp_path / "usr" / "lib" / "nvidia-cuda-toolkit", "11.8", libraries="elsewhere")
    shutil.move(root / "include", tmp_path / "usr" / "include")
    libraries = shutil.move(root / "elsewhere", tmp_path / "usr" / "lib" / "x86_64-linux-gnu")
    (tmp_path / "usr" / "bin").mkdir()
    script = tmp_path / "usr" / "bin" / "nvcc"
    script.write_text(f'#!/bin/sh\nexec "{root}/bin/nvcc" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(local_cuda, "_HEADERS", ("include", str(tmp_path / "usr" / "include")))
    monkeypatch.setattr(local_cuda, "_LIBRARIES", ("lib64", libraries))
    (tmp_path / "usr" / "include" / "stdio.h").write_text("// not the toolkit's")
    toolkit = toolkit_at(tmp_path / "usr").toolkit()
    assert (toolkit.version, toolkit.root) == (Version("11.8"), root)
    assert toolkit.include == tmp_path / "usr" / "include"
    assert toolkit.runtime == tmp_path / "usr" / "lib" / "x86_64-linux-gnu" / "libcudart_static.a"
    (tmp_path / "usr" / "include" / "stdio.h").write_text("// updated")
    assert toolkit_at(tmp_path / "usr").toolkit().digest == toolkit.digest
    (tmp_path / "usr" / "include" / "cuda_runtime.h").write_text("// updated")
    assert toolkit_at(tmp_path / "usr").toolkit().digest != toolkit.digest


def test_what_leads_to_none_is_refused_with_what_was_looked_for(tmp_path: Path) -> None:
    error = failure(lambda: toolkit_at(tmp_path / "none"))
    assert error.what == f"--cuda-home names no CUDA toolkit: there is no {tmp_path / 'none'}"
    error = failure(lambda: toolkit_at(tmp_path))
    assert error.what == f"--cuda-home names no CUDA toolkit: there is no {tmp_path / 'bin' / 'nvcc'}"
    assert "bin/nvcc" in error.hint
    (tmp_path / "bin").mkdir()
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.write_text("#!/bin/sh\necho something else\n")
    nvcc.chmod(0o755)
    assert "is no nvcc (something else)" in failure(lambda: toolkit_at(tmp_path)).what
    local_cuda._ask.cache_clear()
    nvcc.write_bytes(b"\x7fELF nothing")
    assert "is no nvcc (says nothing)" in failure(lambda: toolkit_at(tmp_path)).what


def test_a_version_of_which_nothing_is_known_is_refused(tmp_path: Path) -> None:
    error = failure(lambda: toolkit_at(write_toolkit(tmp_path, "12.5")))
    assert error.what == "--cuda-home names CUDA 12.5, and what that compiles for is not known"
    assert "12.4, 12.6" in error.hint


def test_a_toolkit_that_lacks_something_is_refused(tmp_path: Path) -> None:
    root = write_toolkit(tmp_path)
    found = toolkit_at(root)
    (root / "include" / "cuda_runtime.h").unlink()
    assert "it has no cuda_runtime.h" in failure(found.toolkit).what
    assert failure(found.toolkit).place is not None
    shutil.rmtree(root / "lib64")
    write_toolkit(root, libraries="other")
    assert "it has no libcudart_static.a or libcudart.so" in failure(found.toolkit).what


def test_one_without_a_static_runtime_is_linked_to_the_other(tmp_path: Path) -> None:
    root = write_toolkit(tmp_path)
    (root / "lib64" / "libcudart_static.a").unlink()
    toolkit = toolkit_at(root).toolkit()
    assert (toolkit.static_runtime, toolkit.runtime.name) == (False, "libcudart.so")


def test_they_are_found_in_the_order_in_which_people_point_at_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    homes = {name: write_toolkit(tmp_path / name, version) for name, version in (("home", "12.8"), ("path", "12.9"))}
    installed = tmp_path / "usr-local"
    for version in ("12.6", "13.0"):
        write_toolkit(installed / f"cuda-{version}", version)
    (installed / "cuda").symlink_to("cuda-12.6")
    monkeypatch.setenv("CUDA_HOME", f"{homes['home']}/")
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(homes["path"] / "bin"), prepend=os.pathsep)
    with caplog.at_level(logging.INFO):
        found = [(str(toolkit.version), toolkit.said_by) for toolkit in found_toolkits()]
    assert found == [("12.8", "CUDA_HOME"), ("12.9", "PATH"), ("12.6", "/usr/local"), ("13.0", "/usr/local")]
    assert caplog.messages == [f"CUDA_PATH names no CUDA toolkit: there is no {tmp_path / 'gone'}"]
    assert find_toolkit(Version("12.4")) is None
    twelve_six = find_toolkit(Version("12.6"))
    assert twelve_six is not None
    assert twelve_six.root == installed / "cuda-12.6"


@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_cuda_home_names_none(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CUDA_HOME", value)
    assert list(found_toolkits()) == []


@pytest.mark.network
@pytest.mark.compile
@pytest.mark.slow
def test_a_kernel_is_built_with_a_toolkit_of_the_machine(
    source: PartSource, sample: Callable[[str], Path], tmp_path: Path
) -> None:
    from kernelyard.build.project import build_project

    # A real one; that it can also be fetched makes no difference once it is named.
    fetched = source.cuda(Version("12.4"))
    (tmp_path / "cuda").symlink_to(fetched.root)
    home = toolkit_at(tmp_path / "cuda" / "bin" / "nvcc")
    own = PartSource(source.store, cuda_home=home)
    built = build_project(sample("tiny"), source=own, capabilities=["9.0"])
    assert [variant.name for variant in built] == [
        "torch-stable-abi211-cpu-x86_64-linux",
        "torch-stable-abi211-cu124-x86_64-linux",
    ]
    assert str(built[1].entry.facts.driver) == "525.60.13"
    assert (home.toolkit().newest_gcc, home.toolkit().newest_clang) == (fetched.newest_gcc, fetched.newest_clang)


def test_a_version_that_cannot_be_fetched_is_refused_with_both_cures(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblemError) as caught:
        PartSource(Store(tmp_path)).cuda(Version("12.8"))
    assert (caught.value.code, caught.value.what) == ("KY315", "there is no recipe for CUDA 12.8")
    assert "12.4" in caught.value.hint
    assert "--cuda-home" in caught.value.hint


@pytest.mark.parametrize("home", ["~nobody-of-this-name/cuda", "/" + "a" * 300])
def test_a_home_that_cannot_even_be_looked_at_is_passed_over(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error = failure(lambda: toolkit_at(home))
    assert error.code == "KY362"
    monkeypatch.setenv("CUDA_HOME", home)
    list(local_cuda.found_toolkits())


def test_a_toolkit_without_the_header_that_tells_its_limits_is_refused(tmp_path: Path) -> None:
    root = write_toolkit(tmp_path / "cuda", "13.0")
    (root / "include" / "crt" / "host_config.h").unlink()
    assert failure(toolkit_at(root).toolkit).code == "KY362"
