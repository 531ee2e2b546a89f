"""Variants that were built apart, put into one `build/`: equal to a single run, and nothing of another project."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.merge import lacking, merge
from kernelyard.build.project import build_project
from kernelyard.build.shard import Shard
from kernelyard.check import UnfitError
from kernelyard.errors import InputError, KernelyardError, MissingError, VerificationError
from kernelyard.formats.digest import base64_of_hex
from kernelyard.formats.index import Index
from kernelyard.hub.folder import hash_tree
from kernelyard.project.sources import read_project
from kernelyard.toolchain.parts import PartSource

Sample = Callable[[str], Path]
Run = Callable[..., subprocess.CompletedProcess[str]]

CPU = "torch-stable-abi211-cpu-x86_64-linux"
CUDA = "torch-stable-abi211-cu130-x86_64-linux"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def contents(root: Path) -> dict[str, bytes]:
    """Return everything that is in a folder."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@b.c")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def rewritten(variant: Path, change: Callable[[dict[str, object]], object]) -> None:
    document = json.loads((variant / "metadata.json").read_bytes())
    change(document)
    (variant / "metadata.json").write_text(json.dumps(document))
    (variant.parent / "index.json").unlink(missing_ok=True)


def merging(root: Path, *places: Path) -> list[str]:
    return [one.entry.name for one in merge(read_project(root), places)]


@pytest.fixture
def part(built_tiny: Path, tmp_path: Path) -> Path:
    """The build folder of a part, which has the variant for the CPU."""
    return shutil.copytree(built_tiny / "build", tmp_path / "part" / "build")


@pytest.fixture
def root(sample: Sample) -> Path:
    return sample("tiny")


def refused(root: Path, *places: Path, error: type[KernelyardError]) -> KernelyardError:
    """Return why the folders are not merged, and see that nothing was changed."""
    before = contents(root)
    with pytest.raises(error) as caught:
        merging(root, *places)
    assert contents(root) == before
    return caught.value


# Equal to a single run


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.parametrize(
    ("name", "variants", "counts"),
    [("blend", ("*-cpu-*",), (2, 3)), ("tiny", (), (2,))],
    ids=["torch versions", "toolkits"],
)
def test_parts_are_together_what_a_single_run_builds(
    *,
    name: str,
    variants: tuple[str, ...],
    counts: tuple[int, ...],
    sample: Sample,
    source: PartSource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build(root: Path, shard: Shard | None) -> list[str]:
        monkeypatch.setenv("SCCACHE_DIR", str(root.with_name(f"{root.name}-objects")))
        return [one.name for one in build_project(root, source=source, variants=variants, shard=shard)]

    origin = sample(name)
    single = shutil.copytree(origin, tmp_path / "single")
    names = build(single, None)
    for count in counts:
        parts = [shutil.copytree(origin, tmp_path / f"{number} of {count}") for number in range(1, count + 1)]
        built = [build(part, Shard(number, count)) for number, part in enumerate(parts, 1)]
        assert sorted(one for of_part in built for one in of_part) == sorted(names)
        assert len([of_part for of_part in built if of_part]) == min(count, len(names))
        together = shutil.copytree(origin, tmp_path / f"of {count}")
        assert merging(together, *parts) == sorted(names)
        assert contents(together / "build") == contents(single / "build")
        assert lacking(read_project(together), variants, platform="x86_64-linux") == ()


def test_a_folder_of_parts_is_as_good_as_its_parts(root: Path, part: Path, built_tiny: Path, tmp_path: Path) -> None:
    artefacts = tmp_path / "artefacts"
    shutil.copytree(part, artefacts / "shard-1")
    (artefacts / "shard-2").mkdir()
    assert merging(root, artefacts) == [CPU]
    assert contents(root / "build") == contents(built_tiny / "build")


def test_a_single_variant_can_be_named(root: Path, part: Path, built_tiny: Path) -> None:
    assert merging(root, part / CPU) == [CPU]
    assert contents(root / "build") == contents(built_tiny / "build")


def test_what_is_in_build_already_stays_beside_what_comes(root: Path, part: Path) -> None:
    merging(root, part)
    other = shutil.copytree(root / "build" / CPU, root / "build" / CUDA)
    rewritten(other, lambda document: document.update(backend={"type": "cuda"}))
    merging(root, part)
    index = Index.from_json((root / "build" / "index.json").read_bytes(), path="index.json")
    assert [variant.name for variant in index.variants] == [CPU, CUDA]


def test_the_same_bytes_from_two_places_are_one_variant(root: Path, part: Path, built_tiny: Path) -> None:
    assert merging(root, part, part.parent, built_tiny) == [CPU]


def test_a_part_that_was_built_from_the_same_commit_says_so(root: Path, source: PartSource, tmp_path: Path) -> None:
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "all")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(root), str(clone))
    build_project(clone, source=source, variants=["*-cpu-*"])
    merging(root, clone)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True).stdout
    index = Index.from_json((root / "build" / "index.json").read_bytes(), path="index.json")
    assert index.source_commit == head.strip()
    (root / "NOTES").write_text("later\n")
    git(root, "add", "NOTES")
    git(root, "commit", "--quiet", "-m", "later")
    error = refused(root, clone, error=InputError)
    assert error.code == "KY444"
    assert error.what.startswith(f"built from commit {head[:12]}, where the project, or another part, is at ")


