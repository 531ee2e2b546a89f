"""Kernels, stores and programs that do what they should not: nothing runs that was not verified."""

from __future__ import annotations

import importlib
import importlib.resources
import os
import pkgutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelyard.errors import InputError, LoadError, VerificationError
from kernelyard.load import get_kernel, get_loaded_kernels, get_local_kernel
from kernelyard.load.importing import importer

MakeVariant = Callable[..., Path]
Publish = Callable[..., str]

LATE = "import importlib\ndef late(name):\n    return importlib.import_module('.' + name, __name__)\n"
EVIL = "raise SystemExit('evil code ran')\n"


def test_modules_are_verified_though_somebody_has_put_the_finders_back(
    make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = make_variant(files={"__init__.py": LATE, "good.py": "X = 1\n", "bad.py": "X = 1\n"})
    module = get_local_kernel(variant)
    monkeypatch.setattr(sys, "meta_path", [one for one in sys.meta_path if one is not importer._FINDER])
    (variant / "bad.py").write_text(EVIL)
    (variant / "planted.py").write_text(EVIL)
    assert module.late("good").X == 1
    with pytest.raises(VerificationError, match="has changed since"):
        module.late("bad")
    monkeypatch.setattr(sys, "path_hooks", [one for one in sys.path_hooks if one is not importer._path_hook])
    sys.path_importer_cache.clear()
    for name in ("planted", "_ops"):
        with pytest.raises(ModuleNotFoundError):
            module.late(name)


def test_a_failed_module_that_is_put_back_finds_no_files(
    make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[object] = []
    monkeypatch.setattr(sys, "_kept_by_the_test", kept, raising=False)
    source = "import sys\nsys._kept_by_the_test.append(sys.modules[__name__])\n1 / 0\n"
    variant = make_variant(id_="_gray_put_back", files={"__init__.py": source})
    with pytest.raises(LoadError):
        get_local_kernel(variant)
    (variant / "planted.py").write_text(EVIL)
    monkeypatch.setitem(sys.modules, "_gray_put_back", kept[0])
    for name in ("planted", "_ops"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"_gray_put_back.{name}")


def test_resources_are_the_verified_files_and_no_others(make_variant: MakeVariant) -> None:
    files = {"table.txt": "1 2", "sub/more.txt": "3", "layers/__init__.py": "", "layers/deep.txt": "4"}
    variant = make_variant(files={"__init__.py": LATE, **files})
    module = get_local_kernel(variant)
    (variant / "planted.txt").write_text("evil")
    root = importlib.resources.files(module)
    assert {item.name for item in root.iterdir()} == {
        "__init__.py", "_ops.py", "metadata.json", "table.txt", "sub", "layers"
    }  # fmt: skip
    assert not (root / "planted.txt").is_file()
    with pytest.raises(FileNotFoundError):
        (root / "planted.txt").read_text()
    with pytest.raises(FileNotFoundError):
        root.joinpath("../secret").read_bytes()
    assert (root / "sub").is_dir()
    assert root.joinpath("sub/more.txt").read_text(encoding="utf-8") == "3"
    assert (importlib.resources.files(module.late("layers")) / "deep.txt").read_bytes() == b"4"
    assert (importlib.resources.files(module.late("sub")) / "more.txt").open("rb").read() == b"3"
    with importlib.resources.as_file(root / "table.txt") as path:
        assert path.read_text() == "1 2"
    # For libraries that open files by themselves.
    assert Path(os.fspath(root / "table.txt")).read_text() == "1 2"  # type: ignore[call-overload]
    assert str(root / "table.txt") == str(variant / "table.txt")
    (variant / "table.txt").write_text("9")
    for use in ((root / "table.txt").read_text, lambda: os.fspath(root / "table.txt")):  # type: ignore[call-overload]
        with pytest.raises(VerificationError):
            use()


def test_modules_can_be_listed(make_variant: MakeVariant) -> None:
    files = {"__init__.py": LATE, "a.py": "", "b/__init__.py": "", "b/c.py": "", "d.abi3.so": "", "e.txt": ""}
    variant = make_variant(files=files)
    module = get_local_kernel(variant)
    (variant / "planted.py").write_text(EVIL)
    found = {item.name: item.ispkg for item in pkgutil.walk_packages(module.__path__, f"{module.__name__}.")}
    names = {"_ops": False, "a": False, "b": True, "b.c": False, "d": False}
    assert found == {f"{module.__name__}.{name}": package for name, package in names.items()}


@pytest.mark.parametrize("ending", ["SystemExit(0)", "GeneratorExit", r"ValueError('\ud800')"])
def test_a_kernel_that_ends_the_program_is_an_error(make_variant: MakeVariant, ending: str) -> None:
    with pytest.raises(LoadError, match="could not be imported") as caught:
        get_local_kernel(make_variant(files={"__init__.py": f"raise {ending}\n"}))
    assert caught.value.code == "KY604"
    str(caught.value).encode()
    assert get_loaded_kernels() == []


def test_an_interrupt_by_the_user_stays_one(make_variant: MakeVariant) -> None:
    with pytest.raises(KeyboardInterrupt):
        get_local_kernel(make_variant(files={"__init__.py": "raise KeyboardInterrupt\n"}))


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ("import sys, types\nsys.modules[__name__] = types.SimpleNamespace(a=1)\n", True),
        ("import sys, types\nnew = types.ModuleType(__name__)\nnew.a = 1\nsys.modules[__name__] = new\n", True),
        ("import sys\nclass C:\n  __slots__ = ()\n  a = 1\nsys.modules[__name__] = C()\n", False),
        ("a = 1\ndel __kernel__\n", True),
        ("a = 1\n__kernel__ = 'mine'\n", True),
    ],
)
def test_a_kernel_may_replace_its_module_and_is_known_all_the_same(
    make_variant: MakeVariant,
    source: str,
    kept: bool,  # noqa: FBT001
) -> None:
    variant = make_variant(files={"__init__.py": source})
    module = get_local_kernel(variant)
    assert module.a == 1
    assert get_local_kernel(variant) is module
    (loaded,) = get_loaded_kernels()
    assert loaded.module is module
    assert loaded.origin == variant
    assert (getattr(module, "__kernel__", None) is loaded) is kept


