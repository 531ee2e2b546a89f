"""Programs that load kernels by the package `kernels` run with `import kernelyard as kernels`."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kernelyard as kernels
from kernelyard.errors import InputError, KernelyardError
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub
from tests.hub.hugging_face_server import Hub

MakeVariant = Callable[..., Path]

#: A program for `kernels` 0.17.2, with what its release notes and documentation have of loading.
PROGRAM = """
from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import kernelyard as kernels
from kernelyard import (
    LoadedKernel,
    Metadata,
    RepoInfo,
    VariantAccepted,
    VariantRejected,
    get_kernel,
    get_kernel_variants,
    get_loaded_kernels,
    get_local_kernel,
    has_kernel,
    install_kernel,
)


def describe(loaded: LoadedKernel) -> str:
    metadata: Metadata = loaded.metadata
    info: RepoInfo | None = loaded.repo_info
    where = f"{info.repo_id}@{info.revision[:7]}" if info is not None else "here"
    backend = metadata.backend.backend_type
    depends: list[str] = metadata.python_depends
    return f"{metadata.name.python_name} {metadata.version} {metadata.license} {where} {backend} {depends}"


def report(repo: str) -> list[str]:
    lines: list[str] = []
    for decision in get_kernel_variants(repo, version=1):
        if isinstance(decision, VariantAccepted):
            lines.append(f"{decision.variant.variant_str}: compatible")
        elif isinstance(decision, VariantRejected):
            lines.append(f"{decision.variant.variant_str}: rejected ({decision.reason})")
    return lines


def main(repo: str) -> None:
    if not has_kernel(repo, version=1, backend="cpu"):
        raise SystemExit("no kernel")
    kernel: ModuleType = get_kernel(
        repo, version=1, backend="cpu", user_agent={"app": "1"}, trust_remote_code=[repo], check_arch=True
    )
    assert kernel.twice(21) == 42
    path: Path = install_kernel(repo, revision="v1", backend="cpu", local_files_only=False)
    assert get_local_kernel(path, backend="cpu") is not None
    assert kernels.get_kernel(repo, revision="v1", backend="cpu").twice(1) == 2
    print("\\n".join([*report(repo), describe(get_loaded_kernels()[0])]))


if __name__ == "__main__":
    main(sys.argv[1])
