"""The public API of a package, read without running it, and what a change of it asks of the version."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kernelyard.errors import CheckError
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.publish import push_project
from kernelyard.publish.api import Api, Kind, Parameter, Signature, read_api
from kernelyard.publish.api_changes import Comparison, Part, api_changes, check_step, schema_changes
from kernelyard.publish.schemas import read_schemas, with_schemas


def api(folder: Path, **files: str) -> Api:
    """Return the API of a package with these modules."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in files.items():
        path = folder / f"{name.replace('__in__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_api(folder, "gray")


def changed(folder: Path, old: str, new: str) -> list[str]:
    before = api(folder, __init__=f"__all__ = ['f']\n{old}\n")
    return [str(change) for change in api_changes(before, api(folder, __init__=f"__all__ = ['f']\n{new}\n"))]


def test_all_names_the_public_ones_wherever_they_are_defined(tmp_path: Path) -> None:
    found = api(
        tmp_path / "x",
        __init__="""
raise SystemExit("this is never run")
from .more import helper as f, Layer
from .star import *
from torch import nn
__all__ = ["f", "Layer", "CONSTANT", "nn"] + ["starred"]
__all__ += ["late"]
if True:
    CONSTANT: int = 1
try:
    def late(*args, **kwargs): ...
except ImportError:
    late = None
""",
        more="from .sub.deep import helper\nclass Layer:\n  def __init__(self, size): ...\n"
        "  def forward(self, x): ...\n  @staticmethod\n  def make(n): ...\n  def _own(self): ...\n",
        star="def starred(a, /): ...\n",
        sub__in____init__="",
        sub__in__deep="def helper(a, b=2, *, c=None): ...\n",
    )
    both, named = Kind.BOTH, Kind.NAMED
    assert not found.unsure
    assert found.names == {
        "f": Signature((Parameter("a", both), Parameter("b", both, "2"), Parameter("c", named, "None"))),
        "Layer": Signature((Parameter("size", both),)),
        "Layer.forward": Signature((Parameter("x", both),)),
        "Layer.make": Signature((Parameter("n", both),)),
        "CONSTANT": None,
        "nn": None,
        "starred": Signature((Parameter("a", Kind.POSITIONAL),)),
        "late": None,
    }


def test_without_all_what_is_defined_here_without_an_underscore_is_public(tmp_path: Path) -> None:
    found = api(
        tmp_path / "x",
        __init__="import torch\nfrom torch import nn\nfrom ._ops import ops\nfrom .m import *\n"
        "_x = 1\ny = 2\ndef f(): ...\n",
        m="def g(): ...\ndef _h(): ...\n",
    )
    assert set(found.names) == {"ops", "y", "f", "g"}


def test_a_package_in_a_folder_of_its_own_is_found(tmp_path: Path) -> None:
    assert set(api(tmp_path / "x", gray__in____init__="def f(): ...\n").names) == {"f"}
    assert api(tmp_path / "x", other="def f(): ...\n") == Api()
    assert api(tmp_path / "x", __init__="def f(:\n").names == {}
    assert api(
        tmp_path / "x",
        __init__="from . import __init__\nfrom .a import f\n",
        a="from .b import f\n",
        b="from .a import f\n",
    )


def test_a_list_of_names_that_is_made_while_running_is_said_to_be_unsure(tmp_path: Path) -> None:
    before = api(tmp_path / "x", __init__="def f(): ...\ndef g(): ...\n")
    after = api(tmp_path / "x", __init__="__all__ = [n for n in dir()]\ndef f(): ...\n")
    assert after.unsure
    assert [str(change) for change in api_changes(before, after)] == ["Y: g is no longer there"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("def f(a): ...", "def f(a): ...", []),
        ("def f(a: int) -> int: ...", "def f(a: float) -> str: ...", []),
        ("f = 1", "f = 2", []),
        ("def f(a): ...", "def f(a, b=1): ...", ["Y: f has a new parameter b"]),
        ("def f(a): ...", "def f(a, *, b=1): ...", ["Y: f has a new parameter b"]),
        ("def f(a): ...", "def f(a, b): ...", ["X: f has a new parameter b, which is required"]),
        ("def f(a, b=1): ...", "def f(a): ...", ["X: f has no parameter b any more"]),
        ("def f(a, b): ...", "def f(b, a): ...", ["X: f takes its arguments in another order"]),
        ("def f(a, b): ...", "def f(a, c=0, b=0): ...", None),
        ("def f(a, b=1): ...", "def f(a, b): ...", ["X: f requires b now"]),
        ("def f(a, b): ...", "def f(a, b=1): ...", ["Y: f no longer requires b"]),
        ("def f(a=1): ...", "def f(a=2): ...", ["X: f takes 2 for a by default, it was 1"]),
        ("def f(a): ...", "def f(*, a): ...", ["X: f takes a by name only now, it was by position or name"]),
        ("def f(a, /): ...", "def f(a): ...", ["Y: f takes a by position or name now, it was positional only"]),
        ("def f(*, a=1): ...", "def f(**more): ...", ["Y: f has a new parameter more"]),
    ],
)
def test_a_change_of_a_signature_tells_what_must_rise(
    tmp_path: Path, old: str, new: str, said: list[str] | None
) -> None:
    found = changed(tmp_path / "x", old, new)
    if said is None:
        assert "X: f takes its arguments in another order" in found
    else:
        assert found == said


