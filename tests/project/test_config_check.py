from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernelyard.errors import EnvironmentProblemError
from kernelyard.formats.tables import ManifestError
from kernelyard.project.config_check import ConfigReport, check_config
from kernelyard.project.manifest_file import replace_manifest
from kernelyard.project.named_files import matching_files
from kernelyard.project.sources import read_project

GENERAL = """\
[general]
name = "gray"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]
"""
TORCH = '[torch]\nsrc = ["torch-ext/binding.cpp"]\n'
CPU = '[kernel.gray_cpu]\nbackend = "cpu"\ndepends = []\nsrc = ["csrc/gray.cpp", "csrc/gray.h"]\n'
LEAST = GENERAL + TORCH + CPU
CUDA = '[kernel.gray_cuda]\nbackend = "cuda"\ndepends = []\nsrc = ["csrc/gray.cu"]\n'
BOTH = LEAST.replace('["cpu"]', '["cpu", "cuda"]') + CUDA


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "torch-ext/binding.cpp": "#include <torch/all.h>\n",
        "torch-ext/gray/__init__.py": "",
        "csrc/gray.cpp": '#include "gray.h"\n',
        "csrc/gray.cu": '#include "gray.h"\n',
        "csrc/gray.h": "#pragma once\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def check(root: Path, text: str, *, portable: bool = False) -> ConfigReport:
    (root / "build.toml").write_text(text)
    return check_config(root, portable=portable)


def found(root: Path, text: str, *, portable: bool = False) -> list[tuple[str, str, str, str, str]]:
    """Return severity, code, line:column with key, what and hint of each finding."""
    return [
        (
            problem.severity,
            problem.code,
            f"{place.line}:{place.column}: {place.key}",
            problem.what.replace(str(root), ""),
            problem.hint,
        )
        for problem, place in check(root, text, portable=portable).findings
    ]


