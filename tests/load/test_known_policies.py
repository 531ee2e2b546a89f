"""Policy files are parsed once for each content, and what was remembered of one can loosen nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelyard.errors import InputError
from kernelyard.formats import toml_document
from kernelyard.load.trust import policies
from kernelyard.load.trust.policies import InForce

PYPROJECT = """
[project]
name = "app"

[tool.kernelyard.dependencies]
"org/gray" = "1"

[tool.kernelyard.trust]
deny = ["bad"]
evidence = "digest"

[[tool.kernelyard.trust.allow]]
hub = "hf://"
kernels = ["org/*"]
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("KERNELYARD_POLICY", raising=False)
    monkeypatch.setattr(policies, "_MACHINE", str(tmp_path / "machine" / "policy.toml"))
    monkeypatch.setattr(policies, "_script_folder", lambda: None)
    return folder


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths that were parsed, which grows."""
    paths: list[str] = []

    def parse_toml(text: str, *, path: str) -> dict[str, object]:
        paths.append(path)
        return toml_document.parse_toml(text, path=path)

    monkeypatch.setattr("kernelyard.formats.policy.parse_toml", parse_toml)
    return paths


def in_force() -> list[InForce]:
    """Return the policies as a new process finds them."""
    policies._parsed.cache_clear()
    return list(policies.policies())


def remembered(tmp_path: Path) -> Path:
    (file,) = (tmp_path / "state" / "policies").iterdir()
    return file


def test_a_file_is_parsed_by_one_process_and_known_to_the_next(project: Path, parsed: list[str]) -> None:
    path = project / "pyproject.toml"
    path.write_text(PYPROJECT)
    first = in_force()
    assert parsed == [str(path)]
    assert first[0].policy.denied("bad/one") == "bad/*"
    assert in_force() == first
    assert parsed == [str(path)]


def test_that_a_file_has_no_policy_is_known_as_well(project: Path, parsed: list[str]) -> None:
    path = project / "pyproject.toml"
    path.write_text(PYPROJECT.partition("[tool.kernelyard.trust]")[0])
    assert in_force() == in_force() == []
    assert parsed == [str(path)]


def test_a_change_of_the_file_holds_at_once(project: Path, parsed: list[str]) -> None:
    path = project / "pyproject.toml"
    path.write_text(PYPROJECT)
    in_force()
    path.write_text(PYPROJECT.replace("bad", "mad"))
    (found,) = in_force()
    assert (found.policy.denied("bad/one"), found.policy.denied("mad/one")) == (None, "mad/*")
    path.write_text("[tool.kernelyard.truts]\n")
    for _ in range(2):
        with pytest.raises(InputError, match="truts"):
            in_force()
    assert len(parsed) == 4


@pytest.mark.parametrize("content", [b"", b"{}", b"null", b"[]", b'{"of": 1}', b"\xff", b"[" * 100_000])
def test_what_is_no_memory_means_that_the_file_is_parsed(
    project: Path, parsed: list[str], tmp_path: Path, content: bytes
) -> None:
    (project / "pyproject.toml").write_text(PYPROJECT)
    first = in_force()
    remembered(tmp_path).write_bytes(content)
    assert in_force() == first
    assert len(parsed) == 2


def test_a_memory_of_another_file_or_one_that_others_may_write_does_not_count(
    project: Path, parsed: list[str], tmp_path: Path
) -> None:
    (project / "pyproject.toml").write_text(PYPROJECT)
    first = in_force()
    memory = remembered(tmp_path)
    document = json.loads(memory.read_bytes())
    assert document["trust"]["deny"] == ["bad"]
    memory.write_text(json.dumps(document | {"of": "0" * 64, "trust": None}))
    assert in_force() == first
    memory.write_text(json.dumps(document | {"trust": None}))
    memory.chmod(0o666)
    assert in_force() == first
    assert len(parsed) == 3


def test_a_table_is_judged_again_by_the_rules_that_hold_now(project: Path, tmp_path: Path) -> None:
    (project / "pyproject.toml").write_text(PYPROJECT)
    in_force()
    memory = remembered(tmp_path)
    document = json.loads(memory.read_bytes())
    memory.write_text(json.dumps(document | {"trust": {"deny": "bad", "colour": "red"}}))
    with pytest.raises(InputError) as caught:
        in_force()
    assert {error.code for error in getattr(caught.value, "errors", ())} == {"KY203", "KY205"}


def test_a_state_folder_that_cannot_be_written_costs_nothing_but_time(
    project: Path, parsed: list[str], tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("a file is in the way")
    (project / "pyproject.toml").write_text(PYPROJECT)
    assert in_force() == in_force()
    assert len(parsed) == 2