# Not what was built


def test_a_file_that_was_changed_is_named(root: Path, part: Path) -> None:
    file = part / CPU / "__init__.py"
    file.write_text(file.read_text() + "#\n")
    error = refused(root, part, error=VerificationError)
    assert (error.code, error.exit_code, str(error.place)) == ("KY441", 4, str(file))
    assert error.what == "this file is not the one that the index names"
    (part / "index.json").unlink()
    assert refused(root, part, error=VerificationError).what == "this file is not the one that metadata.json names"


def test_a_change_of_the_metadata_is_seen_where_there_is_an_index(root: Path, part: Path) -> None:
    file = part / CPU / "metadata.json"
    file.write_bytes(file.read_bytes() + b"\n")
    assert str(refused(root, part, error=VerificationError).place) == str(file)


def test_files_that_are_missing_or_were_added_are_named(root: Path, part: Path) -> None:
    (part / CPU / "more.py").write_text("")
    error = refused(root, part, error=VerificationError)
    assert str(error).startswith(f"{part}/{CPU}/more.py: this file does not belong here: the index does not list it")
    (part / CPU / "more.py").unlink()
    (part / CPU / "_ops.py").unlink()
    error = refused(root, part, error=VerificationError)
    assert str(error).startswith(f"{part}/{CPU}/_ops.py: this file is missing, but the index lists it")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda text: text[: len(text) // 2], "the index is not valid: "),
        (lambda _: b"", "the index is not valid: "),
        (lambda text: text.replace(b'"variants"', b'"varjants"'), "the index is not valid: "),
        (None, "the index cannot be read: "),
    ],
    ids=["half", "empty", "changed", "a folder"],
)
def test_an_index_that_is_broken_is_named(
    root: Path, part: Path, change: Callable[[bytes], bytes] | None, what: str
) -> None:
    index = part / "index.json"
    text = index.read_bytes()
    index.unlink()
    if change is None:
        index.mkdir()
    else:
        index.write_bytes(change(text))
    error = refused(root, part, error=VerificationError)
    assert (error.code, error.exit_code) == ("KY441", 4)
    assert str(error).startswith(f"{index}:")
    assert error.what.startswith(what)


def test_an_index_of_a_later_format_asks_for_an_upgrade(root: Path, part: Path) -> None:
    index = part / "index.json"
    document = json.loads(index.read_bytes())
    index.write_text(json.dumps(document | {"format": document["format"] + 1}))
    error = refused(root, part, error=InputError)
    assert error.code == "KY213"
    assert "upgrade" in error.what


def test_variants_that_are_missing_or_half_there_are_named(root: Path, part: Path) -> None:
    shutil.copytree(part / CPU, part / CUDA)
    (part / CPU / "metadata.json").unlink()
    assert str(refused(root, part, error=VerificationError).place) == str(part / CPU)
    shutil.rmtree(part / CPU)
    error = refused(root, part, error=VerificationError)
    assert (error.code, str(error.place)) == ("KY441", str(part / CPU))
    assert error.what == "this variant is missing, but the index beside it lists it"


def test_a_variant_without_a_digest_is_refused(root: Path, part: Path) -> None:
    rewritten(part / CPU, lambda document: document.pop("digest"))
    error = refused(root, part, error=VerificationError)
    assert (error.code, str(error.place)) == ("KY441", str(part / CPU / "metadata.json"))


def test_the_same_variant_with_other_bytes_is_refused(root: Path, part: Path, built_tiny: Path) -> None:
    file = part / CPU / "__init__.py"
    file.write_text(file.read_text() + "#\n")

    def update(document: dict[str, object]) -> None:
        files = {path: base64_of_hex(digest) for path, digest in hash_tree(part / CPU).items()}
        files.pop("metadata.json")
        document["digest"] = {"algorithm": "sha256", "files": files}

    rewritten(part / CPU, update)
    error = refused(root, built_tiny, part, error=VerificationError)
    assert (error.code, str(error.place)) == ("KY442", str(file))
    assert error.what == f"{CPU} is in {built_tiny}/build/{CPU} with another __init__.py"


def test_what_is_unfit_stays_out(root: Path, part: Path) -> None:
    library = next((part / CPU).glob("*.so"))
    library.write_bytes(library.read_bytes().replace(b"libstdc++.so.6", b"libstdc++.so.9"))

    def update(document: dict[str, object]) -> None:
        files = {path: base64_of_hex(digest) for path, digest in hash_tree(part / CPU).items()}
        files.pop("metadata.json")
        document["digest"] = {"algorithm": "sha256", "files": files}

    rewritten(part / CPU, update)
    error = refused(root, part, error=UnfitError)
    assert error.code == "KY421"
    assert "libstdc++.so.9" in error.what


