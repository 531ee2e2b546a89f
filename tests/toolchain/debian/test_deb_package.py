from __future__ import annotations

import io
import lzma
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelyard.errors import EnvironmentProblemError
from kernelyard.store import writing
from kernelyard.toolchain import deb_package
from kernelyard.toolchain.deb_package import DebPackage, Selection

if TYPE_CHECKING:
    from tests.toolchain.debian.conftest import Pieces

FILES = {
    "etc/x.conf": b"conf",
    "usr/bin/nvcc": b"program",
    "usr/bin/nvcc.profile": b"profile",
    "usr/lib/x/bin/cicc": b"compiler",
    "usr/lib/x/libdevice/libdevice.10.bc": b"bitcode" * 5000,
}


def unpack(content: bytes, folder: Path, *selections: Selection) -> tuple[str, ...]:
    return DebPackage(io.BytesIO(content), "x 1.0 (amd64)").extract(folder, selections or (Selection(),))


def tree(folder: Path) -> dict[str, bytes | str]:
    """Return what is in a folder: bytes of files, texts of links."""
    return {
        path.relative_to(folder).as_posix(): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def failure(of: Callable[[], object]) -> str:
    """Return the message of the error for a package that cannot be unpacked."""
    with pytest.raises(EnvironmentProblemError) as caught:
        of()
    assert (caught.value.code, caught.value.exit_code) == ("KY344", 3)
    return str(caught.value)


# What is taken


@pytest.mark.parametrize("suffix", [".xz", ".gz", ""])
def test_all_files_are_written_without_a_selection(pieces: Pieces, tmp_path: Path, suffix: str) -> None:
    assert unpack(pieces.deb(FILES, suffix=suffix), tmp_path) == tuple(FILES)
    assert tree(tmp_path) == FILES


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(("usr/bin/nvcc",)), {"usr/bin/nvcc"}),
        (Selection(("usr/bin",)), {"usr/bin/nvcc", "usr/bin/nvcc.profile"}),
        (Selection(("usr/bin/",)), {"usr/bin/nvcc", "usr/bin/nvcc.profile"}),
        (Selection(("usr/bi",)), set()),
        (Selection(("etc", "usr/lib/x/bin/cicc")), {"etc/x.conf", "usr/lib/x/bin/cicc"}),
        (Selection(("nvcc",), strip="usr/bin/"), {"nvcc"}),
        (Selection(("nvcc",), strip="usr/bin", into="bin"), {"bin/nvcc"}),
        (Selection(strip="usr/lib/x", into="nvvm/"), {"nvvm/bin/cicc", "nvvm/libdevice/libdevice.10.bc"}),
        (Selection(("bin",), strip="usr/lib/x"), {"bin/cicc"}),
        (Selection(strip="usr/lib/x/bin/cicc", into="nvvm/bin/other"), {"nvvm/bin/other"}),
        (Selection(()), set()),
    ],
)
def test_a_selection_says_what_is_taken_and_where_it_goes(
    pieces: Pieces, tmp_path: Path, selection: Selection, expected: set[str]
) -> None:
    assert set(unpack(pieces.deb(FILES), tmp_path, selection)) == expected
    assert tree(tmp_path).keys() == expected


def test_the_first_selection_that_takes_a_file_says_where_it_goes(pieces: Pieces, tmp_path: Path) -> None:
    first, second = Selection(("nvcc",), strip="usr/bin", into="bin"), Selection(("usr", "etc"), into="rest")
    unpack(pieces.deb(FILES), tmp_path, first, second)
    assert tree(tmp_path) == {
        "bin/nvcc" if name == "usr/bin/nvcc" else f"rest/{name}": content for name, content in FILES.items()
    }


def test_programs_stay_executable_and_nothing_gets_other_rights(pieces: Pieces, tmp_path: Path) -> None:
    members = [
        pieces.member("./bin/", type=tarfile.DIRTYPE, mode=0o777),
        pieces.member("./bin/su", b"x", mode=0o4755),
        pieces.member("./bin/data", b"x", mode=0o666),
        pieces.member("./empty/", type=tarfile.DIRTYPE, mode=0o777),
    ]
    unpack(pieces.deb(members), tmp_path)
    assert tmp_path.joinpath("bin/su").stat().st_mode & 0o7777 == 0o755
    assert tmp_path.joinpath("bin/data").stat().st_mode & 0o7133 == 0
    assert not tmp_path.joinpath("empty").exists()


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_and_letters_are_read(pieces: Pieces, tmp_path: Path, form: int) -> None:
    name = f"usr/{'long' * 40}/{'long' * 40}/Läger☃ a:b.h"
    tar = pieces.tar([pieces.member(f"./{name}", b"x"), pieces.link("./link", f"/{name}")], form=form)
    unpack(pieces.deb(data=tar), tmp_path)
    assert tree(tmp_path) == {name: b"x", "link": name}


