from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import kernelyard
from kernelyard.errors import EnvironmentProblemError, InputError, MissingError, VerificationError
from kernelyard.formats.versions import Version
from kernelyard.load import RepoInfo, get_kernel, get_loaded_kernels
from kernelyard.load.system.description import System, Torch
from kernelyard.load.system.nvml import Gpu
from kernelyard.store import Store

MakeVariant = Callable[..., Path]
Publish = Callable[..., str]


def stored(tmp_path: Path) -> Path:
    (folder,) = (tmp_path / "store/variants").iterdir()
    return folder


def test_a_kernel_comes_by_version_and_tells_what_it_is(
    tmp_path: Path, make_variant: MakeVariant, publish: Publish
) -> None:
    variant = make_variant()
    id_ = publish(variant.parent)
    module = kernelyard.get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    assert module.twice(21) == 42
    loaded = module.__kernel__
    assert loaded.module is module
    assert loaded.repo_info == RepoInfo("org/gray", id_)
    assert loaded.variant == "torch-universal"
    assert loaded.verification == "hub-index"
    assert loaded.metadata.name == "my-gray"
    assert loaded.origin == stored(tmp_path)
    assert module.__name__ == loaded.metadata.id
    assert module.__file__ == str(stored(tmp_path) / "__init__.py")
    assert sys.modules[loaded.metadata.id] is module
    assert get_loaded_kernels() == [loaded]


