from __future__ import annotations

import io
import random
import struct
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernelyard.errors import EnvironmentProblemError, KernelyardError, VerificationError
from kernelyard.toolchain import range_file
from kernelyard.toolchain.package_index import PackageIndex
from kernelyard.toolchain.remote_wheel import RemoteWheel

if TYPE_CHECKING:
    from tests.toolchain.conftest import IndexServer


def noise(seed: object, size: int) -> bytes:
    """Return bytes that do not compress, the same ones each time."""
    return random.Random(str(seed)).randbytes(size)  # noqa: S311 - not for secrets


FILE = "x-1.0-py3-none-any.whl"
RECORD = "x-1.0.dist-info/RECORD"
HEADERS = {f"x/include/{number:02}.h": noise(number, 10_000) for number in range(20)}
#: 600 kB before the headers and 1.2 MB behind them, so that the tail of the file has neither.
LARGE = {
    "x/lib/a.so": noise("a", 600_000),
    **HEADERS,
    "x/lib/b.so": noise("b", 1_200_000),
    "x/version.py": b"version = 1\n",
}


def serve(server: IndexServer, content: bytes) -> Callable[[], RemoteWheel]:
    """Offer a wheel, and return what opens it."""
    server.add("x", FILE, content)

    def connect() -> RemoteWheel:
        index = PackageIndex()
        return RemoteWheel(index, index.find_wheel("x", "1.0", platform="x86_64-linux"))

    return connect


@pytest.fixture
def large(server: IndexServer) -> Callable[[], RemoteWheel]:
    return serve(server, server.wheel(LARGE))


def take_headers(wheel: RemoteWheel, folder: Path) -> int:
    return wheel.extract(lambda name: name.startswith("x/include/"), folder, strip="x/include/")


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def failure(of: Callable[[], object], kind: type[KernelyardError] = EnvironmentProblemError) -> KernelyardError:
    with pytest.raises(KernelyardError) as caught:
        of()
    assert type(caught.value) is kind
    return caught.value


def test_members_side_by_side_come_in_one_request_and_little_else(
    server: IndexServer, large: Callable[[], RemoteWheel], tmp_path: Path
) -> None:
    wheel = large()
    assert wheel.names == (*LARGE, RECORD)
    assert take_headers(wheel, tmp_path) == 20
    assert tree(tmp_path) == {name.removeprefix("x/include/"): content for name, content in HEADERS.items()}
    tail, headers = server.file_requests
    assert tail.range == f"bytes=-{256 << 10}"
    assert tail.sent == 256 << 10
    assert 200_000 < headers.sent < 203_000


def test_what_was_received_is_counted(server: IndexServer, tmp_path: Path) -> None:
    server.add("x", FILE, server.wheel(LARGE))
    index = PackageIndex()
    take_headers(RemoteWheel(index, index.find_wheel("x", "1.0", platform="x86_64-linux")), tmp_path)
    assert index.bytes_fetched == sum(request.sent for request in server.file_requests)


@pytest.mark.parametrize(("between", "requests"), [(100 << 10, 1), (200 << 10, 2)])
def test_members_apart_come_in_one_request_while_a_request_costs_more(
    server: IndexServer, tmp_path: Path, between: int, requests: int
) -> None:
    members = {"x/a.h": b"a", "x/skipped": bytes(between), "x/b.h": b"b", "x/z": bytes(500_000)}
    connect = serve(server, server.wheel(members))
    assert connect().extract(lambda name: name.endswith(".h"), tmp_path) == 2
    assert tree(tmp_path) == {"x/a.h": b"a", "x/b.h": b"b"}
    assert len(server.file_requests) == 1 + requests


def test_a_small_wheel_costs_one_request(server: IndexServer, tmp_path: Path) -> None:
    connect = serve(server, server.wheel({"x/a.h": b"a", "x/b.h": b""}))
    assert connect().extract(lambda name: name.endswith(".h"), tmp_path) == 2
    assert tree(tmp_path) == {"x/a.h": b"a", "x/b.h": b""}
    assert len(server.file_requests) == 1


def test_a_member_that_is_at_hand_is_not_fetched_again(server: IndexServer, large: Callable[[], RemoteWheel]) -> None:
    wheel = large()
    assert wheel.read("x/version.py") == b"version = 1\n"
    assert wheel.read("x/include/07.h") == HEADERS["x/include/07.h"]
    assert wheel.read("x/include/07.h") == HEADERS["x/include/07.h"]
    assert len(server.file_requests) == 2


