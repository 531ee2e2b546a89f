from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from kernelyard.build.project import build_project
from kernelyard.errors import CheckError, InputError, MissingError
from kernelyard.formats.metadata import Metadata
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.load.choice.explain import explain_kernel
from kernelyard.load.system.description import describe_system
from kernelyard.publish import push_project
from kernelyard.toolchain.parts import PartSource

pytestmark = [pytest.mark.compile, pytest.mark.network]

CPU = "torch-stable-abi211-cpu-x86_64-linux"


@pytest.fixture
def project(built_tiny: Path, tmp_path: Path) -> Path:
    return shutil.copytree(built_tiny, tmp_path / "tiny", ignore=shutil.ignore_patterns(".kernelyard"))


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    return tmp_path / "hub"


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".refs.lock"
    }


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_what_was_built_is_published_on_the_branch_of_its_version(project: Path, hub: Path) -> None:
    pushed = push_project(project, hub)
    files = [path for path in (project / "build" / CPU).iterdir() if path.is_file()]
    assert (pushed.repo, pushed.branch, pushed.variants) == ("test/tiny", "v1", (CPU,))
    assert pushed.size == sum(path.stat().st_size for path in files)
    folder = hub / "kernels" / "test" / "tiny"
    index = (folder / "revisions" / pushed.revision / "index.json").read_bytes()
    assert hashlib.sha256(index).hexdigest() == pushed.revision
    manifest = (project / "build.toml").read_bytes()
    beside = {"build.toml": {"size": len(manifest), "sha256": hashlib.sha256(manifest).hexdigest()}}
    assert json.loads(index) == {"files": beside, **json.loads((project / "build" / "index.json").read_bytes())}
    assert pushed.revision in (folder / "refs.json").read_text()
    for file in files:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        assert (hub / "blobs" / "sha256" / digest[:2] / digest).read_bytes() == file.read_bytes()


def test_publishing_again_changes_nothing(project: Path, hub: Path) -> None:
    first = push_project(project, hub)
    before = tree(hub)
    assert push_project(project, hub) == first
    assert tree(hub) == before


def test_the_repository_and_the_branch_can_be_named(project: Path, hub: Path) -> None:
    assert push_project(project, hub, repo="other/name").repo == "other/name"
    edit(project / "build.toml", 'repo-id = "test/tiny"', 'repo-id = "test/tiny"\nbranch = "next"')
    pushed = push_project(project, hub)
    assert (pushed.repo, pushed.branch) == ("test/tiny", "next")


def test_without_a_repository_nothing_is_published(project: Path, hub: Path) -> None:
    edit(project / "build.toml", '[general.hub]\nrepo-id = "test/tiny"\n', "")
    with pytest.raises(InputError) as caught:
        push_project(project, hub)
    assert caught.value.code == "KY521"
    assert "--repo org/name" in caught.value.hint
    assert not hub.exists()


def test_when_nothing_has_been_built_nothing_is_published(project: Path, hub: Path) -> None:
    shutil.rmtree(project / "build")
    with pytest.raises(MissingError) as caught:
        push_project(project, hub)
    assert (caught.value.code, caught.value.hint) == ("KY522", "run `kernelyard build` first")
    (project / "build").mkdir()
    with pytest.raises(MissingError):
        push_project(project, hub)
    assert not hub.exists()


def test_what_is_not_fit_is_refused_with_its_findings(project: Path, hub: Path) -> None:
    variant = project / "build" / CPU
    (variant / "__init__.py").write_text("import os\n")
    (variant / "more.py").touch()
    with pytest.raises(CheckError) as caught:
        push_project(project, hub)
    assert caught.value.code == "KY421"
    assert caught.value.what.splitlines() == [
        "the build is not fit to be published:",
        f"  {CPU}/__init__.py: is not the file that the digest names: it was changed after the build [KY113]",
        f"  {CPU}/more.py: is there, but the digest does not name it [KY113]",
    ]
    assert not hub.exists()


def test_many_findings_are_counted_not_listed(project: Path, hub: Path) -> None:
    for number in range(20):
        (project / "build" / CPU / f"extra{number}.py").touch()
    with pytest.raises(CheckError) as caught:
        push_project(project, hub)
    assert caught.value.what.splitlines()[-1] == "  and 8 more"
    assert len(caught.value.what.splitlines()) == 14


def test_a_variant_that_cannot_be_read_is_not_left_out_without_a_word(project: Path, hub: Path) -> None:
    (project / "build" / CPU.replace("211", "212")).mkdir()
    with pytest.raises(CheckError) as caught:
        push_project(project, hub)
    assert caught.value.code == "KY421"
    assert f"{CPU.replace('211', '212')}/.: It has no metadata.json" in caught.value.what
    assert not hub.exists()


def test_a_build_of_another_version_than_the_manifests_is_refused(project: Path, hub: Path) -> None:
    edit(project / "build.toml", "version = 1", "version = 2")
    with pytest.raises(CheckError) as caught:
        push_project(project, hub)
    assert caught.value.code == "KY523"
    assert caught.value.what == "built is tiny version 1; the manifest says tiny version 2"
    assert caught.value.hint == "run `kernelyard build` again"
    assert not hub.exists()