def test_folders_that_are_there_already_are_filled_further(pieces: Pieces, tmp_path: Path) -> None:
    unpack(pieces.deb({"usr/lib/a": b"a"}), tmp_path)
    unpack(pieces.deb({"usr/lib/b": b"b", "usr/c": b"c"}), tmp_path)
    assert tree(tmp_path) == {"usr/lib/a": b"a", "usr/lib/b": b"b", "usr/c": b"c"}


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb to compare with")
@pytest.mark.parametrize("compression", ["xz", "gzip", "none"])
def test_a_package_of_dpkg_is_unpacked_as_dpkg_does(tmp_path: Path, compression: str) -> None:
    origin, ours, theirs = (tmp_path / name for name in ("origin", "ours", "theirs"))
    for name, content in FILES.items():
        origin.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        origin.joinpath(name).write_bytes(content)
    origin.joinpath("usr/lib/y").symlink_to("x/bin")
    os.link(origin / "usr/bin/nvcc", origin / "usr/bin/same")
    origin.joinpath("DEBIAN").mkdir()
    control = "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x.example>\nDescription: x\n"
    origin.joinpath("DEBIAN/control").write_text(control)
    built = tmp_path / "x.deb"
    subprocess.run(["dpkg-deb", f"-Z{compression}", "-b", origin, built], check=True, capture_output=True)
    subprocess.run(["dpkg-deb", "-x", built, theirs], check=True)
    ours.mkdir()
    unpack(built.read_bytes(), ours)
    assert tree(ours) == tree(theirs)
    assert tree(ours)["usr/bin/same"] == b"program"


# Links


@pytest.mark.parametrize(
    ("name", "text", "written"),
    [
        ("usr/lib/a.so", "a.so.1", "a.so.1"),
        ("usr/lib/a.so", "./a.so.1", "a.so.1"),
        ("usr/lib/a.so", "../../lib/a.so.1", "../../lib/a.so.1"),
        ("usr/lib/a.so", "../lib/../include", "../include"),
        ("usr/lib/a.so", "/lib/a.so.1", "../../lib/a.so.1"),
        ("usr/lib/a.so", "/usr/lib/a.so.1", "a.so.1"),
        ("usr/lib/a.so", "/../lib//a.so.1", "../../lib/a.so.1"),
        ("usr/lib/a.so", "/", "../.."),
        ("usr/lib/a.so", "../..", "../.."),
        ("a.so", "/lib/a.so.1", "lib/a.so.1"),
    ],
)
def test_links_inside_stay_links_and_are_made_relative(
    pieces: Pieces, tmp_path: Path, name: str, text: str, written: str
) -> None:
    unpack(pieces.deb([pieces.link(f"./{name}", text)]), tmp_path)
    assert tree(tmp_path) == {name: written}


def test_links_lead_to_where_their_goals_have_gone(pieces: Pieces, tmp_path: Path) -> None:
    members = [
        pieces.member("./usr/lib/x/bin/cicc", b"compiler"),
        pieces.link("./usr/bin/cicc", "/usr/lib/x/bin/cicc"),
        pieces.link("./usr/bin/near", "cicc"),
        pieces.link("./usr/bin/later", "of-another-package"),
    ]
    selections = (
        Selection(("cicc", "near", "later"), strip="usr/bin", into="bin"),
        Selection(("bin",), "usr/lib/x", "nvvm"),
    )
    written = unpack(pieces.deb(members), tmp_path, *selections)
    assert sorted(written) == ["bin/cicc", "bin/later", "bin/near", "nvvm/bin/cicc"]
    assert tree(tmp_path) == {
        "nvvm/bin/cicc": b"compiler",
        "bin/cicc": "../nvvm/bin/cicc",
        "bin/near": "cicc",
        "bin/later": "of-another-package",
    }
    assert tmp_path.joinpath("bin/near").read_bytes() == b"compiler"