def test_a_directory_longer_than_the_first_request_is_read(server: IndexServer) -> None:
    members = {f"x/{'long' * 30}/{number:04}.h": str(number).encode() for number in range(3000)}
    wheel = serve(server, server.wheel(members))()
    assert len(wheel.names) == 3001
    assert wheel.read(f"x/{'long' * 30}/1234.h") == b"1234"


def test_it_comes_in_one_request_more_and_nothing_of_it_twice(server: IndexServer) -> None:
    content = server.wheel({f"x/{'long' * 30}/{number:05}.h": b"" for number in range(9000)})
    wheel = serve(server, content)()
    with zipfile.ZipFile(io.BytesIO(content)) as whole:
        start = whole.start_dir
    tail = 256 << 10
    assert len(content) - start > 5 * tail
    first, second, _record = server.file_requests
    assert (first.range, second.range) == (f"bytes=-{tail}", f"bytes={start}-{len(content) - tail - 1}")
    assert first.sent + second.sent == len(content) - start
    assert len(wheel.names) == 9001


def test_compressed_members_are_unpacked(server: IndexServer, tmp_path: Path) -> None:
    connect = serve(server, server.wheel({"x/a.h": b"abc" * 1000}, method=zipfile.ZIP_DEFLATED))
    connect().extract(lambda name: name == "x/a.h", tmp_path)
    assert tree(tmp_path) == {"x/a.h": b"abc" * 1000}


def test_programs_stay_executable(server: IndexServer, tmp_path: Path) -> None:
    content = server.wheel({"bin/nvcc": b"#!", "bin/nvcc.profile": b""}, executable=frozenset({"bin/nvcc"}))
    serve(server, content)().extract(lambda name: name.startswith("bin/"), tmp_path)
    assert tmp_path.joinpath("bin/nvcc").stat().st_mode & 0o111 == 0o111
    assert tmp_path.joinpath("bin/nvcc.profile").stat().st_mode & 0o111 == 0


def test_a_member_that_is_not_there(large: Callable[[], RemoteWheel]) -> None:
    error = failure(lambda: large().read("x/none.h"))
    assert error.code == "KY313"
    assert "has no member 'x/none.h'" in str(error)


# A server that does not know ranges


def test_a_whole_file_serves_as_well(server: IndexServer, large: Callable[[], RemoteWheel], tmp_path: Path) -> None:
    server.ranges = False
    assert take_headers(large(), tmp_path) == 20
    assert tree(tmp_path) == {name.removeprefix("x/include/"): content for name, content in HEADERS.items()}
    (request,) = server.file_requests
    assert request.sent == len(server.files[FILE][1])


def replace_file(server: IndexServer, content: bytes) -> Callable[[], RemoteWheel]:
    """Return what opens the file after the index was read and the file then replaced."""
    index = PackageIndex()
    link = index.find_wheel("x", "1.0", platform="x86_64-linux")
    server.add("x", FILE, content)
    return lambda: RemoteWheel(index, link)


def test_a_whole_file_must_have_the_digest_that_the_index_names(server: IndexServer) -> None:
    server.ranges = False
    serve(server, server.wheel({"x/a.h": b"a"}))
    error = failure(replace_file(server, server.wheel({"x/a.h": b"b"})), VerificationError)
    assert (error.code, error.exit_code) == ("KY314", 4)
    assert f"{FILE} is not the file that the index names" in str(error)


def test_a_whole_file_must_have_the_size_that_the_index_names(server: IndexServer) -> None:
    server.ranges = server.digests = False
    serve(server, server.wheel({"x/a.h": b"a"}))
    error = failure(replace_file(server, server.wheel({"x/a.h": b"a" * 9})))
    assert error.code == "KY313"


def test_a_server_that_forgets_about_ranges_on_the_way(
    server: IndexServer, large: Callable[[], RemoteWheel], tmp_path: Path
) -> None:
    wheel = large()
    server.ranges = False
    assert take_headers(wheel, tmp_path) == 20
    assert len(tree(tmp_path)) == 20


