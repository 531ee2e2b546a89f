from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.errors import InputError
from kernelyard.hub import open_hub
from kernelyard.hub.hugging_face import HuggingFaceHub


def test_without_a_location_the_environment_names_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELYARD_HUB", str(tmp_path))
    assert open_hub().location == str(tmp_path)
    monkeypatch.delenv("KERNELYARD_HUB")
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    assert open_hub().location == "https://huggingface.co"


@pytest.mark.parametrize(
    ("location", "endpoint", "opened", "token"),
    [
        (None, "https://hub.example/", "https://hub.example", "hf_secret"),
        ("hf://", "https://hub.example", "https://hub.example", "hf_secret"),
        ("https://hub.example/", "https://hub.example", "https://hub.example", "hf_secret"),
        ("https://huggingface.co", "https://huggingface.co", "https://huggingface.co", "hf_secret"),
        # The token is for the endpoint that is set, and for no other.
        ("https://huggingface.co", "https://hub.example", "https://huggingface.co", None),
    ],
)
def test_the_hugging_face_hub_is_the_default_and_known_by_its_address(
    location: str | None, endpoint: str, opened: str, token: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERNELYARD_HUB", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub = open_hub(location)
    assert isinstance(hub, HuggingFaceHub)
    assert not hub.is_local
    assert (hub.location, hub.access.settings.token) == (opened, token)
    assert "hf_secret" not in repr(hub.access.settings)


def test_paths_and_addresses_of_files_are_local(tmp_path: Path) -> None:
    spaced = tmp_path / "a hub"
    for location in (spaced, str(spaced), spaced.as_uri()):
        hub = open_hub(location)
        assert hub.is_local
        assert hub.location == str(spaced)


def test_a_web_address_is_not_local() -> None:
    hub = open_hub("https://example.org/kernels/")
    assert not hub.is_local
    assert hub.location == "https://example.org/kernels"


@pytest.mark.parametrize("address", ["hf://org", "ftp://host/x", "file://host/x", "https://", "http://host/?q=1"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(InputError) as caught:
        open_hub(address)
    assert caught.value.code == "KY506"


def test_a_build_folder_is_a_hub(make_build: Callable[..., Path]) -> None:
    build = make_build()
    for location in (build, build.parent):
        found = open_hub(location).resolve("anyone/gray", version=1)
        assert [variant.name for variant in found.index.variants] == ["torch-universal"]
        assert open_hub(location).resolve("anyone/gray", revision=found.id[:8]).id == found.id
