"""Each check passes what is fit and finds the one fault that a library was built with."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernelyard.check import check_variant, gather
from kernelyard.check.facts import found_facts
from kernelyard.check.owners import symbol_owner
from kernelyard.check.symbols import fitting_torch
from kernelyard.errors import InputError, MissingError
from kernelyard.formats.facts import Facts
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.toolchain.python_abi import python_stable_abi

pytestmark = pytest.mark.compile

MakeVariant = Callable[..., Path]
Promise = Callable[..., None]

LIBRARY = "_gray_cpu_1.abi3.so"
FIT = 'extern "C" int answer() { return 42; }\n'
CUDA = "torch-stable-abi211-cu130-x86_64-linux"
FULL_ABI = "torch211-cxx11-cpu-x86_64-linux"
FATBINS = Path(__file__).resolve().parents[1] / "binary" / "samples"


def findings(variant: Path) -> list[tuple[str, str, str]]:
    return [(finding.code, finding.where, finding.what) for finding in check_variant(gather(variant))]


def calling(name: str, *, declared: str = 'extern "C" void {}();') -> str:
    return f'{declared.format(name)}\nextern "C" void caller() {{ {name}(); }}\n'


def test_a_library_that_needs_nothing_is_fit(make_variant: MakeVariant) -> None:
    assert findings(make_variant(FIT)) == []


def test_what_the_floor_python_and_torch_offer_is_fit(make_variant: MakeVariant) -> None:
    text = calling("malloc") + calling("PyModule_Create2").replace("caller", "b")
    text += calling("aoti_torch_get_dtype").replace("caller", "c") + calling("torch_parallel_for").replace(
        "caller", "d"
    )
    text += calling("Sleef_expf16_u10").replace("caller", "e") + calling("GOMP_parallel").replace("caller", "f")
    assert findings(make_variant(text, "-lc")) == []


# Symbols


def test_a_function_that_is_newer_than_the_torch_promised(make_variant: MakeVariant) -> None:
    text = calling("torch_parallel_for")
    (found,) = findings(make_variant(text, name="torch-stable-abi29-cpu-x86_64-linux"))
    assert found[0] == "KY117"
    assert found[2] == "uses torch_parallel_for, which is in torch since 2.10, but promises to run on torch 2.9"
    assert findings(make_variant(text, name="torch-stable-abi210-cpu-x86_64-linux")) == []


def test_what_torch_offers_is_no_use_to_a_library_that_does_not_ask_for_torch(make_variant: MakeVariant) -> None:
    found = findings(make_variant(calling("aoti_torch_get_dtype"), linked=()))
    assert [(code, what.partition(",")[0]) for code, _, what in found] == [("KY102", "refers to aoti_torch_get_dtype")]


def test_a_symbol_above_the_floor(make_variant: MakeVariant) -> None:
    version = (os.confstr("CS_GNU_LIBC_VERSION") or "0").split()[-1]
    if tuple(map(int, version.split("."))) < (2, 33):
        pytest.skip("this libc is not newer than the floor")
    text = "#include <sys/stat.h>\nint call(const char* path, struct stat* out) { return stat(path, out); }\n"
    assert findings(make_variant(text, "-lc")) == [
        ("KY101", LIBRARY, "needs stat@GLIBC_2.33 of libc.so.6, which manylinux_2_28 does not have")
    ]


def test_a_name_that_nobody_offers(make_variant: MakeVariant) -> None:
    (found,) = check_variant(gather(make_variant(calling("nowhere"))))
    assert (found.code, found.where) == ("KY102", LIBRARY)
    assert found.what == "refers to nowhere, which neither manylinux_2_28, Python nor torch offers"
    assert str(found) == (f"{LIBRARY}: {found.what} [KY102]\n  define it, or list the source that does in `src`")


def test_a_name_of_c_plus_plus_is_written_as_its_author_wrote_it(
    make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "namespace gray { void convert(const float*, long); }\nvoid caller() { gray::convert(nullptr, 1); }\n"
    variant = make_variant(text)
    (found,) = check_variant(gather(variant))
    assert found.what.startswith("refers to `gray::convert(float const*, long)` (_ZN4gray7convertEPKfl), which")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    (found,) = check_variant(gather(variant))
    assert found.what.startswith("refers to _ZN4gray7convertEPKfl, which")


def test_a_name_without_a_version_counts_also_where_the_newer_libc_has_it(make_variant: MakeVariant) -> None:
    text = 'extern "C" char __libc_single_threaded;\nextern "C" char get() { return __libc_single_threaded; }\n'
    (found,) = check_variant(gather(make_variant(text)))
    what = "refers to __libc_single_threaded, which is in manylinux_2_34, and the variant promises to run on "
    assert (found.code, found.where, found.what) == ("KY102", LIBRARY, f"{what}manylinux_2_28")
    assert 'set floor = "manylinux_2_34" in kernelyard.toml' in found.hint


def test_python_that_is_newer_than_promised(make_variant: MakeVariant) -> None:
    assert python_stable_abi()["PyUnicode_AsUTF8AndSize"] == (3, 10)
    assert findings(make_variant(calling("PyUnicode_AsUTF8AndSize"))) == [
        ("KY107", LIBRARY, "PyUnicode_AsUTF8AndSize is new in Python 3.10; builds promise 3.9")
    ]


def test_python_that_is_not_part_of_the_stable_abi(make_variant: MakeVariant) -> None:
    assert findings(make_variant(calling("_PyDict_GetItem_KnownHash"))) == [
        ("KY107", LIBRARY, "_PyDict_GetItem_KnownHash is not part of Python's stable ABI; builds promise 3.9")
    ]


def test_torchs_c_plus_plus_in_the_stable_abi_but_not_in_the_full_one(
    make_variant: MakeVariant, tmp_path: Path
) -> None:
    variant = make_variant("namespace at { void set_num_threads(int); }\nvoid caller() { at::set_num_threads(1); }\n")
    (found,) = check_variant(gather(variant))
    assert (found.code, found.where) == ("KY109", LIBRARY)
    written = "`at::set_num_threads(int)` (_ZN2at15set_num_threadsEi)"
    assert found.what == f"uses {written} of torch's C++ interface, but promises the stable ABI"
    assert findings(variant.rename(tmp_path / FULL_ABI)) == []


#: at::set_num_threads(int), c10d::Work::getTimeout() const, and c10::SymInt::operator+=.
IN_ALL, NEW, GONE = "_ZN2at15set_num_threadsEi", "_ZNK4c10d4Work10getTimeoutEv", "_ZN3c106SymIntpLERKS0_"
#: A method of c10::IValue: in torch 2.8, 2.9, and again from 2.12 on.
IN_SOME = "_ZNK3c106IValue22toOptionalTensorVectorEv"
NO_SUCH, CUDA_STREAM = "_ZN2at7no_suchEv", "_ZN3c104cuda20getCurrentCUDAStreamEa"


@pytest.mark.parametrize(
    ("name", "written", "which"),
    [
        (NO_SUCH, "at::no_such()", "no other from 2.7.1 to 2.15.0 does"),
        (NEW, "c10d::Work::getTimeout() const", "it is new in torch 2.14"),
        (GONE, "c10::SymInt::operator+=(c10::SymInt const&)", "it is gone since torch 2.9"),
        (IN_SOME, "c10::IValue::toOptionalTensorVector() const", "it is in torch 2.8, 2.9, 2.12, 2.13, 2.14, 2.15"),
        (CUDA_STREAM, "c10::cuda::getCurrentCUDAStream(signed char)", "only one with CUDA does"),
    ],
)
def test_a_name_that_this_torch_does_not_have_is_told_with_those_that_do(
    make_variant: MakeVariant, name: str, written: str, which: str
) -> None:
    said = f"refers to `{written}` ({name}), which torch 2.11.0 does not have: {which}"
    assert findings(make_variant(calling(name), name=FULL_ABI)) == [("KY118", LIBRARY, said)]


def test_a_thread_local_variable_of_torchs_needs_no_initialiser(make_variant: MakeVariant) -> None:
    keys = "struct Keys { long included, excluded; }; extern thread_local Keys raw_local_dispatch_key_set;"
    used = "long caller() { return c10::impl::raw_local_dispatch_key_set.included; }"
    text = f"namespace c10::impl {{ {keys} }}\n{used}\n"
    variant = make_variant(text, "-std=c++17", "-lc", "-l:ld-linux-x86-64.so.2", name=FULL_ABI)
    (library,) = gather(variant).libraries
    assert "_ZTHN3c104impl26raw_local_dispatch_key_setE" in {symbol.name for symbol in library.elf.undefined}
    assert findings(variant) == []


@pytest.mark.parametrize("name", ["torch-stable-abi29-cpu-x86_64-linux", "torch29-cxx11-cpu-x86_64-linux"])
def test_what_is_asked_for_weakly_may_be_missing(make_variant: MakeVariant, name: str) -> None:
    weak = 'extern "C" __attribute__((weak)) void {}();'
    text = "".join(
        calling(one, declared=weak).replace("caller", f"caller{number}")
        for number, one in enumerate(["torch_parallel_for", "aoti_torch_no_such", "torch_no_such"])
    )
    variant = make_variant(text + calling("aoti_torch_get_dtype"), name=name)
    assert findings(variant) == []
    evidence = gather(variant)
    stated = Facts.of_name(VariantName.parse(name))
    found = found_facts(evidence, stated)
    assert found.undefined == ("aoti_torch_get_dtype",)
    assert found.torch == stated.torch
    if name.startswith("torch29"):
        assert Version("2.9.1") in (fitting_torch(evidence) or ())


def test_weak_symbols_in_the_metadata_of_earlier_versions_are_no_fault(make_variant: MakeVariant) -> None:
    weak = 'extern "C" __attribute__((weak)) void {}();'
    variant = make_variant(
        calling("torch_no_such", declared=weak).replace("caller", "b") + calling("aoti_torch_get_dtype")
    )
    facts = found_facts(gather(variant), Facts.of_name(VariantName.parse(variant.name)))
    metadata = json.loads((variant / "metadata.json").read_bytes())
    for undefined, code in (
        (("aoti_torch_get_dtype", "caller", "torch_no_such"), "KY116"),
        (("aoti_torch_get_dtype", "torch_no_such"), None),
        (("aoti_torch_get_dtype",), None),
        (("torch_no_such",), "KY116"),
    ):
        metadata["kernelyard"] = {"format": 1, "facts": replace(facts, undefined=undefined).to_json()}
        (variant / "metadata.json").write_text(json.dumps(metadata))
        assert [found[0] for found in findings(variant) if found[0] == "KY116"] == ([code] if code else [])


@pytest.mark.parametrize("name", ["torch-stable-abi37-cpu-aarch64-linux", "torch37-cxx11-cpu-x86_64-linux"])
def test_a_c_function_is_known_without_a_table(make_variant: MakeVariant, name: str) -> None:
    found = findings(
        make_variant(calling("torch_no_such") + calling("torch_parallel_for").replace("caller", "b"), name=name)
    )
    assert [what.partition(",")[0] for code, _, what in found if code == "KY102"] == ["refers to torch_no_such"]


def test_openmp_is_what_comes_with_torch(make_variant: MakeVariant) -> None:
    said = "refers to omp_alloc, which the OpenMP that comes with torch does not have"
    assert findings(make_variant(calling("omp_alloc"))) == [("KY118", LIBRARY, said)]


def test_a_function_of_the_stable_abi_that_only_cuda_has(make_variant: MakeVariant) -> None:
    text = calling("aoti_torch_get_current_cuda_stream")
    (found,) = check_variant(gather(make_variant(text)))
    assert (found.code, found.hint) == ("KY118", 'use it in sections with backend = "cuda" only')
    assert findings(make_variant(text, name=CUDA, backend="cuda")) == []


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (
            NO_SUCH,
            (
                "torch declares it and does not export it: do without it; or it is yours, "
                "and `src` does not list what defines it"
            ),
        ),
        (NEW, 'set minver = "2.14" in [torch], or do without it'),
        (GONE, 'set maxver = "2.8" in [torch], or do without it'),
        (IN_SOME, "do without it"),
    ],
)
def test_a_name_that_this_torch_does_not_have_is_told_with_what_to_do(
    make_variant: MakeVariant, name: str, hint: str
) -> None:
    (found,) = check_variant(gather(make_variant(calling(name), name=FULL_ABI)))
    assert found.hint == hint


@pytest.mark.parametrize(
    "variant",
    [
        "torch26-cxx11-cpu-x86_64-linux",  # that of the table has the old std::string
        "torch37-cxx11-cpu-x86_64-linux",
        "torch211-cxx11-rocm72-x86_64-linux",
    ],
)
def test_of_a_torch_that_no_table_knows_nothing_is_said(make_variant: MakeVariant, variant: str) -> None:
    backend = "rocm" if "rocm" in variant else "cpu"
    assert findings(make_variant(calling(NO_SUCH), name=variant, backend=backend)) == []


def test_all_releases_that_have_the_names_fit_a_build_of_the_full_abi(make_variant: MakeVariant) -> None:
    def fitting(*names: str, variant: str) -> str:
        text = "".join(calling(name).replace("caller", f"f{number}") for number, name in enumerate(names))
        found = fitting_torch(gather(make_variant(text, "-lc", name=variant)))
        return "not known" if found is None else " ".join(map(str, found))

    own = ("malloc", "PyModule_Create2", "GOMP_parallel")
    assert fitting(IN_ALL, NEW, *own, variant="torch214-cxx11-cpu-x86_64-linux") == "2.14.1 2.15.0"
    assert fitting(IN_ALL, IN_SOME, *own, variant=FULL_ABI) == "2.8.0 2.9.1 2.12.1 2.13.0 2.14.1 2.15.0"
    # Not 2.5 and 2.6, which have it too, but another std::string.
    assert fitting(IN_ALL, variant="torch212-cxx11-cpu-x86_64-linux").startswith("2.7.1 ")
    assert fitting(CUDA_STREAM, variant="torch215-cxx11-cpu-x86_64-linux") == ""
    assert fitting(IN_ALL, variant="torch37-cxx11-cpu-x86_64-linux") == "not known"
    assert fitting("aoti_torch_get_dtype", variant="torch-stable-abi211-cpu-x86_64-linux") == "not known"


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("PyModule_Create2", "python"),
        ("_Py_Dealloc", "python"),
        ("aoti_torch_get_dtype", "torch-c"),
        ("torch_parallel_for", "torch-c"),
        ("_ZN2at6Tensor8backwardEv", "torch-c++"),
        ("_ZN3c104cuda20getCurrentCUDAStreamEa", "torch-c++"),
        ("_ZN5torch7LibraryC1Ev", "torch-c++"),
        ("_ZN4c10d12ProcessGroupC1Eii", "torch-c++"),
        ("Sleef_expf16_u10", "torch-dependency"),
        ("GOMP_parallel", "torch-dependency"),
        ("TVMFFIErrorSetRaised", "tvm-ffi"),
        ("_ZN3tvm3ffi5ErrorC1Ev", "tvm-ffi"),
        ("_Z6answerv", None),
        ("answer", None),
    ],
)
def test_the_owner_of_a_name_is_told_by_it(name: str, owner: str | None) -> None:
    assert symbol_owner(name) == owner


# Linkage


def test_a_library_that_a_users_system_need_not_have(make_variant: MakeVariant) -> None:
    other = make_variant(FIT, "-Wl,-soname,libfoo.so.1", name="other") / LIBRARY
    assert findings(make_variant(FIT, "-Wl,--no-as-needed", str(other))) == [
        ("KY103", LIBRARY, "needs the library libfoo.so.1, which a user's system need not have")
    ]


def test_the_library_of_cuda_is_for_cuda_variants_only(
    make_variant: MakeVariant, promise: Promise, tmp_path: Path
) -> None:
    other = make_variant(FIT, "-Wl,-soname,libc10_cuda.so", name="other") / LIBRARY
    variant = make_variant(FIT, "-Wl,--no-as-needed", str(other))
    assert [code for code, _, _ in findings(variant)] == ["KY103"]
    variant = variant.rename(tmp_path / CUDA)
    promise(variant, backend="cuda")
    assert findings(variant) == []


@pytest.mark.parametrize(("flag", "kind"), [("--enable-new-dtags", "RUNPATH"), ("--disable-new-dtags", "RPATH")])
def test_a_path_to_look_for_libraries(make_variant: MakeVariant, flag: str, kind: str) -> None:
    variant = make_variant(FIT, f"-Wl,{flag},-rpath,/home/me/lib")
    assert findings(variant) == [("KY104", LIBRARY, f"has a {kind}: '/home/me/lib'")]


def test_an_executable_stack(make_variant: MakeVariant) -> None:
    assert findings(make_variant(FIT, "-Wl,-z,execstack")) == [
        ("KY105", LIBRARY, "asks for an executable stack, which glibc from 2.41 on refuses to load")
    ]


def test_relocations_in_code(make_variant: MakeVariant) -> None:
    text = FIT + 'asm(".text\\n.quad malloc\\n");\n'
    assert findings(make_variant(text, "-Wl,-z,notext", "-lc")) == [("KY106", LIBRARY, "has relocations in its code")]


def test_a_library_for_another_machine(make_variant: MakeVariant, promise: Promise) -> None:
    variant = make_variant(FIT)
    content = bytearray((variant / LIBRARY).read_bytes())
    content[18:20] = (183).to_bytes(2, "little")  # e_machine: EM_AARCH64
    (variant / LIBRARY).write_bytes(content)
    promise(variant)
    assert findings(variant) == [("KY110", LIBRARY, "is made for aarch64, but the variant's name says x86_64")]


# Device code


def with_device_code(name: str) -> str:
    return FIT + f'asm(".section .nv_fatbin,\\"a\\"\\n.balign 8\\n.incbin \\"{FATBINS / name}\\"\\n.text\\n");\n'


def test_capabilities_as_promised(make_variant: MakeVariant) -> None:
    text = with_device_code("nvcc-13.0-rdc.fatbin")
    assert findings(make_variant(text, name=CUDA, archs=("9.0+PTX",), backend="cuda")) == []


def test_capabilities_that_are_promised_but_not_there_and_the_other_way_round(make_variant: MakeVariant) -> None:
    text = with_device_code("nvcc-13.0-rdc.fatbin")
    assert findings(make_variant(text, name=CUDA, archs=("8.0", "9.0", "9.0a+PTX"), backend="cuda")) == [
        ("KY108", LIBRARY, "promises PTX for 9.0a, but does not hold it"),
        ("KY108", LIBRARY, "promises machine code for 8.0, but does not hold it"),
        ("KY108", LIBRARY, "promises machine code for 9.0a, but does not hold it"),
        ("KY108", LIBRARY, "holds PTX for 9.0, which the metadata does not promise"),
    ]


def test_a_cuda_variant_without_device_code_promises_none(make_variant: MakeVariant, promise: Promise) -> None:
    variant = make_variant(FIT, name=CUDA, backend="cuda")
    assert findings(variant) == []
    promise(variant, archs=("9.0",), backend="cuda")
    assert findings(variant) == [("KY108", LIBRARY, "promises machine code for 9.0, but does not hold it")]


# Files


def test_the_name_and_the_metadata_tell_different_backends(make_variant: MakeVariant) -> None:
    assert findings(make_variant(FIT, backend="cuda")) == [
        ("KY111", "metadata.json", "the name says cpu, the metadata cuda")
    ]


def test_a_variant_for_all_backends_names_any(tmp_path: Path, promise: Promise) -> None:
    variant = tmp_path / "torch-universal"
    variant.mkdir()
    (variant / "__init__.py").touch()
    promise(variant)
    assert findings(variant) == []


def test_a_folder_with_another_name(make_variant: MakeVariant, tmp_path: Path) -> None:
    variant = make_variant(FIT).rename(tmp_path / "mine")
    assert findings(variant) == [("KY111", ".", "'mine' is not the name of a variant")]
    assert check_variant(gather(variant, name="torch-stable-abi211-cpu-x86_64-linux")) == ()


def test_a_variant_without_its_package_or_extension(make_variant: MakeVariant, promise: Promise) -> None:
    variant = make_variant(FIT)
    (variant / "__init__.py").unlink()
    (variant / LIBRARY).rename(variant / "_gray_cpu_2.abi3.so")
    promise(variant)
    assert findings(variant) == [
        ("KY112", ".", "is not a Python package: there is no __init__.py"),
        ("KY112", ".", f"there is no extension {LIBRARY}, as the id promises"),
    ]


def test_files_that_were_changed_added_or_removed_after_the_build(make_variant: MakeVariant) -> None:
    variant = make_variant(FIT)
    (variant / "__init__.py").write_text("import os\n")
    (variant / "added.py").touch()
    (variant / LIBRARY).unlink()
    assert sorted(findings(variant)) == [
        ("KY112", ".", f"there is no extension {LIBRARY}, as the id promises"),
        ("KY113", "__init__.py", "is not the file that the digest names: it was changed after the build"),
        ("KY113", LIBRARY, "is named by the digest, but is not there"),
        ("KY113", "added.py", "is there, but the digest does not name it"),
    ]


def test_bytecode_that_running_leaves_behind_is_no_matter(make_variant: MakeVariant) -> None:
    variant = make_variant(FIT)
    (variant / "__pycache__").mkdir()
    (variant / "__pycache__" / "__init__.cpython-312.pyc").touch()
    assert findings(variant) == []


def test_metadata_without_a_digest(make_variant: MakeVariant) -> None:
    variant = make_variant(FIT)
    text = (variant / "metadata.json").read_text()
    (variant / "metadata.json").write_text(text.replace('"digest"', '"former-digest"'))
    assert findings(variant) == [("KY113", "metadata.json", "the metadata has no sha256 digest of the files")]


def test_a_folder_without_metadata_is_no_variant(tmp_path: Path) -> None:
    with pytest.raises(MissingError) as caught:
        gather(tmp_path)
    assert caught.value.code == "KY120"


def test_an_extension_that_is_no_library_is_told_with_its_path(make_variant: MakeVariant, promise: Promise) -> None:
    variant = make_variant(FIT)
    (variant / LIBRARY).write_bytes(b"not an ELF file")
    promise(variant)
    assert findings(variant) == [("KY112", LIBRARY, "is the extension by its name, but is no ELF file")]
    (variant / LIBRARY).write_bytes(b"\x7fELF and nothing more")
    with pytest.raises(InputError, match=r"_gray_cpu_1\.abi3\.so: .* \[KY151\]"):
        gather(variant)


def test_a_library_is_one_by_its_content_whatever_its_name(make_variant: MakeVariant, promise: Promise) -> None:
    variant = make_variant(FIT)
    other = make_variant(calling("nowhere"), name="other") / LIBRARY
    shutil.copy(other, variant / "libother.so.1")
    promise(variant)
    assert [(code, where) for code, where, _ in findings(variant)] == [("KY102", "libother.so.1")]


# Other frameworks


TVM_FFI = "tvm-ffi01-cpu-x86_64-linux"


def test_an_extension_for_tvm_ffi_is_named_without_python(make_variant: MakeVariant, promise: Promise) -> None:
    variant = make_variant(FIT, name=TVM_FFI)
    assert findings(variant) == [("KY112", ".", "there is no extension _gray_cpu_1.so, as the id promises")]
    (variant / LIBRARY).rename(variant / "_gray_cpu_1.so")
    promise(variant)
    assert findings(variant) == []


def test_tvm_ffis_library_is_for_tvm_ffi_only_and_torchs_are_not(make_variant: MakeVariant, promise: Promise) -> None:
    linked = make_variant(calling("TVMFFIErrorSetRaised"), linked=["libtvm_ffi.so"])
    assert [code for code, _, _ in findings(linked)] == ["KY103"]
    variant = linked.rename(linked.with_name(TVM_FFI))
    (variant / LIBRARY).rename(variant / "_gray_cpu_1.so")
    promise(variant)
    assert findings(variant) == []

    variant = make_variant(FIT, linked=["libtorch.so"], name="tvm-ffi01-cpu-aarch64-linux")
    (variant / LIBRARY).rename(variant / "_gray_cpu_1.so")
    promise(variant)
    assert ("KY103", "_gray_cpu_1.so") in [(code, where) for code, where, _ in findings(variant)]


def test_what_is_not_compiled_needs_no_extension(tmp_path: Path, promise: Promise) -> None:
    variant = tmp_path / "torch-cuda"
    variant.mkdir()
    (variant / "__init__.py").touch()
    promise(variant, backend="cuda", archs=("8.0", "9.0"))
    assert findings(variant) == []