def test_a_kernel_that_removes_its_module_is_an_error(make_variant: MakeVariant) -> None:
    with pytest.raises(LoadError, match="KeyError"):
        get_local_kernel(make_variant(files={"__init__.py": "import sys\ndel sys.modules[__name__]\n"}))
    assert get_loaded_kernels() == []


def compile_library(source: str, library: Path, *options: str) -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    code = library.parent / f"{library.name}.c"
    code.write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", str(code), "-o", str(library), *options], check=True)
    code.unlink()


EXTENSION = """
typedef struct { long count; void *type, *init; long index; void *copy; const char *name, *doc; long size;
                 void *methods, *slots, *traverse, *clear, *free; } Definition;
void *PyModuleDef_Init(Definition *);
int answer(void);
static Definition definition = {1, 0, 0, 0, 0, "ext", 0, 0};
void *PyInit_ext(void) { answer(); return PyModuleDef_Init(&definition); }
"""


@pytest.mark.compile
@pytest.mark.parametrize("change", ["replaced", "added"])
def test_a_library_beside_the_extension_is_not_opened_if_it_is_another_one(
    make_variant: MakeVariant, publish: Publish, tmp_path: Path, change: str
) -> None:
    variant = make_variant(files={"__init__.py": LATE})
    compile_library("int answer(void) { return 1; }", tmp_path / "libdep.so")
    compile_library(EXTENSION, variant / "ext.abi3.so", f"-L{tmp_path}", "-ldep", "-Wl,-rpath,$ORIGIN")
    evil = "#include <stdlib.h>\n__attribute__((constructor)) static void run(void) { exit(66); }\nint answer(void);"
    if change == "replaced":
        (tmp_path / "libdep.so").rename(variant / "libdep.so")
    publish(variant.parent)
    module = get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    library = Path(module.__file__ or "").parent / "libdep.so"
    library.unlink(missing_ok=True)
    compile_library(evil + "\nint answer(void) { return 6; }", library)
    message = "has changed since" if change == "replaced" else "was added since"
    with pytest.raises(VerificationError, match=message) as caught:
        module.late("ext")
    assert caught.value.place is not None
    assert caught.value.place.path == str(library)


@pytest.mark.compile
def test_what_an_extension_needs_is_found_beside_it(
    make_variant: MakeVariant, publish: Publish, tmp_path: Path
) -> None:
    variant = make_variant(files={"__init__.py": LATE})
    compile_library("int answer(void) { return 1; }", variant / "libdep.so")
    compile_library(EXTENSION, variant / "ext.abi3.so", f"-L{variant}", "-ldep", "-Wl,-rpath,$ORIGIN")
    publish(variant.parent)
    module = get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    (Path(module.__file__ or "").parent / "new.txt").write_text("not a library")
    assert module.late("ext").__name__ == f"{module.__name__}.ext"


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_a_build_folder_as_a_hub_is_held_to_the_digest_in_it(
    make_variant: MakeVariant, add_digest: Callable[..., None], algorithm: str
) -> None:
    variant = make_variant()
    add_digest(variant, algorithm)
    source = (variant / "_ops.py").read_text()
    (variant / "_ops.py").write_text(EVIL)
    with pytest.raises(VerificationError, match="is not the file that the digest in metadata") as caught:
        get_kernel("org/my-gray", version=1, hub=variant.parent)
    assert caught.value.code == "KY602"
    assert caught.value.place is not None
    assert caught.value.place.path == str(variant / "_ops.py")
    (variant / "_ops.py").write_text(source)
    module = get_kernel("org/my-gray", version=1, hub=variant.parent)
    assert module.__kernel__.verification == "digest"