def test_a_whole_file_with_another_digest_is_refused_on_the_way_too(
    server: IndexServer, large: Callable[[], RemoteWheel], tmp_path: Path
) -> None:
    wheel = large()
    server.ranges = False
    server.add("x", FILE, server.wheel(LARGE | {"x/version.py": b"version = 2\n"}))
    for _ in range(2):
        assert failure(lambda: take_headers(wheel, tmp_path), VerificationError).code == "KY314"
    assert tree(tmp_path) == {}


def test_a_whole_file_without_end_is_not_taken_to_its_end(
    server: IndexServer, large: Callable[[], RemoteWheel]
) -> None:
    """What the index says of the size is held against what comes, before the disk is full of it."""
    server.ranges, server.chunk, server.pause_s = False, 100_000, 0.001
    server.extra = bytes(60_000_000)
    error = failure(large)
    assert error.code == "KY313"
    assert f"sends more than the {len(server.files[FILE][1])} bytes" in str(error)
    assert server.file_requests[0].sent < 20_000_000


def test_no_room_for_a_whole_file_names_the_folder_for_temporary_files(
    server: IndexServer, large: Callable[[], RemoteWheel], full_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(full_disk))
    server.ranges = False
    error = failure(large)
    assert (error.code, error.exit_code) == ("KY301", 3)
    assert "TMPDIR" in error.hint
    assert str(error.place) == str(full_disk)


# Servers and networks that misbehave


@pytest.mark.parametrize("ranges", [True, False])
def test_a_slow_server_is_waited_for(
    server: IndexServer,
    large: Callable[[], RemoteWheel],
    tmp_path: Path,
    ranges: bool,  # noqa: FBT001
) -> None:
    server.ranges, server.pause_s, server.chunk = ranges, 0.002, 50_000
    assert take_headers(large(), tmp_path) == 20
    assert len(tree(tmp_path)) == 20


