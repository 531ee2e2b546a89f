"""What is wrong with a variant may show only when it is opened: then the next takes its place, and a warning tells."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernelyard import get_kernel, get_loaded_kernels, get_local_kernel
from kernelyard.errors import LoadError, VerificationError
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub

MakeVariant = Callable[..., Path]

NO_LIBRARY = "raise ImportError('libcudart.so.13: cannot open shared object file')\n"
NO_SYMBOL = "raise OSError('undefined symbol: _ZN3c105ErrorC2E')\n"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.fixture
def release(tmp_path: Path, make_variant: MakeVariant) -> Callable[..., None]:
    """Return a function that publishes a release whose variants have the bodies given."""

    def release(number: str, bodies: dict[str, str]) -> None:
        for name, body in bodies.items():
            make_variant(f"b{number}", name=name, files={"__init__.py": f"release = {number!r}\n{body}"})
        folder = FolderHub.find(tmp_path / f"b{number}")
        assert folder is not None
        publication = Publication("org/gray", replace(folder.index, release=number), folder.files, "v1")
        StaticHub(DirectoryReader(tmp_path / "hub")).publish(publication)

    return release


def test_the_next_variant_takes_the_place_of_one_that_does_not_load_with_one_warning(
    tmp_path: Path, release: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    release("1.0.0", {"torch-cpu": NO_LIBRARY, "torch-universal": ""})
    module = get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    assert module.__kernel__.variant == "torch-universal"
    assert [kernel.variant for kernel in get_loaded_kernels()] == ["torch-universal"]
    (warning,) = warnings(caplog)
    assert "torch-cpu of org/gray" in warning
    assert "libcudart.so.13" in warning
    revision = f"(v1, revision {module.__kernel__.revision[:12]})"
    assert warning == (
        f"taken is torch-universal of org/gray {revision}, because what is better failed: torch-cpu of org/gray "
        f"{revision}: the kernel could not be imported: ImportError: {NO_LIBRARY[19:-3]}"
    )


def test_of_a_range_the_next_older_release_is_taken_when_no_variant_of_the_newest_loads(
    tmp_path: Path, release: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    release("1.0.0", {"torch-cpu": ""})
    release("1.1.0", {"torch-cpu": NO_SYMBOL, "torch-universal": NO_LIBRARY})
    assert get_kernel("org/gray", version=">=1.0,<2", hub=tmp_path / "hub").release == "1.0.0"
    (warning,) = warnings(caplog)
    assert "_ZN3c105ErrorC2E" in warning
    assert "libcudart.so.13" in warning
    # A version is one revision: nothing else is taken for it.
    with pytest.raises(LoadError):
        get_kernel("org/gray", version="1.1.0", hub=tmp_path / "hub")


def test_if_none_loads_each_is_told_with_its_reason_and_the_first_cause_is_chained(
    tmp_path: Path, release: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    release("1.0.0", {"torch-cpu": NO_SYMBOL, "torch-universal": NO_LIBRARY})
    with pytest.raises(LoadError) as caught:
        get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    assert caught.value.code == "KY615"
    lines = caught.value.what.splitlines()
    assert lines[1].strip().startswith("torch-cpu of org/gray")
    assert "undefined symbol: _ZN3c105ErrorC2E" in lines[1]
    assert "libcudart.so.13" in lines[2]
    cause = caught.value.__cause__
    assert isinstance(cause, OSError)
    assert str(cause) == "undefined symbol: _ZN3c105ErrorC2E"
    assert warnings(caplog) == []
    assert get_loaded_kernels() == []


def test_bytes_that_are_not_the_published_ones_end_it_at_once(tmp_path: Path, release: Callable[..., None]) -> None:
    release("1.0.0", {"torch-cpu": "x = 1\n", "torch-universal": "x = 2\n"})
    blobs = [path for path in (tmp_path / "hub/blobs").rglob("*") if path.is_file()]
    blob = next(path for path in blobs if b"x = 1" in path.read_bytes())
    blob.write_bytes(blob.read_bytes().replace(b"1", b"3"))
    with pytest.raises(VerificationError, match="is not the published file"):
        get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    assert get_loaded_kernels() == []


def test_in_a_folder_too(make_variant: MakeVariant, add_digest: Callable[..., None]) -> None:
    make_variant(name="torch-cpu", files={"__init__.py": NO_LIBRARY})
    good = make_variant()
    assert get_local_kernel(good.parent).__kernel__.variant == "torch-universal"
    # The digest of the better one does not hold: that is no reason to look elsewhere.
    worse = make_variant("other", name="torch-cpu")
    add_digest(worse)
    (worse / "_ops.py").write_text("print('evil')\n")
    make_variant("other")
    with pytest.raises(VerificationError):
        get_local_kernel(worse.parent)


def test_an_extension_that_the_linker_refuses_is_passed_over(
    make_variant: MakeVariant, caplog: pytest.LogCaptureFixture
) -> None:
    make_variant(name="torch-cpu", files={"__init__.py": "from . import _ext\n", "_ext.abi3.so": "\x7fELF\x02 of ours"})
    good = make_variant()
    assert get_local_kernel(good.parent).__kernel__.variant == "torch-universal"
    (warning,) = warnings(caplog)
    assert "_ext.abi3.so" in warning


def test_one_variant_alone_fails_with_its_own_error(make_variant: MakeVariant) -> None:
    variant = make_variant(files={"__init__.py": NO_LIBRARY})
    with pytest.raises(LoadError, match=r"libcudart\.so\.13") as caught:
        get_local_kernel(variant)
    assert caught.value.code == "KY604"


@pytest.mark.parametrize(
    ("files", "file", "line"),
    [
        ({"__init__.py": f"x = 1\n\n{NO_LIBRARY}"}, "__init__.py", 3),
        ({"__init__.py": "from . import deep\n", "deep.py": "import json\njson.loads('{')\n"}, "deep.py", 2),
        ({"__init__.py": "x = 1\nfrom . import deep\n", "deep.py": "x = 1\n\nx = = 2\n"}, "deep.py", 3),
        ({"__init__.py": "x = 1\nfrom . import _ext\n", "_ext.abi3.so": "\x7fELF\x02 of ours"}, "__init__.py", 2),
    ],
)
def test_the_kernel_and_the_line_of_it_that_failed_are_named(  # noqa: PLR0917 - three are fixtures
    files: dict[str, str], file: str, line: int, tmp_path: Path, make_variant: MakeVariant, publish: Callable[..., str]
) -> None:
    revision = publish(make_variant(files=files).parent)
    with pytest.raises(LoadError) as caught:
        get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    start = f"torch-universal of org/gray (v1, revision {revision[:12]}): the kernel could not be imported: "
    assert caught.value.what.startswith(start)
    assert caught.value.place is not None
    assert (Path(caught.value.place.path).name, caught.value.place.line) == (file, line)
    assert Path(caught.value.place.path).is_file()
