"""What a build makes follows the content of the sources, not times, and metadata is held to what was made."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.project import build_project
from kernelyard.check import check_variant, gather
from kernelyard.errors import BuildError, InputError
from kernelyard.toolchain.parts import PartSource

CPU = "torch-stable-abi211-cpu-x86_64-linux"


@pytest.mark.compile
@pytest.mark.network
def test_a_file_that_replaces_another_and_is_older_than_its_object_is_compiled(
    sample: Callable[[str], Path], source: PartSource
) -> None:
    root = sample("tiny")
    (first,) = build_project(root, source=source, variants=["*-cpu-*"])
    objects = root / ".kernelyard" / "cpu" / "objects"
    before = {path: path.stat().st_mtime_ns for path in objects.rglob("other.cpp.o")}
    other = root / "csrc" / "other.cpp"
    text = other.read_text()
    assert "21" in text
    other.write_text(text.replace("21", "22"))
    os.utime(other, (0, 0))
    (second,) = build_project(root, source=source, variants=["*-cpu-*"])
    assert second.entry.id != first.entry.id
    assert len(before) == 1
    assert all(path.stat().st_mtime_ns > time for path, time in before.items())


@pytest.mark.compile
@pytest.mark.network
def test_a_header_beside_the_project_decides_of_id_and_object(
    sample: Callable[[str], Path], source: PartSource
) -> None:
    root = sample("tiny")
    header, other = root.parent / "beside.h", root / "csrc" / "other.cpp"
    header.write_text("#define OTHER 21\n")
    text = other.read_text()
    assert text.count("21") == 1
    other.write_text('#include "../../beside.h"\n' + text.replace("21", "OTHER"))
    (first,) = build_project(root, source=source, variants=["*-cpu-*"])
    header.write_text("#define OTHER 22\n")
    os.utime(header, (0, 0))
    (second,) = build_project(root, source=source, variants=["*-cpu-*"])
    assert second.entry.id != first.entry.id
    assert second.work.compiled == 2


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.parametrize("option", ["-I", "-isystem", "-include"])
def test_a_header_that_a_flag_leads_to_decides_of_id_and_object(
    sample: Callable[[str], Path], source: PartSource, option: str
) -> None:
    root = sample("tiny")
    header, other, manifest = root / "extra" / "value.h", root / "csrc" / "other.cpp", root / "build.toml"
    header.parent.mkdir()
    header.write_text("#define OTHER 21\n")
    text = other.read_text().replace("21", "OTHER")
    other.write_text(text if option == "-include" else f"#include <value.h>\n{text}")
    flag = f'"{option}", "{header}"' if option == "-include" else f'"{option}{header.parent}"'
    manifest.write_text(manifest.read_text().replace('backend = "cpu"\n', f'backend = "cpu"\ncxx-flags = [{flag}]\n'))
    (first,) = build_project(root, source=source, variants=["*-cpu-*"])
    header.write_text("#define OTHER 22\n")
    os.utime(header, (0, 0))
    (second,) = build_project(root, source=source, variants=["*-cpu-*"])
    assert second.entry.id != first.entry.id
    assert second.work.compiled == {"-include": 3}.get(option, 2)


@pytest.mark.compile
@pytest.mark.network
def test_a_header_that_the_compiler_alone_finds_has_to_be_listed(
    sample: Callable[[str], Path], source: PartSource
) -> None:
    root = sample("tiny")
    header, other, manifest = root / "csrc" / "value_2.h", root / "csrc" / "other.cpp", root / "build.toml"
    header.write_text("#define OTHER 21\n")
    text = other.read_text().replace("21", "OTHER")
    pasted = "#define TEXT(x) #x\n#define HEADER(n) TEXT(value_##n.h)\n#include HEADER(2)\n"
    other.write_text(pasted + text)
    with pytest.raises(BuildError, match=r"the compiler has read csrc/value_2\.h") as caught:
        build_project(root, source=source, variants=["*-cpu-*"])
    assert caught.value.code == "KY425"
    assert not (root / "build" / CPU).exists()
    manifest.write_text(manifest.read_text().replace('"csrc/other.cpp"', '"csrc/other.cpp", "csrc/value_2.h"'))
    (first,) = build_project(root, source=source, variants=["*-cpu-*"])
    header.write_text("#define OTHER 22\n")
    (second,) = build_project(root, source=source, variants=["*-cpu-*"])
    assert second.entry.id != first.entry.id
    assert second.work.compiled == 2


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.parametrize("changed", ["csrc/other.cpp", "torch-ext/tiny/__init__.py"])
def test_a_file_that_is_changed_while_it_is_built_is_in_no_build(
    sample: Callable[[str], Path],
    source: PartSource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: str,
) -> None:
    real = shutil.which("g++")
    if real is None:
        pytest.skip("there is no g++ here")
    root = sample("tiny")
    path, compiler, armed = root / changed, tmp_path / "g++", tmp_path / "armed"
    # In place, before the compiler reads it: an editor that saves.
    compiler.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *csrc/other.cpp) [ -e {armed} ] && rm {armed} && sed -i s/21/23/ {path};; esac\n'
        f'exec {real} "$@"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    if changed.endswith(".py"):
        path.write_text(path.read_text() + "\nNUMBER = 21\n")
    content = path.read_bytes()
    assert content.count(b"21") == 1
    armed.touch()
    with pytest.raises(BuildError) as caught:
        build_project(root, source=source, variants=["*-cpu-*"], cached=False)
    assert caught.value.code == "KY419"
    assert not (root / "build" / CPU).exists()
    assert not armed.exists()
    assert path.read_bytes() != content
    # Undone by a copy that was laid aside: the time is older than that of the object of the other state.
    path.write_bytes(content)
    os.utime(path, (0, 0))
    (again,) = build_project(root, source=source, variants=["*-cpu-*"], cached=False)
    shutil.rmtree(root / ".kernelyard")
    (undisturbed,) = build_project(root, source=source, variants=["*-cpu-*"], cached=False)
    assert again.entry == undisturbed.entry


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.parametrize(
    ("member", "key", "lie"),
    [("floors", "glibc", "2.2"), ("floors", "python", "2.7"), ("backend", "version", "12.0")],
)
def test_metadata_that_says_what_is_not_so_is_found(
    built_tiny: Path, tmp_path: Path, member: str, key: str, lie: str
) -> None:
    variant = tmp_path / CPU
    shutil.copytree(built_tiny / "build" / CPU, variant)
    metadata = json.loads((variant / "metadata.json").read_bytes())
    metadata["kernelyard"]["facts"][member][key] = lie
    (variant / "metadata.json").write_text(json.dumps(metadata))
    (found,) = check_variant(gather(variant))
    assert (found.code, found.where) == ("KY116", "metadata.json")
    assert lie in found.what


@pytest.mark.parametrize("sign", [";", ",", "%", ">", "${", "\n", "\r", "\x1b", "\udcff"])
def test_a_path_that_build_tools_misread_is_refused_before_they_see_it(
    sample: Callable[[str], Path], tmp_path: Path, source: PartSource, sign: str
) -> None:
    root = sample("tiny").rename(tmp_path / f"a{sign}b")
    with pytest.raises(InputError, match="which build tools take for a sign of theirs") as caught:
        build_project(root, source=source)
    assert caught.value.code == "KY403"
    assert not (root / ".kernelyard").exists()
