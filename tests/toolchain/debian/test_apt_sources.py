from __future__ import annotations

from pathlib import Path

import pytest

from kernelyard.toolchain.apt_sources import AptSource, apt_proxy, apt_sources

ONE_LINE = """
# deb http://commented.example/debian bookworm main
deb http://one.example/debian bookworm main contrib non-free # the mirror
deb-src http://source.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/x.gpg] https://two.example/debian/ bookworm-security main
deb cdrom:[Debian 12]/ bookworm main
deb mirror+file:/etc/apt/mirrors.list bookworm main
deb http://ubuntu.example/ubuntu jammy main
deb [arch=amd64] https://vendor.example/linux/debian bookworm stable
deb http://flat.example/ ./
deb
"""

STANZAS = """\
# comment
Types: deb deb-src
URIs: http://three.example/debian http://four.example/debian
Suites: trixie
  trixie-updates
# a comment in the middle
Components: main non-free
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 URIs: http://not.example/

Types: deb-src
URIs: http://source.example/debian
Suites: trixie
Components: main

types: deb
uris: http://disabled.example/debian
suites: trixie
components: main
enabled: no
"""


def test_sources_in_lines_are_read(apt: Path) -> None:
    apt.joinpath("sources.list").write_text(ONE_LINE)
    assert apt_sources(apt) == (
        AptSource("http://one.example/debian/", "bookworm", ("main", "contrib", "non-free")),
        AptSource("https://two.example/debian/", "bookworm-security", ("main",)),
    )


def test_sources_in_stanzas_are_read(apt: Path) -> None:
    apt.joinpath("sources.list.d/debian.sources").write_text(STANZAS)
    assert [(source.address, source.suite) for source in apt_sources(apt)] == [
        ("http://three.example/debian/", "trixie"),
        ("http://three.example/debian/", "trixie-updates"),
        ("http://four.example/debian/", "trixie"),
        ("http://four.example/debian/", "trixie-updates"),
    ]
    assert {source.components for source in apt_sources(apt)} == {("main", "non-free")}


def test_all_files_are_read_in_order_and_only_those_that_apt_reads(apt: Path) -> None:
    for name in ("sources.list", "sources.list.d/b.list", "sources.list.d/a.list", "sources.list.d/c.list.disabled"):
        apt.joinpath(name).write_text(f"deb http://{Path(name).stem}.example/debian stable main\n")
    apt.joinpath("sources.list.d/broken.list").write_bytes(b"\xff\xfe")
    apt.joinpath("sources.list.d/folder.sources").mkdir()
    assert [source.address for source in apt_sources(apt)] == [
        "http://sources.example/debian/",
        "http://a.example/debian/",
        "http://b.example/debian/",
    ]


def test_a_machine_without_apt_has_no_sources(tmp_path: Path) -> None:
    assert apt_sources(tmp_path / "none") == ()
    assert apt_proxy("http://one.example/", tmp_path / "none") is None


@pytest.mark.parametrize(
    ("text", "url", "proxy"),
    [
        ('Acquire::http::Proxy "http://proxy.example:3142";', "http://one.example/", "http://proxy.example:3142"),
        ('acquire::HTTP::proxy "http://proxy.example:3142/";', "https://one.example/", "http://proxy.example:3142/"),
        ('Acquire::https::Proxy "http://proxy.example";', "http://one.example/", None),
        ('Acquire { http { Proxy "http://proxy.example"; }; };', "http://one.example/", "http://proxy.example"),
        ('Acquire::http { Proxy "http://a.example" }', "http://one.example/", "http://a.example"),
        ('Acquire::http::Proxy "DIRECT";', "http://one.example/", ""),
        ('Acquire::http::Proxy "false";', "http://one.example/", ""),
        (
            'Acquire::http::Proxy "http://a.example"; Acquire::http::Proxy::one.example "DIRECT";',
            "http://one.example/",
            "",
        ),
        (
            '// Acquire::http::Proxy "http://a.example";\n# x\n/* Acquire::http::Proxy "b";\n */',
            "http://one.example/",
            None,
        ),
        (
            'Acquire::http::Proxy "http://a.example";\nAcquire::http::Proxy "http://b.example";',
            "http://c/",
            "http://b.example",
        ),
        ("Acquire::http::Proxy;", "http://one.example/", None),
        ('}}; Acquire::http::Proxy "http://a.example";', "http://one.example/", "http://a.example"),
        ('Acquire::http::Proxy "http://a.example', "http://one.example/", None),
    ],
)
def test_the_proxy_for_an_address_is_found(apt: Path, text: str, url: str, proxy: str | None) -> None:
    apt.joinpath("apt.conf.d/01proxy").write_text(text)
    assert apt_proxy(url, apt) == proxy


def test_later_files_count_more_and_other_files_not_at_all(apt: Path) -> None:
    for name in ("apt.conf.d/20b", "apt.conf.d/10a.conf", "apt.conf.d/30c.bak"):
        apt.joinpath(name).write_text(f'Acquire::http::Proxy "http://{Path(name).stem}.example";')
    assert apt_proxy("http://one.example/", apt) == "http://20b.example"
    apt.joinpath("apt.conf").write_text('Acquire::http::Proxy "http://last.example";')
    assert apt_proxy("http://one.example/", apt) == "http://last.example"
