"""Keys and passwords in what is shown: found in the forms they have, taken out, and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_time import assert_linear

from rrm.data.secrets import clean

TOKEN = "hf_" + "a1B2" * 9  # the form of one, and none
KEYS = {
    "OpenAI or Anthropic key": "sk-ant-" + "Ab1-" * 8, "Hugging Face token": TOKEN, "GitHub token": "ghp_" + "Ab1" * 12,
    "AWS access key": "AKIA" + "ABCD" * 4, "Google API key": "AIza" + "Ab1_-" * 7, "Slack token": "xoxb-" + "123-" * 5,
    "JSON web token": "eyJ" + "a" * 12 + ".eyJ" + "b" * 12 + "." + "c" * 12,
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
    "authorization header": "Bearer " + "abc1" * 6, "GitLab token": "glpat-" + "Ab1-" * 5,
    "npm token": "npm_" + "aB1" * 12, "Groq key": "gsk_" + "aB1d" * 13, "Stripe key": "sk_live_" + "aB1d" * 6,
}  # fmt: skip


def cleaned(value: Any) -> tuple[Any, Counter[str]]:
    counts = Counter[str]()
    return clean(value, counts), counts


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_known_forms_are_found_and_taken_out(kind: str) -> None:
    assert cleaned({"a": [f"before {KEYS[kind]} after"]}) == ({"a": ["before [removed] after"]}, {kind: 1})


BEFORE = {
    "a line end in JSON": json.dumps("\n")[1:-1], "a line end in JSON inside JSON": json.dumps(json.dumps("\n"))[2:-2],
    "a character in JSON": json.dumps("\u2028")[1:-1], "the repr of bytes": "\\xff", "a colour": "\x1b[32m",
    "two colours as JSON has them": json.dumps("\x1b[1;31m")[1:-1], "a quoted =": "token%3D",
    "a = quoted twice": "token%253D", "a = of a mail": "token=3D",
}  # fmt: skip


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
@pytest.mark.parametrize("kind", [kind for kind in KEYS if kind != "private key"])
def test_a_key_is_found_behind_what_ends_in_a_letter_and_is_no_word(kind: str, before: str) -> None:
    assert cleaned(f"{before}{KEYS[kind]} x") == (f"{before}[removed] x", {kind: 1})


def test_a_key_inside_a_word_is_none() -> None:
    words = [f"{word}{KEYS[kind]}" for word in ("a", "x_", "3", "n-") for kind in ("GitHub token", "GitLab token")]
    assert cleaned(words) == (words, {})


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"api_key": "0123456789abcdef"}', '{"api_key": "[removed]"}'),
        (json.dumps('{"OPENAI_API_KEY": "abcdefgh"}'), json.dumps('{"OPENAI_API_KEY": "[removed]"}')),
        ("{'password': 'hunter2\\\\x'}", "{'password': '[removed]'}"),
        ('"secretAccessKey":"wJalr+/x"', '"secretAccessKey":"[removed]"'),
        ('"Cookie": "session=ab; b=c"', '"Cookie": "[removed]"'),
        ("Authorization: token " + "ab" * 20, "Authorization: [removed]"),
        ("authorization: Bearer " + "ab" * 10, "authorization: [removed]"),
        ('"Authorization": "Bearer ' + "ab" * 10 + '"', '"Authorization": "[removed]"'),
        ("-H 'X-API-Key: 0123456789abcdef'", "-H 'X-API-Key: [removed]'"),
        ("redis://:s3cret@db:6379", "redis://[removed]@db:6379"),
        ('"password": "correct horse battery staple", "x": 1', '"password": "[removed]", "x": 1'),
        ('"authorization": "Bearer abc123"', '"authorization": "[removed]"'),
        ('{"token": "0123456789abcdef0123456789abcdef"}', '{"token": "[removed]"}'),
        (json.dumps('{"secret": "0123456789abcdef0123"}'), json.dumps('{"secret": "[removed]"}')),
        ("export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "export AWS_SECRET_ACCESS_KEY=[removed]"),
        ("$ DB_PASSWORD=hunter22secret ./run", "$ DB_PASSWORD=[removed] ./run"),
        (json.dumps("a\nMY_TOKEN=0123456789abcdef0123\nb"), '"a\\nMY_TOKEN=[removed]\\nb"'),
        ("db:\n  password: hunter22  # of the test\n", "db:\n  password: [removed]  # of the test\n"),
        ("- api_key: 'abcdef123456'", "- api_key: '[removed]'"),
        (json.dumps("a: 1\napi_key: abcdef123456\n"), '"a: 1\\napi_key: [removed]\\n"'),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "aws_secret_access_key = [removed]"),
        ("f(x, api_key='0123456789abcdef')", "f(x, api_key='[removed]')"),
        ("< Set-Cookie: session=abcdef1234; Path=/\n<", "< Set-Cookie: [removed]\n<"),
        ("curl -H 'Cookie: sid=abcdef1234' x", "curl -H 'Cookie: [removed]' x"),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQ\n-----END PGP PRIVATE KEY BLOCK-----.", "[removed]."),
    ],
)
def test_what_a_text_calls_a_secret_is_taken_out_and_nothing_else(text: str, left: str) -> None:
    value, counts = cleaned(text)
    assert value == left and counts.total() == 1
    assert cleaned(left) == (left, {})


@pytest.mark.parametrize(
    "text",
    [
        '{"api_key": {"type": "string"}, "required": ["api_key"]}',
        '"api_key": "$OPENAI_API_KEY", "api-key": "<key>", "token": "word", "api_key": "your-api-key", "password": ""',
        '"api_key": "The key of the server"; "forgot_password": "/reset/me"; "cookie": "chocolate"',
        "Authorization: Bearer $TOKEN; Authorization: Bearer YOUR_ACCESS_TOKEN_HERE; basic authorization: required",
        '{"errors": {"password": "must be at least 8 characters"}}; {"password": "Password is required"}',
        '"authorization": "Bearer $TOKEN", "Authorization": "Bearer <your token>", "authorization": "none"',
        '"password": "string", "api_key": "None", "secret": "*****", "access_token": "sk-...", "password": "xxxx"',
        "Authorization: Bearer " + "x" * 20,
        "api_key = self.api_key; password = get_password1(); access_token=response2['x']; secret_key: str = ''",
        "password: at least 8 characters\napi_key: the key of v2\nDB_PASSWORD=$DB_PASSWORD_2 API_KEY=${KEY_1} TOKEN=next",
        "Set-Cookie: <name>=<value>; cookie: a kind of biscuit",
        "api_key=os.environ['API_KEY_1234567890']; C:\\task-based-risk-averse-plan",
        "task-based risk-averse-and-long-hyphenated-words; the bearer of good news; AKIA; eyJ; sk-short; see https://host:443/a@b",
    ],
)
def test_what_speaks_of_secrets_and_shows_none_is_left(text: str) -> None:
    assert cleaned(text) == (text, {})


def test_fields_that_are_secrets() -> None:
    secret = {
        "x-api-key": "a", "API-KEY": "a", "openai_api_key": "a", "password": "a", "aws_secret_access_key": "a", "cookie": "a=b",
        "Set-Cookie": ["a=b", "c=d"], "api_key": ["a"], "accessToken": "a", "clientSecret": "a", "token": "0123456789abcdef0123",
        "Authorization": "AWS4-HMAC-SHA256 Credential=AKI/20250101, Signature=0123",
    }  # fmt: skip
    plain = {
        "password": ["is too short"], "cookie": "oat", "api_key": {"type": "string"}, "api_keys_used": "2", "token": "word",
        "authorization": True, "has_password": "no", "tokens": ["a"], "Authorization": "none", "secret_key": "$SECRET_KEY",
        "access_token": "YOUR_TOKEN", "client_secret": "********", "Password": "must be at least 8 characters", "secret": "of life",
        "Cookie": "sid=<id>", "Proxy-Authorization": "Bearer {token}", "session_token": "", "auth_token": "expires in 5 minutes",
    }  # fmt: skip
    values, counts = cleaned([secret, plain, {"name": "Cookie", "value": "a=b"}])
    assert values[0] == {k: ["[removed]"] * len(v) if isinstance(v, list) else "[removed]" for k, v in secret.items()}
    assert values[1:] == [plain, {"name": "Cookie", "value": "[removed]"}]
    assert counts.total() == len(secret) + 1 and counts["field x-api-key"] == 1


def test_a_password_in_a_url_and_a_field_that_is_a_key() -> None:
    record = {"api_key": "anything", "to": "https://ann:secret@host/x", "Authorization": "", "password_reset": "no"}
    without = record | {"api_key": "[removed]", "to": "https://[removed]@host/x"}
    assert cleaned(record) == (without, {"field api_key": 1, "password in a URL": 1})


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda x: st.one_of(st.lists(x), st.dictionaries(st.text(), x)), max_leaves=8,
))  # fmt: skip
def test_any_value_comes_through(value: Any) -> None:
    once = clean(value, Counter())
    assert clean(once, Counter()) == once
    json.dumps(once, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "piece", ["eyJaaaaaaaaaaaa.", "sk-", "eyJ-", "-----BEGIN A ", "Bearer a", "://a", "xoxb-1", "\\nsk-", "[1msk-", '"api_key":"', '"password":"abc', "\\\\\"cookie\":\"a=",
              "authorization: token a", "api-key: a", "passwordpassword", "=3Deyj",
              "api_key=", "apikey=", "PASSWORD=a1_", "TOKEN=aaaaa", "\npassword: ", "\npassword=aaaaa1", "\\napi_key: a", "cookie: a=", "cookie:",
              "\"password\": \"a b ", "'api_key': \"a'"],
)  # fmt: skip
def test_a_long_text_is_searched_in_linear_time(piece: str) -> None:
    assert_linear(lambda n: clean(piece * n, Counter()), 5_000)
