"""Folders that stand for kernels of a hub while they are worked on: `LOCAL_KERNELS`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard import VariantAccepted, VariantRejected, get_kernel, get_kernel_variants, has_kernel, install_kernel
from kernelyard.errors import InputError, KernelyardError, MissingError, VerificationError
from kernelyard.load.overrides import local_override, parse_overrides

MakeVariant = Callable[..., Path]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/a=/one:org/b=two", {"org/a": "/one", "org/b": "two"}),
        (r"org/k=C:\kernels\k", {"org/k": r"C:\kernels\k"}),
        (r"org/k=C:\kernels\k:org/l=d:/l:", {"org/k": r"C:\kernels\k", "org/l": "d:/l"}),
        ('org/k="/a:b/c":org/l=/l', {"org/k": "/a:b/c", "org/l": "/l"}),
        ("org/k='/it is:here'", {"org/k": "/it is:here"}),
        ("org/k=/with = in it", {"org/k": "/with = in it"}),
        (":org/a=/one::org/b=/two:", {"org/a": "/one", "org/b": "/two"}),
        ("org/a=/one:org/a=/two", {"org/a": "/two"}),
        ("", {}),
        (":", {}),
    ],
)
def test_the_list_is_read(text: str, expected: dict[str, str]) -> None:
    assert parse_overrides(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "org/a",
        "org/a=/one:org/b",
        "org/a=/one:two:org/b=/two",
        "org/a=",
        'org/a="/one',
        'org/a="/one"x',
        "a=/one",
        "=/one",
    ],
)
def test_what_cannot_be_understood_is_refused_with_the_entry(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_KERNELS", text)
    with pytest.raises(ValueError, match="Invalid LOCAL_KERNELS entry") as caught:
        get_kernel("org/other", version=1)
    assert isinstance(caught.value, InputError)
    assert caught.value.code == "KY611"


def test_nothing_is_nothing_and_home_is_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for text, expected in (("", None), ("  ", None), ("org/k=~/k", tmp_path / "k"), ("org/other=/k", None)):
        monkeypatch.setenv("LOCAL_KERNELS", text)
        assert local_override("org/k") == expected
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCAL_KERNELS", "org/k=here")
    assert local_override("org/k") == tmp_path / "here"
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert local_override("org/k") == tmp_path / "sub/here"


def test_a_file_is_read_with_paths_from_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "local.toml"
    file.write_text("[kernels]\n\"org/k\" = 'k'\n\"org/l\" = 'C:\\l'\n")
    monkeypatch.setenv("LOCAL_KERNELS", str(file))
    assert local_override("org/k") == tmp_path / "k"
    assert local_override("org/l") == tmp_path / "C:\\l"
    assert local_override("org/m") is None
    file.write_text('[kernels]\n"org/k" = "/elsewhere/k"\n')
    assert local_override("org/k") == Path("/elsewhere/k")
    for wrong in ("[kernels]\nk = 'k'\n", '[kernels]\n"org/k" = 1\n', "other = 1\n", "= 1\n", "[kernels]\n[more]\n"):
        file.write_text(wrong)
        with pytest.raises(InputError) as caught:
            local_override("org/k")
        assert caught.value.place is not None
        assert caught.value.place.path == str(file)
    file.unlink()
    with pytest.raises(MissingError, match="cannot be read"):
        local_override("org/k")


def test_a_kernel_is_taken_from_the_folder_without_a_hub(
    make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    variant = make_variant()
    monkeypatch.setenv("LOCAL_KERNELS", f"org/gray={variant.parent.parent}")
    # Nothing answers here, and no consent is given.
    monkeypatch.setenv("KERNELYARD_HUB", "http://127.0.0.1:9")
    with caplog.at_level(logging.INFO, "kernelyard.load"):
        module = get_kernel("org/gray", version=1)
        assert get_kernel("org/gray", revision="main") is module
    assert module.__kernel__.origin == variant
    assert module.__kernel__.repo is None
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert has_kernel("org/gray", version=1)
    (decision,) = get_kernel_variants("org/gray", version=1)
    assert isinstance(decision, VariantAccepted)
    assert decision.variant.variant_str == "torch-universal"
    # What is asked for is still checked.
    with pytest.raises(ValueError, match="either a version or a revision"):
        get_kernel("org/gray")


def test_the_backend_counts_and_another_version_is_told_once(
    make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    variant = make_variant(name="torch-cpu", version=3)
    monkeypatch.setenv("LOCAL_KERNELS", f"org/gray={variant}")
    assert get_kernel("org/gray", version=1, backend="cpu").twice(1) == 2
    assert get_kernel("org/gray", version=1).twice(1) == 2
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "asked for in version 1" in warning
    assert "has version 3" in warning
    with pytest.raises(MissingError, match="xpu was asked for"):
        get_kernel("org/gray", version=1, backend="xpu")
    with pytest.raises(InputError, match="Invalid backend 'gpu'"):
        get_kernel("org/gray", version=1, backend="gpu")
    assert not has_kernel("org/gray", version=1, backend="xpu")
    (decision,) = get_kernel_variants("org/gray", version=1, backend="xpu")
    assert isinstance(decision, VariantRejected)
    assert "xpu was asked for" in decision.reason


def test_a_folder_that_is_not_there_is_told_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_KERNELS", f"org/gray={tmp_path / 'gone'}")
    with pytest.raises(FileNotFoundError, match="which LOCAL_KERNELS names for org/gray") as caught:
        get_kernel("org/gray", version=1)
    assert isinstance(caught.value, KernelyardError)
    assert caught.value.hint.endswith("; or unset LOCAL_KERNELS")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        has_kernel("org/gray", version=1)


def test_what_is_edited_in_the_folder_is_seen(make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = make_variant("one"), make_variant("two", files={"extra.py": "x = 1\n"})
    monkeypatch.setenv("LOCAL_KERNELS", f"org/gray={one.parent}")
    first = get_kernel("org/gray", version=1)
    monkeypatch.setenv("LOCAL_KERNELS", f"org/gray={two.parent}")
    second = get_kernel("org/gray", version=1)
    assert second is not first
    (two / "extra.py").write_text("x = 2\n")
    metadata = (two / "metadata.json").read_text()
    (two / "metadata.json").write_text(metadata.replace(second.__name__, "_gray_built_again"))
    assert get_kernel("org/gray", version=1).__name__ == "_gray_built_again"


def test_installing_is_from_the_hub(
    tmp_path: Path, make_variant: MakeVariant, publish: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(make_variant().parent)
    monkeypatch.setenv("LOCAL_KERNELS", "org/gray=/nowhere")
    path = install_kernel("org/gray", version=1, hub=tmp_path / "hub")
    assert path.parent == tmp_path / "store/variants"


def test_a_policy_forbids_folders(make_variant: MakeVariant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_KERNELS", f"org/gray={make_variant()}")
    (tmp_path / "policy.toml").write_text("[trust]\nlocal = false\n")
    monkeypatch.setenv("KERNELYARD_POLICY", str(tmp_path / "policy.toml"))
    for call in (get_kernel, has_kernel, get_kernel_variants):
        with pytest.raises(VerificationError) as caught:
            call("org/gray", version=1, trust_remote_code=True)
        assert caught.value.code == "KY643"
