from __future__ import annotations

import json
import lzma
import re
import runpy
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from kernelyard.formats.versions import Version
from kernelyard.toolchain.package_index import PackageIndex
from kernelyard.toolchain.pins import known_torch
from kernelyard.toolchain.stub import StubSymbol, write_stub
from kernelyard.toolchain.torch_exports import ExportTable, TorchExports, load_exports, parse_tables, releases_with

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "refresh-torch-exports"
LIBRARIES = ["libc10.so", "libc10_cuda.so", "libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so"]
CPU_LIBRARIES = ["libc10.so", "libtorch.so", "libtorch_cpu.so"]
RELEASES = [pin["version"] for pin in known_torch().values()]

# c10::cuda::c10_cuda_check_implementation(int, char const*, char const*, unsigned int, bool): before and after these
# releases its parameters are others.
CUDA_CHECK = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb"
# c10::detail::torchCheckFail(char const*, char const*, unsigned int, std::string const&), with the std::string of the
# C++11 ABI and with the one before it, which torch on the index had up to 2.6.
CHECK_FAIL = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
CHECK_FAIL_BEFORE = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"


def exports(release: str, cpu: str = "x86_64") -> TorchExports:
    found = load_exports(Version(release), cpu=cpu)
    assert found is not None
    return found


def all_names(release: str) -> set[str]:
    return {name for names in exports(release).libraries.values() for name in names}


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize(
    ("soname", "name", "kind"),
    [
        ("libc10.so", CHECK_FAIL, "func"),
        ("libc10.so", "_ZN3c1019UndefinedTensorImpl10_singletonE", "object"),
        ("libc10.so", "_ZN3c104impl26raw_local_dispatch_key_setE", "tls"),
        ("libc10_cuda.so", "_ZN3c104cuda20getCurrentCUDAStreamEa", "func"),
        ("libtorch_cpu.so", "_ZN2at4_ops10add_Tensor4callERKNS_6TensorES4_RKN3c106ScalarE", "func"),
        ("libtorch_cpu.so", "aoti_torch_delete_tensor_object", "func"),
        ("libtorch_cpu.so", "Sleef_expf8_u10avx2", "func"),
        ("libtorch_cuda.so", "_ZN2at4cuda26getCurrentDevicePropertiesEv", "func"),
    ],
)
def test_a_name_is_where_torch_has_it(soname: str, name: str, kind: str) -> None:
    of = exports("2.13.0").libraries
    assert {library: names[name] for library, names in of.items() if name in names} == {soname: kind}


@pytest.mark.parametrize("release", RELEASES)
def test_every_supported_torch_has_a_table(release: str) -> None:
    found = exports(release)
    assert str(found.release) == release
    assert list(found.libraries) == LIBRARIES
    assert len(found.libraries["libc10.so"]) > 1000
    assert len(found.libraries["libtorch_cpu.so"]) > 70000
    assert len(found.libraries["libtorch_cuda.so"]) > 20000


@pytest.mark.parametrize("release", RELEASES)
def test_so_it_has_for_aarch64_with_cuda_as_far_as_the_index_has_that(release: str) -> None:
    found = exports(release, "aarch64")
    assert str(found.release) == release
    with_cuda = Version(release) >= Version("2.11")
    assert list(found.libraries) == (LIBRARIES if with_cuda else CPU_LIBRARIES)
    assert len(found.libraries["libc10.so"]) > 900
    assert len(found.libraries["libtorch_cpu.so"]) > 40000
    assert not with_cuda or len(found.libraries["libtorch_cuda.so"]) > 20000


def test_vector_instructions_have_names_of_one_cpu() -> None:
    eight, four = "Sleef_expf8_u10", "Sleef_expf4_u10"
    names = {cpu: exports("2.13.0", cpu).libraries["libtorch_cpu.so"] for cpu in ("x86_64", "aarch64")}
    assert [cpu for cpu, of_cpu in names.items() if eight in of_cpu] == ["x86_64"]
    assert [cpu for cpu, of_cpu in names.items() if four in of_cpu] == ["aarch64"]
    assert exports("2.13.0").digest != exports("2.13.0", "aarch64").digest


