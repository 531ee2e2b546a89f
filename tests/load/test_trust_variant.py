"""Evidence that the files of a variant have to give: a digest, and a signature by Sigstore of this very variant."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from kernelyard import get_kernel
from kernelyard.errors import EnvironmentProblemError, InputError, KernelyardError, VerificationError
from kernelyard.formats.facts import Facts
from kernelyard.formats.index import FileEntry, Index, VariantEntry
from kernelyard.formats.sigstore_identity import GITHUB_ACTIONS, KERNELS_COMMUNITY, Identity
from kernelyard.formats.variant import VariantName
from kernelyard.hub import Revision, open_hub
from kernelyard.hub.folder import hash_tree
from kernelyard.load import kernels
from kernelyard.load.choice.explain import explain_kernel
from kernelyard.load.stored.fetch import fetch_variant
from kernelyard.load.stored.verified import VerifiedTree
from kernelyard.load.system.description import describe_system
from kernelyard.load.trust import checks as trust
from kernelyard.load.trust import policies
from kernelyard.load.trust.checks import check_variant
from kernelyard.load.trust.variant import verify_signed_variant
from tests.hub.hugging_face_server import Hub

if TYPE_CHECKING:
    from tests.hub.sigstore_authority import Authority

REPO = "kernels-community/my-gray"
OURS = Identity(GITHUB_ACTIONS, repository="https://github.com/our/kernels")
STRANGER = Identity(GITHUB_ACTIONS, repository="https://github.com/a/stranger")
RULE = '[[trust.allow]]\nhub = "{hub}"\nkernels = ["*"]\n'


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a project, go there, and keep out what this user and this machine have."""
    (tmp_path / "project/.git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("KERNELYARD_FRESHNESS", "0")
    monkeypatch.setattr(policies, "_MACHINE", str(tmp_path / "machine" / "policy.toml"))
    monkeypatch.setattr(trust, "_settled", {})
    monkeypatch.setattr(kernels, "_answered", {}, raising=False)
    return tmp_path / "project"


@pytest.fixture
def authority(project: Path) -> Authority:
    """Make a Sigstore of our own, whose root is beside the policy."""
    pytest.importorskip("sigstore")
    from tests.hub.sigstore_authority import Authority

    made = Authority()
    made.write_root(project / "root.json")
    return made


@pytest.fixture
def ask(project: Path) -> Callable[[str], None]:
    """Return a function that writes the policy."""

    def ask(text: str) -> None:
        (project / "kernelyard.toml").write_text(text)
        trust._settled.clear()
        kernels._answered.clear()

    return ask


@pytest.fixture
def variant(make_variant: Callable[..., Path], add_digest: Callable[..., None]) -> Callable[..., Path]:
    """Return a function that writes a variant with a digest, and changes its metadata before that is signed."""

    def make(signed_by: tuple[Authority, Identity] | None = None, algorithm: str = "sha256", **changes: Any) -> Path:
        made = make_variant(files={"__init__.py": "number = 1\n"})
        add_digest(made, algorithm)
        file = made / "metadata.json"
        file.write_text(json.dumps(json.loads(file.read_bytes()) | changes))
        if signed_by is not None:
            authority, identity = signed_by
            (made / "metadata.json.sigstore").write_bytes(authority.sign(file.read_bytes(), identity))
        return made

    return make


@pytest.fixture
def put(hugging_face: Hub) -> Callable[..., None]:
    """Return a function that puts a variant on the Hugging Face Hub, without an index as other tools do."""

    def put(variant: Path) -> None:
        files = {f"build/{variant.name}/{path.name}": path.read_bytes() for path in variant.iterdir()}
        hugging_face.make(REPO).put("v1", files)

    return put


def refused(code: str, load: Callable[[], ModuleType], message: str = "") -> KernelyardError:
    with pytest.raises(KernelyardError, match=message) as caught:
        load()
    assert caught.value.code == code
    return caught.value


load = partial(get_kernel, REPO, version=1)
ASK = '[trust]\nevidence = "sigstore"\ntrust-root = "root.json"\n'


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_what_the_workflows_of_kernels_community_signed_is_loaded(
    authority: Authority,
    variant: Callable[..., Path],
    put: Callable[..., None],
    ask: Callable[[str], None],
    algorithm: str,
) -> None:
    put(variant((authority, KERNELS_COMMUNITY[3]), algorithm))
    ask(ASK)
    assert load().number == 1


def test_a_signature_that_held_is_not_verified_again(
    authority: Authority,
    variant: Callable[..., Path],
    put: Callable[..., None],
    ask: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(variant((authority, KERNELS_COMMUNITY[0])))
    ask(ASK)
    load()
    hub = open_hub()
    found = hub.resolve(REPO, version=1)
    entry = hub.variant(found, "torch-universal")
    tree = fetch_variant(hub, found, entry)
    for name in [name for name in sys.modules if name.partition(".")[0] == "sigstore"]:
        monkeypatch.setitem(sys.modules, name, None)
    check_variant(hub, found, entry, tree)
    # With others who may sign it is another question.
    ask(f'[trust]\ntrust-root = "root.json"\n{RULE.format(hub="hf://")}sigstore = [{{ repository = "https://x/y" }}]\n')
    with pytest.raises(EnvironmentProblemError, match="sigstore is not installed"):
        check_variant(hub, found, entry, tree)


def test_what_nobody_or_somebody_else_signed_is_refused(
    authority: Authority, variant: Callable[..., Path], put: Callable[..., None], ask: Callable[[str], None]
) -> None:
    ask(ASK)
    put(variant())
    error = refused("KY644", load, "is not signed by Sigstore")
    assert error.place is not None
    assert error.place.path.endswith("metadata.json.sigstore")
    assert error.exit_code == 4
    put(variant((authority, STRANGER)))
    error = refused("KY536", load, STRANGER.repository or "")
    assert error.exit_code == 4


def test_somebody_has_to_be_named_who_may_sign(
    authority: Authority,
    variant: Callable[..., Path],
    web_hub: str,
    publish: Callable[..., str],
    ask: Callable[..., None],
) -> None:
    publish(variant((authority, KERNELS_COMMUNITY[0])).parent, repo=REPO)
    # The name of an organisation is whose it is on the Hugging Face Hub alone.
    ask(ASK)
    with pytest.raises(InputError) as caught:
        load(hub=web_hub, trust_remote_code=True)
    assert caught.value.code == "KY534"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "other-kernel"}, r"the kernel 'other-kernel', and kernels-community/my-gray was asked for"),
        ({"digest": None}, "no digest of the files"),
        ({"digest": {"algorithm": "sha256", "files": {}}}, "other files: __init__.py is not the file that it names"),
    ],
)
def test_a_signature_of_something_else_is_no_signature(  # noqa: PLR0917 - the surroundings
    authority: Authority,
    variant: Callable[..., Path],
    web_hub: str,
    publish: Callable[..., str],
    ask: Callable[..., None],
    changes: dict[str, Any],
    message: str,
) -> None:
    publish(variant((authority, OURS), **changes).parent, repo=REPO)
    rule = RULE.format(hub=web_hub) + f'sigstore = [{{ repository = "{OURS.repository}" }}]\n'
    ask(f'[trust]\ntrust-root = "root.json"\n{rule}')
    error = refused("KY648", partial(load, hub=web_hub), message)
    assert error.exit_code == 4
    assert error.place is not None
    assert Path(error.place.path).name in {"metadata.json", "__init__.py"}


