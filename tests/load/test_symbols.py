from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kernelyard.binary import exported_names
from kernelyard.check import gather
from kernelyard.check.facts import found_facts
from kernelyard.errors import MissingError
from kernelyard.formats.facts import Facts
from kernelyard.formats.index import FileEntry, VariantEntry
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.hub.folder import FolderHub
from kernelyard.load import get_kernel, get_local_kernel
from kernelyard.load.choice import libraries, symbols
from kernelyard.load.choice.binaries import Read, as_read, complete_facts
from kernelyard.load.choice.choose import choose
from kernelyard.load.choice.libraries import cuda_of_library, missing_libraries
from kernelyard.load.choice.rules import judge
from kernelyard.load.choice.symbols import missing_symbols, readable_name, undefined_of
from kernelyard.load.system.description import System, Torch, folder_of
from kernelyard.load.system.shadows import Shadow

ERROR = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
C10 = "namespace c10 { struct Error { Error(const char*, int); virtual ~Error(); }; Error::Error(const char*, int) {}\n"
C10 += "Error::~Error() {} int device_count() { return 1; } }\n"
#: Many names, so that chains and buckets of the hash tables are longer than one.
MANY = "".join(f'extern "C" int aoti_torch_function_{number}() {{ return {number}; }}\n' for number in range(300))
SYSTEM = System(
    cpu="x86_64", os="linux", glibc=Version("2.36"), python=(3, 12), torch=Torch("2.9.0", cxx11_abi=True), packages=()
)
FULL = "torch29-cxx11-cpu-x86_64-linux"
STABLE = "torch-stable-abi29-cpu-x86_64-linux"
CUDA = "torch-stable-abi29-cu130-x86_64-linux"


@dataclass(frozen=True)
class Variant:
    name: str
    facts: Facts


def variant(name: str, **facts: Any) -> Variant:
    return Variant(name, replace(Facts.of_name(VariantName.parse(name)), **facts))


def link(target: Path, source: str, *flags: str) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [
        "g++",
        "-shared",
        "-fPIC",
        "-x",
        "c++",
        "-",
        "-x",
        "none",
        "-o",
        str(target),
        f"-Wl,-soname,{target.name}",
        *flags,
    ]
    subprocess.run(command, input=source.encode(), check=True, capture_output=True)
    return target