def test_a_build_folder_without_a_digest_vouches_for_nothing(make_variant: MakeVariant) -> None:
    module = get_kernel("org/my-gray", version=1, hub=make_variant().parent)
    assert module.__kernel__.verification == "unverified-local"


def test_equal_code_keeps_its_first_description(make_variant: MakeVariant, publish: Publish, tmp_path: Path) -> None:
    variant = make_variant()
    publish(variant.parent)
    first = get_local_kernel(variant)
    assert get_kernel("org/gray", version=1, hub=tmp_path / "hub") is first
    assert first.__kernel__.verification == "unverified-local"
    assert first.__kernel__.repo_info is None


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ("name", "calls its name 'my-gray' and the index of the hub calls it 'other'"),
        ("version", "calls its version 1 and the index of the hub calls it 2"),
    ],
)
def test_an_index_that_calls_the_kernel_something_else_is_refused(
    make_variant: MakeVariant, tmp_path: Path, member: str, message: str
) -> None:
    from dataclasses import replace

    from kernelyard.hub.folder import FolderHub
    from kernelyard.hub.protocol import Publication
    from kernelyard.hub.static import DirectoryReader, StaticHub

    folder = FolderHub.find(make_variant().parent)
    assert folder is not None
    index = replace(folder.index, name="other") if member == "name" else replace(folder.index, version=2)
    StaticHub(DirectoryReader(tmp_path / "hub")).publish(
        Publication("org/gray", index, folder.files, f"v{index.version}")
    )
    with pytest.raises(VerificationError, match=message) as caught:
        get_kernel("org/gray", version=index.version, hub=tmp_path / "hub")
    assert caught.value.code == "KY602"
    assert get_loaded_kernels() == []


def test_a_variant_for_another_backend_than_its_name_says_is_refused(
    make_variant: MakeVariant, publish: Publish, tmp_path: Path
) -> None:
    variant = make_variant(name="torch-cpu", backend="cuda")
    publish(variant.parent)
    loads: list[Callable[[], object]] = [
        lambda: get_kernel("org/gray", version=1, hub=tmp_path / "hub"),
        lambda: get_local_kernel(variant),
    ]
    for load in loads:
        with pytest.raises(VerificationError, match="for cuda by its own word and for cpu by its name") as caught:
            load()
        assert caught.value.code == "KY602"
    assert get_local_kernel(make_variant("other", backend="cuda")).twice(1) == 2


@pytest.mark.parametrize("kind", ["link", "dangling", "file"])
def test_an_entry_of_the_store_that_is_no_folder_of_its_own_is_refused(
    make_variant: MakeVariant, publish: Publish, tmp_path: Path, kind: str
) -> None:
    files = {"_ops.py": "raise RuntimeError('first')\n"}
    publish(make_variant(files=files).parent)
    with pytest.raises(ImportError, match="first"):
        get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    (entry,) = (tmp_path / "store/variants").iterdir()
    entry.rename(tmp_path / "elsewhere")
    if kind == "file":
        entry.write_text("")
    else:
        entry.symlink_to(tmp_path / ("elsewhere" if kind == "link" else "nowhere"))
    with pytest.raises(VerificationError, match="no entry of the store") as caught:
        get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    assert (caught.value.code, caught.value.exit_code, caught.value.hint) == ("KY602", 4, "remove it")
    assert str(caught.value.place) == str(entry)


def plant_pipe(entry: Path) -> None:
    os.mkfifo(entry / "planted")


def plant_socket(entry: Path) -> None:
    os.mknod(entry / "planted", stat.S_IFSOCK | 0o600)


def plant_name_that_is_no_text(entry: Path) -> None:
    Path(os.fsdecode(os.fsencode(entry) + b"/planted\xff")).write_text("")


def plant_endless_file(entry: Path) -> None:
    (entry / "planted").write_text("")
    os.truncate(entry / "planted", 1 << 37)


def make_endless(entry: Path) -> None:
    os.truncate(entry / "_ops.py", 1 << 37)


def plant_folders_without_end(entry: Path) -> None:
    make_deep(entry / "planted")