"""


@pytest.fixture
def hub(
    tmp_path: Path, make_variant: MakeVariant, publish: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder that is a hub with `org/my-gray`, whose `v1` has a variant that runs here and one that does not."""
    make_variant(name="torch-tpu", backend="tpu")
    publish(make_variant().parent, "org/my-gray")
    monkeypatch.setenv("KERNELYARD_HUB", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_the_order_of_the_arguments_that_older_releases_took_is_taken(hub: Path) -> None:
    kernel = kernels.get_kernel("org/my-gray", "v1")
    assert kernels.get_kernel("org/my-gray", None, 1, "cpu", "app/1", True) is kernel  # noqa: FBT003
    assert kernels.has_kernel("org/my-gray", None, 1, "cpu")
    path = kernels.install_kernel("org/my-gray", revision="v1")
    assert kernels.get_local_kernel(path, "cpu") is kernels.get_local_kernel(str(path), backend="cpu")
    decisions = kernels.get_kernel_variants("org/my-gray", None, 1, "cpu")
    assert decisions == kernels.get_kernel_variants("org/my-gray", version=1, backend="cpu")
    assert hub.is_dir()


def test_what_oldest_releases_took_otherwise_is_refused_with_what_to_write(hub: Path) -> None:
    path = kernels.install_kernel("org/my-gray", revision="v1", hub=hub)
    with pytest.raises(InputError, match="Invalid backend 'my_gray'") as caught:
        kernels.get_local_kernel(path, "my_gray")
    assert caught.value.code == "KY606"
    assert "leave out the name of a package" in caught.value.hint
    install: Any = kernels.install_kernel
    with pytest.raises(InputError, match="takes the revision by name, and returns a folder: 'v1', True") as caught:
        install("org/my-gray", "v1", True)  # noqa: FBT003
    assert (caught.value.code, caught.value.hint) == ("KY505", "write install_kernel('org/my-gray', revision=...)")


def test_a_program_for_that_package_runs(tmp_path: Path, hub: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "KERNELYARD_CACHE": str(tmp_path / "other"), "KERNELYARD_HUB": str(hub)}
    done = subprocess.run(
        [sys.executable, program, "org/my-gray"], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    accepted, rejected, loaded = done.stdout.splitlines()
    assert accepted == "torch-universal: compatible"
    assert rejected.startswith("torch-tpu: rejected (")
    assert loaded.startswith("my_gray 1 MIT org/my-gray@")
    assert loaded.endswith(" cpu []")


@pytest.mark.slow
def test_a_type_checker_knows_all_of_it(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout == "Success: no issues found in 1 source file\n", done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(set(kernels.__all__)))
def test_every_name_is_there_and_documented(name: str) -> None:
    assert inspect.getdoc(getattr(kernels, name))
    assert name in dir(kernels)


@pytest.mark.parametrize("name", ["kernelize", "Mode", "LayerRepository", "use_kernel_forward_from_hub", "Benchmark"])
def test_layers_are_said_to_come_later(name: str) -> None:
    with pytest.raises(AttributeError, match=f"kernelyard has no '{name}' yet"):
        getattr(kernels, name)
    assert not hasattr(kernels, name)
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        kernels.no_such_name  # noqa: B018


@pytest.mark.parametrize("name", ["kernelize", "LayerRepository"])
def test_layers_are_said_to_come_later_where_they_are_imported_by_name(name: str) -> None:
    with pytest.raises(ImportError, match=f"kernelyard has no '{name}' yet") as caught:
        exec(f"from kernelyard import get_kernel, {name}", {})  # noqa: S102 - as a program does it
    assert caught.value.name == "kernelyard"
    with pytest.raises(ImportError, match="cannot import name 'no_such_name'"):
        exec("from kernelyard import no_such_name", {})  # noqa: S102


def test_the_package_is_marked_as_typed() -> None:
    assert (Path(kernels.__file__).parent / "py.typed").is_file()


Call = Callable[[], object]


@pytest.mark.parametrize(
    ("call", "builtin", "code"),
    [
        (lambda: kernels.get_kernel("org/my-gray"), ValueError, "KY505"),
        (lambda: kernels.get_kernel("org/my-gray", version=1, revision="v1"), ValueError, "KY505"),
        (lambda: kernels.has_kernel("org/my-gray"), ValueError, "KY505"),
        (lambda: kernels.get_kernel("org/my-gray", version=0), ValueError, "KY501"),
        (lambda: kernels.has_kernel("org/my-gray", version=0), ValueError, "KY501"),
        (lambda: kernels.get_kernel_variants("org/my-gray", version=0), ValueError, "KY501"),
        (lambda: kernels.get_kernel("org/my-gray", revision="gone"), FileNotFoundError, "KY501"),
        (lambda: kernels.get_kernel("org/gone", version=1), OSError, "KY501"),
        (lambda: kernels.get_kernel("org/my-gray", version=1, backend="dsp"), ValueError, "KY606"),
        (lambda: kernels.get_kernel("org/other", version=1), FileNotFoundError, "KY601"),
        (lambda: kernels.get_kernel("org/other", version=1, backend="cuda"), ValueError, "KY601"),
        (lambda: kernels.get_kernel("org/needy", version=1), ImportError, "KY609"),
        (lambda: kernels.get_kernel("org/broken", version=1), ImportError, "KY604"),
        (lambda: kernels.get_local_kernel("/no/such/folder"), FileNotFoundError, "KY607"),
        (lambda: kernels.get_kernel_dep("org/my-gray"), RuntimeError, "KY613"),
        (lambda: kernels.install_kernel("org/other", version=1), FileNotFoundError, "KY601"),
        (lambda: kernels.Metadata.from_bytes(b"{}"), ValueError, "KY212"),
        (lambda: kernels.Backend.from_str("dsp"), ValueError, "KY606"),
    ],
)
def test_what_goes_wrong_is_caught_as_that_package_s_errors_are(
    call: Call,
    builtin: type[Exception],
    code: str,
    *,
    hub: Path,
    make_variant: MakeVariant,
    publish: Callable[..., str],
) -> None:
    publish(make_variant("other", name="torch-tpu", backend="tpu").parent, "org/other")
    publish(make_variant("broken", files={"__init__.py": "raise OSError\n"}).parent, "org/broken")
    needy = make_variant("needy")
    metadata = json.loads((needy / "metadata.json").read_bytes())
    (needy / "metadata.json").write_text(json.dumps({**metadata, "python-depends": ["no-such-package-here"]}))
    publish(needy.parent, "org/needy")
    with pytest.raises(builtin) as caught:
        call()
    assert isinstance(caught.value, KernelyardError)
    assert caught.value.code == code
    assert hub.is_dir()


@pytest.mark.parametrize("wrong", [True, 3, 1.5, b"org/my-gray", ["org/my-gray"], {}, object()])
def test_an_argument_of_the_wrong_type_is_an_error_that_says_so(hub: Path, wrong: Any) -> None:
    with_hub = partial(kernels.get_kernel, "org/my-gray", version=1)
    # Also where the call was answered before, and might be from memory.
    assert with_hub(hub=hub) is with_hub(hub=str(hub))
    for call, code in (
        (lambda: kernels.get_kernel(wrong, version=1), "KY504"),
        (lambda: kernels.has_kernel(wrong, version=1), "KY504"),
        (lambda: kernels.get_kernel_variants(wrong), "KY504"),
        (lambda: kernels.install_kernel(wrong, version=1), "KY504"),
        (lambda: with_hub(hub=wrong), "KY506"),
        (lambda: kernels.has_kernel("org/my-gray", version=1, hub=wrong), "KY506"),
        (lambda: kernels.get_kernel_variants("org/my-gray", version=1, hub=wrong), "KY506"),
        (lambda: kernels.get_local_kernel(wrong), "KY607"),
        (lambda: kernels.get_kernel("org/my-gray", revision=wrong), "KY505"),
        (lambda: kernels.get_kernel("org/my-gray", version=1, backend=wrong), "KY606"),
    ):
        with pytest.raises(ValueError, match=r"\bnot\b|Invalid") as caught:
            call()
        assert isinstance(caught.value, KernelyardError)
        assert caught.value.code == code


def test_has_kernel_is_false_only_where_no_variant_fits(
    hub: Path, make_variant: MakeVariant, publish: Callable[..., str]
) -> None:
    publish(make_variant("other", name="torch-tpu", backend="tpu").parent, "org/other")
    assert kernels.has_kernel("org/my-gray", version=1)
    assert kernels.has_kernel("org/my-gray", "v1", None, "cpu")
    assert not kernels.has_kernel("org/other", version=1)
    assert kernels.get_loaded_kernels() == []
    assert not (hub.parent / "store").exists()


def test_the_metadata_of_a_file_is_read_alone(make_variant: MakeVariant) -> None:
    variant = make_variant(needs=[{"repo-id": "org/base", "revision": "v2"}])
    read = kernels.Metadata.read_from_file(str(variant / "metadata.json"))
    assert read == kernels.Metadata.from_bytes((variant / "metadata.json").read_bytes())
    assert (read.name, read.name.python_name, read.version) == ("my-gray", "my_gray", 1)
    assert (str(read.backend.backend_type), repr(read.backend.backend_type)) == ("cpu", "Backend.CPU")
    assert [str(needed) for needed in read.kernel_depends] == ["org/base (revision 'v2')"]
    with pytest.raises(OSError, match="No such file"):
        kernels.Metadata.read_from_file(variant / "gone.json")


def test_variants_of_folders_are_told_of_as_well(make_variant: MakeVariant, tmp_path: Path) -> None:
    make_variant(name="torch-tpu", backend="tpu")
    broken = make_variant(name="torch-cuda", backend="cuda")
    (broken / "metadata.json").unlink()
    build = make_variant().parent
    for path in (build, str(build), build.parent):
        decisions = kernels.get_kernel_variants(path)
        assert [decision.variant.variant_str for decision in decisions] == [
            "torch-universal",
            "torch-tpu",
            "torch-cuda",
        ]
        assert [isinstance(decision, kernels.VariantAccepted) for decision in decisions] == [True, False, False]
        assert "no metadata.json" in decisions[2].reason
    with pytest.raises(ValueError, match="a folder has no versions"):
        kernels.get_kernel_variants(build, version=1)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        kernels.get_kernel_variants(str(tmp_path / "gone"))


def test_a_module_says_what_it_is(hub: Path) -> None:
    module = kernels.get_kernel("org/my-gray", version=1)
    described = module.__kernel__
    assert isinstance(described, kernels.LoadedKernel)
    assert (described.repo, described.variant) == ("org/my-gray", "torch-universal")
    assert (hub / f"kernels/org/my-gray/revisions/{described.revision}/index.json").is_file()
    assert len(described.digest) == 64
    assert described.verdict == "It runs on this machine."
    assert described.repo_info == kernels.RepoInfo("org/my-gray", described.revision or "")
    assert (described.hub, described.release, described.signed_by) == (str(hub), None, ())
    revision = f"(revision {(described.revision or '')[:12]})"
    assert repr(described) == f"<LoadedKernel org/my-gray {revision}: torch-universal, from {hub}>"


def test_a_module_says_of_which_release_it_is(hub: Path, make_variant: MakeVariant) -> None:
    found = FolderHub.find(make_variant("new", files={"__init__.py": "new = True\n"}).parent)
    assert found is not None
    publication = Publication("org/my-gray", replace(found.index, release="1.1.0"), found.files, "v1")
    StaticHub(DirectoryReader(hub)).publish(publication)
    for version in (1, ">=1.1", "1.1.0"):
        described = kernels.get_kernel("org/my-gray", version=version).__kernel__
        assert described.release == "1.1.0"
        assert repr(described).startswith("<LoadedKernel org/my-gray 1.1.0 (revision ")


def test_a_module_from_a_folder_says_which(make_variant: MakeVariant) -> None:
    variant = make_variant()
    described = kernels.get_local_kernel(variant).__kernel__
    assert (described.repo, described.hub, described.release) == (None, None, None)
    assert repr(described) == f"<LoadedKernel my-gray: torch-universal, from {variant}>"


def test_installing_does_not_ask_for_python_packages_unless_told_to(
    hub: Path, make_variant: MakeVariant, publish: Callable[..., str]
) -> None:
    needy = make_variant("needy")
    metadata = json.loads((needy / "metadata.json").read_bytes())
    (needy / "metadata.json").write_text(json.dumps({**metadata, "python-depends": ["no-such-package-here"]}))
    publish(needy.parent, "org/needy")
    with pytest.raises(ImportError, match="no-such-package-here"):
        kernels.install_kernel("org/needy", version=1, validate_dependencies=True)
    assert not (hub.parent / "store/variants").exists()
    assert (kernels.install_kernel("org/needy", version=1) / "__init__.py").is_file()
    # A kernel that is here is still not loaded without what it needs.
    with pytest.raises(ImportError, match="no-such-package-here"):
        kernels.get_kernel("org/needy", version=1)


def test_device_code_is_not_asked_for_where_the_caller_says_so(
    make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelyard.formats.versions import Version
    from kernelyard.load.system.description import System, Torch
    from kernelyard.load.system.nvml import Gpu

    gpus = (Gpu(0, "", (9, 0)),)
    torch = Torch("2.11.0+cu130", Version("13.0"))
    system = System("x86_64", "linux", Version("2.36"), (3, 12), torch=torch, driver=Version("580"), gpus=gpus)
    monkeypatch.setattr("kernelyard.load.resolve.resolution.describe_system", lambda: system)
    variant = make_variant(name="torch-cuda", backend="cuda")
    metadata = json.loads((variant / "metadata.json").read_bytes())
    metadata["backend"]["archs"] = ["8.0"]
    (variant / "metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(RuntimeError) as caught:
        kernels.get_local_kernel(variant)
    assert isinstance(caught.value, FileNotFoundError)
    assert [type(one).__name__ for one in kernels.get_kernel_variants(variant)] == ["VariantRejected"]
    assert kernels.get_local_kernel(variant, check_arch=False).twice(2) == 4


def test_what_a_hub_tells_of_a_variant_only_late_counts_as_well(hugging_face: Hub) -> None:
    metadata = {"name": "gray", "version": 1, "license": "MIT"}
    tree: dict[str, bytes] = {}
    # Without an index, the metadata of the first alone is read before one is chosen.
    for variant, backend, needs in (("torch-npu", "cann", []), ("torch-universal", "cpu", ["no-such-package-here"])):
        said = {**metadata, "id": f"_gray_{backend}", "python-depends": needs, "backend": {"type": backend}}
        tree[f"build/{variant}/metadata.json"] = json.dumps(said).encode()
        tree[f"build/{variant}/__init__.py"] = b"raise SystemExit\n"
        tree[f"build/{variant}/large.bin"] = b"x" * 20_000
    hugging_face.make("org/gray").put("v1", tree)
    for call in (kernels.get_kernel, kernels.install_kernel):
        options = {"validate_dependencies": True} if call is kernels.install_kernel else {}
        with pytest.raises(ImportError, match="no-such-package-here is not installed"):
            call("org/gray", version=1, **options)  # type: ignore[arg-type]
    assert not kernels.has_kernel("org/gray", version=1)
    # Before anything large is fetched.
    assert not [line for line in hugging_face.requests if "large.bin" in line]


@pytest.mark.parametrize("newest", ["torch-universal", "torch-xpu"])
def test_a_newer_version_that_would_run_is_suggested(
    newest: str, hub: Path, make_variant: MakeVariant, publish: Callable[..., str]
) -> None:
    for version, name in ((1, "torch-tpu"), (2, "torch-npu"), (10, newest)):
        backend = {"torch-tpu": "tpu", "torch-npu": "cann", "torch-xpu": "xpu"}.get(name, "cpu")
        build = make_variant(f"v{version}", name=name, backend=backend, version=version).parent
        publish(build, "org/other", f"v{version}")
    for call in (kernels.get_kernel, kernels.install_kernel):
        with pytest.raises(FileNotFoundError) as caught:
            call("org/other", version=1, hub=hub)
        assert isinstance(caught.value, KernelyardError)
        assert ("or ask for version 10" in caught.value.hint) is (newest == "torch-universal")
        assert "version 2" not in caught.value.hint


def test_nothing_happens_when_it_is_imported(tmp_path: Path) -> None:
    # Every name is asked for, and what Python itself reports of connections, processes, and opened libraries is kept.
    program = """
import sys
seen = []
wanted = ("socket.", "subprocess.", "os.system", "os.posix_spawn", "os.fork", "ctypes.dlopen", "urllib.", "tempfile.")
# To import ctypes opens the program itself, whose name is None.
sys.addaudithook(lambda event, said: seen.append(event) if event.startswith(wanted) and said[:1] != (None,) else None)
import kernelyard
for name in kernelyard.__all__:
    getattr(kernelyard, name)
print(seen, kernelyard.get_loaded_kernels(), "torch" in sys.modules, "huggingface_hub" in sys.modules)
"""
    environment = {**os.environ, "HOME": str(tmp_path), "KERNELYARD_CACHE": str(tmp_path / "store")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "[] [] False False\n"
    assert list(tmp_path.iterdir()) == []