@pytest.fixture(scope="session")
def make_torch(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that links a `torch` of a few functions, once of each kind, and answers its folder."""
    made: dict[tuple[object, ...], Path] = {}

    def make(style: str = "gnu", *, cpu: str = MANY, needed: tuple[str, ...] = ()) -> Path:
        kind = (style, cpu, needed)
        if kind in made:
            return made[kind]
        root = tmp_path_factory.mktemp("torch")
        torch = made[kind] = root / "site-packages/torch"
        stubs = [str(link(root / "stubs" / soname, "")) for soname in needed]
        link(torch / "lib/libc10.so", C10, f"-Wl,--hash-style={style}")
        link(torch / "lib/libtorch_cpu.so", cpu, f"-Wl,--hash-style={style}", "-Wl,--no-as-needed", *stubs)
        return torch

    return make


def with_torch(torch: Path, version: str = "2.9.0", **changes: Any) -> System:
    return replace(SYSTEM, torch=Torch(version, cxx11_abi=True, folder=torch, **changes))


# Symbols


@pytest.mark.compile
@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_exactly_what_no_library_of_torch_has_is_missing(make_torch: Callable[..., Path], style: str) -> None:
    torch = make_torch(style)
    there = [f"aoti_torch_function_{number}" for number in range(300)] + ["_ZN3c1012device_countEv", "_ZTVN3c105ErrorE"]
    gone = [f"aoti_torch_function_{number}" for number in range(300, 600)] + [ERROR, "_ZNK2at6Tensor4sizeEl"]
    assert missing_symbols(there, torch) == ()
    assert missing_symbols([*there, *gone], torch) == tuple(gone)
    # Asked again, from memory.
    assert missing_symbols([*there, *gone], torch) == tuple(gone)


@pytest.mark.compile
def test_threads_that_ask_at_once_get_the_same_answer(make_torch: Callable[..., Path]) -> None:
    torch = make_torch(needed=("libcudart.so.12",))
    names = [f"aoti_torch_function_{number}" for number in range(600)]
    for _ in range(20):
        symbols._exports_of.cache_clear()
        libraries._brought_by.cache_clear()
        start = threading.Barrier(8)

        def ask(_: int, start: threading.Barrier = start) -> tuple[object, object]:
            start.wait()
            return missing_symbols(names, torch), missing_libraries(["libcudart.so.12", "libnowhere.so.1"], torch)

        with ThreadPoolExecutor(8) as pool:
            assert {*pool.map(ask, range(8))} == {(tuple(names[300:]), ("libnowhere.so.1",))}


@pytest.mark.compile
def test_what_is_not_torchs_to_have_is_not_missing(make_torch: Callable[..., Path]) -> None:
    others = ["malloc", "_ZNSt6vectorIN2at6TensorESaIS1_EED1Ev", "PyLong_FromLong", "cudaMalloc", "_ZN4gray3runEv"]
    # A weak reference to a thread-local variable's initialiser, and a function of the author's with torch's parameters.
    others += ["_ZTHN3c105countE", "_Z4axpyRN2at6TensorE", "TVMFFIErrorSet", "__gmon_start__"]
    assert missing_symbols(others, make_torch()) == ()


@pytest.mark.compile
def test_a_symbol_that_torch_only_asks_for_is_missing(make_torch: Callable[..., Path]) -> None:
    asks = 'extern "C" int aoti_torch_new(); int (*pointer)() = aoti_torch_new; int aoti_torch_old_helper;\n'
    # The older kind of table has what is asked for as well as what is there.
    torch = make_torch("sysv", cpu=asks)
    assert missing_symbols(["aoti_torch_new", "aoti_torch_old_helper"], torch) == ("aoti_torch_new",)


def test_nothing_is_said_of_a_torch_whose_libraries_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    assert missing_symbols([ERROR], tmp_path) is None
    (tmp_path / "lib/libc10.so").write_bytes(b"nothing")
    (tmp_path / "lib/libtorch_cpu.so").write_bytes(b"")
    assert missing_symbols([ERROR, "x"], tmp_path) is None
    assert missing_libraries(["libcudart.so.13"], tmp_path / "none") == ()


@pytest.mark.compile
def test_a_library_that_is_put_first_is_the_one_that_is_asked(make_torch: Callable[..., Path], tmp_path: Path) -> None:
    old = link(tmp_path / "old/libc10.so", "namespace c10 { int device_count() { return 1; } }")
    torch = make_torch()
    names = ["_ZN3c105ErrorD1Ev", "_ZN3c1012device_countEv"]
    assert missing_symbols(names, torch) == ()
    assert missing_symbols(names, torch, [Shadow("libc10.so", str(old), "LD_LIBRARY_PATH")]) == (names[0],)


@pytest.mark.compile
def test_a_variant_is_refused_by_the_symbol_that_torch_lacks(make_torch: Callable[..., Path]) -> None:
    system = with_torch(make_torch())
    verdict = judge(variant(FULL, undefined=("malloc", ERROR, "aoti_torch_function_7")), system)
    assert not verdict.usable
    assert verdict.reason == f"It needs c10::Error::Error ({ERROR}), which torch 2.9.0 does not have."
    assert verdict.cure == "install torch 2.9 as its makers publish it"
    several = judge(variant(STABLE, undefined=("aoti_torch_x", "aoti_torch_y", "aoti_torch_z")), system)
    assert several.reason == "It needs aoti_torch_x and 2 more, which torch 2.9.0 does not have."
    assert judge(variant(FULL, undefined=("_ZN3c1012device_countEv",)), system).usable
    assert judge(variant(FULL), system).usable


@pytest.mark.compile
@pytest.mark.parametrize("version", ["2.9.0a0+ecf3bae40a.nv25.09", "2.9.0a0+git1234", "2.9.0.dev20250901+cpu"])
def test_of_builds_that_are_no_release_symbols_prove_the_stable_abi_and_not_the_full_one(
    make_torch: Callable[..., Path], version: str
) -> None:
    system = with_torch(make_torch(), version)
    there, gone = ("aoti_torch_function_1", "_ZN3c1012device_countEv"), ("aoti_torch_function_300",)
    full = judge(variant(FULL, undefined=there), system)
    assert not full.usable
    assert "which is not that release" in full.reason
    assert judge(variant(STABLE, undefined=there), system).usable
    assert not judge(variant(STABLE, undefined=gone), system).usable
    assert not judge(variant(STABLE), system).usable
    # The release before is whole in it.
    assert judge(variant("torch-stable-abi28-cpu-x86_64-linux"), system).usable
    assert not judge(variant("torch-stable-abi210-cpu-x86_64-linux", undefined=there), system).usable


@pytest.mark.compile
def test_what_one_library_of_a_variant_lacks_another_may_have(make_torch: Callable[..., Path]) -> None:
    facts = variant(FULL, undefined=("_ZN5torch4mineEv",), needed=("libc.so.6", "libmine.so")).facts
    one, two = FileEntry("_gray.abi3.so", 1, "0" * 64), FileEntry("lib/libmine.so", 1, "1" * 64)
    system = with_torch(make_torch())
    assert judge(VariantEntry(FULL, "_gray", (one, two), facts), system).usable
    alone = judge(VariantEntry(FULL, "_gray", (one,), facts), system)
    assert "libmine.so" in alone.reason
    missing = judge(VariantEntry(FULL, "_gray", (one,), replace(facts, needed=None)), system)
    assert "torch::mine" in missing.reason


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (ERROR, f"c10::Error::Error ({ERROR})"),
        ("_ZNK2at6Tensor4sizeEl", "at::Tensor::size (_ZNK2at6Tensor4sizeEl)"),
        ("_ZN3c105ErrorD0Ev", "c10::Error::~Error (_ZN3c105ErrorD0Ev)"),
        ("_ZTVN3c105ErrorE", "c10::Error (_ZTVN3c105ErrorE)"),
        ("_ZN3c10lsERSoRKNS_6DeviceE", "_ZN3c10lsERSoRKNS_6DeviceE"),
        ("_ZN2at10TensorBase8data_ptrIfEEPT_v", "_ZN2at10TensorBase8data_ptrIfEEPT_v"),
        ("aoti_torch_zero", "aoti_torch_zero"),
        ("_ZN999999999999999999999x", "_ZN999999999999999999999x"),
        ("", ""),
    ],
)
def test_mangled_names_are_shown_with_what_they_stand_for(name: str, expected: str) -> None:
    assert readable_name(name) == expected


@pytest.mark.compile
def test_what_a_library_cannot_do_without_is_read_from_it(tmp_path: Path) -> None:
    source = (
        'extern "C" { int must(); int may() __attribute__((weak)); int f() { return must() + (may ? may() : 0); } }'
    )
    undefined = undefined_of(link(tmp_path / "libx.so", source))
    assert "must" in undefined
    assert not {"may", "f"} & {*undefined}
    assert list(undefined) == sorted(undefined)


@pytest.mark.compile
def test_facts_of_other_builders_are_filled_in_from_their_libraries(tmp_path: Path) -> None:
    helper = link(tmp_path / "libhelper.so", "namespace torch { int mine() { return 1; } }")
    source = 'namespace torch { int mine(); } extern "C" int aoti_torch_x();\n'
    source += "int f() { return torch::mine() + aoti_torch_x(); }"
    main = link(tmp_path / "_gray.so", source, str(helper))
    (tmp_path / "weights.so.bin").write_bytes(b"no library")
    stated = variant(FULL, glibc=Version("2.17")).facts
    facts = complete_facts(stated, [main, helper, tmp_path / "weights.so.bin"])
    assert facts.undefined is not None
    assert "aoti_torch_x" in facts.undefined
    assert "_ZN5torch4mineEv" not in facts.undefined
    assert facts.needed is not None
    assert "libhelper.so" in facts.needed
    assert facts.glibc == Version("2.17")
    # What is known is left as it is, and nothing is made up.
    known = replace(stated, undefined=(), needed=(), glibc=Version("2.28"))
    assert complete_facts(known, [main]) == known
    assert complete_facts(stated, [tmp_path / "weights.so.bin"]) == stated


@pytest.mark.compile
def test_a_build_of_others_is_refused_by_its_files_before_it_is_opened(
    make_torch: Callable[..., Path], tmp_path: Path
) -> None:
    build = tmp_path / "build" / FULL
    own = 'extern "C" int aoti_torch_gone();\n__attribute__((constructor)) void opened() { __builtin_trap(); }\n'
    link(build / "_gray.abi3.so", own + "int f() { return aoti_torch_gone(); }")
    metadata = {"name": "gray", "id": "_gray", "version": 1, "license": "MIT", "python-depends": []}
    (build / "metadata.json").write_text(json.dumps(metadata | {"backend": {"type": "cpu"}}))
    found = FolderHub.find(build)
    assert found is not None
    (stated,) = found.variants
    system = with_torch(make_torch())
    assert judge(stated, system).usable
    for one in (stated, stated.entry()):
        verdict = judge(as_read(one.name, one.facts, build), system)
        assert verdict.reason == "It needs aoti_torch_gone, which torch 2.9.0 does not have."
    # What the index says is not doubted, and not looked up.
    known = replace(stated, facts=replace(stated.facts, needed=(), undefined=(), glibc=Version("2.17")))
    assert judge(as_read(known.name, known.facts, tmp_path / "nowhere"), system).usable


@pytest.mark.compile
def test_the_next_variant_is_taken_where_the_files_of_the_best_show_that_it_does_not_run(
    make_torch: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The library would end the process if it were opened, so it is not."""
    own = 'extern "C" int aoti_torch_gone();\n__attribute__((constructor)) void opened() { __builtin_trap(); }\n'
    source = "import ctypes, pathlib\nctypes.CDLL(str(pathlib.Path(__file__).with_name('_gray.abi3.so')))\n"
    for name, text in {FULL: source, "torch-universal": "x = 1\n"}.items():
        variant = tmp_path / "build" / name
        variant.mkdir(parents=True)
        (variant / "__init__.py").write_text(text)
        metadata = {"name": "gray", "id": f"_gray_{name[:8].replace('-', '_')}", "version": 1, "license": "MIT"}
        metadata |= {"python-depends": [], "backend": {"type": "cpu"}}
        (variant / "metadata.json").write_text(json.dumps(metadata))
    link(tmp_path / "build" / FULL / "_gray.abi3.so", own + "int f() { return aoti_torch_gone(); }")
    system = with_torch(make_torch())
    monkeypatch.setattr("kernelyard.load.resolve.resolution.describe_system", lambda: system)
    module = get_local_kernel(tmp_path)
    assert module.__kernel__.variant == "torch-universal"
    assert f"{FULL} does not run here, by what its files show: It needs aoti_torch_gone, which torch" in caplog.text
    shutil.rmtree(tmp_path / "build" / "torch-universal")
    with pytest.raises(MissingError, match="It needs aoti_torch_gone, which torch") as caught:
        get_local_kernel(tmp_path)
    assert caught.value.code == "KY601"


@pytest.mark.compile
@pytest.mark.parametrize("known", [True, False], ids=["by the index", "by its files"])
def test_what_an_extension_asks_torch_for_weakly_may_be_missing(
    make_torch: Callable[..., Path],
    publish: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    known: bool,  # noqa: FBT001
) -> None:
    """An author asks for a function that only newer releases have, and does without it on this one."""
    torch = make_torch()
    build = tmp_path / "build" / FULL
    weak = 'extern "C" int aoti_torch_of_later() __attribute__((weak)); extern "C" int aoti_torch_function_5();\n'
    weak += "namespace at { int newer() __attribute__((weak)); }\n"
    call = "aoti_torch_of_later ? aoti_torch_of_later() : at::newer ? at::newer() : aoti_torch_function_5()"
    stub = torch / "lib/libtorch_cpu.so"
    link(build / "_gray.abi3.so", f'{weak} extern "C" int answer() {{ return {call}; }}', str(stub))
    source = f"import ctypes, pathlib\nctypes.CDLL({str(stub)!r}, ctypes.RTLD_GLOBAL)\n"
    source += "answer = ctypes.CDLL(str(pathlib.Path(__file__).with_name('_gray.abi3.so'))).answer()\n"
    (build / "__init__.py").write_text(source)
    metadata: dict[str, object] = {"name": "gray", "id": "_gray_weak", "version": 1, "license": "MIT"}
    metadata |= {"python-depends": [], "backend": {"type": "cpu"}}
    (build / "metadata.json").write_text(json.dumps(metadata))
    if known:
        facts = found_facts(gather(build), variant(FULL).facts)
        assert "aoti_torch_function_5" in (facts.undefined or ())
        metadata["kernelyard"] = {"format": 1, "facts": facts.to_json()}
        (build / "metadata.json").write_text(json.dumps(metadata))
    publish(build.parent)
    system = with_torch(torch)
    monkeypatch.setattr("kernelyard.load.resolve.resolution.describe_system", lambda: system)
    assert get_kernel("org/gray", version=1, hub=tmp_path / "hub").answer == 5


@pytest.mark.compile
def test_the_library_of_tvm_ffi_comes_with_its_package_wherever_that_is(make_torch: Callable[..., Path]) -> None:
    facts = Facts("tvm-ffi", Version("0.1"), None, "cpu", None, "x86_64", "linux", needed=("libtvm_ffi.so",))
    system = replace(with_torch(make_torch()), tvm_ffi="0.1.13")
    assert judge(Read("tvm-ffi01-cpu-x86_64-linux", facts), system).usable
    bound = replace(facts, framework="torch-stable-abi", framework_version=Version("2.9"))
    assert not judge(Read("torch-stable-abi29-cpu-x86_64-linux", bound), system).usable


@pytest.mark.torch
def test_the_installed_torch_has_all_that_it_exports_and_nothing_else() -> None:
    if sys.platform != "linux":
        pytest.skip("reads ELF files")
    torch = folder_of("torch")
    assert torch is not None
    exported = [name.decode() for name in exported_names(torch / "lib/libc10.so")]
    own = [name for name in exported if name.startswith(("_ZN3c10", "_ZNK3c10", "_ZTVN3c10"))]
    assert len(own) > 500
    assert missing_symbols(own, torch) == ()
    assert missing_symbols([f"{name}x" for name in own], torch) == tuple(f"{name}x" for name in own)


# Libraries


@pytest.fixture
def no_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away the toolkits that this machine may have in the linker's cache."""
    monkeypatch.setattr("kernelyard.load.choice.libraries._cache", lambda: b"")
    monkeypatch.setattr("kernelyard.load.choice.libraries._found", set())
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)


