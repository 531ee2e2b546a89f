from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from kernelyard.binary import read_elf
from kernelyard.formats.versions import Version
from kernelyard.store import Store
from kernelyard.toolchain import torch_stubs
from kernelyard.toolchain.assemble import Toolchain, assemble
from kernelyard.toolchain.headers import TorchHeaders
from kernelyard.toolchain.package_index import PackageIndex
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.python_abi import python_names, python_stable_abi
from kernelyard.toolchain.remote_wheel import RemoteWheel
from kernelyard.toolchain.torch_names import is_torch, is_torch_cxx, openmp_names
from kernelyard.toolchain.torch_stubs import TORCH_LIBRARIES, TorchStubs, provide_torch_stubs, torch_libraries

CXX = os.environ.get("CXX", "g++")
ADD = "_ZN2at4_ops10add_Tensor4callERKNS_6TensorES4_RKN3c106ScalarE"
CHECK_FAIL = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
#: int& c10::impl::raw_local_dispatch_key_set, which is thread-local.
THREAD_LOCAL = "_ZN3c104impl26raw_local_dispatch_key_setE"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("stubs"))


@pytest.fixture(scope="module")
def stubs(store: Store) -> TorchStubs:
    return provide_torch_stubs(store.provide, Version("2.12.1"), backend="cuda", cpu="x86_64")


@pytest.fixture(scope="module")
def kinds(stubs: TorchStubs) -> Mapping[str, Mapping[str, str]]:
    """SONAME -> name -> kind of what a stub exports."""
    return {path.name: {symbol.name: symbol.type for symbol in read_elf(path).exported} for path in stubs.libraries}


@pytest.mark.parametrize(
    ("name", "of_torch"),
    [
        (ADD, True),
        ("_ZN4c10d12ProcessGroupC1Eii", True),
        ("_ZTVN5torch8autograd4NodeE", True),
        ("_ZNK2at10TensorBase14const_data_ptrIfLi0EEEPKT_v", True),
        ("aoti_torch_delete_tensor_object", True),
        ("torch_get_mutable_data_ptr", True),
        ("Sleef_expf8_u10", True),
        ("_Z4axpyRN2at6TensorE", False),  # the author's own
        ("_ZSt21ios_base_library_initv", False),
        (
            "_ZNSt6vectorIN2at6TensorESaIS1_EE17_M_realloc_insertIJS1_EEEvN9__gnu_cxx17__normal_iteratorIPS1_S3_EEDpOT_",
            False,
        ),
        ("mkl_blas_sgemm", False),
        ("_ZN6fbgemm4initEv", False),
        ("omp_get_max_threads", False),  # not of its libraries
    ],
)
def test_what_is_torchs_is_told_by_the_namespace_of_the_name_itself(name: str, of_torch: bool) -> None:  # noqa: FBT001
    assert is_torch(name) is of_torch
    assert is_torch_cxx(name) is (of_torch and name.startswith("_Z"))


def test_a_stub_has_the_names_of_its_library_and_their_kinds(kinds: Mapping[str, Mapping[str, str]]) -> None:
    assert list(kinds) == list(TORCH_LIBRARIES)
    assert (kinds["libtorch_cpu.so"][ADD], kinds["libc10.so"][CHECK_FAIL]) == ("func", "func")
    assert kinds["libc10.so"][THREAD_LOCAL] == "tls"
    assert kinds["libc10.so"]["_ZN3c1019UndefinedTensorImpl10_singletonE"] == "object"
    assert "_ZN3c104cuda20getCurrentCUDAStreamEa" in kinds["libc10_cuda.so"]
    assert len(kinds["libtorch_cpu.so"]) > 30_000


def test_what_torch_exports_by_accident_is_left_out(kinds: Mapping[str, Mapping[str, str]]) -> None:
    exported = {name for names in kinds.values() for name in names}
    assert [name for name in exported if name.startswith(("mkl_", "_ZSt", "_ZNSt", "_ZN6fbgemm", "_ZN8__nv_"))] == []


def test_python_and_openmp_are_offered_behind_libtorch_cpu(kinds: Mapping[str, Mapping[str, str]]) -> None:
    cpu = kinds["libtorch_cpu.so"]
    assert (cpu["PyModule_Create2"], cpu["_Py_NoneStruct"], cpu["GOMP_parallel"]) == ("func", "object", "func")
    newer = {name for name, added in python_stable_abi().items() if added > (3, 9)}
    assert newer
    assert not newer & set(cpu)
    assert not [
        name for library in kinds if library != "libtorch_cpu.so" for name in kinds[library] if "Py" in name[:3]
    ]


