from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.errors import LoadError, MissingError, VerificationError
from kernelyard.formats.versions import Version
from kernelyard.load import get_loaded_kernels, get_local_kernel
from kernelyard.load.system.description import System, Torch
from kernelyard.load.system.nvml import Gpu

MakeVariant = Callable[..., Path]


def test_a_kernels_folder_its_build_folder_and_a_variant_are_the_same(make_variant: MakeVariant) -> None:
    variant = make_variant()
    module = get_local_kernel(variant.parent.parent)
    assert module.twice(3) == 6
    assert get_local_kernel(variant.parent) is module
    assert get_local_kernel(str(variant)) is module
    assert module.__kernel__.repo_info is None
    assert module.__kernel__.origin == variant
    assert [kernel.module for kernel in get_loaded_kernels()] == [module]
    assert {module.__kernel__: "known"}[get_loaded_kernels()[0]] == "known"


def test_copies_links_and_relative_paths_are_one_module(
    make_variant: MakeVariant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = make_variant()
    module = get_local_kernel(variant)
    shutil.copytree(variant, tmp_path / "copy" / "whatever")
    (tmp_path / "link").symlink_to(variant)
    monkeypatch.chdir(variant.parent)
    for path in (tmp_path / "copy/whatever", tmp_path / "link", Path(variant.name), variant / ".." / variant.name, "."):
        assert get_local_kernel(path) is module
    assert len(get_loaded_kernels()) == 1


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_a_digest_as_kernel_builder_writes_it_is_checked(
    make_variant: MakeVariant, add_digest: Callable[..., None], algorithm: str
) -> None:
    variant = make_variant(files={"sub/table.txt": "1"})
    add_digest(variant, algorithm)
    (variant / "metadata.json.sigstore").write_text("{}")
    (variant / "__pycache__").mkdir()
    (variant / "__pycache__/_ops.cpython-311.pyc").write_bytes(b"x")
    module = get_local_kernel(variant)
    assert module.__kernel__.verification == "digest"


def test_without_a_digest_it_is_unverified(make_variant: MakeVariant) -> None:
    assert get_local_kernel(make_variant()).__kernel__.verification == "unverified-local"


@pytest.mark.parametrize(
    ("change", "message", "where"),
    [
        (lambda v: (v / "_ops.py").write_text("print('evil')\n"), "is not the file that the digest", "_ops.py"),
        (lambda v: (v / "extra.py").write_text(""), "does not belong here", "extra.py"),
        (lambda v: (v / "_ops.py").unlink(), "is missing", "_ops.py"),
    ],
)
def test_a_difference_from_the_digest_is_refused_with_the_file_and_a_way_out(
    make_variant: MakeVariant,
    add_digest: Callable[..., None],
    change: Callable[[Path], object],
    message: str,
    where: str,
) -> None:
    variant = make_variant()
    add_digest(variant)
    change(variant)
    with pytest.raises(VerificationError, match=message) as caught:
        get_local_kernel(variant)
    assert caught.value.code == "KY602"
    assert caught.value.place is not None
    assert caught.value.place.path == str(variant / where)
    assert "remove `digest`" in caught.value.hint
    assert get_loaded_kernels() == []


def test_the_older_layout_with_a_folder_of_the_kernels_name_is_loaded(
    make_variant: MakeVariant, add_digest: Callable[..., None]
) -> None:
    variant = make_variant(package="my_gray", files={"layers/__init__.py": "DEPTH = 2\n"})
    add_digest(variant)
    module = get_local_kernel(variant.parent)
    assert module.twice(5) == 10
    assert module.__file__ == str(variant / "my_gray/__init__.py")
    from importlib import import_module

    assert import_module(f"{module.__name__}.layers").DEPTH == 2


def test_the_flat_layout_goes_before_the_compatibility_package_in_it(make_variant: MakeVariant) -> None:
    variant = make_variant(files={"my_gray/__init__.py": "raise RuntimeError('the old way')\n"})
    assert get_local_kernel(variant).__file__ == str(variant / "__init__.py")


def test_a_half_made_variant_does_not_hide_a_good_one(make_variant: MakeVariant) -> None:
    good = make_variant()
    (good.parent / "torch-cpu").mkdir()
    (good.parent / "torch-cpu/__init__.py").write_text("raise RuntimeError\n")
    broken = make_variant(name="torch-cuda")
    (broken / "metadata.json").write_text('{"name": "my-gray"}')
    assert get_local_kernel(good.parent).__kernel__.variant == "torch-universal"


def test_half_made_variants_alone_are_told(make_variant: MakeVariant) -> None:
    variant = make_variant()
    (variant / "metadata.json").unlink()
    invalid = make_variant(name="torch-cpu")
    (invalid / "metadata.json").write_text('{"name": "my-gray", "backend": {"type": "cpu"}}')
    for path in (variant.parent, variant):
        with pytest.raises(MissingError) as caught:
            get_local_kernel(path)
        assert caught.value.code == "KY601"
        assert "torch-universal no It has no metadata.json" in " ".join(caught.value.what.split())
    with pytest.raises(
        MissingError, match=r"torch-cpu .*Its metadata\.json is not valid at id: this member is missing"
    ):
        get_local_kernel(variant.parent)


def test_a_foreign_variant_with_compiled_code_for_another_torch_is_not_opened(
    make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = System("x86_64", "linux", Version("2.36"), (3, 12), torch=Torch("2.11.0+cpu"))
    monkeypatch.setattr("kernelyard.load.resolve.resolution.describe_system", lambda: system)
    variant = make_variant(name="torch210-cxx11-cpu-x86_64-linux")
    with pytest.raises(MissingError, match=r"It is built for torch 2\.10 only"):
        get_local_kernel(variant)


def test_curated_dependencies_of_a_foreign_variant_are_asked_for(make_variant: MakeVariant) -> None:
    variant = make_variant()
    metadata = json.loads((variant / "metadata.json").read_bytes())
    metadata["python-depends"] = ["no-such-package-at-all"]
    (variant / "metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(ImportError, match="no-such-package-at-all is not installed") as caught:
        get_local_kernel(variant)
    assert isinstance(caught.value, LoadError)
    assert caught.value.code == "KY609"
    assert "pip install" in caught.value.hint


def test_a_place_without_a_kernel_is_told(tmp_path: Path) -> None:
    for path, message in ((tmp_path, "no variant of a kernel here"), (tmp_path / "torch-cpu", "no such folder")):
        with pytest.raises(FileNotFoundError, match=message) as caught:
            get_local_kernel(path)
        assert isinstance(caught.value, MissingError)
        assert caught.value.code == "KY607"


def test_a_variant_without_a_module_is_told(make_variant: MakeVariant) -> None:
    variant = make_variant()
    (variant / "__init__.py").unlink()
    with pytest.raises(LoadError, match=r"no __init__\.py"):
        get_local_kernel(variant)


def test_a_linked_directory_is_not_part_of_the_kernel(make_variant: MakeVariant, tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "__init__.py").write_text("raise SystemExit\n")
    variant = make_variant(files={"__init__.py": "def late():\n    from . import evil\n"})
    (variant / "evil").symlink_to(evil)
    module = get_local_kernel(variant)
    with pytest.raises(ImportError):
        module.late()


def test_links_to_files_are_followed_as_in_caches_of_the_hugging_face_hub(
    make_variant: MakeVariant, add_digest: Callable[..., None], tmp_path: Path
) -> None:
    variant = make_variant()
    add_digest(variant)
    os.rename(variant / "_ops.py", tmp_path / "blob")  # noqa: PTH104
    (variant / "_ops.py").symlink_to(tmp_path / "blob")
    assert get_local_kernel(variant).twice(2) == 4


def test_a_variant_that_holds_only_its_metadata_does_not_hide_a_whole_one(
    make_variant: MakeVariant, caplog: pytest.LogCaptureFixture
) -> None:
    # The state that a fetch leaves which died, or was given up, after the metadata. `torch-cpu` would go first.
    whole, half = make_variant(), make_variant(name="torch-cpu")
    for file in half.iterdir():
        if file.name != "metadata.json":
            file.unlink()
    module = get_local_kernel(whole.parent)
    assert module.__kernel__.variant == "torch-universal"
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "torch-cpu" in warning
    assert "no __init__.py" in warning


@pytest.mark.parametrize("inside", ["", "build"])
def test_folders_with_names_that_no_variant_has_are_named(
    make_variant: MakeVariant, tmp_path: Path, inside: str
) -> None:
    make_variant(f"kernel/{inside}", name="torch29-cxx17-cu128-x86_64-linux")
    with pytest.raises(MissingError) as caught:
        get_local_kernel(tmp_path / "kernel")
    assert caught.value.code == "KY601"
    assert "torch29-cxx17-cu128-x86_64-linux no Its name is not one" in " ".join(caught.value.what.split())
    # Beside one that is for another machine they are told of as well, and a good one is not kept from loading.
    make_variant(f"kernel/{inside}", name="torch-xpu", backend="xpu")
    with pytest.raises(MissingError, match="cxx17"):
        get_local_kernel(tmp_path / "kernel")
    make_variant(f"kernel/{inside}")
    assert get_local_kernel(tmp_path / "kernel").twice(1) == 2


def test_a_folder_of_a_kernel_with_nothing_built_is_told(tmp_path: Path) -> None:
    (tmp_path / "kernel/build").mkdir(parents=True)
    with pytest.raises(MissingError, match="no variant of a kernel here") as caught:
        get_local_kernel(tmp_path / "kernel")
    assert caught.value.code == "KY607"


def test_a_missing_backend_is_told_by_what_there_is(make_variant: MakeVariant) -> None:
    variant = make_variant(name="torch-cpu")
    for backend in ("cuda", "xpu"):
        with pytest.raises(MissingError, match=rf"for cpu and {backend} was asked for") as caught:
            get_local_kernel(variant.parent.parent, backend=backend)
        # The public loader says of a backend that the machine has not that it is an invalid value.
        assert isinstance(caught.value, ValueError)


def test_the_cause_of_a_failing_extension_is_chained(make_variant: MakeVariant) -> None:
    variant = make_variant(files={"_ops.py": "def init():\n    raise OSError('cannot open device file')\ninit()\n"})
    with pytest.raises(LoadError, match="cannot open device file") as caught:
        get_local_kernel(variant)
    cause = caught.value.__cause__
    assert isinstance(cause, OSError)
    assert cause.args == ("cannot open device file",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xef\xbb\xbf{}", "byte order mark|BOM"),
        (b"", "not JSON"),
        (None, "It has no metadata.json"),
    ],
)
def test_what_is_wrong_with_a_metadata_file_is_told(
    make_variant: MakeVariant, content: bytes | None, said: str
) -> None:
    variant = make_variant()
    (variant / "metadata.json").unlink()
    if content is not None:
        (variant / "metadata.json").write_bytes(content)
    with pytest.raises(MissingError, match=said):
        get_local_kernel(variant)


@pytest.mark.parametrize(
    ("requirement", "missing"),
    [
        ("packaging", None),
        ("packaging>=20,<1000", None),
        ("packaging>=1000", r"packaging>=1000"),
        ("packaging; python_version < '3'", None),
        ("numpy-but-not-that-one", "numpy-but-not-that-one is not installed"),
    ],
)
def test_python_packages_outside_the_public_list_and_with_versions_are_asked_for(
    make_variant: MakeVariant, requirement: str, missing: str | None
) -> None:
    variant = make_variant()
    metadata = json.loads((variant / "metadata.json").read_bytes())
    metadata["python-depends"] = [requirement]
    (variant / "metadata.json").write_text(json.dumps(metadata))
    if missing is None:
        assert get_local_kernel(variant).twice(2) == 4
        return
    with pytest.raises(LoadError, match=missing) as caught:
        get_local_kernel(variant)
    assert caught.value.code == "KY609"


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine be one with an NVIDIA GPU and a torch for it."""
    torch = Torch("2.11.0+cu130", Version("13.0"))
    driver, gpus = Version("580"), (Gpu(0, "", (9, 0)),)
    system = System("x86_64", "linux", Version("2.36"), (3, 12), torch=torch, driver=driver, gpus=gpus)
    monkeypatch.setattr("kernelyard.load.resolve.resolution.describe_system", lambda: system)


@pytest.mark.usefixtures("with_gpu")
def test_python_packages_are_those_of_the_variant_and_not_of_the_machine(make_variant: MakeVariant) -> None:
    cuda, cpu = make_variant(name="torch-cuda", backend="cuda"), make_variant(name="torch-cpu")
    metadata = json.loads((cuda / "metadata.json").read_bytes())
    # For CUDA alone the public list has it, and here it is not installed.
    metadata["python-depends"] = ["nvidia-cutlass-dsl"]
    (cuda / "metadata.json").write_text(json.dumps(metadata))
    assert get_local_kernel(cpu.parent, backend="cpu").__kernel__.variant == "torch-cpu"
    # What fails the best variant is no reason not to take the next.
    assert get_local_kernel(cpu.parent).__kernel__.variant == "torch-cpu"
    with pytest.raises(LoadError, match="nvidia-cutlass-dsl is not installed"):
        get_local_kernel(cuda)


@pytest.mark.usefixtures("with_gpu")
def test_a_variant_without_code_for_the_gpu_gives_way_to_the_next(make_variant: MakeVariant) -> None:
    cuda = make_variant(name="torch-cuda", backend="cuda")
    metadata = json.loads((cuda / "metadata.json").read_bytes())
    metadata["backend"]["archs"] = ["8.0"]
    (cuda / "metadata.json").write_text(json.dumps(metadata))
    make_variant()
    assert get_local_kernel(cuda.parent).__kernel__.variant == "torch-universal"


@pytest.mark.compile
def test_what_an_extension_raises_when_it_is_opened_is_chained(make_variant: MakeVariant, tmp_path: Path) -> None:
    source = tmp_path / "ext.cpp"
    source.write_text(
        'extern "C" {\n'
        "extern void* PyExc_RuntimeError;\n"
        "void PyErr_SetString(void*, const char*);\n"
        'void* PyInit__ext() { PyErr_SetString(PyExc_RuntimeError, "no device of ours"); return nullptr; }\n'
        "}\n"
    )
    variant = make_variant(files={"__init__.py": "from . import _ext\n"})
    compiled = ["g++", "-shared", "-fPIC", "-o", str(variant / "_ext.abi3.so"), str(source)]
    subprocess.run(compiled, check=True, capture_output=True)
    with pytest.raises(LoadError, match="RuntimeError: no device of ours") as caught:
        get_local_kernel(variant)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert caught.value.__cause__.args == ("no device of ours",)
