"""What leaves the process as text: secrets masked in every spelling, length and time bounded, nothing unprintable."""

from __future__ import annotations

import json
import time
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aftercommit import InvalidName
from aftercommit.events.redact import MAX_ERROR_LENGTH, error_text, redact, storable, traceback_text

SECRET = "s3cr3t"

# --- secrets


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://user:s3cr3t@db.example:5432/app", "postgresql://user:***@db.example:5432/app"),
        ("postgresql+psycopg://user:s3cr3t@db/app?a=b", "postgresql+psycopg://user:***@db/app?a=b"),
        ("redis://:s3cr3t@cache/0", "redis://:***@cache/0"),
        ("cannot reach 'mysql://u:s3cr3t@h/db', giving up", "cannot reach 'mysql://u:***@h/db', giving up"),
        ('{"url":"mysql://u:s3cr3t@h/db","to":"bob@example"}', '{"url":"mysql://u:***@h/db","to":"bob@example"}'),
        ("amqp://u:s3cr3t@h1,amqp://v:s3cr3t@h2", "amqp://u:***@h1,amqp://v:***@h2"),
        ("http://h/?next=http://u:s3cr3t@x", "http://h/?next=http://u:***@x"),
        ("postgres://u:s3cr3t@with-at@h/db", "postgres://u:***@h/db"),
        ("postgres://u:with/slash/s3cr3t@h/db", "postgres://u:***@h/db"),
        ("postgres://u:with'quote-s3cr3t@h/db", "postgres://u:***@h/db"),
        ("postgres://u@corp:s3cr3t@h/db", "postgres://u@corp:***@h/db"),
        ("postgres://u:with:colons:s3cr3t@h/db", "postgres://u:***@h/db"),
    ],
    ids=lambda text: text[:45],
)
def test_the_password_of_a_url_is_masked(text, masked):
    assert redact(text) == masked


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Authorization: Bearer s3cr3t", "Authorization: ***"),
        ("authorization: Basic s3cr3t\r\nHost: h", "authorization: ***\r\nHost: h"),
        ("Authorization: s3cr3t", "Authorization: ***"),
        ("Authorization: ApiKey s3cr3t", "Authorization: ***"),
        ("authorization=Bearer s3cr3t", "authorization=***"),
        ('Authorization: Digest username="bob", response="s3cr3t"\nHost: h', "Authorization: ***\nHost: h"),
        ("Authorization: AWS4-HMAC-SHA256 Credential=a, SignedHeaders=b;c, Signature=s3cr3t", "Authorization: ***"),
        ("Proxy-Authorization: Basic s3cr3t", "Proxy-Authorization: ***"),
        ("HTTP_AUTHORIZATION='Bearer s3cr3t' x", "HTTP_AUTHORIZATION=*** x"),
        ("{'Authorization': 'Bearer s3cr3t', 'a': 'b'}", "{'Authorization': ***, 'a': 'b'}"),
        ('{"authorization": "Basic s3cr3t", "a": 1}', '{"authorization": ***, "a": 1}'),
        ("{b'authorization': b'Bearer s3cr3t'}", "{b'authorization': ***}"),
        ("[(b'authorization', b'Bearer s3cr3t'), (b'a', b'b')]", "[(b'authorization', ***), (b'a', b'b')]"),
        ('curl -H "Authorization: Bearer s3cr3t" http://h', 'curl -H "Authorization: ***" http://h'),
        (r'"{\"Authorization\": \"Bearer s3cr3t\"}"', r'"{\"Authorization\": ***'),
    ],
    ids=lambda text: text[:45],
)
def test_the_value_of_an_authorization_header_is_masked(text, masked):
    assert redact(text) == masked


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("password=s3cr3t", "password=***"),
        ("host=h password=s3cr3t user=u", "host=h password=*** user=u"),
        ("PASSWORD : s3cr3t", "PASSWORD : ***"),
        ("secret=s3cr3t; a=b", "secret=***; a=b"),
        ("token: s3cr3t", "token: ***"),
        ("https://h/x?a=1&token=s3cr3t&b=2", "https://h/x?a=1&token=***&b=2"),
        ("{'password': 's3cr3t', 'user': 'bob'}", "{'password': ***, 'user': 'bob'}"),
        ('{"password": "s3cr3t", "user": "bob"}', '{"password": ***, "user": "bob"}'),
        ('{"password":"s3cr3t"}', '{"password":***}'),
        (r'"{\"password\": \"s3cr3t\"}"', r'"{\"password\": ***'),
        ('password="with spaces s3cr3t" a=b', "password=*** a=b"),
        ("password='with spaces s3cr3t' a=b", "password=*** a=b"),
        (r'password="with \" quote s3cr3t" a=b', "password=*** a=b"),
        ("""password='with "quotes" s3cr3t' a=b""", "password=*** a=b"),
        ('password="never closed s3cr3t', "password=***"),
        (r'password="never closed s3cr3t' + "\\", "password=***"),
        ("connect(user='u', password='s3cr3t')", "connect(user='u', password=***)"),
        ("token=b's3cr3t'", "token=***"),
        ("token=Token('s3cr3t')", "token=***)"),
        ("token=['s3cr3t']", "token=***]"),
        ("client_secret=s3cr3t", "client_secret=***"),
        ("AWS_SECRET_ACCESS_KEY=s3cr3t", "AWS_SECRET_ACCESS_KEY=***"),
        ('"secretKey": "s3cr3t"', '"secretKey": ***'),
        ("access_token='s3cr3t'", "access_token=***"),
        ("x-api-key: s3cr3t", "x-api-key: ***"),
        ("api_key=s3cr3t&apikey=s3cr3t", "api_key=***&apikey=***"),
        ("Server=h;Uid=u;Pwd=s3cr3t;", "Server=h;Uid=u;Pwd=***;"),
        ("passwd=s3cr3t", "passwd=***"),
        ("'password' => 's3cr3t'", "'password' => ***"),
        ('password == "s3cr3t"', "password == ***"),
        ("password=s3cr3t\npassword=s3cr3t", "password=***\npassword=***"),
    ],
    ids=lambda text: text[:45],
)
def test_the_value_of_a_secret_name_is_masked(text, masked):
    assert redact(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://localhost:8080/path?a=b",
        "see http://localhost:8080/ and write to bob@example.org",
        "http://user@example.org/path",
        "sqlite:///C:/folder@home/app.db",
        "sqlite:////var/lib/app.db",
        "KeyError: 'token'",
        "max_tokens: 4096",
        "the password is wrong",
        "unexpected token < at line 5",
        "no authorization for bob",
        "password=",
        "[AC014] key is True of type bool\n  Fix: pass key as a string, an int or a UUID",
    ],
)
def test_what_is_no_secret_is_left_alone(text):
    assert redact(text) == text