@pytest.mark.compile
@pytest.mark.usefixtures("no_toolkit")
def test_libraries_that_torch_brings_are_there_and_others_are_not(make_torch: Callable[..., Path]) -> None:
    torch = make_torch(needed=("libcudart.so.12",))
    assert missing_libraries(["libc.so.6", "libcudart.so.12", "libtorch_cpu.so", "libcuda.so.1"], torch) == ()
    assert missing_libraries(["libcudart.so.13", "libnowhere.so.7"], torch) == ("libcudart.so.13", "libnowhere.so.7")


@pytest.mark.compile
@pytest.mark.usefixtures("no_toolkit")
def test_libraries_behind_those_that_torch_asks_for_are_there_too(
    make_torch: Callable[..., Path], tmp_path: Path
) -> None:
    torch = make_torch(needed=("libcublas.so.13",))
    light = link(tmp_path / "stubs/libcublasLt.so.13", "")
    brought = torch.parent / "nvidia/cu13/lib/libcublas.so.13"
    link(brought, "", "-Wl,--no-as-needed", str(light))
    (torch.parent / "nvidia/nvjpeg/lib").mkdir(parents=True)
    link(torch.parent / "nvidia/nvjpeg/lib/libnvjpeg.so.13", "")
    # What only lies in a package, where nobody has loaded it, is not found by those who bring no path to it.
    assert missing_libraries(["libcublasLt.so.13", "libnvjpeg.so.13"], torch) == ("libnvjpeg.so.13",)


