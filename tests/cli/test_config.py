"""`kernelyard config check|migrate|schema`, as a user runs them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.formats.schema import manifest_schema

Run = Callable[..., subprocess.CompletedProcess[str]]
Sample = Callable[[str], Path]

OLD = """\
# Mine.
[general]
name = "gray"
universal = false # compiled

[torch]

[kernel.gray]
backend = "cpu"
depends = []
src = ["gray.cpp"]
"""


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    (tmp_path / "build.toml").write_text(OLD)
    return tmp_path


# check


def test_warnings_are_told_and_are_no_failure(kernelyard: Run, sample: Sample) -> None:
    root = sample("tiny")
    edit(root / "build.toml", '["cpu", "cuda"]', '["cpu", "cuda", "cuda"]')
    done = kernelyard("config", "check", cwd=root)
    assert (done.returncode, done.stdout) == (0, "build.toml: tiny version 1, cpu, cuda\n")
    assert done.stderr == (
        "warning: build.toml:7:28: general.backends[2]: 'cuda' is listed twice [KY226]\n  take it out\n"
    )


def test_a_portable_manifest_has_no_extensions(kernelyard: Run, sample: Sample) -> None:
    root = sample("tiny")
    assert kernelyard("config", "check", "--portable", root).returncode == 0
    edit(root / "build.toml", '"csrc/answer.cpp", "csrc/other.cpp"', '"csrc/*.cpp"')
    assert kernelyard("config", "check", root).returncode == 0
    done = kernelyard("config", "check", "--portable", cwd=root)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "kernelyard: build.toml:20:8: kernel.tiny_cpu.src[0]: the glob 'csrc/*.cpp' is an extension of Kernelyard "
        "[KY232]\n  list the files one by one\n  `kernelyard explain KY232` says more\n"
    )


def test_findings_as_json_have_every_part_of_their_own(kernelyard: Run, sample: Sample) -> None:
    root = sample("tiny")
    edit(root / "build.toml", '"csrc/answer.cpp"', '"csrc/anwser.cpp", "csrc/*.cc"')
    edit(root / "build.toml", '["cpu", "cuda"]', '["cpu", "cuda", "cuda"]')
    done = kernelyard("config", "check", "--json", cwd=root)
    assert (done.returncode, done.stderr) == (2, "")
    document = json.loads(done.stdout)
    assert (document["manifest"], document["edition"]) == ("build.toml", 5)
    assert document["extensions"] == [
        {"key": "kernel.tiny_cpu.src[1]", "what": "the glob 'csrc/*.cc' is an extension of Kernelyard"}
    ]
    findings = document["findings"]
    assert [(finding["severity"], finding["code"], finding["line"]) for finding in findings] == [
        ("warning", "KY226", 7),
        ("error", "KY208", 20),
        ("error", "KY208", 20),
    ]
    assert findings[1] == {
        "code": "KY208",
        "severity": "error",
        "path": "build.toml",
        "line": 20,
        "column": 8,
        "key": "kernel.tiny_cpu.src[0]",
        "what": "there is no file 'csrc/anwser.cpp'",
        "hint": "did you mean `answer.cpp`?",
    }


@pytest.mark.parametrize("text", [None, "a = "])
def test_json_is_printed_where_there_is_no_manifest_too(kernelyard: Run, tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "build.toml").write_text(text)
    done = kernelyard("config", "check", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "")
    document = json.loads(done.stdout)
    assert document["edition"] is None
    assert [finding["code"] for finding in document["findings"]] == ["KY200" if text is None else "KY201"]


# migrate


def test_migrate_shows_what_it_would_change(kernelyard: Run, old: Path) -> None:
    done = kernelyard("config", "migrate", "--license", "MIT", cwd=old)
    assert (done.returncode, done.stderr) == (0, "nothing was changed; with --write it is\n")
    assert done.stdout.splitlines() == [
        "--- a/build.toml",
        "+++ b/build.toml",
        "@@ -1,7 +1,10 @@",
        " # Mine.",
        " [general]",
        ' name = "gray"',
        "-universal = false # compiled",
        "+version = 1",
        "+edition = 5",
        '+license = "MIT"',
        '+backends = ["cpu"] # compiled',
        " ",
        " [torch]",
        " ",
    ]
    assert (old / "build.toml").read_text() == OLD


@pytest.mark.parametrize("option", ["--write", "--yes"])
def test_migrate_writes_when_it_is_told_to_and_then_has_nothing_to_do(kernelyard: Run, old: Path, option: str) -> None:
    done = kernelyard("config", "migrate", option, "--license", "MIT", cwd=old)
    assert (done.returncode, done.stderr) == (0, "build.toml was of edition 2 and is of edition 5 now\n")
    after = (old / "build.toml").read_text()
    assert after.startswith('# Mine.\n[general]\nname = "gray"\nversion = 1\nedition = 5\n')
    for more in ([], ["--check"], ["--write"]):
        done = kernelyard("config", "migrate", *more, cwd=old)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == "build.toml is of edition 5: nothing to do\n"
    assert (old / "build.toml").read_text() == after
    assert [path.name for path in old.iterdir()] == ["build.toml"]


def test_migrate_makes_a_patch_of_a_file_without_a_last_line_break(kernelyard: Run, old: Path) -> None:
    (old / "build.toml").write_bytes(OLD.rstrip("\n").replace("[torch]\n\n", "").encode() + b"\n[torch]")
    done = kernelyard("config", "migrate", "--license", "MIT", cwd=old)
    (old / "change.diff").write_text(done.stdout)
    subprocess.run(["git", "apply", "change.diff"], cwd=old, check=True)
    assert kernelyard("config", "migrate", "--check", cwd=old).returncode == 0


def test_migrate_check_ends_with_1_if_there_is_something_to_do(kernelyard: Run, old: Path) -> None:
    done = kernelyard("config", "migrate", "--check", "--write", "--license", "MIT", cwd=old)
    assert (done.returncode, done.stderr) == (1, "build.toml is of edition 2\n")
    assert (old / "build.toml").read_text() == OLD


def test_migrate_makes_up_no_license_and_migrates_no_mistake_away(kernelyard: Run, old: Path) -> None:
    done = kernelyard("config", "migrate", "--write", cwd=old)
    assert (done.returncode, done.stdout) == (2, "")
    assert "build.toml:2:2: general: no license is named" in done.stderr
    edit(old / "build.toml", "src =", "srcs =")
    done = kernelyard("config", "migrate", "--write", "--license", "MIT", cwd=old)
    assert (done.returncode, done.stdout) == (2, "")
    assert "build.toml:11:1: kernel.gray.srcs: unknown key `srcs` in [kernel.gray] [KY203]" in done.stderr
    assert (old / "build.toml").read_text() == OLD.replace("src =", "srcs =")


# schema


def test_schema_prints_the_schema(kernelyard: Run) -> None:
    done = kernelyard("config", "schema")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == manifest_schema()
