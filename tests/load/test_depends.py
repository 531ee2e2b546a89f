"""Kernels that need kernels: `kernel-depends`, and how the body of a kernel gets them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelyard import get_kernel, get_kernel_dep, get_local_kernel, has_kernel, install_kernel
from kernelyard.errors import InputError, LoadError, MissingError, VerificationError
from kernelyard.load import get_loaded_kernels
from kernelyard.load.importing.depends import DependencyError

MakeVariant = Callable[..., Path]
Needs = list[dict[str, object]]
Put = Callable[..., str]


@pytest.fixture
def put(tmp_path: Path, make_variant: MakeVariant, publish: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Put:
    """Return a function that publishes a kernel with a body and what it needs, to the hub that all tests here use."""
    monkeypatch.setenv("KERNELYARD_HUB", str(tmp_path / "hub"))
    made = iter(range(100))

    def put(
        name: str, body: str, needs: Needs | None = None, version: int = 1, variant: str = "torch-universal"
    ) -> str:
        text = f"from kernelyard import get_kernel_dep\nname = {name!r}\nversion = {version}\n{body}"
        build = make_variant(
            f"build{next(made)}", name=variant, files={"__init__.py": text}, kernel=name, needs=needs, version=version
        ).parent
        return publish(build, f"org/{name}", f"v{version}")

    return put


def on(name: str, **which: object) -> dict[str, object]:
    return {"repo-id": f"org/{name}", **(which or {"version": 1})}


def test_a_kernel_gets_what_it_has_declared_loaded_before_its_body_runs(put: Put) -> None:
    put("base", "")
    put("middle", "base = get_kernel_dep('org/base')\n", [on("base")])
    put("top", "middle = get_kernel_dep('org/middle')\nbase = get_kernel_dep('org/base')\n", [on("middle"), on("base")])
    top = get_kernel("org/top", version=1)
    assert top.middle.name == "middle"
    assert top.base is top.middle.base
    assert top.base is get_kernel("org/base", version=1)
    assert [kernel.metadata.name for kernel in get_loaded_kernels()] == ["base", "middle", "top"]
    (needed,) = top.middle.__kernel__.metadata.kernel_depends
    assert (needed.repo_id, needed.version, needed.revision) == ("org/base", 1, None)


def test_several_versions_of_one_kernel_can_be_needed(put: Put) -> None:
    put("base", "")
    second = put("base", "", version=2)
    needs = [on("base"), on("base", version=2), on("base", revision=second[:16])]
    put("top", "bases = [get_kernel_dep('org/base', version=number) for number in (1, 2)]\n", needs)
    assert [base.version for base in get_kernel("org/top", version=1).bases] == [1, 2]
    put("vague", "get_kernel_dep('org/base')\n", needs)
    with pytest.raises(DependencyError, match="more than once") as caught:
        get_kernel("org/vague", version=1)
    assert "org/base (version 2)" in caught.value.hint


def test_it_is_to_be_had_only_while_a_kernel_that_declares_it_is_imported(put: Put) -> None:
    put("base", "")
    put("late", "def ask():\n    return get_kernel_dep('org/base')\n", [on("base")])
    put("silent", "get_kernel_dep('org/base')\n")
    with pytest.raises(RuntimeError, match="no kernel is being imported"):
        get_kernel_dep("org/base")
    with pytest.raises(RuntimeError, match="no kernel is being imported"):
        get_kernel("org/late", version=1).ask()
    with pytest.raises(RuntimeError, match="has not declared that it needs org/base") as caught:
        get_kernel("org/silent", version=1)
    assert isinstance(caught.value, DependencyError)
    assert caught.value.code == "KY613"
    # Nor does a kernel see what the one has declared that loads it.
    put("outer", "import kernelyard\nkernelyard.get_kernel('org/silent', version=1)\n", [on("base")])
    with pytest.raises(RuntimeError, match="has not declared"):
        get_kernel("org/outer", version=1)


def test_kernels_that_need_each_other_are_refused_with_the_circle(put: Put) -> None:
    put("a", "", [on("b")])
    put("b", "", [on("c")])
    put("c", "", [on("a", revision="v1")])
    for call in (get_kernel, has_kernel, install_kernel):
        with pytest.raises(ValueError, match=r"org/a .* -> org/b .* -> org/c .* -> org/a ") as caught:
            call("org/a", version=1)
        assert isinstance(caught.value, InputError)
        assert caught.value.code == "KY612"
    assert get_loaded_kernels() == []


def test_whether_there_is_a_kernel_depends_on_those_it_needs(put: Put, tmp_path: Path) -> None:
    put("base", "")
    put("good", "", [on("base")])
    put("other", "", variant="torch-tpu")
    put("bad", "", [on("base"), on("other")])
    put("lost", "", [on("gone")])
    assert has_kernel("org/good", version=1)
    assert not has_kernel("org/bad", version=1)
    assert not (tmp_path / "store").exists()
    for call in (has_kernel, install_kernel, get_kernel):
        with pytest.raises(MissingError):
            call("org/lost", version=1)
    with pytest.raises(MissingError, match=r"needed by org/bad \(v1, revision [0-9a-f]{12}\): org/other"):
        get_kernel("org/bad", version=1)
    with pytest.raises(MissingError, match=r"needed by org/lost \(v1, .*\): there is no kernel org/gone"):
        get_kernel("org/lost", version=1)


def test_a_folder_that_stands_for_a_kernel_is_no_better_than_what_it_needs(
    put: Put, make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("base", "")
    put("other", "", variant="torch-tpu")
    for name, expected in (("base", True), ("other", False)):
        local = make_variant(f"for-{name}", needs=[on(name)])
        monkeypatch.setenv("LOCAL_KERNELS", f"org/top={local}")
        assert has_kernel("org/top", version=1) is expected
    # A circle through the folder is one too.
    monkeypatch.setenv("LOCAL_KERNELS", f"org/top={make_variant('circle', needs=[on('top')])}")
    with pytest.raises(ValueError, match="kernels that need each other"):
        has_kernel("org/top", version=1)


def test_installing_brings_all_that_is_needed(put: Put, tmp_path: Path) -> None:
    put("base", "raise SystemExit\n")
    put("top", "raise SystemExit\n", [on("base")])
    path = install_kernel("org/top", version=1)
    assert json.loads((path / "metadata.json").read_bytes())["name"] == "top"
    assert len(list((tmp_path / "store/variants").iterdir())) == 2
    assert get_loaded_kernels() == []


def test_the_failure_of_one_that_is_needed_is_told(put: Put) -> None:
    put("base", "raise OSError('no such device')\n")
    put("top", "", [on("base")])
    with pytest.raises(LoadError, match="no such device") as caught:
        get_kernel("org/top", version=1)
    assert isinstance(caught.value.__cause__, OSError)


def test_of_one_that_is_not_trusted_it_is_told_which_kernel_needs_it(put: Put, web_hub: str) -> None:
    put("base", "")
    put("middle", "get_kernel_dep('org/base')\n", [on("base")])
    revision = put("top", "get_kernel_dep('org/middle')\n", [on("middle")])
    for call in (get_kernel, has_kernel, install_kernel):
        with pytest.raises(VerificationError) as caught:
            call("org/top", version=1, hub=web_hub, trust_remote_code=["org/top"])
        assert caught.value.code == "KY605"
        start = f"needed by org/top (v1, revision {revision[:12]}): the code of org/middle would come from {web_hub}"
        assert caught.value.what.startswith(start)
    with pytest.raises(VerificationError, match=r"^needed by org/middle \(v1, .*\): the code of org/base would"):
        get_kernel("org/top", version=1, hub=web_hub, trust_remote_code=["org/top", "org/middle"])


def test_a_folder_s_kernel_needs_others_too_and_a_folder_can_stand_for_them(
    put: Put, make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("base", "where = 'hub'\n")
    body = "from kernelyard import get_kernel_dep\nwhere = get_kernel_dep('org/base').where\n"
    top = make_variant("top", files={"__init__.py": body}, needs=[on("base")])
    assert get_local_kernel(top).where == "hub"
    local = make_variant("local", files={"__init__.py": "where = 'folder'\n"})
    monkeypatch.setenv("LOCAL_KERNELS", f"org/base={local}")
    again = make_variant("again", files={"__init__.py": body + "again = True\n"}, needs=[on("base")])
    assert get_local_kernel(again).where == "folder"


def test_the_backend_that_is_asked_for_is_the_one_of_those_that_are_needed(
    put: Put, make_variant: MakeVariant, publish: Callable[..., str]
) -> None:
    put("other", "")
    build = make_variant("two", name="torch-cpu", kernel="base", files={"__init__.py": "backend = 'cpu'\n"}).parent
    make_variant("two", kernel="base", files={"__init__.py": "backend = 'any'\n"})
    publish(build, "org/base")
    body = "from kernelyard import get_kernel_dep\nbackend = get_kernel_dep('org/base').backend\n"
    top = make_variant("top", name="torch-cpu", files={"__init__.py": body}, needs=[on("base")])
    assert get_local_kernel(top, backend="cpu").backend == "cpu"


def test_what_is_loaded_already_needs_nothing_any_more(
    put: Put, make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("base", "")
    first, copy = (
        make_variant(build, id_="_gray_same", files={"extra.py": ""}, needs=[on("base")]) for build in ("a", "b")
    )
    module = get_local_kernel(first)
    monkeypatch.setenv("KERNELYARD_HUB", "http://127.0.0.1:9")
    assert get_local_kernel(copy) is module


@pytest.mark.parametrize(
    ("needed", "said"),
    [
        ({"repo-id": "org/base"}, "either a version or a revision"),
        ({"repo-id": "org/base", "version": 1, "revision": "v1"}, "only one of version and revision"),
        ({"repo-id": "../base", "version": 1}, "not the name of a kernel"),
        ({"repo-id": "org/base", "version": 1, "hub": "x"}, "unknown member 'hub'"),
        ({"version": 1}, "this member is missing"),
    ],
)
def test_what_is_malformed_is_refused_with_its_place(
    make_variant: MakeVariant, needed: dict[str, object], said: str
) -> None:
    variant = make_variant(needs=[needed])
    with pytest.raises(InputError, match=said) as caught:
        get_local_kernel(variant)
    assert caught.value.code == "KY610"
    assert caught.value.place is not None
    assert str(caught.value.place.key).startswith("kernel-depends[0]")


def test_sixteen_threads_get_kernels_that_need_one_another_once(put: Put) -> None:
    put("d", "RUNS = []\n")
    put("b", "d = get_kernel_dep('org/d')\nd.RUNS.append(name)\n", [on("d")])
    put("c", "d = get_kernel_dep('org/d')\nd.RUNS.append(name)\n", [on("d")])
    put("a", "b = get_kernel_dep('org/b')\nc = get_kernel_dep('org/c')\nb.d.RUNS.append(name)\n", [on("b"), on("c")])
    together = threading.Barrier(16)

    def load(number: int) -> tuple[str, int]:
        name = "abcd"[number % 4]
        together.wait()
        return name, id(get_kernel(f"org/{name}", version=1))

    with ThreadPoolExecutor(16) as pool:
        loaded = set(pool.map(load, range(16)))
    assert len(loaded) == 4
    a = get_kernel("org/a", version=1)
    assert a.b.d is a.c.d
    assert sorted(a.b.d.RUNS) == ["a", "b", "c"]
    assert a.b.d.RUNS[-1] == "a"
    assert sorted(kernel.metadata.name for kernel in get_loaded_kernels()) == ["a", "b", "c", "d"]