def make_deep(folder: Path) -> None:
    """Make a file below so many folders that neither recursion nor its path as a whole would do."""
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(2100):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=here))
    os.close(here)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (plant_pipe, "planted: this file is a pipe, a socket or a device"),
        (plant_socket, "planted: this file is a pipe, a socket or a device"),
        (plant_name_that_is_no_text, "planted\\udcff: this file has a name that is not UTF-8"),
        (plant_endless_file, "planted: this file does not belong here: the index of the hub does not list it"),
        (make_endless, "_ops.py: this file is not the file that the index of the hub names"),
        (plant_folders_without_end, "folders in folders, more than 64 deep, which no kernel has"),
    ],
)
def test_what_no_kernel_has_is_refused_before_anything_of_it_is_read(
    make_variant: MakeVariant,
    publish: Publish,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    harm: Callable[[Path], None],
    said: str,
) -> None:
    publish(make_variant(files={"_ops.py": "raise RuntimeError('first')\n"}).parent)
    with pytest.raises(ImportError, match="first"):
        get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    (entry,) = (tmp_path / "store/variants").iterdir()
    harm(entry)
    monkeypatch.setattr("kernelyard.load.stored.stamps.hash_tree", lambda _: pytest.fail("it was read"))
    with pytest.raises(VerificationError) as caught:
        get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    assert (caught.value.code, caught.value.exit_code) == ("KY602", 4)
    assert said in str(caught.value)
    subprocess.run(["rm", "-rf", entry], check=True)


def test_a_folder_of_the_user_s_that_has_no_end_is_refused(make_variant: MakeVariant) -> None:
    variant = make_variant()
    make_deep(variant / "deep")
    with pytest.raises(InputError, match="more than 64 deep") as caught:
        get_local_kernel(variant)
    assert (caught.value.code, caught.value.hint) == ("KY511", f"remove {variant / 'deep'}")
    subprocess.run(["rm", "-rf", variant / "deep"], check=True)


def test_a_file_that_has_become_a_pipe_is_not_waited_for(make_variant: MakeVariant) -> None:
    variant = make_variant(files={"__init__.py": LATE, "table.txt": "1"})
    module = get_local_kernel(variant)
    for name in ("_ops.py", "table.txt"):
        (variant / name).unlink()
        os.mkfifo(variant / name)
    with pytest.raises(VerificationError, match="cannot be read any more: Not a regular file"):
        module.late("_ops")
    with pytest.raises(VerificationError, match="Not a regular file"):
        os.fspath(importlib.resources.files(module) / "table.txt")  # type: ignore[call-overload]


@pytest.mark.parametrize("path", ["", "\0", "a\0b", "\ud800", None, 1, b"kernel", b"", []])
def test_what_is_no_path_is_told_with_what_to_write(path: Any) -> None:
    with pytest.raises(InputError, match="not a path: ") as caught:
        get_local_kernel(path)
    assert (caught.value.code, "'.' for the current folder" in caught.value.hint) == ("KY607", True)
    if path is not None:
        with pytest.raises(InputError, match="not a path: ") as caught:
            get_kernel("org/gray", version=1, hub=path)
        assert caught.value.code == "KY506"


def test_a_main_program_without_a_place_does_not_keep_a_kernel_from_loading(
    make_variant: MakeVariant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    variant = make_variant()
    for file in (str(tmp_path / "loop"), "a\0b"):
        monkeypatch.setattr(sys.modules["__main__"], "__file__", file, raising=False)
        assert get_local_kernel(variant).twice(2) == 4


def test_a_home_that_is_not_known_is_told() -> None:
    with pytest.raises(InputError, match="leads nowhere") as caught:
        get_local_kernel("~no-such-user-at-all/kernel")
    assert caught.value.code == "KY607"


def test_an_error_of_ours_that_a_kernel_raises_is_a_failure_of_the_kernel(make_variant: MakeVariant) -> None:
    fake = "from kernelyard.errors import VerificationError\nraise VerificationError('KY602', 'made up')\n"
    variant = make_variant(files={"__init__.py": fake})
    with pytest.raises(LoadError, match="made up") as caught:
        get_local_kernel(variant)
    assert caught.value.code == "KY604"
    assert str(caught.value.place) == f"{variant / '__init__.py'}:2"


def test_an_error_of_another_kernel_that_a_kernel_loads_stays_what_it_is(make_variant: MakeVariant) -> None:
    inner = make_variant("inner", files={"_ops.py": "import nothing_of_that_name\n"})
    loads = f"from kernelyard import get_local_kernel\nget_local_kernel({str(inner)!r})\n"
    with pytest.raises(LoadError) as caught:
        get_local_kernel(make_variant("outer", files={"__init__.py": loads}))
    assert str(caught.value.place) == f"{inner / '_ops.py'}:1"


def test_what_a_kernel_says_when_it_fails_cannot_speak_to_the_terminal(make_variant: MakeVariant) -> None:
    variant = make_variant(files={"__init__.py": "raise Exception('\\x1b[31mred\\n  a line')\n"})
    with pytest.raises(LoadError) as caught:
        get_local_kernel(variant)
    assert "\\x1b[31mred\\n  a line [KY604]" in str(caught.value)