anything = st.text(st.characters(codec="utf-8"), max_size=20)


@settings(deadline=None)
@given(anything, anything, st.sampled_from(["password", "token", "secret", "Authorization"]))
def test_no_value_is_seen_in_a_dict_or_in_json(before, after, name):
    """Whatever quotes, backslashes and line ends are in the value."""
    value = before + SECRET + after
    for text in (
        repr({"a": 1, name: value, "b": 2}),
        json.dumps({"a": 1, name: value, "b": 2}),
        json.dumps({name: value}, ensure_ascii=False, separators=(",", ":")),
        json.dumps(json.dumps({name: value})),
        json.dumps(json.dumps(json.dumps({name: value}))),
        f"f({name}={value!r})",
        repr({name.encode(): value.encode()}),
    ):
        assert SECRET not in redact(text)
        assert SECRET not in storable(text)


@settings(deadline=None)
@given(anything, anything)
def test_no_password_is_seen_in_a_url(before, after):
    password = quote(before, safe="") + SECRET + quote(after, safe="")
    for text in (f"postgresql://user:{password}@host/db", f"redis://:{password}@host, tried 3 times"):
        assert SECRET not in redact(text)
        assert "host" in redact(text)


# --- what every store accepts


def test_a_text_is_cut_at_the_limit():
    assert MAX_ERROR_LENGTH == 4000
    assert storable("x" * 4000) == "x" * 4000
    assert storable("x" * 4001) == "x" * 3997 + "..."
    assert len(storable("é" * 5_000_000)) == 4000


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("a\x00b", "a\\x00b"),
        ("a\ud800b", "a\\ud800b"),
        ("\udfff", "\\udfff"),
        ("é🚀\u2028\n\t\x7f", "é🚀\u2028\n\t\x7f"),
        ("", ""),
    ],
    ids=ascii,
)
def test_what_a_database_refuses_is_spelled_out(text, stored):
    assert storable(text) == stored


@settings(deadline=None)
@given(st.text(st.characters(), max_size=200), st.sampled_from([1, 100]))
def test_any_text_becomes_one_that_every_store_accepts(text, times):
    stored = storable(text * times)

    assert len(stored) <= MAX_ERROR_LENGTH
    assert "\x00" not in stored
    stored.encode()


@pytest.mark.parametrize(
    "opening", ['password="', "password='", "Authorization: Bearer ", "token=", "failed at postgres://u:"]
)
@pytest.mark.parametrize("filling", ["s3cr3t", "s3cr3t "])
def test_a_secret_that_is_longer_than_the_text_may_be_is_masked_all_the_same(opening, filling):
    """The cut takes the end by which it would be known."""
    if opening.endswith(("token=", "://u:")) and filling.endswith(" "):
        filling = "s3cr3t/"
    closing = "@host/db" if "://" in opening else opening[-1] if opening[-1] in "\"'" else ""

    stored = storable(opening + filling * 20_000 + closing)

    assert SECRET not in stored
    assert stored.startswith(opening.partition(":")[0].partition("=")[0])


