"""The matrix of the package agrees with what can be fetched, and a team can lay a file over it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelyard.errors import InputError
from kernelyard.formats.capability import known_toolkits
from kernelyard.formats.settings import read_settings
from kernelyard.formats.tables import ManifestError
from kernelyard.formats.versions import Version
from kernelyard.toolchain.matrix_rules import known_rules, team_rules
from kernelyard.toolchain.pins import known_cuda, known_headers, known_torch

PAGE = Path(__file__).resolve().parents[2] / "docs" / "matrix.md"
ONLY = '[only]\ncuda = ["13.0"]\n'


@pytest.fixture(autouse=True)
def nothing_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELYARD_MATRIX", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_every_torch_of_the_matrix_is_pinned_and_every_pinned_one_is_in_it() -> None:
    assert list(known_rules().torch) == [Version(text) for text in known_torch()]


def test_every_pinned_toolkit_and_every_one_whose_capabilities_are_known_is_in_the_matrix() -> None:
    assert tuple(known_rules().cuda) == known_toolkits()
    assert {Version(text) for text in known_cuda()} <= known_rules().cuda.keys()


def test_each_torch_names_the_major_version_of_cuda_that_its_pinned_wheel_is_for() -> None:
    for text, pin in known_torch().items():
        assert Version(pin["cuda"]).major in (known_rules().torch[Version(text)].cuda or ()), text


def test_built_by_default_is_what_the_wheels_on_the_index_are_for() -> None:
    (toolkit,) = [version for version, rule in known_rules().cuda.items() if rule.default]
    assert toolkit == Version("13.0")
    assert [version for version, rule in known_rules().torch.items() if rule.default] == [
        Version(text) for text, pin in known_torch().items() if Version(pin["cuda"]) == toolkit
    ]


def test_a_toolkit_without_a_static_runtime_has_none_among_its_wheels() -> None:
    without = {version for version, rule in known_rules().cuda.items() if rule.static_runtime is False}
    for text, pin in known_cuda().items():
        taken = {member for wheel in pin["wheels"] for member in wheel["take"] if "runtime" in wheel["project"]}
        assert (Version(text) in without) is (not taken & {"lib/", "lib/libcudart_static.a"}), text


def test_the_version_of_tvm_ffi_is_that_of_its_headers() -> None:
    assert known_rules().tvm_ffi is not None
    assert known_headers()["tvm_ffi"]["version"].startswith(f"{known_rules().tvm_ffi}.")


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))
def test_the_examples_of_the_page_are_what_a_project_can_say(text: str) -> None:
    settings = read_settings(text, path="kernelyard.toml", known=known_rules())
    assert settings is not None
    assert settings.matrix is not None


def test_without_a_file_a_team_has_no_rules() -> None:
    assert team_rules() is None


def test_a_file_in_the_configuration_folder_counts(tmp_path: Path) -> None:
    (tmp_path / "config" / "kernelyard").mkdir(parents=True)
    (tmp_path / "config" / "kernelyard" / "matrix.toml").write_text(ONLY)
    rules = team_rules()
    assert rules is not None
    assert [only.where for only in rules.narrowings] == [str(tmp_path / "config" / "kernelyard" / "matrix.toml")]


def test_a_file_that_the_environment_names_counts_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_a_file_in_the_configuration_folder_counts(tmp_path)
    (tmp_path / "team.toml").write_text(ONLY)
    monkeypatch.setenv("KERNELYARD_MATRIX", str(tmp_path / "team.toml"))
    rules = team_rules()
    assert rules is not None
    assert [only.where for only in rules.narrowings] == [str(tmp_path / "team.toml")]


def test_one_that_is_named_and_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELYARD_MATRIX", str(tmp_path / "team.toml"))
    with pytest.raises(InputError, match="there is no such file") as caught:
        team_rules()
    assert (caught.value.code, caught.value.place) == ("KY240", (str(tmp_path / "team.toml"), None, None, None))


def test_one_that_is_no_text_or_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "team.toml").write_bytes(b"\xff")
    for path, what in ((tmp_path / "team.toml", "not UTF-8"), (tmp_path, "cannot be read: Is a directory")):
        monkeypatch.setenv("KERNELYARD_MATRIX", str(path))
        with pytest.raises(InputError, match=what) as caught:
            team_rules()
        assert caught.value.code == "KY240"


def test_a_mistake_in_it_is_told_at_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "team.toml").write_text('[torch."2.99"]\n')
    monkeypatch.setenv("KERNELYARD_MATRIX", str(tmp_path / "team.toml"))
    with pytest.raises(ManifestError) as caught:
        team_rules()
    assert str(caught.value.place) == f"{tmp_path / 'team.toml'}:1:8: torch.2.99"
