"""The real command: what it prints where, and with which status it ends."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard import __version__

CPU = "torch-stable-abi211-cpu-x86_64-linux"
CUDA = "torch-stable-abi211-cu130-x86_64-linux"

PAGES = Path(__file__).resolve().parents[2] / "src" / "kernelyard" / "codes"

Run = Callable[..., subprocess.CompletedProcess[str]]
Sample = Callable[[str], Path]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def imported(*arguments: str) -> set[str]:
    """Return the modules that the command imports."""
    program = (
        "import sys, atexit; from kernelyard.cli import main; sys.argv = ['kernelyard', *sys.argv[1:]];"
        "atexit.register(lambda: print('\\n'.join(sys.modules), file=sys.stderr)); main()"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines())


@pytest.fixture
def built(built_tiny: Path, tmp_path: Path) -> Path:
    return shutil.copytree(built_tiny, tmp_path / "tiny", ignore=shutil.ignore_patterns(".kernelyard"))


# Help


@pytest.mark.parametrize("option", ["--help", "-h", "--version"])
def test_asking_for_help_costs_little(option: str) -> None:
    modules = imported(option)
    assert "click" in modules
    rooms = {name for name in modules if name.startswith("kernelyard.")}
    assert rooms == {"kernelyard.cli", "kernelyard.cli.output", "kernelyard.errors"}
    assert not modules & {"requests", "torch", "tomli", "numpy", "packaging", "platformdirs", "filelock", "abi3info"}


def test_the_help_of_a_command_imports_that_command_only() -> None:
    modules = imported("build", "--help")
    assert {name for name in modules if name.startswith("kernelyard.cli.")} == {
        "kernelyard.cli.build",
        "kernelyard.cli.output",
        "kernelyard.cli.selectors",
    }
    assert not modules & {"kernelyard.build", "kernelyard.toolchain", "requests"}


def test_help_lists_every_command(kernelyard: Run) -> None:
    done = kernelyard("--help")
    assert done.returncode == 0
    assert done.stderr == ""
    for name in ("build", "check", "config", "demo", "explain", "get", "push", "variants"):
        assert f"\n  {name} " in done.stdout
        assert kernelyard(name, "--help").returncode == 0


def test_the_version_is_told(kernelyard: Run) -> None:
    assert kernelyard("--version").stdout == f"kernelyard, version {__version__}\n"


# Usage


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["biuld"], "No such command 'biuld'. Did you mean 'build'?"),
        (["zzz"], "No such command 'zzz'."),
        (["build", "--varaint", "x"], "No such option"),
        (["build", "--jobs", "0"], "Invalid value for '--jobs'"),
        (["config", "shwo"], "No such command 'shwo'."),
    ],
)
def test_bad_usage_ends_with_2(kernelyard: Run, arguments: list[str], said: str) -> None:
    done = kernelyard(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert "Traceback" not in done.stderr


# explain


def test_explain_prints_the_page_of_a_code(kernelyard: Run) -> None:
    done = kernelyard("explain", "KY203")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# ")
    assert kernelyard("explain", "ky203").stdout == done.stdout


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("KY999", "there is no code 'KY999' [KY001]"),
        ("KY203.md", "neither a code nor a kernel: 'KY203.md' [KY001]"),
        ("", "neither a code nor a kernel: '' [KY001]"),
    ],
)
def test_explain_knows_no_other_codes(kernelyard: Run, code: str, said: str) -> None:
    done = kernelyard("explain", code)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == f"kernelyard: {said}"


def test_explain_takes_what_looks_like_a_path_for_a_folder(kernelyard: Run, tmp_path: Path) -> None:
    done = kernelyard("explain", "../errors", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no such folder [KY607]" in done.stderr


def test_explain_without_a_code_lists_them_all_with_their_titles(kernelyard: Run) -> None:
    done = kernelyard("explain")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line[:5] for line in lines] == sorted(path.stem for path in PAGES.glob("KY*.md"))
    assert lines[0] == "KY001  There is no such code"
    assert all(line[5:7] == "  " and line[7:].strip() for line in lines)


def test_explain_takes_several_codes_or_prints_nothing(kernelyard: Run) -> None:
    both = kernelyard("explain", "KY203", "KY411")
    assert both.returncode == 0
    assert both.stdout == f"{kernelyard('explain', 'KY203').stdout}\n{kernelyard('explain', 'KY411').stdout}"
    done = kernelyard("explain", "KY203", "KY998")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no code 'KY998'" in done.stderr


# config, variants


def test_config_check_says_what_the_manifest_is_or_what_is_wrong(kernelyard: Run, sample: Sample) -> None:
    root = sample("tiny")
    done = kernelyard("config", "check", root)
    assert (done.returncode, done.stdout) == (0, f"{root}/build.toml: tiny version 1, cpu, cuda\n")
    edit(root / "build.toml", "license", "licence")
    edit(root / "build.toml", '"csrc/answer.cu"', "7")
    done = kernelyard("config", "check", cwd=root)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "kernelyard: build.toml:2:2: general: the key `license` is missing in [general] [KY204]",
        "  add `license = ...`",
        "build.toml:6:1: general.licence: unknown key `licence` in [general] [KY203]",
        "  did you mean `license`?",
        "build.toml:27:8: kernel.tiny_cuda.src[0]: expected a string, found an integer (7) [KY205]",
        "  `kernelyard explain KY203 KY204 KY205` says more",
    ]


def test_config_show_prints_the_plan_as_json(kernelyard: Run, sample: Sample) -> None:
    done = kernelyard("config", "show", sample("tiny"), "--variant", "*-cu130-*", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    (plan,) = json.loads(done.stdout)
    assert plan["name"] == CUDA
    assert plan["groups"][0]["capabilities"] == ["7.5", "9.0a", "12.1+PTX"]
    assert plan["binding"]["sources"] == ["torch-ext/binding.cpp"]


def test_config_show_says_what_each_source_is_compiled_with(kernelyard: Run, sample: Sample) -> None:
    done = kernelyard("config", "show", sample("img2gray"), "--variant", "*-cu130-*")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        CUDA,
        "  torch-stable-abi, headers of torch 2.11, for torch 2.11 and newer",
        "  [binding]",
        "    defines: CUDA_KERNEL USE_CUDA=1 Py_LIMITED_API=0x03090000 TORCH_TARGET_VERSION=0x020b000000000000",
        "    include: csrc",
        "    torch-ext/torch_binding.cpp",
        "  [kernel.img2gray_cuda], without torch: compiled once for all variants",
        "    defines: CUDA_KERNEL USE_CUDA=1",
        "    include: csrc",
        "    cxx-flags: -ffp-contract=off",
        "    csrc/img2gray.cu  for 7.5 8.0 8.6 8.7 8.8 8.9 9.0 10.0 10.3 11.0 12.0 12.1+PTX",
        "    csrc/img2gray_cpu.cpp",
    ]
    nothing = kernelyard("config", "show", sample("lookup"), "--variant", "torch-rocm")
    assert nothing.stdout.splitlines() == [
        "torch-rocm",
        "  torch-noarch, nothing is compiled",
        "  promises: gfx942",
        "  gfx940 is left out: ROCm 7 does not compile for it",
    ]


def test_a_folder_without_a_manifest_ends_with_2(kernelyard: Run, tmp_path: Path) -> None:
    for command in (["config", "check"], ["config", "show"], ["variants"], ["build"], ["push", "--hub", "hub"]):
        done = kernelyard(*command, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("kernelyard: build.toml:1:1: there is no build.toml [KY200]\n")


# build, check, push


@pytest.mark.compile
@pytest.mark.network
def test_build_tells_progress_on_stderr_and_results_on_stdout(kernelyard: Run, sample: Sample) -> None:
    root = sample("tiny")
    done = kernelyard("build", "tiny", "--variant", CPU, "--jobs", "2", cwd=root.parent)
    assert done.returncode == 0, done.stderr
    head, row = done.stdout.splitlines()
    assert head.split() == ["variant", "size", "compilers", "objects", "cached", "sha256"]
    assert row.split()[0] == CPU
    assert "configuring cpu\n" in done.stderr
    assert f"[5/5] linking {CPU}\n" in done.stderr
    assert f"checked {CPU}: " in done.stderr
    done = kernelyard("build", "tiny", "--variant", CPU, "--json", cwd=root.parent)
    (result,) = json.loads(done.stdout)
    assert result.keys() == {"variant", "path", "id", "digest", "size", "compiled", "cached", "seconds"}
    assert result["variant"] == CPU
    assert result["path"] == str(root / "build" / CPU)
    assert result["id"] == json.loads((root / "build" / CPU / "metadata.json").read_bytes())["id"]
    assert result["digest"][:12] == row.split()[-1]
    assert result["size"] == sum(path.stat().st_size for path in (root / "build" / CPU).iterdir())


def test_build_says_what_it_decided_and_what_it_removed(kernelyard: Run, sample: Sample) -> None:
    root = sample("lookup")
    done = kernelyard("build", root)
    assert done.returncode == 0, done.stderr
    assert "torch-rocm: gfx940 is left out: ROCm 7 does not compile for it\n" in done.stderr
    assert "removing" not in done.stderr
    edit(root / "build.toml", '["cpu", "cuda", "rocm"]', '["cpu", "cuda"]')
    done = kernelyard("build", root)
    assert done.returncode == 0, done.stderr
    assert "removing build/torch-rocm: it is no longer a variant of this kernel\n" in done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["variant", "torch-cpu", "torch-cuda"]


@pytest.mark.parametrize("capability", ["sm_90", "9", "9.0x", ""])
def test_build_refuses_what_is_no_capability(kernelyard: Run, sample: Sample, capability: str) -> None:
    done = kernelyard("build", sample("tiny"), "--capability", capability)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"not a CUDA capability: {capability!r} [KY222]\n  for example --capability 9.0" in done.stderr


def test_config_show_tells_the_decisions(kernelyard: Run, sample: Sample) -> None:
    root = sample("tiny")
    edit(root / "build.toml", '"7.5"', '"5.2"')
    (plan,) = json.loads(kernelyard("config", "show", root, "--variant", CUDA, "--json").stdout)
    assert plan["decisions"] == ["[kernel.tiny_cuda] 5.2 is left out: CUDA 13.0 does not compile for it"]
    assert plan["groups"][0]["capabilities"] == ["9.0a", "12.1+PTX"]


@pytest.mark.compile
@pytest.mark.network
def test_check_says_what_is_fit_and_what_is_not(kernelyard: Run, built: Path) -> None:
    variant = built / "build" / CPU
    for path in (built, built / "build", variant):
        done = kernelyard("check", path)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{CPU}: fit\n", "")
    done = kernelyard("check", "--json", built)
    assert json.loads(done.stdout) == {"variants": {CPU: []}, "torch-releases": {}, "unreadable": {}}

    (variant / "more.py").touch()
    (built / "build" / CUDA).mkdir()
    done = kernelyard("check", built)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"{CPU}: 1 finding",
        "  more.py: is there, but the digest does not name it [KY113]",
        f"{CUDA}: cannot be read: It has no metadata.json, so it is half-made or of a build that is too old.",
    ]
    done = kernelyard("check", "--json", built)
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["variants"] == {
        CPU: [{"code": "KY113", "where": "more.py", "what": "is there, but the digest does not name it", "hint": ""}]
    }
    assert list(document["unreadable"]) == [CUDA]


@pytest.mark.compile
@pytest.mark.network
def test_check_says_which_torch_a_build_of_the_full_abi_finds_its_names_in(kernelyard: Run, sample: Sample) -> None:
    root = sample("tiny")
    variant = "torch214-cxx11-cpu-x86_64-linux"
    edit(root / "build.toml", 'stable-abi = "2.11"\n', "")
    # c10d::Work::getTimeout() is new in torch 2.14.
    work = "namespace c10d { struct Work { int getTimeout() const; }; }\n"
    edit(
        root / "csrc" / "other.cpp",
        "int other() { return 21; }",
        f"{work}int other() {{ return c10d::Work().getTimeout(); }}",
    )
    done = kernelyard("build", root, "--variant", variant)
    assert done.returncode == 0, done.stderr
    done = kernelyard("check", root)
    assert done.stdout == f"{variant}: fit\n  torch has all its names in 2.14.1, 2.15.0\n"
    done = kernelyard("check", "--json", root)
    assert json.loads(done.stdout)["torch-releases"] == {variant: ["2.14.1", "2.15.0"]}


def test_check_of_nothing_ends_with_1(kernelyard: Run, tmp_path: Path) -> None:
    done = kernelyard("check", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"kernelyard: {tmp_path}: there is no variant [KY120]\n")


@pytest.mark.compile
@pytest.mark.network
def test_push_says_what_it_published_where(kernelyard: Run, built: Path, tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    done = kernelyard("push", built, "--hub", hub)
    assert done.returncode == 0, done.stderr
    said, variant = done.stdout.splitlines()
    assert said.startswith("test/tiny v1 is now ")
    assert variant == f"  {CPU}"
    document = json.loads(kernelyard("push", built, "--json", env={"KERNELYARD_HUB": hub.as_uri()}).stdout)
    assert (document["repo"], document["branch"], document["variants"]) == ("test/tiny", "v1", [CPU])
    assert (document["release"], document["kept"], document["changed"], document["sent"]) == (None, [], False, 0)
    assert said.startswith(f"test/tiny v1 is now {document['revision'][:12]}: ")
    assert (hub / "kernels" / "test" / "tiny" / "revisions" / document["revision"] / "index.json").is_file()


@pytest.mark.compile
@pytest.mark.network
def test_push_refuses_with_1(kernelyard: Run, built: Path, tmp_path: Path) -> None:
    (built / "build" / CPU / "more.py").touch()
    done = kernelyard("push", built, "--hub", tmp_path / "hub")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{CPU}/more.py: is there, but the digest does not name it [KY113]" in done.stderr
    assert "`kernelyard explain KY421` says more" in done.stderr
    shutil.rmtree(built / "build")
    done = kernelyard("push", built, "--hub", tmp_path / "hub")
    assert done.returncode == 1
    assert "nothing has been built [KY522]\n  run `kernelyard build` first" in done.stderr


@pytest.mark.compile
@pytest.mark.network
def test_push_of_edited_sources_ends_with_1_and_says_what_to_run(kernelyard: Run, built: Path, tmp_path: Path) -> None:
    edit(built / "csrc" / "other.cpp", "21", "22")
    done = kernelyard("push", built, "--hub", tmp_path / "hub")
    assert (done.returncode, done.stdout) == (1, "")
    what = "this variant was not built from the sources, flags and capabilities as they are now"
    assert done.stderr.splitlines() == [
        f"kernelyard: {built}/build/{CPU}: {what} [KY524]",
        "  build the project again, or remove the variant's folder",
        "  `kernelyard explain KY524` says more",
    ]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--hub", "hub", "--create-pr"], "KY506"), (["--hub", "https://example.org/hub"], "KY509")],
)
def test_push_says_what_a_hub_cannot_do(kernelyard: Run, sample: Sample, arguments: list[str], code: str) -> None:
    done = kernelyard("push", sample("tiny"), *arguments)
    assert done.returncode == 2
    assert f"[{code}]" in done.stderr


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.torch
def test_get_loads_what_push_published(kernelyard: Run, built: Path, tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    revision = json.loads(kernelyard("push", built, "--hub", hub, "--json").stdout)["revision"]
    done = kernelyard("get", "test/tiny", "--version", "1", "--hub", hub, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    members = {"repo", "revision", "variant", "verdict", "digest", "path", "verification"}
    assert document.keys() == members | {"hub", "release", "signed-by"}
    assert (document["repo"], document["revision"], document["variant"]) == ("test/tiny", revision, CPU)
    assert (document["hub"], document["release"], document["signed-by"]) == (str(hub), None, [])
    assert document["verdict"] == "It runs on this machine."


# Output


def test_a_reader_that_has_gone_is_no_error_of_ours(program: Path, environment: dict[str, str], sample: Sample) -> None:
    command = f"{program} config show {sample('img2gray')} | true"
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_missing_extra_is_told_with_what_to_install(sample: Sample) -> None:
    program = (
        "import sys; sys.modules['tomli'] = None; from kernelyard.cli import main;"
        "sys.argv = ['kernelyard', *sys.argv[1:]]; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "config", "check", sample("tiny")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        "kernelyard: the module 'tomli' is not installed",
        "  install what building needs: pip install 'kernelyard[build]'",
    ]
