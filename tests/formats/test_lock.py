from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

from kernelyard.errors import InputError, MissingError
from kernelyard.formats.dependencies import Dependency
from kernelyard.formats.index import FileEntry
from kernelyard.formats.lock import KernelLock, LockedKernel, Need
from kernelyard.formats.wanted import Wanted


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def entry(path: str, size: int = 3) -> FileEntry:
    return FileEntry(path, size, digest(path))


def kernel(repo: str = "org/gray", *, needs: tuple[Need, ...] = (), declared: bool = True) -> LockedKernel:
    contents = LockedKernel.contents_of(
        {"torch-universal": [entry("metadata.json"), entry("__init__.py")], "torch-cpu": [entry("a/b.py", 0)]}
    )
    return LockedKernel(
        repo,
        "https://hub.example",
        digest(repo),
        1,
        contents,
        release="1.2.0",
        index=(digest("index"), 812),
        declared=Dependency(repo, version=">=1.1,<1.3") if declared else None,
        needs=needs,
    )


COMMON = kernel("org/common", declared=False)
NEED = Need("org/common", Wanted(version=1), COMMON.key)
LOCK = KernelLock.of([kernel(needs=(NEED,)), COMMON])


def read(document: object) -> KernelLock:
    return KernelLock.from_json(json.dumps(document).encode(), path="kernels.lock")


def changed(**members: object) -> dict[str, object]:
    """Return the document of one kernel with other members."""
    document = json.loads(KernelLock.of([kernel()]).to_json())
    document["kernels"]["org/gray"] |= members
    return document  # type: ignore[no-any-return]


def test_what_is_written_is_read_again() -> None:
    assert KernelLock.from_json(LOCK.to_json(), path="elsewhere") == LOCK


def test_the_layout_is_a_line_for_each_fact() -> None:
    lines = KernelLock.of([kernel(needs=(NEED,)), COMMON]).to_json().decode().splitlines()
    assert lines[:11] == [
        "{",
        '  "format": 1,',
        '  "kernels": {',
        '    "org/common@' + digest("org/common")[:12] + '": {',
        '      "hub": "https://hub.example",',
        f'      "revision": "{digest("org/common")}",',
        '      "version": 1,',
        '      "release": "1.2.0",',
        f'      "index": "sha256:{digest("index")} 812",',
        '      "needs": {},',
        '      "variants": {',
    ]
    assert '      "declared": {"version": ">=1.1,<1.3"},' in lines
    assert f'        "org/common version 1": "{COMMON.key}"' in lines
    assert f'          "__init__.py": "sha256:{digest("__init__.py")} 3",' in lines


def test_an_empty_lock_is_one() -> None:
    assert KernelLock.from_json(KernelLock.of([]).to_json(), path="x") == KernelLock.of([])


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_kernel_that_is_added_leaves_all_other_lines(place: int) -> None:
    names = ["a/a", "m/m", "z/z"]
    before = KernelLock.of([kernel(name) for number, name in enumerate(names) if number != place]).to_json()
    after = KernelLock.of([kernel(name) for name in names]).to_json()
    lost = [line for line in before.splitlines() if line not in after.splitlines()]
    assert lost in ([], [b"    }"])


def test_files_are_read_with_size_and_digest_sorted_by_path() -> None:
    assert kernel().files("torch-universal") == (entry("__init__.py"), entry("metadata.json"))
    assert kernel().variants == ("torch-cpu", "torch-universal")
    with pytest.raises(MissingError, match="without the variant torch-cuda") as caught:
        kernel().files("torch-cuda")
    assert caught.value.code == "KY705"


def test_a_name_means_what_is_declared_and_else_what_is_needed() -> None:
    assert LOCK.find("org/gray").declared is not None
    assert LOCK.find("org/common") == COMMON
    declared = kernel("org/common")
    assert KernelLock.of([COMMON, declared]).find("org/common") == declared
    other = replace(COMMON, revision=digest("other"))
    with pytest.raises(MissingError, match="other kernels need 2 revisions of org/common"):
        KernelLock.of([COMMON, other]).find("org/common")


def test_what_is_not_locked_is_said_with_what_is() -> None:
    with pytest.raises(MissingError, match="org/none is not locked") as caught:
        LOCK.find("org/none")
    assert caught.value.code == "KY705"
    assert "org/gray" in caught.value.hint
    assert "kernelyard add org/none" in caught.value.hint


def test_who_needs_whom_is_told() -> None:
    assert LOCK.needed(LOCK.find("org/gray")) == (COMMON,)
    assert LOCK.needed_by(COMMON) == ("org/gray",)
    assert LOCK.needed_by(LOCK.find("org/gray")) == ()


@pytest.mark.parametrize(
    ("document", "code", "words"),
    [
        ({"format": 2, "kernels": []}, "KY703", "format 2 is newer than this program, which reads format 1"),
        ({"format": 0, "kernels": {}}, "KY701", "there is no format 0"),
        ({"kernels": {}}, "KY701", "this member is missing"),
        ({"format": 1}, "KY701", "this member is missing"),
        ([{"repo_id": "org/x", "sha": "0" * 40, "variants": {}}], "KY704", "of the `kernels` package"),
        ([], "KY704", "of the `kernels` package"),
        (changed(revision="abc"), "KY701", "not the whole id of a revision: 'abc'"),
        (changed(index="md5:1 2"), "KY701", "not 'sha256:<digest> <size>'"),
        (changed(hub=None), "KY701", "this member is missing"),
        (changed(declared=None), "KY701", "stands under 'org/gray'"),
        (changed(declared={"marker": "x"}), "KY701", "expected a version or a revision"),
        (changed(needs={"org/x": "org/x"}), "KY701", "not 'org/name version N'"),
        (changed(needs={"org/x version 1": "org/x"}), "KY701", "the lock has no org/x for that"),
        (changed(needs={"org/x version 1": "org/gray"}), "KY701", "the lock has no org/gray for that"),
    ],
)
def test_what_is_no_lock_is_refused_with_what_is_wrong(document: object, code: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(document)
    assert caught.value.code == code
    assert words in caught.value.what


@pytest.mark.parametrize(
    ("variants", "words"),
    [
        ({"torch-cpu": {"../x": f"sha256:{digest('')} 0"}}, "not a relative path"),
        ({"torch-cpu": {"x": f"sha256:{digest('')}"}}, "not 'sha256:<digest> <size>'"),
        ({"torch-cpu": {"x": 1}}, "not 'sha256:<digest> <size>'"),
        ({"torch-cpu": []}, "expected an object"),
    ],
)
def test_files_are_looked_at_when_their_variant_is(variants: object, words: str) -> None:
    found = read(changed(variants=variants)).find("org/gray")
    with pytest.raises(InputError, match=words) as caught:
        found.files("torch-cpu")
    assert caught.value.code == "KY701"


def test_the_marks_of_a_merge_are_told_with_their_line() -> None:
    text = LOCK.to_json().replace(b'  "kernels"', b'<<<<<<< HEAD\n=======\n>>>>>>> other\n  "kernels"')
    with pytest.raises(InputError, match="a merge of two sides was not finished") as caught:
        KernelLock.from_json(text, path="kernels.lock")
    assert caught.value.code == "KY702"
    assert str(caught.value.place) == "kernels.lock:3"


def test_members_of_later_programs_are_passed_over() -> None:
    assert read(changed(later=[1])) == KernelLock.of([kernel()])