def test_a_new_revision_moves_the_branch_and_keeps_the_old_one(project: Path, hub: Path) -> None:
    first = push_project(project, hub)
    metadata = project / "build" / CPU / "metadata.json"
    document = json.loads(metadata.read_bytes())
    document["license"] = "MIT"
    metadata.write_text(json.dumps(document))
    second = push_project(project, hub)
    assert second.revision != first.revision
    folder = hub / "kernels" / "test" / "tiny"
    assert {path.name for path in (folder / "revisions").iterdir()} == {first.revision, second.revision}
    assert second.revision in (folder / "refs.json").read_text()


# What was not built from the sources as they are


def refused(project: Path, hub: Path) -> CheckError:
    """Push, and return why that was refused."""
    with pytest.raises(CheckError) as caught:
        push_project(project, hub)
    assert not hub.exists()
    return caught.value


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("csrc/other.cpp", "21", "22"),
        ("csrc/answer.h", "int other();", "int  other();"),  # what sources include
        ("torch-ext/tiny/__init__.py", "nothing", "nothing at all"),
        ("build.toml", 'backend = "cpu"', 'backend = "cpu"\ncxx-flags = ["-O1"]'),
        ("build.toml", '"csrc/answer.cpp", "csrc/other.cpp"', '"csrc/other.cpp", "csrc/answer.cpp"'),
    ],
)
def test_a_build_of_other_sources_or_flags_is_refused(project: Path, hub: Path, file: str, old: str, new: str) -> None:
    edit(project / file, old, new)
    error = refused(project, hub)
    assert error.code == "KY524"
    assert error.what == "this variant was not built from the sources, flags and capabilities as they are now"
    assert error.hint == "build the project again, or remove the variant's folder"
    assert error.place is not None
    assert error.place.path == str(project / "build" / CPU)
    # As it was, it is what was built: the content counts, and not when it was written.
    edit(project / file, new, old)
    assert push_project(project, hub).variants == (CPU,)


def test_what_does_not_decide_behaviour_may_have_changed(project: Path, hub: Path) -> None:
    edit(project / "build.toml", '"Apache-2.0"', '"MIT"')
    edit(project / "build.toml", "# The least", "# The very least")
    (project / "README.md").write_text("new\n")
    for path in (project / "csrc").iterdir():
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert push_project(project, hub).variants == (CPU,)


def test_a_build_for_one_machine_is_not_published(project: Path, hub: Path, source: PartSource) -> None:
    (built,) = build_project(project, source=source, variants=["*-cu130-*"], capabilities=["9.0"])
    assert Metadata.from_json((built.path / "metadata.json").read_bytes(), path="metadata.json").archs == ("9.0a",)
    error = refused(project, hub)
    assert error.code == "KY524"
    assert error.place is not None
    assert error.place.path == str(built.path)
    build_project(project, source=source, variants=["*-cu130-*"])
    assert push_project(project, hub).variants == (CPU, built.name)


def test_a_variant_that_the_manifest_no_longer_has_is_refused(project: Path, hub: Path) -> None:
    edit(project / "build.toml", 'backends = ["cpu", "cuda"]', 'backends = ["cuda"]')
    error = refused(project, hub)
    assert (error.code, error.what) == ("KY524", "the matrix no longer has this variant")


def test_a_variant_that_was_built_elsewhere_is_published_as_it_is(project: Path, hub: Path) -> None:
    metadata = project / "build" / CPU / "metadata.json"
    document = json.loads(metadata.read_bytes())
    del document["kernelyard"]
    metadata.write_text(json.dumps(document))
    edit(project / "csrc" / "other.cpp", "21", "22")
    assert push_project(project, hub).variants == (CPU,)


def test_a_build_anew_of_the_same_sources_is_the_same_revision(project: Path, hub: Path, source: PartSource) -> None:
    first = push_project(project, hub)
    before = tree(hub)
    shutil.rmtree(project / "build")
    build_project(project, source=source, variants=["*-cpu-*"])
    assert push_project(project, hub) == first
    assert tree(hub) == before


def test_what_the_settings_say_of_variants_goes_into_the_index_also_of_those_that_stay(
    project: Path, hub: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = push_project(project, hub)
    assert first.changed
    settings = (
        '[variants."torch-stable-abi*"]\npreference = 2\nbad = "It is slow."\n\n[variants."*-cu999-*"]\nbad = "x"\n'
    )
    (project / "kernelyard.toml").write_text(settings)
    with caplog.at_level("WARNING", logger="kernelyard"):
        pushed = push_project(project, hub)
    assert [record.getMessage() for record in caplog.records if record.name == "kernelyard.publish"] == [
        "the settings say something of *-cu999-*, and no variant has such a name"
    ]
    found = StaticHub(DirectoryReader(hub)).resolve("test/tiny", version=1)
    assert found.id == pushed.revision != first.revision
    (variant,) = found.index.variants
    assert (variant.facts.preference, variant.facts.bad) == (2, "It is slow.")
    explained = explain_kernel("test/tiny", describe_system(), hub=hub)
    assert explained.best is None
    assert explained.verdicts[0].reason == "Its publisher has marked it as bad: It is slow."
    (project / "kernelyard.toml").write_text('[variants."*"]\npreference = 0\nbad = ""\n')
    assert push_project(project, hub).revision == first.revision