def test_what_a_release_exports_is_not_known_where_one_of_its_libraries_was_not_read() -> None:
    cuda = [str(release) for release in releases_with([], libraries=LIBRARIES, cpu="aarch64")]
    assert cuda == RELEASES[RELEASES.index("2.11.0") :]
    assert [str(release) for release in releases_with([], libraries=CPU_LIBRARIES, cpu="aarch64")] == RELEASES
    assert [str(release) for release in releases_with([CUDA_CHECK], cpu="aarch64")] == ["2.11.0", "2.12.1", "2.13.0"]


def test_a_version_stands_for_its_newest_release() -> None:
    assert exports("2.12") == exports("2.12.1")


@pytest.mark.parametrize("version", ["2.4", "2.12.0", "2.12.9", "2", "3.0"])
def test_there_is_no_table_for_other_versions(version: str) -> None:
    assert load_exports(Version(version)) is None


def test_there_is_no_table_for_other_cpus() -> None:
    assert load_exports(Version("2.13"), cpu="riscv64") is None
    assert releases_with([], cpu="riscv64") == ()


def test_the_releases_with_no_names_are_all_releases_old_to_new() -> None:
    assert [str(release) for release in releases_with([])] == RELEASES


@pytest.mark.parametrize(
    ("names", "first", "last"),
    [
        ([CHECK_FAIL], "2.7.1", "2.15.0"),
        ([CHECK_FAIL_BEFORE], "2.5.1", "2.6.0"),
        (["_ZN3c104impl26raw_local_dispatch_key_setE"], "2.5.1", "2.15.0"),
        ([CUDA_CHECK], "2.10.0", "2.13.0"),
        (["torch_get_const_data_ptr"], "2.10.0", "2.15.0"),
        (["aoti_torch_get_current_cuda_stream", CUDA_CHECK, CHECK_FAIL], "2.10.0", "2.13.0"),
    ],
)
def test_a_build_loads_on_the_releases_that_have_all_its_names(names: list[str], first: str, last: str) -> None:
    expected = RELEASES[RELEASES.index(first) : RELEASES.index(last) + 1]
    assert [str(release) for release in releases_with(names)] == expected


def test_no_release_has_a_name_that_torch_never_had() -> None:
    assert releases_with([CHECK_FAIL, "_ZN2at16no_such_functionEv"]) == ()


def test_a_torch_without_cuda_has_no_names_of_cuda() -> None:
    assert releases_with([CHECK_FAIL, CUDA_CHECK], libraries=["libc10.so", "libtorch_cpu.so"]) == ()
    assert releases_with([CHECK_FAIL], libraries=["libc10.so"]) == releases_with([CHECK_FAIL])


def test_the_c_interface_is_there_since_the_version_that_the_headers_say() -> None:
    shims: dict[str, str] = json.loads((files("kernelyard.check") / "torch_shims.json").read_text("utf-8"))
    by_release = {release: all_names(release) for release in RELEASES}
    exported = set().union(*by_release.values())
    # The headers declare functions of all devices; aoti_torch_dtype is a template.
    absent = {name for name in shims if name not in exported}
    assert {name for name in absent if not re.search("xpu|mps|sycl", name)} == {"aoti_torch_dtype"}

    def expected(since: str, release: str) -> bool | None:
        if Version(since) <= Version(release):
            return True
        # What has no version in the headers is told as the oldest that was looked at.
        return None if since == "2.9" else False

    wrong = [
        (name, release)
        for name, since in shims.items()
        for release in RELEASES
        if name not in absent and expected(since, release) not in {None, name in by_release[release]}
    ]
    assert wrong == []


def test_names_of_the_linker_and_of_others_are_not_among_them() -> None:
    names = all_names("2.13.0")
    assert names.isdisjoint({"", "_end", "malloc", "PyModule_Create2", "cudaMalloc"})
    assert not [name for name in names if "@" in name]


