"""Secrets are taken out of a text in every form in which servers and parsers show them, and nothing else is."""

from __future__ import annotations

import json
from urllib.parse import quote, quote_plus

import pytest

from aioredlock_ng._core.redaction import HIDDEN, Redaction

SECRETS = ["sesame", "p:w/d@?# &%", 'quo"te\\d', "schlüssel\n\x01", "a" * 40 + "b", "x"]

FORMS = {
    "plain": str,
    "percent-encoded": lambda text: quote(text, safe=""),
    "percent-encoded in lower case": lambda text: quote(text, safe="").lower(),
    "percent-encoded as a form": quote_plus,
    "as Python shows it": lambda text: repr(text)[1:-1],
    "as Python shows its bytes": lambda text: repr(text.encode())[2:-1],
    "as JSON": lambda text: json.dumps(text)[1:-1],
}


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_hidden_in_every_form(form: str, secret: str) -> None:
    shown = FORMS[form](secret)
    assert Redaction([secret])(f"ERR bad: AUTH user {shown} (or '{shown}')") == f"ERR bad: AUTH user {HIDDEN} (or '{HIDDEN}')"


def test_a_secret_that_a_server_has_cut_short_is_hidden() -> None:
    token = "abcdefgh" + "0123456789" * 20
    assert Redaction([token])(f"ERR unknown 'AUTH' '{token[:128]}...'") == f"ERR unknown 'AUTH' '{HIDDEN}...'"


def test_a_secret_given_as_bytes_or_learned_later_is_hidden() -> None:
    redact = Redaction([b"sesame", None, "", 7])
    redact.learn(b"open")
    redact.learn("please")
    redact.learn(None)
    assert redact("sesame open, please: 7") == f"{HIDDEN} {HIDDEN}, {HIDDEN}: 7"


def test_a_secret_of_few_letters_is_not_taken_out_of_words() -> None:
    assert (
        Redaction(["a", "is"])("a replica is what this is: AUTH a")
        == f"{HIDDEN} replica {HIDDEN} what this {HIDDEN}: AUTH {HIDDEN}"
    )


def test_texts_without_a_secret_are_left_as_they_are() -> None:
    words = "NOAUTH Authentication required."
    assert Redaction()(words) == Redaction(["sesame"])(words) == words