def test_nothing_is_found_where_nothing_is_wrong(project: Path) -> None:
    assert found(project, LEAST) == []
    assert found(project, BOTH, portable=True) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Files
        (
            LEAST.replace("gray.cpp", "grey.cpp"),
            (
                "error",
                "KY208",
                "12:8: kernel.gray_cpu.src[0]",
                "there is no file 'csrc/grey.cpp'",
                "did you mean `gray.cpp`?",
            ),
        ),
        (
            LEAST.replace("gray.cpp", "**/*.cxx"),
            (
                "error",
                "KY208",
                "12:8: kernel.gray_cpu.src[0]",
                "no file matches 'csrc/**/*.cxx'",
                "`**` stands for any number of folders",
            ),
        ),
        (
            LEAST + 'include = ["include"]\n',
            (
                "warning",
                "KY208",
                "13:12: kernel.gray_cpu.include[0]",
                "there is no folder 'include'",
                "paths start at the project",
            ),
        ),
        (
            LEAST.replace("csrc/gray.cpp", "../gray.cpp"),
            (
                "error",
                "KY209",
                "12:8: kernel.gray_cpu.src[0]",
                "a path that leaves the project: '../gray.cpp'",
                "use a path inside it",
            ),
        ),
        (
            LEAST.replace('"gray"', '"grey"'),
            (
                "error",
                "KY208",
                "2:1: general.name",
                "there is no file 'torch-ext/grey/__init__.py'",
                "a kernel is a Python package",
            ),
        ),
        (
            LEAST.replace(', "csrc/gray.h"', ""),
            (
                "warning",
                "KY229",
                "12:8: kernel.gray_cpu.src[0]",
                "csrc/gray.cpp includes csrc/gray.h, which is not listed",
                "list it in `src`: other tools see no file that is not listed",
            ),
        ),
        # Lists
        (
            LEAST.replace('["cpu"]', '["cpu", "cpu"]'),
            ("warning", "KY226", "6:20: general.backends[1]", "'cpu' is listed twice", "take it out"),
        ),
        (
            LEAST.replace('"csrc/gray.h"', '"csrc/gray.h", "csrc/gray.h"'),
            ("warning", "KY226", "12:40: kernel.gray_cpu.src[2]", "'csrc/gray.h' is listed twice", "take it out"),
        ),
        (
            BOTH + 'cuda-capabilities = ["9.0", "9.0"]\n',
            (
                "warning",
                "KY226",
                "17:29: kernel.gray_cuda.cuda-capabilities[1]",
                "'9.0' is listed twice",
                "take it out",
            ),
        ),
        (
            BOTH + "cuda-capabilities = []\n",
            (
                "warning",
                "KY227",
                "17:1: kernel.gray_cuda.cuda-capabilities",
                "`cuda-capabilities` is empty",
                "an empty list is read as none, which means all; take it out",
            ),
        ),
        (
            BOTH.replace('["csrc/gray.cu"]', "[]"),
            (
                "warning",
                "KY227",
                "16:1: kernel.gray_cuda.src",
                "`src` is empty",
                "nothing is compiled; name the sources or take the section out",
            ),
        ),
        (
            LEAST.replace('["cpu"]', "[]"),
            (
                "error",
                "KY206",
                "6:1: general.backends",
                "at least one backend is needed",
                'for example backends = ["cuda", "cpu"]',
            ),
        ),
        # Backends and sections
        (
            LEAST.replace('["cpu"]', '["cpu", "xpu"]'),
            (
                "error",
                "KY221",
                "6:20: general.backends[1]",
                "the backend 'xpu' has no [kernel.*] section",
                'add a section with backend = "xpu", or take it out',
            ),
        ),
        (
            LEAST.replace('["cpu"]', '["cpu", "tpu"]'),
            (
                "error",
                "KY221",
                "6:20: general.backends[1]",
                "sources are not compiled for the backend 'tpu'",
                "such a kernel has [torch-noarch]",
            ),
        ),
        (
            LEAST + CUDA,
            (
                "warning",
                "KY230",
                "14:1: kernel.gray_cuda.backend",
                "never compiled: general.backends does not list 'cuda'",
                'add "cuda"',
            ),
        ),
        (
            GENERAL + "[torch-noarch]\n" + CPU,
            (
                "error",
                "KY228",
                "8:9: kernel.gray_cpu",
                "a section of sources, but [torch-noarch] says that nothing is compiled",
                "write [torch] in place of [torch-noarch], or take the section out",
            ),
        ),
        # Capabilities
        (
            BOTH + 'cuda-capabilities = ["9.0", "99999.0"]\n',
            (
                "error",
                "KY222",
                "17:29: kernel.gray_cuda.cuda-capabilities[1]",
                "no supported CUDA toolkit compiles for capability 99999.0",
                "did you mean 9.0?",
            ),
        ),
        (
            BOTH + 'cuda-capabilities = ["banana"]\n',
            (
                "error",
                "KY222",
                "17:22: kernel.gray_cuda.cuda-capabilities[0]",
                "not a CUDA capability: 'banana'",
                'such as "9.0", "9.0a", "12.0+PTX"',
            ),
        ),
        (
            GENERAL + '[torch-noarch]\ncuda_capabilities = ["sm_90"]\n',
            (
                "error",
                "KY222",
                "8:22: torch-noarch.cuda_capabilities[0]",
                "not a CUDA capability: 'sm_90'",
                "did you mean 9.0?",
            ),
        ),
        (
            BOTH.replace("cuda", "rocm") + 'rocm-archs = ["gfx90a", "gfx99999"]\n',
            (
                "error",
                "KY222",
                "17:25: kernel.gray_rocm.rocm-archs[1]",
                "no ROCm architecture: 'gfx99999'",
                "did you mean gfx950?",
            ),
        ),
        (
            BOTH.replace("cuda", "rocm") + 'rocm-archs = ["gfx940"]\n',
            (
                "warning",
                "KY222",
                "17:15: kernel.gray_rocm.rocm-archs[0]",
                "left out: no supported ROCm compiles for gfx940",
                "take it out",
            ),
        ),
        # Versions
        (
            LEAST.replace("[torch]", '[torch]\nstable-abi = "3.0"'),
            ("error", "KY224", "8:1: torch.stable-abi", "no torch 3.0 with a stable ABI is known", None),
        ),
        (
            LEAST.replace("[torch]", '[torch]\nstable-abi = { cpu = "2.11", cuda = "2.1" }'),
            ("error", "KY224", "8:30: torch.stable-abi.cuda", "no torch 2.1 with a stable ABI is known", None),
        ),
        (
            LEAST.replace("[torch]", '[torch]\nstable-abi = { cpu = "2.11", cuda = "2.11" }'),
            (
                "warning",
                "KY230",
                "8:30: torch.stable-abi.cuda",
                "without effect: general.backends does not list 'cuda'",
                'add "cuda"',
            ),
        ),
        (
            LEAST.replace("[torch]", '[torch]\nminver = "2.12"\nmaxver = "2.11"'),
            ("error", "KY206", "9:1: torch.maxver", "no version is from 2.12 up to 2.11", "swap `minver` and `maxver`"),
        ),
        (
            LEAST.replace("[torch]", '[general.cuda]\nminver = "13.0"\nmaxver = "12"\n[torch]'),
            (
                "error",
                "KY206",
                "9:1: general.cuda.maxver",
                "no version is from 13.0 up to 12",
                "swap `minver` and `maxver`",
            ),
        ),
        # Names
        (
            LEAST.replace('"MIT"', '" "'),
            (
                "error",
                "KY206",
                "5:1: general.license",
                "the license is empty",
                'an SPDX identifier such as "Apache-2.0", or "other"',
            ),
        ),
        (
            LEAST.replace("[torch]", 'python-depends = ["einop"]\n[torch]'),
            (
                "warning",
                "KY234",
                "7:19: general.python-depends[0]",
                "no well-known package: 'einop'",
                "did you mean `einops`?",
            ),
        ),
        (
            LEAST.replace("[torch]", 'python-depends = ["nki"]\n[torch]'),
            (
                "warning",
                "KY234",
                "7:19: general.python-depends[0]",
                "other tools know 'nki' in [general.neuron] only",
                "move it to [general.neuron]",
            ),
        ),
        (
            LEAST.replace("kernel.gray_cpu", 'kernel."a;b"'),
            (
                "error",
                "KY206",
                "9:9: kernel.a;b",
                "not a name for a section: 'a;b'",
                "use letters, digits, `_` and `-`",
            ),
        ),
        # Editions
        (
            LEAST.replace("edition = 5\n", ""),
            (
                "warning",
                "KY231",
                "1:2: general",
                "the manifest is of edition 4: it has `version`, `license` and no `edition`",
                "`kernelyard config migrate` brings it to edition 5 and keeps comments",
            ),
        ),
        (
            LEAST.replace('edition = 5\nlicense = "MIT"\n', ""),
            (
                "error",
                "KY204",
                "1:2: general",
                "the key `license` is missing in [general]; edition 3 may leave it out, a build may not",
                'run `kernelyard config migrate --license "Apache-2.0"`',
            ),
        ),
    ],
)
def test_a_fault_is_told_with_severity_code_place_and_next_step(
    project: Path, text: str, expected: tuple[str, str, str, str, str | None]
) -> None:
    all_found = found(project, text)
    if expected[-1] is None:
        assert expected[:-1] in [finding[:-1] for finding in all_found]
    else:
        assert expected in all_found
    assert [finding for finding in all_found if finding[1] not in {expected[1], "KY231"}] == []