@pytest.mark.parametrize("other", ["torch-stable-abi29-cpu-x86_64-linux", "torch211-cxx11-cpu-x86_64-linux"])
def test_a_signed_variant_for_another_torch_in_the_place_of_one_is_refused(
    authority: Authority, variant: Callable[..., Path], tmp_path: Path, other: str
) -> None:
    name = "torch-stable-abi211-cpu-x86_64-linux"
    for put_as, is_right in ((name, True), (other, False)):
        made = variant(kernelyard={"format": 1, "facts": Facts.of_name(VariantName.parse(name)).to_json()})
        file = made / "metadata.json"
        (made / "metadata.json.sigstore").write_bytes(authority.sign(file.read_bytes(), OURS))
        digests = hash_tree(made)
        files = tuple(FileEntry(path, (made / path).stat().st_size, digest) for path, digest in digests.items())
        entry = VariantEntry(put_as, "_x", files, Facts.of_name(VariantName.parse(put_as)))
        found = Revision(REPO, "0" * 64, "v1", Index("my-gray", 1, "MIT", (entry,)))
        tree = VerifiedTree(made, digests, "hub-index", "")
        root = tmp_path / "project/root.json"
        if is_right:
            verify_signed_variant(found, entry, tree, [OURS], trust_root=root)
        else:
            with pytest.raises(
                VerificationError, match=f"another variant for cpu, and {other} was asked for"
            ) as caught:
                verify_signed_variant(found, entry, tree, [OURS], trust_root=root)
            assert caught.value.code == "KY648"