def test_links_still_lead_there_after_a_move(pieces: Pieces, tmp_path: Path) -> None:
    members = [pieces.member("./lib/a.so.1", b"a"), pieces.link("./usr/lib/a.so", "/lib/a.so.1")]
    tmp_path.joinpath("made").mkdir()
    unpack(pieces.deb(members), tmp_path / "made")
    tmp_path.joinpath("made").rename(tmp_path / "moved")
    assert tmp_path.joinpath("moved/usr/lib/a.so").read_bytes() == b"a"


def test_one_file_under_two_names_is_written_twice(pieces: Pieces, tmp_path: Path) -> None:
    members = [pieces.member("./bin/a", b"a", mode=0o755), pieces.link("./bin/b", "./bin/a", hard=True)]
    members[1][0].mode = 0o755
    unpack(pieces.deb(members), tmp_path)
    assert tree(tmp_path) == {"bin/a": b"a", "bin/b": b"a"}
    assert os.access(tmp_path / "bin/b", os.X_OK)


@pytest.mark.parametrize(
    ("name", "text", "selection"),
    [
        ("a", "../b", Selection()),
        ("a", "..", Selection()),
        ("usr/a", "../../b", Selection()),
        ("usr/a", "../../usr/b", Selection()),  # by the name of the folder it would be inside again
        ("usr/a", "b/../../../usr/a", Selection()),
        ("usr/a", "/etc/passwd", Selection(strip="usr")),
        ("usr/a", "../etc/passwd", Selection(strip="usr")),
        ("usr/a", "", Selection()),
    ],
)
def test_links_that_lead_out_of_what_is_taken_are_refused(
    pieces: Pieces, tmp_path: Path, name: str, text: str, selection: Selection
) -> None:
    content = pieces.deb([pieces.link(f"./{name}", text)])
    assert "out of what is taken" in failure(lambda: unpack(content, tmp_path, selection))
    assert tree(tmp_path) == {}


def test_a_link_that_is_not_taken_may_say_what_it_likes(pieces: Pieces, tmp_path: Path) -> None:
    members = [pieces.link("./usr/a", "../../../b"), pieces.member("./usr/b", b"b")]
    assert unpack(pieces.deb(members), tmp_path, Selection(("usr/b",))) == ("usr/b",)


@pytest.mark.parametrize("goal", ["./usr/c", "./usr/not-taken", "usr/link", "../x", "/etc/passwd"])
def test_a_file_under_a_second_name_only_is_refused(pieces: Pieces, tmp_path: Path, goal: str) -> None:
    members = [
        pieces.member("./usr/not-taken", b"x"),
        pieces.link("./usr/link", "b"),
        pieces.link("./usr/a", goal, hard=True),
    ]
    failure(lambda: unpack(pieces.deb(members), tmp_path, Selection(("usr/a", "usr/link"))))
    assert b"x" not in tree(tmp_path).values()


NAMES = st.lists(st.sampled_from(["a", "b", "c", "..", "."]), min_size=1, max_size=4).map("/".join)


@given(st.lists(st.tuples(NAMES, st.sampled_from(["", "/", "link to "]), NAMES), max_size=6))
def test_no_link_leads_out_however_many_follow_on_each_other(pieces: Pieces, drawn: list[tuple[str, str, str]]) -> None:
    with TemporaryDirectory() as outer:
        folder = Path(outer, "x", "folder")
        folder.mkdir(parents=True)
        for name, before, text in drawn:
            taken = pieces.link(name, before + text) if before != "link to " else pieces.member(name, b"x")
            try:
                unpack(pieces.deb([taken], suffix=""), folder)
            except EnvironmentProblemError:
                continue
        for path in folder.rglob("*"):
            assert Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
        assert [path.name for path in Path(outer).iterdir()] == ["x"]
        assert [path.name for path in Path(outer, "x").iterdir()] == ["folder"]