# Not of the project


@pytest.mark.parametrize(
    ("old", "new", "code", "what"),
    [
        ('name = "tiny"', 'name = "small"', "KY443", "a variant of tiny version 1; the project is small version 1"),
        ("version = 1", "version = 2", "KY443", "a variant of tiny version 1; the project is tiny version 2"),
        ('backends = ["cpu", "cuda"]', 'backends = ["cuda"]', "KY443", "the project has no such variant by now"),
        ('"csrc/other.cpp", "csrc/answer.h"]\ninclude = ["csrc"]\n\n[kernel.tiny_cuda]',
         '"csrc/other.cpp", "csrc/answer.h"]\ncxx-flags = ["-DX"]\ninclude = ["csrc"]\n\n[kernel.tiny_cuda]',
         "KY444", "its sources, flags or capabilities are not those that the project has now"),
    ],
)  # fmt: skip
def test_what_another_manifest_gave_is_refused(
    *, root: Path, part: Path, old: str, new: str, code: str, what: str
) -> None:
    edit(root / "build.toml", old, new)
    if "small" in new:
        (root / "torch-ext" / "tiny").rename(root / "torch-ext" / "small")
    error = refused(root, part, error=InputError)
    assert (error.code, error.what, str(error.place)) == (code, what, str(part / CPU))


def test_what_other_sources_gave_is_refused(root: Path, part: Path) -> None:
    edit(root / "csrc" / "answer.cpp", "return", "return 1 +")
    assert refused(root, part, error=InputError).code == "KY444"


def test_parts_of_two_commits_are_refused_without_a_repository_too(root: Path, part: Path, tmp_path: Path) -> None:
    other = shutil.copytree(part, tmp_path / "other" / "build") / CPU
    other = other.rename(other.with_name(CUDA))

    def at(commit: str, backend: str) -> Callable[[dict[str, object]], None]:
        def change(document: dict[str, object]) -> None:
            ours = document["kernelyard"]
            assert isinstance(ours, dict)
            ours["source-commit"] = commit
            document["backend"] = {"type": backend}

        return change

    rewritten(part / CPU, at("a" * 40, "cpu"))
    rewritten(other, at("b" * 40, "cuda"))
    error = refused(root, part, other.parent, error=InputError)
    assert error.code == "KY444"
    assert error.what == f"built from commit {'b' * 12}, where the project, or another part, is at {'a' * 12}"


def test_what_another_lock_gave_is_refused(root: Path, part: Path) -> None:
    def change(document: dict[str, object]) -> None:
        ours = document["kernelyard"]
        assert isinstance(ours, dict)
        ours["made"]["toolchain-lock"] = "c" * 64

    rewritten(part / CPU, change)
    error = refused(root, part, error=InputError)
    assert (error.code, str(error.place)) == ("KY445", str(part / CPU))
    assert error.what == f"built by another toolchain.lock than the project has ({'c' * 12})"


# The command


def test_the_command_says_what_came_and_what_is_missing(kernelyard: Run, root: Path, part: Path) -> None:
    done = kernelyard("merge", part, cwd=root)
    assert (done.returncode, done.stderr) == (0, "")
    head, row, missing = done.stdout.splitlines()
    assert head.split() == ["variant", "size", "sha256", "from"]
    assert (row.split()[0], row.split()[-1]) == (CPU, str(part))
    assert missing == f"missing: {CUDA}"
    done = kernelyard("merge", part, "--project", root, "--json", "--complete")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert told["missing"] == [CUDA]
    assert [(one["variant"], one["from"]) for one in told["variants"]] == [(CPU, str(part / CPU))]
    assert done.stderr.startswith(f"kernelyard: not all that was to be built is there; missing are [KY446]\n  {CUDA}\n")
    done = kernelyard("merge", part, "--project", root, "--complete", "--variant", "*cpu*")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_ends_with_4_where_a_file_differs(kernelyard: Run, root: Path, part: Path) -> None:
    (part / CPU / "__init__.py").write_text("")
    done = kernelyard("merge", part, cwd=root)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith(
        f"kernelyard: {part}/{CPU}/__init__.py: this file is not the one that the index names [KY441]"
    )
    assert not (root / "build").exists()


def test_places_without_a_variant_are_told(kernelyard: Run, root: Path, part: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    done = kernelyard("merge", empty, part, cwd=root)
    assert (done.returncode, done.stderr) == (0, f"{empty}: there is no variant in it\n")
    done = kernelyard("merge", empty, cwd=root)
    assert done.returncode == 1
    assert f"there is nothing to put together in {empty} [KY447]" in done.stderr
    done = kernelyard("merge", tmp_path / "nowhere", cwd=root)
    assert done.returncode == 1
    assert f"kernelyard: {tmp_path}/nowhere: there is no such folder [KY447]" in done.stderr
    assert kernelyard("merge", cwd=root).returncode == 2


def test_nothing_to_merge_is_no_traceback(root: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        merge(read_project(root), [tmp_path / "nowhere"])
