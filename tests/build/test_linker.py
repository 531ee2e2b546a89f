"""What a link says of names that nothing offers: by what linkers are known to print, and with a real one."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.linker import UndefinedName, translated, undefined_names
from kernelyard.build.project import BuiltVariant, build_project
from kernelyard.check import UnfitError
from kernelyard.errors import BuildError
from kernelyard.toolchain import torch_stubs
from kernelyard.toolchain.parts import PartSource

STABLE = "torch-stable-abi211-cpu-x86_64-linux"
OLD, NEW = "torch211-cxx11-cpu-x86_64-linux", "torch214-cxx11-cpu-x86_64-linux"
OBJECT = "CMakeFiles/kernel.a.dir/projects/gray/csrc/a.cpp.o"

Sample = Callable[[str], Path]


def said(*lines: str, variant: str = STABLE) -> list[str]:
    return [
        "[1/2] Building CXX object",
        f"FAILED: [code=1] variants/{variant}/extension.so ",
        f": && /usr/bin/g++ -o variants/{variant}/extension.so -Wl,-z,defs && :",
        *lines,
        "collect2: error: ld returned 1 exit status",
    ]


def test_each_name_is_read_once_with_the_object_that_refers_to_it_first() -> None:
    lines = said(
        f"/usr/bin/ld: {OBJECT}: in function `_Z1fv':",
        "a.cpp:(.text+0x4): undefined reference to `_ZN2at1gEv'",
        "/usr/bin/ld: a.cpp:(.text+0xc): undefined reference to `h'",
        "/usr/bin/ld: CMakeFiles/b.dir/b.cpp.o:(.data.rel.ro+0x10): undefined reference to `_ZTV1X'",
        "/usr/bin/ld: CMakeFiles/b.dir/b.cpp.o: in function `_Z1gv':",
        "b.cpp:(.text+0x4): undefined reference to `_ZN2at1gEv'",
    )
    assert undefined_names(lines) == (
        UndefinedName("_ZN2at1gEv", STABLE, OBJECT, None),
        UndefinedName("h", STABLE, OBJECT, None),
        UndefinedName("_ZTV1X", STABLE, "CMakeFiles/b.dir/b.cpp.o", None),
    )


def test_debug_information_tells_the_line() -> None:
    lines = said(f"/usr/bin/ld: {OBJECT}: in function `f':", "./csrc/a.cpp:12: undefined reference to `g'")
    assert undefined_names(lines) == (UndefinedName("g", STABLE, OBJECT, 12),)
    lines = said(f"/usr/bin/ld: {OBJECT}: in function `f':", "./csrc/a.h:12: undefined reference to `g'")
    assert undefined_names(lines) == (UndefinedName("g", STABLE, OBJECT, None),)


def test_names_are_those_of_the_variant_whose_link_failed() -> None:
    line = f"{OBJECT}:a.cpp:function f: error: undefined reference to `g'"  # as gold writes it
    lines = [*said(f"/usr/bin/ld.gold: {line}", variant=OLD), *said("b.o: undefined reference to `h'", variant=NEW)]
    assert [(found.name, found.variant, found.object) for found in undefined_names(lines)] == [
        ("g", OLD, OBJECT),
        ("h", NEW, None),
    ]


def test_other_failures_have_no_names() -> None:
    assert undefined_names(["FAILED: a.o", "a.cpp:1:1: error: undefined reference to `x'"]) == ()
    assert undefined_names(said("/usr/bin/ld: cannot find -lfoo: No such file")) == ()


def test_a_line_is_translated_for_its_reader() -> None:
    assert translated("multiple definition of `_ZN2at1gEv'; a.o") == "multiple definition of `at::g()'; a.o"


# With a real linker


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.fixture
def tiny(sample: Sample) -> Path:
    return sample("tiny")


@pytest.fixture
def full_abi(tiny: Path) -> Path:
    """The sample `tiny`, built for each torch."""
    edit(tiny / "build.toml", 'stable-abi = "2.11"\n', "")
    return tiny


def call(root: Path, declaration: str, expression: str) -> None:
    edit(
        root / "csrc" / "other.cpp",
        "int other() { return 21; }",
        f"{declaration}\nint other() {{ return {expression}; }}",
    )


def refused(root: Path, source: PartSource, variant: str) -> BuildError:
    with pytest.raises(BuildError) as caught:
        build_project(root, source=source, variants=[variant])
    assert caught.value.code == "KY417"
    assert str(caught.value.place) == str(root / "csrc" / "other.cpp")
    assert f"all of the linker's output: {root}/.kernelyard/cpu/build.log" in caught.value.hint
    return caught.value


@pytest.mark.compile
@pytest.mark.network
def test_an_operator_that_torch_does_not_have_fails_the_link(full_abi: Path, source: PartSource) -> None:
    call(full_abi, "namespace at { struct Tensor; int no_such(const Tensor*); }", "at::no_such(nullptr)")
    error = refused(full_abi, source, OLD)
    assert error.what == (
        "refers to `at::no_such(at::Tensor const*)` (_ZN2at7no_suchEPKNS_6TensorE), which torch 2.11.0 does not have: "
        "no other from 2.7.1 to 2.15.0 does"
    )


@pytest.mark.compile
@pytest.mark.network
def test_each_variant_is_linked_against_its_own_torch(full_abi: Path, source: PartSource) -> None:
    work = "namespace c10d { struct Work { int getTimeout() const; }; }"
    call(full_abi, work, "static_cast<c10d::Work*>(nullptr)->getTimeout()")
    error = refused(full_abi, source, OLD)
    assert "`c10d::Work::getTimeout() const`" in error.what
    assert error.what.endswith("which torch 2.11.0 does not have: it is new in torch 2.14")
    assert error.hint.startswith('set minver = "2.14" in [torch]')
    edit(full_abi / "build.toml", "[torch]\n", '[torch]\nminver = "2.14"\n')
    (built,) = build_project(full_abi, source=source, variants=[NEW])
    assert "_ZNK4c10d4Work10getTimeoutEv" in undefined(built)


@pytest.mark.compile
@pytest.mark.network
def test_a_function_newer_than_the_promised_torch_fails_the_link(tiny: Path, source: PartSource) -> None:
    name = "aoti_torch_cpu_grid_sampler_3d"
    call(tiny, f'extern "C" int {name}();', f"{name}()")
    error = refused(tiny, source, STABLE)
    assert error.what == f"uses {name}, which is in torch since 2.13, but promises to run on torch 2.11"
    assert error.hint.startswith('raise stable-abi to "2.13"')


@pytest.mark.compile
@pytest.mark.network
def test_all_names_that_are_missing_are_told(tiny: Path, source: PartSource) -> None:
    declared = "".join(f"int f{number}();" for number in range(10)) + 'extern "C" int PyType_GetName();'
    call(tiny, declared, "PyType_GetName() + " + " + ".join(f"f{number}()" for number in range(10)))
    first, *others, last = refused(tiny, source, STABLE).what.split("\n")
    place = tiny / "csrc" / "other.cpp"
    assert len([first, *others]) == 8
    assert all(other.startswith(f"  {place}: refers to `f") for other in others)
    assert first == "PyType_GetName is new in Python 3.11; builds promise 3.9"
    assert last == "  and 3 more"


@pytest.mark.compile
@pytest.mark.network
def test_openmp_is_the_one_that_comes_with_torch(tiny: Path, source: PartSource) -> None:
    edit(tiny / "build.toml", 'backend = "cpu"\n', 'backend = "cpu"\ncxx-flags = ["-fopenmp"]\n')
    text = """#include <omp.h>
