"""Loading by a range of releases, and releases that were withdrawn."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernelyard import get_kernel
from kernelyard.errors import MissingError
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub

MakeVariant = Callable[..., Path]
Release = Callable[..., str]


@pytest.fixture
def release(tmp_path: Path, make_variant: MakeVariant) -> Release:
    """Return a function that publishes a release with one variant, and answers the revision's id."""

    def release(number: str, variant: str = "torch-cpu") -> str:
        backend = "xpu" if "xpu" in variant else "cpu"
        init = f"release = {number!r}\n"
        build = make_variant(f"build-{number}", name=variant, files={"__init__.py": init}, backend=backend).parent
        folder = FolderHub.find(build)
        assert folder is not None
        publication = Publication("org/gray", replace(folder.index, release=number), folder.files, "v1")
        return StaticHub(DirectoryReader(tmp_path / "hub")).publish(publication).revision.id

    return release


def test_the_newest_release_in_a_range_is_loaded(tmp_path: Path, release: Release) -> None:
    ids = {number: release(number) for number in ("1.0.0", "1.1.0", "1.2.0")}
    module = get_kernel("org/gray", version=">=1.0,<1.2", hub=tmp_path / "hub")
    assert module.release == "1.1.0"
    assert module.__kernel__.repo_info.revision == ids["1.1.0"]
    assert get_kernel("org/gray", version="1.0.0", hub=tmp_path / "hub").release == "1.0.0"
    assert get_kernel("org/gray", version=1, hub=tmp_path / "hub").release == "1.2.0"


def test_a_release_without_a_variant_for_this_machine_is_passed_over_in_a_range(
    tmp_path: Path, release: Release
) -> None:
    release("1.0.0")
    release("1.1.0", "torch-xpu")
    assert get_kernel("org/gray", version=">=1.0", hub=tmp_path / "hub").release == "1.0.0"
    # Where none has one, what is told is why the newest does not do.
    for version in ("1.1.0", ">1.0"):
        with pytest.raises(MissingError, match=r"v1\.1\.0.*no variant for this machine") as caught:
            get_kernel("org/gray", version=version, hub=tmp_path / "hub")
        assert caught.value.code == "KY601"


def test_a_withdrawn_release_loads_by_its_number_with_a_warning(
    tmp_path: Path, release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    release("1.0.0")
    release("1.1.0")
    StaticHub(DirectoryReader(tmp_path / "hub")).yank("org/gray", "1.1.0", "wrong on odd sizes")
    assert get_kernel("org/gray", version="~=1.0", hub=tmp_path / "hub").release == "1.0.0"
    assert caplog.records == []
    with caplog.at_level(logging.WARNING, "kernelyard.load"):
        assert get_kernel("org/gray", version="1.1.0", hub=tmp_path / "hub").release == "1.1.0"
    assert [record.getMessage().partition("was withdrawn")[2] for record in caplog.records] == [": wrong on odd sizes"]
    # A version is where its branch is, withdrawn or not.
    caplog.clear()
    with caplog.at_level(logging.WARNING, "kernelyard.load"):
        assert get_kernel("org/gray", version=1, hub=tmp_path / "hub").release == "1.1.0"
    assert [record.getMessage().partition("was withdrawn")[2] for record in caplog.records] == [": wrong on odd sizes"]
