from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest

from kernelyard.errors import InputError
from kernelyard.formats.facts import Facts
from kernelyard.formats.index import FileEntry, Index, VariantEntry
from kernelyard.formats.signature import (
    PublicKey,
    SigningKey,
    sign_index,
    signed_part,
    verify_document,
    verify_signatures,
)

pytest.importorskip("cryptography")

#: RFC 8032, section 7.1, test 2.
SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)

FACTS = Facts("torch-noarch", None, None, "universal", None, "", "")
FILES = (FileEntry("__init__.py", 1, "a" * 64), FileEntry("metadata.json", 2, "b" * 64))
INDEX = Index("gray", 1, "MIT", (VariantEntry("torch-universal", "_gray_x", FILES, FACTS),))


def key(number: int) -> SigningKey:
    return SigningKey(bytes([number]) * 32)


def verdict(index: Index, *allowed: SigningKey) -> tuple[list[str], list[str], int]:
    found = verify_document(index.to_json(), [one.public for one in allowed], path="index.json")
    return [str(one) for one in found.by], [str(one) for one in found.others], len(found.wrong)


def test_signatures_are_those_of_rfc_8032() -> None:
    assert SigningKey(SEED).public == PublicKey(PUBLIC)
    assert SigningKey(SEED).sign(b"\x72") == SIGNATURE
    assert PublicKey(PUBLIC).verifies(SIGNATURE, b"\x72")
    assert not PublicKey(PUBLIC).verifies(SIGNATURE, b"\x73")


def test_an_allowed_key_vouches_for_an_index_and_another_does_not() -> None:
    signed = sign_index(INDEX, [key(1)])
    assert verdict(signed, key(1), key(3)) == ([str(key(1).public)], [], 0)
    assert verdict(signed, key(2)) == ([], [str(key(1).public)], 0)
    assert verdict(INDEX, key(1)) == ([], [], 0)
    assert not verify_document(signed.to_json(), [], path="index.json").is_trusted


def test_several_signers_stand_side_by_side_in_any_order() -> None:
    one_by_one = sign_index(sign_index(INDEX, [key(2)]), [key(1)])
    assert one_by_one == sign_index(INDEX, [key(1), key(2)])
    assert sorted(verdict(one_by_one, key(1), key(2))[0]) == sorted([str(key(1).public), str(key(2).public)])
    assert sign_index(one_by_one, [key(1)]) == one_by_one


@pytest.mark.parametrize("change", ["license", "file", "release", "member"])
def test_whatever_is_changed_after_signing_is_noticed(change: str) -> None:
    document = json.loads(sign_index(INDEX, [key(1)]).to_json())
    if change == "file":
        document["variants"]["torch-universal"]["files"]["__init__.py"]["sha256"] = "c" * 64
    else:
        document[change] = "GPL-3.0"
    found = verify_document(json.dumps(document).encode(), [key(1).public], path="index.json")
    assert (found.by, found.is_trusted, len(found.wrong)) == ((), False, 1)


def test_members_of_later_programs_are_signed_too() -> None:
    document = {**json.loads(INDEX.to_json()), "later": [1]}
    message, _ = signed_part(json.dumps(document).encode(), path="index.json")
    signature = {
        "algorithm": "ed25519",
        "key": str(key(1).public),
        "signature": base64.b64encode(key(1).sign(message)).decode(),
    }
    document["signatures"] = [signature]
    assert verify_document(json.dumps(document).encode(), [key(1).public], path="index.json").is_trusted


def test_who_trusts_the_old_key_accepts_the_new_one() -> None:
    newest = key(1).endorse(key(2)).endorse(key(3))
    signed = sign_index(INDEX, [newest])
    for trusted in (1, 2, 3):
        assert verdict(signed, key(trusted))[0] == [str(key(trusted).public)]
    assert verdict(signed, key(4)) == ([], [str(key(3).public)], 0)


def test_an_endorsement_counts_for_the_key_it_was_given_to_only() -> None:
    given = key(1).endorse(key(2))
    stolen = replace(key(3), endorsements=given.endorsements)
    assert verdict(sign_index(INDEX, [stolen]), key(1)) == ([], [str(key(3).public)], 0)
    # Nor is a signature of a document one of a key.
    forged = replace(key(3), endorsements=((key(1).public, key(1).sign(key(3).public.raw)),))
    assert verdict(sign_index(INDEX, [forged]), key(1)) == ([], [str(key(3).public)], 0)


@pytest.mark.parametrize(
    "signature",
    [
        {},
        {"algorithm": "rsa"},
        {"algorithm": "ed25519", "key": "ed25519:AAAA", "signature": "x"},
        {"algorithm": "ed25519", "key": str(PublicKey(PUBLIC)), "signature": base64.b64encode(b"x" * 64).decode()},
        {"algorithm": "ed25519", "key": str(PublicKey(PUBLIC)), "signature": 3},
        {
            "algorithm": "ed25519",
            "key": str(PublicKey(PUBLIC)),
            "signature": base64.b64encode(SIGNATURE).decode() + "\n",
        },
        {
            "algorithm": "ed25519",
            "key": str(PublicKey(PUBLIC)),
            "signature": base64.b64encode(SIGNATURE).decode(),
            "endorsements": [{}] * 17,
        },
    ],
)
def test_what_is_no_signature_is_wrong_and_does_no_harm(signature: dict[str, object]) -> None:
    good = {
        "algorithm": "ed25519",
        "key": str(PublicKey(PUBLIC)),
        "signature": base64.b64encode(SIGNATURE).decode(),
    }
    found = verify_signatures(b"\x72", [signature, good], [PublicKey(PUBLIC)])
    assert (found.by, len(found.wrong)) == ((PublicKey(PUBLIC),), 1)


def test_a_key_file_is_read_as_it_was_written() -> None:
    rotated = key(1).endorse(SigningKey.new())
    assert SigningKey.from_json(rotated.to_json(), path="key") == rotated
    assert base64.b64encode(rotated.seed).decode() not in repr(rotated)
    with pytest.raises(InputError) as caught:
        SigningKey.from_json(rotated.to_json().replace(b'"private":"', b'"private":"A'), path="key")
    assert caught.value.code == "KY515"


def test_a_public_key_is_one_line_of_text() -> None:
    text = str(PublicKey(PUBLIC))
    assert PublicKey.parse(f" {text}\n") == PublicKey(PUBLIC)
    for wrong in ("", text[8:], text + "=", text.replace("ed25519", "rsa"), "ed25519:"):
        with pytest.raises(ValueError, match="not a public key"):
            PublicKey.parse(wrong)