int other() {
  int sum = 0;
#pragma omp parallel for schedule(runtime) reduction(+ : sum)
  for (int i = 0; i < omp_get_max_threads(); ++i) sum += i;
  return sum;
}
"""
    (tiny / "csrc" / "other.cpp").write_text(text)
    (built,) = build_project(tiny, source=source, variants=[STABLE])
    assert {"GOMP_parallel", "omp_get_max_threads"} <= undefined(built)
    assert [name for name in built.entry.facts.needed or () if "gomp" in name] == []

    (tiny / "csrc" / "other.cpp").write_text(text.replace("sum += i", "sum += omp_get_max_teams()"))
    error = refused(tiny, source, STABLE)
    assert error.what == "refers to omp_get_max_teams, which the OpenMP that comes with torch does not have"


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.torch
def test_openmp_is_found_in_torch_and_there_is_one_of_it(
    tiny: Path, source: PartSource, environment: dict[str, str]
) -> None:
    pytest.importorskip("torch")
    edit(tiny / "build.toml", 'backend = "cpu"\n', 'backend = "cpu"\ncxx-flags = ["-fopenmp"]\n')
    call(tiny, "#include <omp.h>", "omp_get_max_threads()")
    edit(tiny / "torch-ext" / "tiny" / "__init__.py", '"""A kernel', 'from . import _ops\n"""A kernel')
    (built,) = build_project(tiny, source=source, variants=[STABLE])
    code = (
        "import kernelyard\n"
        "kernel = kernelyard.get_local_kernel('.')\n"
        "files = {line.split()[-1] for line in open('/proc/self/maps') if 'libgomp' in line}\n"
        "print(kernel.__name__, len(files))\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tiny, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [built.entry.id, "1"], done.stderr


@pytest.mark.compile
@pytest.mark.network
def test_against_a_torch_that_no_table_knows_the_link_takes_everything(
    full_abi: Path, source: PartSource, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    call(full_abi, "namespace at { int no_such(); }", "at::no_such()")
    monkeypatch.setattr(torch_stubs, "load_exports", lambda *_, **__: None)
    with (
        caplog.at_level(logging.WARNING, logger="kernelyard.toolchain"),
        pytest.raises(UnfitError, match=r"refers to `at::no_such\(\)` .* \[KY118\]"),
    ):
        build_project(full_abi, source=source, variants=[OLD])
    assert any("what torch 2.11.0 on x86_64 exports is not known" in message for message in caplog.messages)


@pytest.mark.compile
@pytest.mark.network
def test_names_of_torch_are_checked_where_libraries_of_the_toolkit_are_linked(
    sample: Sample, source: PartSource
) -> None:
    root = sample("linked")
    text = (root / "csrc" / "libraries.cpp").read_text()
    missing = 'extern "C" int torch_no_such();\nnamespace at { int no_such(); }\n'
    (root / "csrc" / "libraries.cpp").write_text(
        f"{missing}{text}\nint more() {{ return at::no_such() + torch_no_such(); }}\n"
    )
    edit(root / "build.toml", 'stable-abi = "2.11"\n', "")
    with pytest.raises(UnfitError) as caught:
        build_project(root, source=source, variants=["torch211-*"], capabilities=["8.0"])
    assert [(finding.code, finding.what.partition(",")[0]) for finding in caught.value.findings] == [
        ("KY118", "refers to `at::no_such()` (_ZN2at7no_suchEv)"),
        ("KY118", "refers to torch_no_such"),
    ]


def undefined(built: BuiltVariant) -> set[str]:
    return set(built.entry.facts.undefined or ())