@pytest.mark.compile
def test_libraries_on_the_path_of_the_linker_and_on_the_system_are_there(
    make_torch: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelyard.load.choice.libraries._found", set())
    torch = make_torch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/libmine.so.3").touch()
    assert missing_libraries(["libmine.so.3"], torch) == ("libmine.so.3",)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "mine"))
    assert missing_libraries(["libmine.so.3"], torch) == ()
    monkeypatch.setattr("kernelyard.load.choice.libraries._cache", lambda: b"\0libone.so.1\0/opt/lib/libtwo.so.2\0")
    assert missing_libraries(["libone.so.1", "libtwo.so.2", "two.so.2", "libone.so"], torch) == (
        "two.so.2",
        "libone.so",
    )


@pytest.mark.compile
@pytest.mark.usefixtures("no_toolkit")
def test_a_variant_for_another_cuda_is_refused_by_the_library_that_is_nowhere(make_torch: Callable[..., Path]) -> None:
    torch = make_torch(needed=("libcudart.so.12",))
    # Nothing but its library tells for which CUDA it is, as of builds whose name says too little.
    odd = variant("torch-stable-abi29-cpu-x86_64-linux", needed=("libcudart.so.13", "libc.so.6"))
    verdict = judge(odd, with_torch(torch, "2.9.0+cu128", cuda=Version("12.8")))
    assert not verdict.usable
    assert verdict.reason == (
        "It needs libcudart.so.13, which neither torch 2.9.0+cu128 nor this system has: it is built for CUDA 13."
    )
    assert verdict.cure == "install a torch built for CUDA 13"
    fits = variant("torch-stable-abi29-cpu-x86_64-linux", needed=("libcudart.so.12",))
    assert choose([odd, fits], with_torch(torch))[0].usable


@pytest.mark.parametrize(
    ("name", "cuda"),
    [("libcudart.so.13", "13"), ("libcudart.so.11.0", "11"), ("libcublasLt.so.12", "12"), ("libcudnn.so.9", None)],
)
def test_libraries_of_cuda_tell_which_one(name: str, cuda: str | None) -> None:
    assert cuda_of_library(name) == cuda