@pytest.mark.parametrize("ranges", [True, False])
def test_a_server_that_falls_silent_is_given_up(
    server: IndexServer,
    large: Callable[[], RemoteWheel],
    monkeypatch: pytest.MonkeyPatch,
    ranges: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setattr(range_file, "_TIMEOUT_S", (1, 0.05))
    server.ranges, server.pause_s = ranges, 0.3
    error = failure(large)
    assert (error.code, error.exit_code) == ("KY311", 3)
    assert "timed out" in str(error)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_connection_that_ends_too_early_is_reported(
    server: IndexServer,
    large: Callable[[], RemoteWheel],
    ranges: bool,  # noqa: FBT001
) -> None:
    server.ranges, server.cut_after = ranges, 100_000
    error = failure(large)
    assert (error.code, error.exit_code) == ("KY311", 3)
    assert FILE in str(error)
    assert "100000 bytes read" in str(error)


def test_a_connection_that_ends_too_early_leaves_what_can_be_tried_again(
    server: IndexServer, large: Callable[[], RemoteWheel], tmp_path: Path
) -> None:
    wheel = large()
    server.cut_after = 50_000
    assert failure(lambda: take_headers(wheel, tmp_path)).code == "KY311"
    assert tree(tmp_path) == {}
    server.cut_after = None
    assert take_headers(wheel, tmp_path) == 20


@pytest.mark.parametrize(
    "said",
    [
        lambda _first, _last, _total: None,
        lambda _first, _last, _total: "bytes",
        lambda _first, _last, total: f"bytes */{total}",
        lambda first, last, _total: f"bytes {first}-{last}/*",
        lambda first, last, total: f"items {first}-{last}/{total}",
        lambda first, last, total: f"bytes {first - 7}-{last - 7}/{total}",
        lambda first, last, total: f"bytes {first + 7}-{last}/{total}",
        lambda first, last, total: f"bytes {first}-{last + 1}/{total}",
        lambda first, last, total: f"bytes {first}-{last}/{total + 1}",
        lambda first, last, total: f"bytes {last}-{first}/{total}",
        lambda first, last, _total: f"bytes {first}-{last}/{last}",
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_server_that_lies_about_the_range_is_found_out(
    server: IndexServer,
    large: Callable[[], RemoteWheel],
    tmp_path: Path,
    said: Callable[[int, int, int], str | None],
    at_once: bool,  # noqa: FBT001
) -> None:
    server.sizes = False
    if not at_once:
        wheel = large()
    server.content_range = said
    error = failure(lambda: take_headers(large() if at_once else wheel, tmp_path))
    assert (error.code, error.exit_code) == ("KY313", 3)
    assert "range" in str(error) or "bytes of it" in str(error) or "the connection ended" in str(error)
    assert len(server.file_requests) <= 2
    assert tree(tmp_path) == {}


def test_a_server_that_answers_with_less_than_was_asked_for_is_asked_for_the_rest(
    server: IndexServer, large: Callable[[], RemoteWheel], tmp_path: Path
) -> None:
    server.most = 70_000
    assert take_headers(large(), tmp_path) == 20
    assert tree(tmp_path) == {name.removeprefix("x/include/"): content for name, content in HEADERS.items()}
    assert len(server.file_requests) == 1 + 3


@pytest.mark.parametrize(
    ("status", "code", "kind"), [(404, "KY311", EnvironmentProblemError), (200, "KY314", VerificationError)]
)
def test_a_failure_while_a_member_is_unpacked_is_told_as_what_it_is(
    server: IndexServer, large: Callable[[], RemoteWheel], status: int, code: str, kind: type[KernelyardError]
) -> None:
    wheel = large()
    server.most = 70_000

    def answer_the_last_time(first: int, last: int, total: int) -> str:
        server.status, server.ranges = status, False
        server.add("x", FILE, b"other")
        return f"bytes {first}-{last}/{total}"

    server.content_range = answer_the_last_time
    assert failure(lambda: wheel.read("x/lib/a.so"), kind).code == code
    assert len(server.file_requests) == 3


def test_the_wrong_part_with_the_right_label_is_found_out(server: IndexServer, tmp_path: Path) -> None:
    wheel = serve(server, server.wheel(LARGE))()
    shifted = server.wheel({"x/y": b"shift"} | LARGE)
    server.add("x", FILE, shifted[: len(server.files[FILE][1])])
    error = failure(lambda: take_headers(wheel, tmp_path))
    assert error.code == "KY313"
    assert tree(tmp_path) == {}


def test_the_size_must_be_the_one_that_the_index_names(server: IndexServer) -> None:
    serve(server, server.wheel({"x/a.h": b"a"}))
    smaller = server.wheel({"x/a.h": b""})
    error = failure(replace_file(server, smaller))
    assert error.code == "KY313"
    assert f"the server has {len(smaller)} bytes of it, not {len(smaller) + 1}" in str(error)


def test_more_bytes_than_announced_are_not_taken(server: IndexServer, large: Callable[[], RemoteWheel]) -> None:
    server.extra = b"more"
    error = failure(large)
    assert error.code == "KY313"
    assert "sends more" in str(error)


def test_a_file_that_changes_while_it_is_read_is_noticed(
    server: IndexServer, large: Callable[[], RemoteWheel], tmp_path: Path
) -> None:
    tags: Iterable[str] = iter(('"1"', '"2"'))
    server.etag = lambda: next(tags)  # type: ignore[call-overload]
    wheel = large()
    error = failure(lambda: take_headers(wheel, tmp_path))
    assert (error.code, error.exit_code) == ("KY313", 3)
    assert "changed on the server" in str(error)
    assert tree(tmp_path) == {}


def test_a_file_that_keeps_its_tag_is_read(
    server: IndexServer, large: Callable[[], RemoteWheel], tmp_path: Path
) -> None:
    server.etag = lambda: '"1"'
    assert take_headers(large(), tmp_path) == 20


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (403, 1), (503, 4)])
def test_a_refused_file_is_reported_with_its_address(
    server: IndexServer, large: Callable[[], RemoteWheel], status: int, requests: int
) -> None:
    server.status = status
    error = failure(large)
    assert (error.code, error.exit_code) == ("KY311", 3)
    assert str(status) in str(error)
    assert f"{server.url}/files/{FILE}" in str(error)
    assert len(server.file_requests) == requests


# What RECORD promises


def test_a_member_that_differs_from_record_is_refused_and_not_written(server: IndexServer, tmp_path: Path) -> None:
    content = server.wheel({"x/a.h": b"evil", "x/b.h": b"b"}, recorded={"x/a.h": b"good", "x/b.h": b"b"})
    wheel = serve(server, content)()
    error = failure(lambda: wheel.extract(lambda name: name.endswith(".h"), tmp_path), VerificationError)
    assert (error.code, error.exit_code) == ("KY314", 4)
    assert "RECORD has another digest for x/a.h" in str(error)
    assert tree(tmp_path) == {}
    assert wheel.read("x/b.h") == b"b"


def test_a_member_that_record_does_not_know_is_refused(server: IndexServer, tmp_path: Path) -> None:
    wheel = serve(server, server.wheel({"x/a.h": b"a", "x/b.h": b"b"}, recorded={"x/b.h": b"b"}))()
    error = failure(lambda: wheel.extract(lambda name: name.endswith(".h"), tmp_path), VerificationError)
    assert error.code == "KY314"
    assert "RECORD does not know x/a.h" in str(error)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    ("members", "record", "said"),
    [
        ({}, b"", "has no RECORD"),
        ({"x/sub.dist-info/RECORD": b""}, b"", "has no RECORD"),
        ({"y-1.0.dist-info/RECORD": b""}, None, "RECORD"),
        ({}, b"x/a.h,sha256=\xff\xff,1\n", "cannot be read"),
        ({}, b"x/a.h,sha256=a,1\n", "cannot be read"),
        ({}, b"x/a.h," + b"a" * 200_000 + b",1\n", "cannot be read"),
    ],
)
def test_a_wheel_without_one_readable_record_is_none(
    server: IndexServer, members: dict[str, bytes], record: bytes | None, said: str
) -> None:
    error = failure(serve(server, server.wheel({"x/a.h": b"a"} | members, record=record)))
    assert (error.code, error.exit_code) == ("KY313", 3)
    assert said in str(error)