def test_names_that_come_and_go_are_told(tmp_path: Path) -> None:
    old = api(tmp_path / "x", __init__="def f(): ...\nclass C:\n  def m(self): ...\n  def n(self): ...\n")
    new = api(tmp_path / "x", __init__="def g(): ...\nclass C:\n  def m(self): ...\n  def o(self): ...\n")
    assert sorted(str(change) for change in api_changes(old, new)) == [
        "X: C.n is no longer there",
        "X: f is no longer there",
        "Y: C.o is new",
        "Y: g is new",
    ]
    assert [str(change) for change in api_changes(old, Api({"f": None}))] == ["X: C is no longer there"]


def test_operators_are_public_where_the_package_hands_them_out() -> None:
    old, new = ("a(Tensor x) -> Tensor", "b() -> ()"), ("a(Tensor x, int n) -> Tensor", "c() -> ()")
    assert [str(one) for one in schema_changes(old, new, are_public=True)] == [
        "X: the operator a(Tensor x) -> Tensor is now a(Tensor x, int n) -> Tensor",
        "X: the operator b is no longer there",
        "Y: the operator c is new",
    ]
    assert {change.part for change in schema_changes(old, new, are_public=False)} == {Part.PATCH}


def test_schemas_are_found_in_a_library(tmp_path: Path) -> None:
    texts = [
        b"out(Tensor! out,\n  Tensor image, bool planar) -> ()",
        b"ns::two(Tensor x, int[] y=[]) -> (Tensor, Tensor(a!))",
        b"list.int(int[]? a) -> Tensor[]",
        b"none() -> float",
        b"usage: a(b) -> c",
        b"operator->",
        b"x(nothing known) -> ()",
        b"caf\xc3\xa9(Tensor x) -> ()",
    ]
    (tmp_path / "x.so").write_bytes(b"\x7fELF\0" + b"\0".join(texts) + b"\0")
    assert read_schemas(tmp_path / "x.so") == (
        "list.int(int[]? a) -> Tensor[]",
        "none() -> float",
        "out(Tensor! out, Tensor image, bool planar) -> ()",
        "two(Tensor x, int[] y=[]) -> (Tensor, Tensor(a!))",
    )


@pytest.mark.parametrize(
    ("last", "part", "release", "least"),
    [
        ("1.1.2", Part.MAJOR, "1.2.0", "2.0.0"),
        ("1.1.2", Part.MINOR, "1.1.3", "1.2.0"),
        ("1.1.2", Part.MINOR, "1.2.0", None),
        ("1.1.2", Part.PATCH, "1.1.3", None),
        ("1.1.2", Part.MAJOR, "2.0.0", None),
        ("0.1.2", Part.MAJOR, "0.1.3", "0.2.0"),
        ("0.1.2", Part.MAJOR, "0.2.0", None),
        ("0.1.2", Part.MINOR, "0.1.3", None),
    ],
)
def test_the_number_of_a_release_has_to_say_what_has_changed(
    last: str, part: Part, release: str, least: str | None
) -> None:
    from kernelyard.publish.api_changes import ApiChange

    comparison = Comparison(last, (ApiChange(part, "f is not what it was"),))
    if least is None:
        check_step(comparison, release)
        return
    with pytest.raises(CheckError, match="f is not what it was") as caught:
        check_step(comparison, release)
    assert (caught.value.code, caught.value.exit_code) == ("KY526", 1)
    assert f"make it release {least}," in caught.value.hint


CPU = "torch-stable-abi211-cpu-x86_64-linux"


@pytest.mark.compile
@pytest.mark.network
def test_a_push_compares_with_the_last_release(built_tiny: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    hub = StaticHub(DirectoryReader(tmp_path / "hub"))
    variant = tmp_path / "older" / CPU
    variant.mkdir(parents=True)
    (variant / "__init__.py").write_text("__all__ = ['gone']\ndef gone(): ...\n")
    metadata = {"name": "tiny", "id": "_tiny_cpu_1", "version": 1, "license": "MIT", "backend": {"type": "cpu"}}
    (variant / "metadata.json").write_text(json.dumps(metadata))
    older = FolderHub.find(variant.parent)
    assert older is not None
    hub.publish(Publication("test/tiny", replace(older.index, release="1.1.0"), older.files, "v1"))
    project = shutil.copytree(built_tiny, tmp_path / "tiny", ignore=shutil.ignore_patterns(".kernelyard"))
    before = hub.refs("test/tiny")
    with pytest.raises(CheckError) as caught:
        push_project(project, hub, release="1.2.0")
    assert "since 1.1.0 so that X of X.Y.Z must rise:\n  X: gone is no longer there" in caught.value.what
    assert hub.refs("test/tiny") == before
    # What is no release is told, and published.
    comparison = push_project(project, hub).comparison
    assert comparison is not None
    assert (comparison.release, comparison.part, comparison.next_release) == ("1.1.0", Part.MAJOR, "2.0.0")
    push_project(project, hub, release="1.2.0", accept_api_changes=True)
    # One that comes before it has nothing to be compared with.
    assert push_project(project, hub, release="1.0.0").comparison is None


@pytest.mark.compile
@pytest.mark.network
def test_schemas_of_a_real_build_stand_in_what_is_published(built_img2gray: Path) -> None:
    built = FolderHub.find(built_img2gray / "build")
    assert built is not None
    (variant,) = with_schemas(built.index, built).variants
    assert variant.facts.operators == ("img2gray(Tensor! out, Tensor image, bool planar) -> ()",)