def test_a_cpu_variant_is_linked_to_nothing_of_cuda(store: Store, stubs: TorchStubs) -> None:
    of_cpu = provide_torch_stubs(store.provide, Version("2.12"), backend="cpu", cpu="x86_64")
    assert [path.name for path in of_cpu.libraries] == ["libc10.so", "libtorch.so", "libtorch_cpu.so"]
    assert torch_libraries("cpu") == ("libc10.so", "libtorch.so", "libtorch_cpu.so")
    assert of_cpu.digest == stubs.digest
    assert set(of_cpu.libraries) < set(stubs.libraries)


def test_they_are_made_once(store: Store, stubs: TorchStubs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_stubs, "write_stub", None)
    assert provide_torch_stubs(store.provide, Version("2.12.1"), backend="cuda", cpu="x86_64") == stubs


def test_the_digest_is_of_all_names(store: Store, stubs: TorchStubs, monkeypatch: pytest.MonkeyPatch) -> None:
    def digest(version: str = "2.12.1") -> str:
        return provide_torch_stubs(store.provide, Version(version), backend="cpu", cpu="x86_64").digest

    assert digest() == stubs.digest
    found = {digest(), digest("2.11.0"), digest("3.7")}
    for attribute, value in (
        ("DEFINITION", "another"),
        ("python_names", lambda: {"PyLong_AsLong": "func"}),
        ("openmp_names", lambda: ("GOMP_parallel",)),
        ("_FORMAT", 2),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(torch_stubs, attribute, value)
            found.add(digest())
    assert len(found) == 7


@pytest.mark.parametrize(
    ("version", "cpu"), [(None, "x86_64"), (Version("3.7"), "x86_64"), (Version("2.10"), "aarch64")]
)
def test_of_a_torch_that_no_table_knows_they_are_empty(store: Store, version: Version | None, cpu: str) -> None:
    empty = provide_torch_stubs(store.provide, version, backend="cuda", cpu=cpu)
    assert empty.release is None
    assert [path.name for path in empty.libraries] == list(TORCH_LIBRARIES)
    assert [read_elf(path).exported for path in empty.libraries] == [()] * 5
    assert {read_elf(path).machine for path in empty.libraries} == {cpu}


@pytest.mark.network
def test_openmp_has_the_names_of_the_library_that_comes_with_torch(tmp_path: Path) -> None:
    index = PackageIndex()
    link = index.find_wheel("torch", "2.15.0", platform="x86_64-linux", python=("cp312",))
    library = tmp_path / "libgomp.so.1"
    library.write_bytes(RemoteWheel(index, link).read("torch/lib/libgomp.so.1"))
    exported = {symbol.name for symbol in read_elf(library).exported}
    of_c = {name for name in exported if name.startswith(("GOMP_", "omp_")) and not name.endswith("_")}
    assert {
        name for name in of_c if not name.startswith(("GOMP_PLUGIN_", "GOMP_1", "GOMP_2", "GOMP_3", "GOMP_4", "GOMP_5"))
    } == {*openmp_names()}


# With a linker


def link(folder: Path, stubs: TorchStubs, text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    source, target = folder / "source.cpp", folder / "_x.so"
    source.write_text(text)
    command = [CXX, "-shared", "-fPIC", "-O1", "-nostdlib", "-Wl,--no-as-needed", "-Wl,-z,defs", *flags]
    return subprocess.run(
        [*command, str(source), *map(str, stubs.libraries), "-o", str(target)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )


FITTING = """
    namespace c10 { struct UndefinedTensorImpl { static int _singleton; }; }
    extern "C" void aoti_torch_delete_tensor_object();
    extern "C" void PyModule_Create2();
    extern "C" void GOMP_barrier();
    extern "C" int* run() {
      aoti_torch_delete_tensor_object(); PyModule_Create2(); GOMP_barrier();
      return &c10::UndefinedTensorImpl::_singleton;
    }
"""


@pytest.mark.compile
def test_a_link_takes_what_is_there_and_asks_for_torch_alone(tmp_path: Path, stubs: TorchStubs) -> None:
    done = link(tmp_path, stubs, FITTING)
    assert done.returncode == 0, done.stderr
    elf = read_elf(tmp_path / "_x.so")
    assert elf.needed == TORCH_LIBRARIES
    assert {(symbol.name, symbol.type, symbol.version) for symbol in elf.undefined} == {
        ("_ZN3c1019UndefinedTensorImpl10_singletonE", "object", None),
        ("aoti_torch_delete_tensor_object", "func", None),
        ("PyModule_Create2", "func", None),
        ("GOMP_barrier", "func", None),
    }


@pytest.mark.compile
@pytest.mark.parametrize(
    ("declared", "called", "said"),
    [
        ("namespace at { void no_such(int); }", "at::no_such(1)", "at::no_such(int)"),
        ('extern "C" void PyType_GetName();', "PyType_GetName()", "PyType_GetName"),  # of Python 3.11
        ('extern "C" void omp_alloc();', "omp_alloc()", "omp_alloc"),  # of GCC 11
        ('extern "C" void mkl_blas_sgemm();', "mkl_blas_sgemm()", "mkl_blas_sgemm"),  # by accident
    ],
)
def test_a_link_refuses_what_is_not_there(
    tmp_path: Path, stubs: TorchStubs, declared: str, called: str, said: str
) -> None:
    done = link(tmp_path, stubs, f'{declared}\nextern "C" void run() {{ {called}; }}\n')
    assert done.returncode == 1
    assert f"undefined reference to `{said}'" in done.stderr


def test_each_cpu_has_stubs_with_the_names_of_its_own_torch(store: Store) -> None:
    found = provide_torch_stubs(store.provide, Version("2.12"), backend="cuda", cpu="aarch64")
    assert found.release == Version("2.12.1")
    elves = {path.name: read_elf(path) for path in found.libraries}
    assert {elf.machine for elf in elves.values()} == {"aarch64"}
    names = {symbol.name for symbol in elves["libtorch_cpu.so"].exported}
    assert {ADD, "Sleef_expf4_u10", "GOMP_barrier", "PyModule_Create2"} <= names
    assert "Sleef_expf8_u10" not in names
    assert CHECK_FAIL in {symbol.name for symbol in elves["libc10.so"].exported}


def test_a_torch_whose_cuda_libraries_no_table_has_is_known_without_cuda_only(store: Store) -> None:
    cpu, cuda, none = (
        provide_torch_stubs(store.provide, version, backend=backend, cpu="aarch64")
        for version, backend in ((Version("2.10"), "cpu"), (Version("2.10"), "cuda"), (None, "cuda"))
    )
    assert cpu.release == Version("2.10.0")
    assert cuda == none
    assert [path.name for path in cuda.libraries] == list(TORCH_LIBRARIES)


# In a toolchain


def toolchain(source: PartSource, torch: Version | TorchHeaders, stable_abi: Version | None = None) -> Toolchain:
    return assemble(source, backend="cpu", cuda=None, torch=[torch], stable_abi=stable_abi)


@pytest.mark.compile
@pytest.mark.network
def test_a_toolchain_has_the_names_of_the_headers_or_of_the_oldest_promised_torch(source: PartSource) -> None:
    full, stable = (toolchain(source, Version("2.11"), stable_abi) for stable_abi in (None, Version("2.9")))
    assert (full.stubs["2.11"].release, stable.stubs["2.11"].release) == (Version("2.11.0"), Version("2.9.1"))
    digests = {each.digest(torch="2.11", libraries=()) for each in (full, stable)}
    assert len(digests) == 2


@pytest.mark.compile
def test_the_exact_release_of_an_installed_torch_counts_and_a_nightly_is_none(
    source: PartSource, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    installed = TorchHeaders(Version("2.13.0"), tmp_path, 20, "of 2.13.0+cu130")
    assert toolchain(source, installed).stubs["2.13"].release == Version("2.13.0")
    assert caplog.messages == []
    with caplog.at_level(logging.WARNING, logger="kernelyard.toolchain"):
        nightly = toolchain(source, TorchHeaders(Version("2.13.0"), tmp_path, 20, "of a nightly", nightly=True))
        older = toolchain(source, TorchHeaders(Version("2.12.0"), tmp_path, 20, "of 2.12.0"))
    assert (nightly.stubs["2.13"], older.stubs["2.12"]) == (nightly.empty_stubs, nightly.empty_stubs)
    assert caplog.messages == [
        f"what torch {torch} on x86_64 exports is not known: a name that it lacks shows when the kernel is loaded"
        for torch in ("nightly 2.13.0", "2.12.0")
    ]


def test_only_names_that_every_promised_python_has_are_offered() -> None:
    assert python_names()["PyModule_Create2"] == "func"
    assert "PyType_GetName" in python_stable_abi()
    assert "PyType_GetName" not in python_names()