# --- errors


def error_with(text: object) -> Exception:
    class Failed(Exception):
        def __str__(self):
            if isinstance(text, BaseException):
                raise text
            return text

    return Failed("not this")


def test_an_error_is_its_class_and_its_message():
    assert error_text(ValueError("no such order")) == "ValueError: no such order"
    assert error_text(ValueError()) == "ValueError"
    assert error_text(KeyError("id")) == "KeyError: 'id'"
    assert error_text(InvalidName("bad", fix="good")) == "InvalidName: [AC014] bad\n  Fix: good"
    assert error_text(SystemExit(1)) == "SystemExit: 1"


class Contrary(str):
    """A message that looks like a string and cannot be put into one as it is."""

    __slots__ = ()

    def __format__(self, spec):
        raise RuntimeError("no")


@pytest.mark.parametrize("text", [RuntimeError("no"), SystemExit(), KeyboardInterrupt(), None, 5, b"x"], ids=repr)
def test_an_error_that_cannot_be_printed_keeps_its_class_name(text):
    """F75."""
    assert error_text(error_with(text)) == "Failed: (its message cannot be printed)"


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("x" * 5_000_000, "Failed: " + "x" * 3989 + "..."),
        (Contrary("x"), "Failed: x"),
        ("a\x00b", "Failed: a\\x00b"),
        ("a\ud800b", "Failed: a\\ud800b"),
        ("at redis://u:s3cr3t@h with password='s3cr3t'", "Failed: at redis://u:***@h with password=***"),
    ],
    ids=["5 MB", "str of its own", "NUL", "surrogate", "secrets"],
)
def test_any_message_of_an_error_can_be_stored(text, stored):
    """F75."""
    assert error_text(error_with(text)) == stored


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_a_traceback_shows_where_and_why_without_secrets():
    cause = raised(ValueError("token=s3cr3t"))
    error = RuntimeError("at redis://u:s3cr3t@h\ud800")
    error.__cause__ = cause

    text = traceback_text(raised(error))

    assert "Traceback (most recent call last)" in text
    assert "in raised" in text
    assert "ValueError: token=***" in text
    assert "RuntimeError: at redis://u:***@h\\ud800" in text
    assert SECRET not in text
    text.encode()


@pytest.mark.parametrize("text", [RuntimeError("no"), None], ids=repr)
def test_the_traceback_of_an_error_that_cannot_be_printed_keeps_its_class_name(text):
    assert "Failed" in traceback_text(raised(error_with(text)))


def test_an_error_whose_traceback_cannot_be_made_keeps_its_text(monkeypatch):
    def broken(*_):
        raise RuntimeError("no")

    monkeypatch.setattr("traceback.format_exception", broken)

    assert traceback_text(ValueError("x")) == "ValueError: x"


# --- time


HOSTILE = [
    *("a", "1", " ", "\n", "\\", '"', "'", "@", ":", "=", "://", "a://b:", "://b:@", "a:", '="', "=:", '://"'),
    *("token", "token_", "token-a", "token ", "token=[", "api_", "password=", 'password="', "password\\"),
    *('password="\\', "authorization", "authorization:", 'authorization="', "authorization: a=", "authorization',"),
]


def seconds(text: str) -> float:
    """Of this thread's own work: what else the machine does is left out."""
    started = time.thread_time()
    redact(text)
    return time.thread_time() - started


@pytest.mark.parametrize("unit", HOSTILE, ids=ascii)
@pytest.mark.parametrize("opening", ["", 'password="', "password", "authorization: ", "://u:"])
def test_masking_takes_a_time_that_grows_with_the_text_and_no_faster(unit, opening):
    """Eight times the text, about eight times the work; with a square it would be 64 times."""
    short, long = (opening + unit * (size // len(unit)) for size in (8_000, 64_000))

    ratio = min(seconds(long) for _ in range(3)) / max(min(seconds(short) for _ in range(3)), 1e-4)

    assert ratio < 32


@pytest.mark.timeout(30)
@pytest.mark.parametrize("unit", ["a", "://", "a://b:", "token_", 'password="\\', "authorization: a="], ids=ascii)
def test_a_megabyte_of_anything_is_masked_in_no_time(unit):
    text = unit * (1_000_000 // len(unit))

    assert len(error_text(ValueError(text))) <= MAX_ERROR_LENGTH
    assert "ValueError" in traceback_text(ValueError(text))
