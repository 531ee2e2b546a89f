"""What is refused before anything is looked for or fetched."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from kernelyard.errors import EnvironmentProblemError, InputError
from kernelyard.formats.versions import Version
from kernelyard.store import Store
from kernelyard.toolchain.assemble import assemble
from kernelyard.toolchain.parts import PartSource


def test_a_lock_cannot_have_a_toolkit_that_only_this_machine_has(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblemError) as caught:
        assemble(PartSource(Store(tmp_path)), backend="cuda", cuda=Version("12.6"), torch=[], pinned=True)
    assert (caught.value.code, "a lock cannot have CUDA 12.6" in caught.value.what) == ("KY315", True)
    assert "13.0" in caught.value.hint
    assert "--cuda-home" not in caught.value.hint


@pytest.mark.parametrize("sign", ['"', "$", "`", ","])
def test_a_folder_for_temporary_files_that_nvcc_misreads_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sign: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", f"/odd{sign}one")
    with pytest.raises(InputError) as caught:
        assemble(PartSource(Store(tmp_path)), backend="cuda", cuda=Version("13.0"), torch=[], pinned=True)
    assert (caught.value.code, "the path of TMPDIR" in caught.value.what) == ("KY403", True)
    assert "TMPDIR" in caught.value.hint
