"""Secrets are taken out of a text in every form in which servers and parsers show them, and nothing
else is.
"""

from __future__ import annotations

import json
from urllib.parse import quote, quote_plus

import pytest

from aioredlock_ng._core.redaction import HIDDEN, Redaction
from aioredlock_ng._core.refusals import is_unknown_command, missing_right
from aioredlock_ng._core.server_info import facts_of, info_fields
from aioredlock_ng._core.votes import Refusal, is_permanent

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


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_hidden_in_every_form(form: str) -> None:
    for secret in SECRETS:
        shown = FORMS[form](secret)
        assert (
            Redaction([secret])(f"ERR bad: AUTH user {shown} (or '{shown}')")
            == f"ERR bad: AUTH user {HIDDEN} (or '{HIDDEN}')"
        ), secret


@pytest.mark.parametrize("secret", ["sesame", "correcthorsebatterystaple", "x1"])
def test_a_secret_that_is_quoted_with_the_line_breaks_of_the_protocol_is_hidden(
    secret: str,
) -> None:
    sent = f"$4\r\nAUTH\r\n${len(secret)}\r\n{secret}\r\n"
    for shown in (
        repr(sent),
        json.dumps(sent),
        quote(sent),
        sent.replace("\r", "\\x0D").replace("\n", "\\x0A"),
    ):
        assert secret not in Redaction([secret])(f"ERR unexpected {shown}")


def test_a_secret_that_a_server_has_cut_short_is_hidden() -> None:
    token = "abcdefgh" + "0123456789" * 20
    assert (
        Redaction([token])(f"ERR unknown 'AUTH' '{token[:128]}...'")
        == f"ERR unknown 'AUTH' '{HIDDEN}...'"
    )


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


@pytest.mark.parametrize("secret", ["script", "user", "readonly", "unknown", "NOSCRIPT"])
def test_a_password_that_is_a_word_of_servers_does_not_change_the_meaning_of_a_refusal(
    secret: str,
) -> None:
    redact = Redaction([secret])
    for words in (
        "NOSCRIPT No matching script. Please use EVAL.",
        "LOADING Redis is loading the dataset in memory",
        "@user_script: 1: -READONLY You can't write against a read only replica.",
        "ERR unknown command 'EVALSHA', with args beginning with: ",
        "NOPERM this user has no permissions to run the 'getex' command",
        (
            "ERR The user executing the script can't run this command or subcommand "
            "script: 1, on @user_script:1."
        ),
    ):
        said = redact(words)
        assert missing_right(said) == missing_right(words)
        assert is_unknown_command(said) == is_unknown_command(words)
        assert is_permanent(Refusal(said)) == is_permanent(Refusal(words))
        assert said.split()[0] == words.split()[0]
        assert ("READONLY " in said) == ("READONLY " in words)
    if secret.islower():
        assert redact(f"ERR bad: AUTH u {secret}") == f"ERR bad: AUTH u {HIDDEN}"


def test_a_password_that_is_a_usual_value_of_info_does_not_change_the_kind_of_a_server() -> None:
    lines = [
        "redis_version:6.0.16",
        "server_name:redis",
        "role:slave",
        "master_host:10.0.0.1",
        "master_port:6379",
    ]
    lines += [
        "run_id:" + "ab" * 20,
        "redis_mode:cluster",
        "maxmemory_policy:noeviction",
        "os:Linux of role slave",
    ]
    info = "\r\n".join(lines).encode()
    for secret in ("redis", "slave", "cluster", "noeviction", "6.0.16", "abab", "role", "6379"):
        said = info_fields(info, Redaction([secret]))
        assert facts_of(said) == facts_of(info_fields(info))
    assert info_fields(b"master_host:sesame.example", Redaction(["sesame"])) == {
        "master_host": f"{HIDDEN}.example"
    }