# What no package should have


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "./../x", "a/../../x", "a/./x", "a//x", ".//x", "a/.."])
def test_paths_that_lead_out_are_refused(pieces: Pieces, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    content = pieces.deb([pieces.member("good", b"g"), pieces.member(name, b"x")])
    # Even where they are not wanted: this is no package of Debian's.
    assert "not a path inside of a package" in failure(lambda: unpack(content, folder, Selection(("good",))))
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_name_with_a_zero_in_it_is_refused(pieces: Pieces, tmp_path: Path) -> None:
    member = pieces.member("a", b"x")
    member[0].pax_headers = {"path": "a\0b"}
    failure(lambda: unpack(pieces.deb(data=pieces.tar([member], form=tarfile.PAX_FORMAT)), tmp_path))
    link = pieces.link("a", "b")
    link[0].pax_headers = {"linkpath": "a\0b"}
    failure(lambda: unpack(pieces.deb(data=pieces.tar([link], form=tarfile.PAX_FORMAT)), tmp_path))
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, b"V"])
def test_what_is_neither_file_nor_link_is_refused(pieces: Pieces, tmp_path: Path, kind: bytes) -> None:
    content = pieces.deb([pieces.member("./dev/x", type=kind)])
    assert "'./dev/x' is neither a file nor a link" in failure(lambda: unpack(content, tmp_path))
    assert tree(tmp_path) == {}


def test_files_with_holes_are_refused(pieces: Pieces, tmp_path: Path) -> None:
    member = pieces.member("./x", b"1\n0\n1\n" + bytes(506))
    member[0].pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9999999"}
    content = pieces.deb(data=pieces.tar([member], form=tarfile.PAX_FORMAT))
    assert "neither a file nor a link" in failure(lambda: unpack(content, tmp_path))