def test_everything_is_told_at_once_in_the_order_of_the_file(project: Path) -> None:
    text = (
        LEAST.replace('["cpu"]', '["cpu", "cpu"]')
        .replace("[torch]", '[torch]\nmaxver = "2.1"\nminver = "2.2"\nincude = []')
        .replace("gray.cpp", "grey.cpp")
        .replace("depends = []", 'depends = ["torhc"]')
    )
    assert [(severity, code, place) for severity, code, place, _, _ in found(project, text)] == [
        ("warning", "KY226", "6:20: general.backends[1]"),
        ("error", "KY206", "8:1: torch.maxver"),
        ("error", "KY203", "10:1: torch.incude"),
        ("error", "KY206", "14:12: kernel.gray_cpu.depends[0]"),
        ("error", "KY208", "15:8: kernel.gray_cpu.src[0]"),
    ]


def test_portable_refuses_what_only_kernelyard_understands(project: Path) -> None:
    text = (
        BOTH.replace(', "csrc/gray.h"', "").replace("[torch]", 'python-depends = ["einops>=0.8"]\n[torch]', 1)
        + 'lineinfo = true\nwhen = { cuda = ">=12.8" }\ninclude = ["c*"]\n'
    )
    assert [finding[:2] for finding in found(project, text)] == [("warning", "KY229")]
    assert [(severity, code, place) for severity, code, place, _, _ in found(project, text, portable=True)] == [
        ("error", "KY232", "7:19: general.python-depends[0]"),
        ("error", "KY229", "13:8: kernel.gray_cpu.src[0]"),
        ("error", "KY232", "18:1: kernel.gray_cuda.lineinfo"),
        ("error", "KY232", "19:1: kernel.gray_cuda.when"),
        ("error", "KY232", "20:12: kernel.gray_cuda.include[0]"),
    ]


