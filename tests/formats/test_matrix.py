from __future__ import annotations

import pytest

from kernelyard.formats.matrix import (
    MatrixRules,
    Narrowing,
    PlatformRule,
    ToolkitRule,
    TorchRule,
    read_matrix_rules,
)
from kernelyard.formats.ranges import VersionRange
from kernelyard.formats.settings import read_settings
from kernelyard.formats.tables import ManifestError
from kernelyard.formats.versions import Version

BASE = """\
[platform.x86_64-linux]
[platform.aarch64-linux]
cuda-from = "2.11"
[cuda."12.4"]
static-runtime = false
[cuda."13.0"]
default = true
[torch."2.10"]
cuda = [12]
[torch."2.11"]
cuda = [12, 13]
default = true
[stable-abi]
headers = "2.11"
[tvm-ffi]
version = "0.1"
"""


def rules() -> MatrixRules:
    return read_matrix_rules(BASE, path="base.toml")


def test_a_file_says_what_is_built_for() -> None:
    assert rules() == MatrixRules(
        torch={Version("2.10"): TorchRule((12,)), Version("2.11"): TorchRule((12, 13), default=True)},
        cuda={Version("12.4"): ToolkitRule(static_runtime=False), Version("13.0"): ToolkitRule(default=True)},
        platforms={"x86_64-linux": PlatformRule(), "aarch64-linux": PlatformRule(Version("2.11"))},
        stable_abi_headers=Version("2.11"),
        tvm_ffi=Version("0.1"),
    )


def test_another_file_over_it_counts_where_it_says_something() -> None:
    text = '[cuda."12.4"]\ndefault = true\n[torch."2.11"]\ndefault = false\n[only]\ntorch = [">=2.11"]\n'
    laid = rules().under(read_matrix_rules(text, path="team.toml", known=rules()))
    assert laid.cuda == {
        Version("12.4"): ToolkitRule(static_runtime=False, default=True),
        Version("13.0"): ToolkitRule(default=True),
    }
    assert laid.torch[Version("2.11")] == TorchRule((12, 13), default=False)
    assert laid.torch[Version("2.10")] == TorchRule((12,))
    assert laid.platforms == rules().platforms
    assert (laid.stable_abi_headers, laid.tvm_ffi) == (Version("2.11"), Version("0.1"))
    assert laid.narrowings == (Narrowing("team.toml", torch=(VersionRange.parse(">=2.11"),)),)


def test_narrowings_of_several_files_add_up() -> None:
    one = read_matrix_rules('[only]\ncuda = ["12.4", "13"]\n', path="team.toml", known=rules())
    other = read_matrix_rules('[only]\nplatforms = ["x86_64-linux"]\n', path="kernelyard.toml", known=rules())
    assert rules().under(one).under(other).narrowings == (
        Narrowing("team.toml", cuda=(VersionRange.parse("12.4"), VersionRange.parse("13"))),
        Narrowing("kernelyard.toml", platforms=("x86_64-linux",)),
    )


@pytest.mark.parametrize(
    ("text", "code", "place", "hint"),
    [
        ('[torch."2.99"]\ndefault = true\n', "KY206", "team.toml:1:8: torch.2.99", "known are 2.10, 2.11"),
        ('[cuda."12.5"]\n', "KY206", "team.toml:1:7: cuda.12.5", "known are 12.4, 13.0"),
        ("[cuda.12.4]\n", "KY206", "team.toml:1:7: cuda.12", 'write the version in quotes: cuda."12.4"'),
        ("[cuda.latest]\n", "KY206", "team.toml:1:7: cuda.latest", ""),
        ('[torch."2.11"]\ndefualt = true\n', "KY203", "team.toml:2:1: torch.2.11.defualt", "did you mean `default`?"),
        ('[torch."2.11"]\ncuda = ["13"]\n', "KY205", "team.toml:2:9: torch.2.11.cuda[0]", ""),
        ('[cuda."13.0"]\ndefault = "yes"\n', "KY205", "team.toml:2:1: cuda.13.0.default", ""),
        ("[platform.aarch64-darwin]\n", "KY206", "team.toml:1:11: platform.aarch64-darwin", "did you mean"),
        ('[stable-abi]\nheaders = "2.3"\n', "KY206", "team.toml:2:1: stable-abi.headers", "known are 2.10, 2.11"),
        ("[tvm-ffi]\n", "KY204", "team.toml:1:2: tvm-ffi", "add `version = ...`"),
        ('[only]\ntorch = ["new"]\n', "KY206", "team.toml:2:10: only.torch[0]", "for example"),
        ('[only]\ncuda = ["13.0",\n  ">=14"]\n', "KY206", "team.toml:3:3: only.cuda[1]", "known are 12.4, 13.0"),
        ("[only]\ncuda = []\n", "KY206", "team.toml:2:1: only.cuda", "leave `cuda` out to keep all"),
        ("[only]\nplatforms = []\n", "KY206", "team.toml:2:1: only.platforms", "leave `platforms` out to keep all"),
        ('[only]\ntorch = ">=2.11"\n', "KY205", "team.toml:2:1: only.torch", 'write it as a list: [">=2.11"]'),
        (
            '[only]\nvariants = ["*"]\n',
            "KY203",
            "team.toml:2:1: only.variants",
            "known keys are torch, cuda, platforms",
        ),
        ("[rocm]\n", "KY203", "team.toml:1:2: rocm", ""),
        ("cuda = \n", "KY201", "team.toml:1:8", ""),
    ],
)
def test_a_mistake_is_told_at_its_place(text: str, code: str, place: str, hint: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read_matrix_rules(text, path="team.toml", known=rules())
    (error,) = caught.value.errors
    assert (error.code, str(error.place)) == (code, place)
    assert hint in error.hint


def test_a_project_has_it_among_its_settings() -> None:
    text = '[tool.kernelyard.matrix.only]\ncuda = ["13.0"]\n'
    settings = read_settings(text, path="pyproject.toml", within=("tool", "kernelyard"), known=rules())
    assert settings is not None
    assert settings.matrix == MatrixRules(
        {}, {}, {}, narrowings=(Narrowing("pyproject.toml", cuda=(VersionRange.parse("13.0"),)),)
    )


def test_a_mistake_there_is_told_at_its_place_too() -> None:
    text = 'floor = "manylinux_2_28"\n[matrix.only]\ncuda = ["12.5"]\n'
    with pytest.raises(ManifestError) as caught:
        read_settings(text, path="kernelyard.toml", known=rules())
    assert str(caught.value.place) == "kernelyard.toml:3:9: matrix.only.cuda[0]"
    assert caught.value.what == "no version of CUDA is in '12.5'"