def test_nothing_is_written_through_a_link(pieces: Pieces, tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    outside.joinpath("kept").write_bytes(b"kept")
    folder.joinpath("lib").symlink_to(outside)
    folder.joinpath("file").symlink_to(outside / "kept")
    for content in (
        pieces.deb({"lib/x": b"x"}),
        pieces.deb({"lib/y/x": b"x"}),
        pieces.deb({"file": b"x"}),
        pieces.deb([pieces.link("./lib/x", "y")]),
        pieces.deb([pieces.link("./file", "y")]),
    ):
        failure(lambda content=content: unpack(content, folder))  # type: ignore[misc]
    assert tree(outside) == {"kept": b"kept"}


def test_a_link_in_the_place_of_a_folder_of_the_same_package_is_refused(pieces: Pieces, tmp_path: Path) -> None:
    members = [pieces.member("./usr/lib/a", b"a"), pieces.link("./lib", "usr/lib"), pieces.member("./lib/b", b"b")]
    assert "'lib' is there already" in failure(lambda: unpack(pieces.deb(members), tmp_path))
    assert tree(tmp_path) == {"usr/lib/a": b"a", "lib/b": b"b"}


@pytest.mark.parametrize(
    "names", [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("a", "link:a"), ("link:a", "link:a"), ("link:a", "link:a/b")]
)
def test_two_members_in_one_place_are_refused(pieces: Pieces, tmp_path: Path, names: tuple[str, str]) -> None:
    members = [
        pieces.link(name.removeprefix("link:"), "goal") if name.startswith("link:") else pieces.member(name, b"x")
        for name in names
    ]
    failure(lambda: unpack(pieces.deb(members), tmp_path))


def test_what_is_there_already_is_not_replaced(pieces: Pieces, tmp_path: Path) -> None:
    unpack(pieces.deb({"usr/a": b"first"}), tmp_path)
    assert "'usr/a' is there already" in failure(lambda: unpack(pieces.deb({"usr/a": b"second"}), tmp_path))
    assert tree(tmp_path) == {"usr/a": b"first"}


def test_absurd_sizes_are_refused_before_anything_is_unpacked(
    pieces: Pieces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = tarfile.TarInfo("./x")
    header.size = 5 << 30
    content = pieces.deb(data=header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    assert "absurd size" in failure(lambda: unpack(content, tmp_path))
    monkeypatch.setattr(deb_package, "_MOST_BYTES", 1000)
    # Many small ones are as bad as a large one, and those that are skipped as those that are taken.
    content = pieces.deb({f"x{number}": bytes(300) for number in range(9)} | {"y": b"y"})
    assert "absurd size" in failure(lambda: unpack(content, tmp_path, Selection(("y",))))
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_what_comes_along_with_a_header_is_not_of_an_absurd_size(pieces: Pieces, tmp_path: Path, kind: bytes) -> None:
    header = tarfile.TarInfo("./x")
    header.type, header.size = kind, 2 << 30
    content = pieces.deb(data=header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    assert "absurd size" in failure(lambda: unpack(content, tmp_path))


# What is damaged


@pytest.mark.parametrize("suffix", [".xz", ".gz", ""])
def test_a_package_that_is_cut_short_is_refused_wherever_it_was_cut(
    pieces: Pieces, tmp_path: Path, suffix: str
) -> None:
    content = pieces.deb(FILES, suffix=suffix)
    for number, size in enumerate(range(0, len(content) - 1, max(1, len(content) // 100))):
        folder = tmp_path / str(number)
        folder.mkdir()
        failure(lambda size=size, folder=folder: unpack(content[:size], folder))  # type: ignore[misc]


def test_a_tar_that_is_cut_short_inside_of_a_whole_package_is_refused(pieces: Pieces, tmp_path: Path) -> None:
    tar = pieces.tar([pieces.member(f"./{name}", bytes(600)) for name in "abc"])
    # Each member is a header and two blocks; afterwards come the blocks of zeros that end the archive.
    for number, size in enumerate((0, 100, 512, 1000, 1536, 1600, 2048, 3072, 3100, 4000, 4608)):
        folder = tmp_path / str(number)
        folder.mkdir()
        failure(lambda size=size, folder=folder: unpack(pieces.deb(data=tar[:size]), folder))  # type: ignore[misc]


def test_a_damaged_header_is_not_taken_for_the_end(pieces: Pieces, tmp_path: Path) -> None:
    tar = bytearray(pieces.tar([pieces.member(f"./{name}", bytes(600)) for name in "abc"]))
    tar[1536 + 5] ^= 1
    assert "damaged" in failure(lambda: unpack(pieces.deb(data=bytes(tar)), tmp_path))


@pytest.mark.parametrize("position", [8, 60, 68, 75, 140, 200, -200, -50, -1])
def test_flipped_bytes_are_found_or_do_no_harm(pieces: Pieces, tmp_path: Path, position: int) -> None:
    content = bytearray(pieces.deb(FILES))
    content[position] ^= 0x55
    try:
        unpack(bytes(content), tmp_path)
    except EnvironmentProblemError as error:
        assert error.code == "KY344"  # noqa: PT017 - that there is an error is not what is asked for
    else:
        assert tree(tmp_path) == FILES


@pytest.mark.parametrize(
    "content", [b"", b"!<arch>\n", b"PK\3\4" + bytes(100), b"<html>", b"!<arch>\n" + b"x" * 60, bytes(1000)]
)
def test_what_is_no_package_is_refused(tmp_path: Path, content: bytes) -> None:
    assert "cannot unpack x 1.0 (amd64): " in failure(lambda: unpack(content, tmp_path))


def test_an_archive_without_what_makes_it_a_package_is_refused(pieces: Pieces, tmp_path: Path) -> None:
    data = lzma.compress(pieces.tar([pieces.member("./x", b"x")]))
    for parts in ({"data.tar.xz": data}, {"debian-binary": b"2.0\n"}, {"x": b"", "debian-binary": b"2.0\n"}):
        assert "not a Debian package" in failure(lambda parts=parts: unpack(pieces.ar(parts), tmp_path))  # type: ignore[misc]
    for other in (b"", b"text", lzma.compress(b"text"), lzma.compress(b"")):
        failure(lambda other=other: unpack(pieces.ar({"debian-binary": b"", "data.tar.xz": other}), tmp_path))  # type: ignore[misc]


def test_names_of_parts_may_end_in_a_slash(pieces: Pieces, tmp_path: Path) -> None:
    data = pieces.tar([pieces.member("./x", b"x")])
    parts = {"debian-binary/": b"2.0\n", "_other/": b"x", "data.tar/": data}
    assert unpack(pieces.ar(parts), tmp_path) == ("x",)


def test_a_compression_that_cannot_be_read_is_named(pieces: Pieces, tmp_path: Path) -> None:
    content = pieces.deb(FILES, suffix=".zst")
    assert "data.tar.zst is compressed in a way that cannot be read" in failure(lambda: unpack(content, tmp_path))


def test_a_full_disk_is_told_as_what_it_is(pieces: Pieces, full_disk: Path) -> None:
    content = pieces.deb({"x": bytes(1 << 20)})

    def unpack_into_a_store() -> None:
        with writing(full_disk):
            unpack(content, full_disk)

    with pytest.raises(EnvironmentProblemError) as caught:
        unpack_into_a_store()
    assert caught.value.code == "KY301"