def test_other_tools_build_edition_4_and_5_only(project: Path) -> None:
    fourth = LEAST.replace("edition = 5\n", "")
    assert [finding[:2] for finding in found(project, fourth, portable=True)] == [("warning", "KY231")]
    third = fourth.replace("version = 1\n", "")
    assert [finding[:2] for finding in found(project, third, portable=True)] == [("error", "KY231")]


def test_capabilities_that_only_older_toolkits_know_are_no_fault(project: Path) -> None:
    assert found(project, BOTH + 'cuda-capabilities = ["7.0", "9.0a", "10.0f", "12.1+PTX"]\n') == []


def test_globs_stand_for_files(project: Path) -> None:
    (project / "csrc" / "more").mkdir()
    (project / "csrc" / "more" / "b.cpp").write_text('#include "c.h"\n')
    (project / "csrc" / "more" / "c.h").touch()
    (project / "build" / "x").mkdir(parents=True)
    (project / "build" / "x" / "d.cpp").touch()
    assert matching_files(project, "csrc/**/*.cpp") == ("csrc/gray.cpp", "csrc/more/b.cpp")
    assert matching_files(project, "**/*.cpp") == ("csrc/gray.cpp", "csrc/more/b.cpp", "torch-ext/binding.cpp")
    assert matching_files(project, "csrc/more/**") == ("csrc/more/b.cpp", "csrc/more/c.h")
    assert matching_files(project, "csrc/gray.cu") == ("csrc/gray.cu",)
    text = LEAST.replace("csrc/gray.cpp", "csrc/**/*.cpp")
    assert [what for _, _, _, what, _ in found(project, text)] == [
        "csrc/**/*.cpp includes csrc/more/c.h, which is not listed"
    ]
    assert found(project, text.replace('"csrc/**/*.cpp"', '"csrc/**/*.cpp", "csrc/more/*.h"')) == []


def test_what_a_step_writes_need_not_be_there(project: Path) -> None:
    text = LEAST.replace("csrc/gray.cpp", "csrc/made.cpp")
    step = 'generate = { command = ["python", "make.py"], outputs = ["csrc/made.cpp"] }\n'
    assert [finding[1] for finding in found(project, text)] == ["KY208"]
    assert found(project, text + step) == []
    (project / "build.toml").write_text(text + step)
    assert read_project(project).manifest.kernels[0].generate[0].outputs == ("csrc/made.cpp",)


def test_a_header_that_the_build_writes_need_not_be_listed(project: Path) -> None:
    (project / "torch-ext" / "binding.cpp").write_text('#include "registration.h"\n')
    (project / "torch-ext" / "registration.h").touch()
    assert found(project, LEAST) == []