def test_the_environment_names_the_hub(
    tmp_path: Path, make_variant: MakeVariant, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = publish(make_variant().parent)
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    # Where none is named it is the Hugging Face Hub, which would have to be asked whether it trusts the publisher.
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(EnvironmentProblemError, match=r"https://huggingface\.co: whether org is a trusted publisher"):
        get_kernel("org/gray", version=1)
    monkeypatch.setenv("KERNELYARD_HUB", str(tmp_path / "hub"))
    assert get_kernel("org/gray", revision=id_[:9]) is get_kernel("org/gray", version=1)


def test_each_release_finds_its_own_metadata_though_the_code_is_equal(
    tmp_path: Path, make_variant: MakeVariant, publish: Publish
) -> None:
    from kernelyard.hub import open_hub
    from kernelyard.load.stored.verified import content_key

    one, two = make_variant("one", id_="_gray_same"), make_variant("two", id_="_gray_same", version=2)
    publish(one.parent, branch="v1")
    publish(two.parent, branch="v2")
    hub = open_hub(tmp_path / "hub")
    entries = [hub.resolve("org/gray", version=version).index.variants[0] for version in (1, 2)]
    assert entries[0].digest == entries[1].digest
    assert content_key(entries[0]) != content_key(entries[1])
    second = get_kernel("org/gray", version=2, hub=tmp_path / "hub")
    assert second.__kernel__.metadata.version == 2
    assert get_kernel("org/gray", version=1, hub=tmp_path / "hub") is second
    assert len(get_loaded_kernels()) == 1


def test_two_versions_live_side_by_side(tmp_path: Path, make_variant: MakeVariant, publish: Publish) -> None:
    publish(make_variant("one").parent, branch="v1")
    other = {"_ops.py": "def times(x, factor):\n    return -x\n"}
    publish(make_variant("two", files=other, version=2).parent, branch="v2")
    old = get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    new = get_kernel("org/gray", version=2, hub=tmp_path / "hub")
    assert (old.twice(2), new.twice(2)) == (4, -2)


def test_no_variant_for_this_machine_is_told_with_reasons(
    tmp_path: Path, make_variant: MakeVariant, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kernelyard.load.resolve.resolution.describe_system", lambda: System("x86_64", "linux", None, (3, 12))
    )
    make_variant(name="torch-cuda", backend="cuda")
    publish(make_variant(name="torch-stable-abi211-cpu-aarch64-linux").parent)
    with pytest.raises(MissingError, match="has no variant for this machine") as caught:
        get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    assert caught.value.code == "KY601"
    said = " ".join(caught.value.what.split())
    assert "torch-cuda no It is for CUDA and there is no NVIDIA driver here." in said
    assert "aarch64-linux no It is built for aarch64-linux and this is x86_64-linux." in said
    assert not (tmp_path / "store").exists()


def test_only_the_chosen_variant_is_fetched(tmp_path: Path, make_variant: MakeVariant, publish: Publish) -> None:
    make_variant(name="torch-rocm", backend="rocm", files={"big.txt": "x" * 1000})
    publish(make_variant().parent)
    get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    assert sorted(path.name for path in stored(tmp_path).iterdir()) == ["__init__.py", "_ops.py", "metadata.json"]


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(InputError, match="Invalid backend 'gpu'") as caught:
        get_kernel("org/gray", version=1, backend="gpu", hub="/nowhere")
    assert caught.value.code == "KY606"


@pytest.mark.parametrize("repo", ["../../etc/passwd", "gray", ".a/b"])
def test_a_name_that_is_a_path_is_refused(repo: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not the name of a kernel"):
        get_kernel(repo, version=1, hub=tmp_path)


def test_a_hub_on_the_web_needs_consent(tmp_path: Path, make_variant: MakeVariant, publish: Publish) -> None:
    publish(make_variant().parent)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "hub"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        refused: tuple[Any, ...] = (False, [], ["org/grey", "gray", "or"])
        meaningless: tuple[Any, ...] = ("yes", "org/gray", 1)
        for consent in (*refused, *meaningless):
            with pytest.raises((VerificationError, InputError)) as caught:
                get_kernel("org/gray", version=1, hub=address, trust_remote_code=consent)
            assert caught.value.code == ("KY605" if consent in refused else "KY653")
        given: tuple[Any, ...] = (True, ["org/gray"], ("other", "org"))
        for consent in given:
            module = get_kernel("org/gray", version=1, hub=address, trust_remote_code=consent)
            assert module.twice(1) == 2
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("path", ["__init__.py", "_ops.py", "metadata.json"])
def test_a_file_changed_in_the_store_is_never_run(
    tmp_path: Path, make_variant: MakeVariant, publish: Publish, path: str
) -> None:
    entry_id = publish(make_variant(files={"_ops.py": "raise RuntimeError('first')\n"}).parent)
    with pytest.raises(ImportError, match="first"):
        get_kernel("org/gray", revision=entry_id, hub=tmp_path / "hub")
    file = stored(tmp_path) / path
    file.write_text(file.read_text() + "\n")
    with pytest.raises(VerificationError, match="is not the file that the index of the hub names") as caught:
        get_kernel("org/gray", revision=entry_id, hub=tmp_path / "hub")
    assert caught.value.code == "KY602"
    assert caught.value.place is not None
    assert caught.value.place.path == str(file)
    assert f"delete the folder {stored(tmp_path)}" in caught.value.hint


def test_files_added_to_and_taken_from_the_store_are_noticed(
    tmp_path: Path, make_variant: MakeVariant, publish: Publish
) -> None:
    publish(make_variant(files={"_ops.py": "raise RuntimeError('first')\n"}).parent)
    load = partial(get_kernel, "org/gray", version=1, hub=tmp_path / "hub")
    with pytest.raises(ImportError, match="first"):
        load()
    folder = stored(tmp_path)
    for name in ("extra.py", "sub/extra.so"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
        with pytest.raises(VerificationError, match="does not belong here"):
            load()
        (folder / name).unlink()
    (tmp_path / "elsewhere").mkdir()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(VerificationError, match="is a link"):
        load()
    (folder / "linked").unlink()
    (folder / "_ops.py").unlink()
    with pytest.raises(VerificationError, match="is missing"):
        load()


def test_a_broken_download_leaves_nothing_in_the_store(
    tmp_path: Path, make_variant: MakeVariant, publish: Publish
) -> None:
    publish(make_variant().parent)
    blobs = sorted((tmp_path / "hub/blobs").rglob("*"))
    blob = next(path for path in blobs if path.is_file() and b"twice" in path.read_bytes())
    content = blob.read_bytes()
    blob.write_bytes(content.replace(b"2", b"3"))
    with pytest.raises(VerificationError, match="is not the published file") as caught:
        get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    assert caught.value.code == "KY503"
    assert not list((tmp_path / "store/variants").iterdir())
    assert not list((tmp_path / "store/aside").iterdir())
    blob.write_bytes(content)
    assert get_kernel("org/gray", version=1, hub=tmp_path / "hub").twice(4) == 8


def test_an_index_with_another_id_than_the_variants_own_is_refused(tmp_path: Path, make_variant: MakeVariant) -> None:
    from dataclasses import replace

    from kernelyard.hub.folder import FolderHub
    from kernelyard.hub.protocol import Publication
    from kernelyard.hub.static import DirectoryReader, StaticHub

    folder = FolderHub.find(make_variant().parent)
    assert folder is not None
    index = replace(folder.index, variants=(replace(folder.index.variants[0], id="_other"),))
    StaticHub(DirectoryReader(tmp_path / "hub")).publish(Publication("org/gray", index, folder.files, "v1"))
    with pytest.raises(VerificationError, match="the index of the hub calls it '_other'"):
        get_kernel("org/gray", version=1, hub=tmp_path / "hub")


def test_a_path_out_of_the_variant_in_an_index_is_refused(
    tmp_path: Path, make_variant: MakeVariant, publish: Publish
) -> None:
    from kernelyard.formats.index import revision_id

    id_ = publish(make_variant().parent)
    kernel = tmp_path / "hub/kernels/org/gray"
    index = json.loads((kernel / f"revisions/{id_}/index.json").read_bytes())
    files = index["variants"]["torch-universal"]["files"]
    files["../../../evil.py"] = files["_ops.py"]
    text = json.dumps(index).encode()
    (kernel / f"revisions/{revision_id(text)}").mkdir()
    (kernel / f"revisions/{revision_id(text)}/index.json").write_bytes(text)
    with pytest.raises(InputError, match="not a relative path inside a variant") as caught:
        get_kernel("org/gray", revision=revision_id(text), hub=tmp_path / "hub")
    assert caught.value.code == "KY213"
    assert not (tmp_path / "store").exists()


def test_a_loaded_kernel_needs_no_store_any_more(tmp_path: Path, make_variant: MakeVariant, publish: Publish) -> None:
    import shutil

    publish(make_variant().parent)
    module = get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    assert Store.default().root == tmp_path / "store"
    shutil.rmtree(tmp_path / "store")
    assert get_kernel("org/gray", version=1, hub=tmp_path / "hub") is module


def test_a_hub_in_a_folder_is_looked_at_each_time(tmp_path: Path, make_variant: MakeVariant, publish: Publish) -> None:
    load = partial(get_kernel, "org/gray", version=1, hub=tmp_path / "hub")
    for number in (1, 2):
        publish(make_variant(f"b{number}", files={"__init__.py": f"number = {number}\n"}).parent)
        assert load().number == number


def test_no_link_is_needed_anywhere(
    tmp_path: Path, make_variant: MakeVariant, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        # As Windows does where the user has not the privilege.
        raise OSError(22, "A required privilege is not held by the client")

    for name in ("symlink", "link"):
        monkeypatch.setattr(f"os.{name}", refuse)
    publish(make_variant().parent)
    assert get_kernel("org/gray", version=1, hub=tmp_path / "hub").twice(1) == 2
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_symlink()] == []


def test_two_gpus_of_different_kinds_get_two_variants_side_by_side(
    tmp_path: Path, make_variant: MakeVariant, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = (Gpu(0, "", (8, 0)), Gpu(1, "", (9, 0)))
    torch, glibc, driver = Torch("2.11.0+cu130", Version("13.0")), Version("2.36"), Version("590")
    system = System("x86_64", "linux", glibc, (3, 12), torch=torch, driver=driver, gpus=gpus, gpus_in_order=True)
    monkeypatch.setattr("kernelyard.load.resolve.resolution.describe_system", lambda: system)
    for name, capability in (("torch-stable-abi211-cu130-x86_64-linux", "8.0"), ("torch-cuda", "9.0")):
        variant = make_variant(name=name, backend="cuda", files={"__init__.py": f"capability = {capability!r}\n"})
        metadata = json.loads((variant / "metadata.json").read_bytes())
        metadata["backend"]["archs"] = [capability]
        (variant / "metadata.json").write_text(json.dumps(metadata))
    publish(variant.parent)
    load = partial(get_kernel, "org/gray", version=1, hub=tmp_path / "hub")
    assert [load(device=device).capability for device in (0, "cuda:1", 1)] == ["8.0", "9.0", "9.0"]
    assert load().capability == "8.0"
    assert len(get_loaded_kernels()) == 2
    with pytest.raises(InputError, match="there is no GPU 2"):
        load(device=2)