def small(script: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    release = script["Release"]
    return {
        "2.9.1": release("torch-2.9.1.whl", {"libc10.so": "9" * 64}, {"libc10.so": {"old": "func", "both": "object"}}),
        "2.10.0": release("torch-2.10.0.whl", {"libc10.so": "a" * 64}, {"libc10.so": {"both": "object", "new": "tls"}}),
        **changes,
    }


def parsed(script: Mapping[str, Any], **cpus: Mapping[str, Any]) -> Mapping[str, ExportTable]:
    sources, table = script["render"](cpus)
    return parse_tables(sources.encode(), table)


def test_what_the_script_writes_is_what_is_read(script: dict[str, Any]) -> None:
    found = parsed(script, x86_64=small(script))["x86_64"]
    assert dict(found.wheels) == {"2.9.1": "torch-2.9.1.whl", "2.10.0": "torch-2.10.0.whl"}
    assert dict(found.members["2.10.0"]) == {"libc10.so": "a" * 64}
    assert found.exports("2.9.1").libraries == {"libc10.so": {"old": "func", "both": "object"}}
    assert found.exports("2.10.0").libraries == {"libc10.so": {"both": "object", "new": "tls"}}


def test_each_cpu_has_its_own_names_and_what_is_common_stands_once(script: dict[str, Any]) -> None:
    names = {"libc10.so": {"both": "object", "own": "func"}}
    other = {"2.10.0": script["Release"]("torch-2.10.0-other.whl", {"libc10.so": "c" * 64}, names)}
    found = parsed(script, aarch64=other, x86_64=small(script))
    assert list(found) == ["x86_64", "aarch64"]
    assert found["aarch64"].exports("2.10.0").libraries == names
    assert found["x86_64"] == parsed(script, x86_64=small(script))["x86_64"]
    _, table = script["render"]({"aarch64": other, "x86_64": small(script)})
    text = lzma.decompress(table).decode()
    assert text.count("both") == 1
    assert "libc10.so object x86_64:2.9.1,2.10.0 aarch64:2.10.0\nboth" in text


def test_another_release_changes_nothing_of_those_before(script: dict[str, Any]) -> None:
    release = script["Release"]("torch-2.11.0.whl", {"libc10.so": "b" * 64}, {"libc10.so": {"new": "func"}})
    before, after = (
        parsed(script, x86_64=releases)["x86_64"].exports("2.10.0")
        for releases in (small(script), small(script, **{"2.11.0": release}))
    )
    assert before == after


def test_other_libraries_have_another_digest(script: dict[str, Any]) -> None:
    release = script["Release"]("torch-2.10.0.whl", {"libc10.so": "b" * 64}, small(script)["2.10.0"].names)
    digests = {
        parsed(script, x86_64=releases)["x86_64"].exports("2.10.0").digest
        for releases in (small(script), small(script, **{"2.10.0": release}))
    }
    assert len(digests) == 2


def test_a_table_that_was_tampered_with_is_refused(script: dict[str, Any]) -> None:
    sources, table = script["render"]({"x86_64": small(script)})
    other = lzma.compress(lzma.decompress(table).replace(b"new", b"now"))
    with pytest.raises(ValueError, match="not the table of exports"):
        parse_tables(sources.encode(), other)


def test_a_table_of_another_format_is_refused(script: dict[str, Any]) -> None:
    sources, table = script["render"]({"x86_64": small(script)})
    with pytest.raises(ValueError, match="unknown format of a table of exports: 1"):
        parse_tables(sources.replace('"format": 2', '"format": 1').encode(), table)


def test_the_script_reads_functions_objects_and_thread_locals(script: dict[str, Any], tmp_path: Path) -> None:
    symbols = [StubSymbol("f"), StubSymbol("o", "", "object", 8), StubSymbol("t", "", "tls", 8)]
    library = write_stub(tmp_path / "libx.so", "libx.so", symbols)
    assert script["read_library"](library) == {"f": "func", "o": "object", "t": "tls"}


def test_the_script_refuses_symbols_with_versions(script: dict[str, Any], tmp_path: Path) -> None:
    library = write_stub(tmp_path / "libx.so", "libx.so", [StubSymbol("f", "X_1.0")])
    with pytest.raises(SystemExit, match=r"f@X_1\.0"):
        script["read_library"](library)


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["x86_64", "aarch64"])
def test_the_table_agrees_with_the_wheel_on_the_index(script: dict[str, Any], cpu: str) -> None:
    read = script["fetch"](PackageIndex(), "2.12.1", f"{cpu}-linux", ["libc10.so"])
    assert read.names["libc10.so"] == exports("2.12.1", cpu).libraries["libc10.so"]
    sources = json.loads((files("kernelyard.toolchain") / "exports" / "torch.json").read_text("utf-8"))
    source = sources["cpus"][cpu]["2.12.1"]
    assert (source["wheel"], source["libraries"]["libc10.so"]) == (read.wheel, read.members["libc10.so"])


def test_the_table_costs_the_package_less_than_a_megabyte() -> None:
    assert len((files("kernelyard.toolchain") / "exports" / "torch.txt.xz").read_bytes()) < 1_000_000