def test_a_header_is_told_once_where_it_is_first_included(project: Path) -> None:
    for name in ("gray.cpp", "gray.cu"):
        (project / "csrc" / name).write_text('#include "outer.h"\n')
    (project / "csrc" / "outer.h").write_text("#include <inner.h>\n")
    (project / "csrc" / "inner.h").touch()
    text = BOTH.replace("depends = []", 'depends = []\ninclude = ["csrc"]')
    assert [(place, what) for _, _, place, what, _ in found(project, text)] == [
        ("13:8: kernel.gray_cpu.src[0]", "csrc/gray.cpp includes csrc/inner.h, which is not listed"),
        ("13:8: kernel.gray_cpu.src[0]", "csrc/gray.cpp includes csrc/outer.h, which is not listed"),
    ]


@pytest.mark.skipif(os.name == "nt", reason="making links needs a privilege there")
def test_a_link_out_of_the_project_is_refused(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "gray.cpp"
    outside.touch()
    (project / "csrc" / "gray.cpp").unlink()
    (project / "csrc" / "gray.cpp").symlink_to(outside)
    assert [finding[1:4] for finding in found(project, LEAST)] == [
        ("KY209", "12:8: kernel.gray_cpu.src[0]", "a link that leaves the project: 'csrc/gray.cpp'")
    ]


def test_without_a_manifest_there_is_nothing_to_check(tmp_path: Path) -> None:
    for text, code in ((None, "KY200"), (b"a = ", "KY201"), (b"\xff", "KY201")):
        if text is not None:
            (tmp_path / "build.toml").write_bytes(text)
        with pytest.raises(ManifestError) as caught:
            check_config(tmp_path)
        assert caught.value.code == code


def test_a_report_raises_its_errors_only(project: Path) -> None:
    check(project, LEAST + CUDA).raise_errors()
    report = check(project, LEAST.replace("gray.cpp", "grey.cpp"))
    with pytest.raises(ManifestError) as caught:
        report.raise_errors()
    assert [error.code for error in caught.value.errors] == ["KY208"]
    assert check(project, "[general]\n").manifest is None


def test_a_project_without_license_is_not_built(project: Path) -> None:
    (project / "build.toml").write_text(LEAST.replace('edition = 5\nlicense = "MIT"\n', ""))
    with pytest.raises(ManifestError) as caught:
        read_project(project)
    assert caught.value.code == "KY204"


def test_a_manifest_is_replaced_as_a_whole_with_its_permissions(project: Path, tmp_path: Path) -> None:
    path = project / "build.toml"
    path.write_text(LEAST)
    path.chmod(0o640)
    replace_manifest(project, "größer\r\n")
    assert path.read_bytes() == "größer\r\n".encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [file.name for file in project.iterdir() if file.name.startswith(".build")] == []
    link = tmp_path / "linked"
    link.mkdir()
    (link / "build.toml").symlink_to(path)
    replace_manifest(link, "x")
    assert (link / "build.toml").is_symlink()
    assert path.read_text() == "x"


def test_a_manifest_that_cannot_be_written_stays(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblemError) as caught:
        replace_manifest(tmp_path / "nowhere", "x")
    assert (caught.value.code, caught.value.what) == ("KY237", "cannot be written: No such file or directory")
    with pytest.raises(EnvironmentProblemError):
        replace_manifest(tmp_path, "x")  # there is none whose permissions it could have
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "backend"), [("sycl_tla", "xpu"), ("metal-cpp", "metal")])
def test_a_library_of_another_backend_is_told_at_its_place(project: Path, name: str, backend: str) -> None:
    text = LEAST.replace("depends = []", f'depends = ["torch", "{name}"]')
    assert found(project, text) == [
        (
            "error",
            "KY238",
            "11:21: kernel.gray_cpu.depends[1]",
            f"{name} is a library for {backend}, and this section is for cpu",
            "take it out",
        )
    ]