# Paths


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../up.h", "x/../../up.h", "x/./a.h", "x//a.h", "..\\up.h", "C:/a.h", "x/a.h\n", "x/\u202ea.h"],
)
@pytest.mark.parametrize("strip", ["", "x/include/"])
def test_a_path_that_leads_elsewhere_is_refused(server: IndexServer, tmp_path: Path, path: str, strip: str) -> None:
    folder = tmp_path / "a" / "b"
    wheel = serve(server, server.wheel({strip + path: b"evil"}))()
    error = failure(lambda: wheel.extract(lambda name: not name.endswith("RECORD"), folder, strip=strip))
    assert (error.code, error.exit_code) == ("KY313", 3)
    assert "path" in str(error)
    assert tree(tmp_path) == {}


def test_a_link_is_refused(server: IndexServer, tmp_path: Path) -> None:
    content = patch_directory(server.wheel({"x/a.h": b"/etc/passwd"}), "x/a.h", 38, struct.pack("<I", 0o120777 << 16))
    wheel = serve(server, content)()
    error = failure(lambda: wheel.extract(lambda name: name == "x/a.h", tmp_path))
    assert (error.code, error.exit_code) == ("KY313", 3)
    assert "x/a.h is a link" in str(error)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("names", [("x/a", "x/a/b"), ("x/a/b", "x/a")])
def test_a_name_that_is_a_file_and_a_folder_is_refused(
    server: IndexServer, tmp_path: Path, names: tuple[str, str]
) -> None:
    wheel = serve(server, server.wheel(dict.fromkeys(names, b"")))()
    error = failure(lambda: wheel.extract(lambda name: name in names, tmp_path))
    assert error.code == "KY313"
    assert "a file and a folder" in str(error)


# Bytes that are no wheel


def patch_directory(content: bytes, name: str, offset: int, value: bytes) -> bytes:
    """Overwrite a field of a member's entry in the central directory."""
    place = content.rindex(b"PK\x01\x02", 0, content.rindex(name.encode()))
    return content[: place + offset] + value + content[place + offset + len(value) :]


def test_members_that_unpack_to_an_absurd_size_are_refused_unread(server: IndexServer, tmp_path: Path) -> None:
    content = server.wheel({"x/a.h": noise(1, 400_000), "x/b.h": b"b"})
    wheel = serve(server, patch_directory(content, "x/a.h", 24, struct.pack("<I", 3 << 30)))()
    before = len(server.file_requests)
    for read in (lambda: wheel.extract(lambda _: True, tmp_path), lambda: wheel.read("x/a.h")):
        error = failure(read)
        assert (error.code, error.exit_code) == ("KY313", 3)
        assert "absurd size" in str(error)
    assert len(server.file_requests) <= before + 1
    assert tree(tmp_path) == {}
    assert wheel.read("x/b.h") == b"b"