def test_a_signed_variant_of_another_version_is_refused(
    authority: Authority, variant: Callable[..., Path], put: Callable[..., None], ask: Callable[[str], None]
) -> None:
    # An older kernel, signed in its time, on the branch of the newest.
    put(variant((authority, KERNELS_COMMUNITY[0]), version=0))
    ask(ASK)
    with pytest.raises(KernelyardError, match="version"):
        load()


def test_a_signature_in_a_published_index_counts_as_well(
    authority: Authority,
    variant: Callable[..., Path],
    web_hub: str,
    publish: Callable[..., str],
    ask: Callable[..., None],
) -> None:
    publish(variant((authority, OURS)).parent, repo=REPO)
    ask(
        f'[trust]\ntrust-root = "root.json"\n{RULE.format(hub=web_hub)}evidence = ["lock", "sigstore"]\n'
        f'sigstore = [{{ repository = "{OURS.repository}" }}]\n'
    )
    assert load(hub=web_hub).number == 1


def test_without_sigstore_what_has_to_be_signed_is_not_loaded(
    variant: Callable[..., Path], put: Callable[..., None], ask: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = variant()
    (made / "metadata.json.sigstore").write_bytes(b"{}")
    put(made)
    ask('[trust]\nevidence = "sigstore"\n')
    for name in ("sigstore", "sigstore.errors"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(EnvironmentProblemError) as caught:
        load()
    assert (caught.value.code, caught.value.hint) == ("KY535", "pip install 'kernelyard[sigstore]'")


def test_of_variants_in_an_index_those_that_have_to_be_signed_and_are_not_are_passed_over_and_told(
    variant: Callable[..., Path],
    make_variant: Callable[..., Path],
    publish: Callable[..., str],
    web_hub: str,
    ask: Callable[[str], None],
) -> None:
    build = variant().parent
    publish(make_variant(name="torch-cpu").parent, repo=REPO)
    ask(f'{RULE.format(hub=web_hub)}evidence = "sigstore"\n')
    with pytest.raises(VerificationError, match="is asked for: sigstore; there is an index") as caught:
        load(hub=web_hub)
    said = "There is less evidence for it than a policy asks for (KY644)."
    assert caught.value.code == "KY644"
    assert [row.split(maxsplit=2) for row in caught.value.what.splitlines()[1:]] == [
        ["torch-cpu", "no", said],
        ["torch-universal", "no", said],
    ]
    explained = explain_kernel(REPO, describe_system(), version=1, hub=web_hub)
    assert (explained.best, explained.distrust and explained.distrust.code) == (None, "KY644")
    # With a bundle beside it, a variant is taken before a better one without; whether the bundle holds, files tell.
    (build / "torch-universal/metadata.json.sigstore").write_bytes(b"{}")
    publish(build, repo=REPO)
    explained = explain_kernel(REPO, describe_system(), version=1, hub=web_hub)
    assert explained.distrust is None
    assert [(verdict.variant, verdict.usable) for verdict in explained.verdicts] == [
        ("torch-universal", True),
        ("torch-cpu", False),
    ]
    with pytest.raises(KernelyardError) as caught_later:
        load(hub=web_hub)
    assert caught_later.value.code in {"KY534", "KY535"}


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_a_digest_can_be_asked_for(
    variant: Callable[..., Path],
    make_variant: Callable[..., Path],
    put: Callable[..., None],
    ask: Callable[[str], None],
    algorithm: str,
) -> None:
    ask('[trust]\nevidence = "digest"\n')
    put(make_variant())
    with pytest.raises(VerificationError, match="is asked for: digest; there is no index") as caught:
        load()
    assert caught.value.code == "KY644"
    put(variant(algorithm=algorithm))
    assert load().number == 1


def test_an_index_can_be_asked_for(
    variant: Callable[..., Path], put: Callable[..., None], ask: Callable[[str], None]
) -> None:
    put(variant())
    ask('[trust]\nevidence = "index"\n')
    with pytest.raises(VerificationError, match="is asked for: index; there is no index"):
        load()