def test_an_absurd_record_is_refused(server: IndexServer) -> None:
    for size in (65 << 20, 3 << 30):
        content = patch_directory(server.wheel({"x/a.h": b""}), RECORD, 24, struct.pack("<I", size))
        assert "its RECORD unpacks to an absurd size" in str(failure(serve(server, content)))


def test_a_member_that_unpacks_to_more_than_its_header_says_costs_no_memory(server: IndexServer) -> None:
    content = server.wheel({"x/a.h": bytes(64 << 20)}, method=zipfile.ZIP_DEFLATED)
    wheel = serve(server, patch_directory(content, "x/a.h", 24, struct.pack("<I", 10)))()
    tracemalloc.start()
    try:
        error = failure(lambda: wheel.read("x/a.h"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert error.code == "KY313"
    assert peak < 4 << 20


def test_an_encrypted_member_is_reported(server: IndexServer) -> None:
    content = patch_directory(server.wheel({"x/a.h": b"a"}), "x/a.h", 8, b"\x01\x00")
    wheel = serve(server, content)()
    error = failure(lambda: wheel.read("x/a.h"))
    assert error.code == "KY313"
    assert "encrypted" in str(error)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_method_that_wheels_do_not_use_is_refused(server: IndexServer, method: int) -> None:
    error = failure(serve(server, server.wheel({"x/a.h": b"a"}, method=method)))
    assert (error.code, error.exit_code) == ("KY313", 3)
    assert "compressed in a way that wheels are not" in str(error)


def test_a_damaged_compressed_member_is_reported(server: IndexServer) -> None:
    content = bytearray(server.wheel({"x/a.h": noise(0, 1000)}, method=zipfile.ZIP_DEFLATED))
    content[30 + 5 : 30 + 60] = b"\xff" * 55
    wheel = serve(server, bytes(content))()
    error = failure(lambda: wheel.read("x/a.h"))
    assert (error.code, error.exit_code) == ("KY313", 3)
    assert "x/a.h cannot be unpacked" in str(error)


@pytest.mark.parametrize(
    "content",
    [
        b"<html>please log in</html>",
        b"PK\x05\x06",
        noise(3, 300_000),
    ],
)
@pytest.mark.parametrize("ranges", [True, False])
def test_what_is_no_wheel_is_reported(server: IndexServer, content: bytes, ranges: bool) -> None:  # noqa: FBT001
    server.ranges = ranges
    error = failure(serve(server, content))
    assert (error.code, error.exit_code) == ("KY313", 3)
    assert f"cannot read {FILE}: not a wheel" in str(error)
    assert f"{server.url}/files/{FILE}" in str(error)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_wheel_cut_anywhere_is_reported(server: IndexServer, ranges: bool) -> None:  # noqa: FBT001
    server.ranges = ranges
    content = server.wheel(LARGE)
    for length in (1000, 700_000, len(content) - 1000, len(content) - 30, len(content) - 1):
        assert failure(serve(server, content[:length])).code == "KY313"


def test_an_empty_file_is_reported(server: IndexServer) -> None:
    assert failure(serve(server, b"")).exit_code == 3


def test_whatever_byte_is_damaged_the_members_are_right_or_it_is_said(server: IndexServer, tmp_path: Path) -> None:
    dice = random.Random(20261130)  # noqa: S311 - not for secrets
    members = {f"x/{number}.h": dice.randbytes(20) * 9 for number in range(4)}
    sound = server.wheel(members, method=zipfile.ZIP_DEFLATED)
    directory = sound.index(b"PK\x01\x02")
    connect = serve(server, sound)
    index = PackageIndex()
    link = index.find_wheel("x", "1.0", platform="x86_64-linux")
    found = []
    for number in range(400):
        damaged = bytearray(sound)
        for _ in range(dice.choice((1, 1, 4))):
            first = directory if number % 2 else 0
            damaged[dice.randrange(first, len(sound))] = dice.choice((0, 0xFF, dice.randrange(256)))
        server.add("x", FILE, bytes(damaged))
        folder = tmp_path / str(number)
        try:
            RemoteWheel(index, link).extract(lambda name: name.endswith(".h"), folder)
        except KernelyardError as error:
            found.append(error.code)
        for name, content in tree(folder).items():
            assert members.get(name, content) == content
    assert set(found) <= {"KY313", "KY314"}
    assert 200 < len(found) < 400
    server.add("x", FILE, sound)
    assert connect().read("x/3.h") == members["x/3.h"]
