"""What may leave the process as text: secrets masked, length bounded, nothing that a database refuses."""

from __future__ import annotations

import re
import traceback
from functools import cache

#: The specification's limit for `last_error`.
MAX_ERROR_LENGTH = 4000

#: Of a traceback that is kept. Its end says what was raised, its beginning how the handler was reached.
MAX_TRACEBACK_LENGTH = 8000
_BEGINNING = 2000

#: Enough to find every secret in a text that will be cut anyway, without running patterns over megabytes.
_SCAN_LENGTH = 4 * MAX_ERROR_LENGTH

# The patterns take a time that grows with the text and no faster: what a repeated part has taken it keeps (`*+`).

#: From a quote to the next one that is not escaped, or to the end of a text that was cut.
_QUOTED = r"""(?:"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|'(?:[^'\\]++|\\.)*+(?:'|\\?\Z))"""

#: All of an address behind `://`; a password may have an apostrophe in it.
_ADDRESS = r"""://[^\s"]++"""

#: The value is quoted (`b"…"` in a list of headers), or it is the rest of the line.
_AUTHORIZATION = (
    r"""(?P<name>authorization(?:\\*+["']\s*+[:=,]|\s*+[:=])\s*+)"""
    rf"""(?:b?\\*+{_QUOTED}|[^\r\n"']++(?:(?<==)"[^"\r\n]*+"[^\r\n"']*+)*+)"""
)

#: `password=…`, `"client_secret": "…"`, `AWS_SECRET_ACCESS_KEY: …`, `token=Token('…')`.
_NAMED = (
    r"""(?P<name>(?:password|passwd|passphrase|pwd|token|secret|api[_-]?key|access[_-]?key)"""
    r"""(?:[_-][\w-]{1,40}+|key)?+\\*+["']?\s*+[:=]{1,2}+>?\s*+)"""
    rf"""(?=[^\s,;&)}}\]])[^\s"',;&)}}\]]*+{_QUOTED}?+"""
)


def redact(text: str) -> str:
    """Mask URL passwords, `Authorization` values and `password=`, `token=`, `secret=` values."""
    address, authorization, named = _patterns()
    text = address.sub(lambda found: "://".join(map(_without_password, found[0].split("://"))), text)
    return named.sub(r"\g<name>***", authorization.sub(r"\g<name>***", text))


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Compiled for the first text: a program that only writes has none."""
    flags = re.IGNORECASE | re.DOTALL
    return re.compile(_ADDRESS), re.compile(_AUTHORIZATION, flags), re.compile(_NAMED, flags)


def _without_password(address: str) -> str:
    login, _, host = address.rpartition("@")
    user, colon, _ = login.partition(":")
    return f"{user}:***@{host}" if colon and "/" not in user else address


def storable(text: str) -> str:
    """The text as every store accepts it: no NUL, no lone surrogate, at most 4,000 characters, no secrets."""
    if len(text) > _SCAN_LENGTH:
        # An address that the cut goes through has lost the @ by which its password is known.
        text = re.sub(r"""://[^\s"]*+\Z""", "://***", text[:_SCAN_LENGTH])
    text = redact(_well_formed(text).replace("\x00", "\\x00"))
    return text if len(text) <= MAX_ERROR_LENGTH else text[: MAX_ERROR_LENGTH - 3] + "..."


def _well_formed(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def error_text(error: BaseException) -> str:
    """`Class: message`, storable. An error that cannot be printed keeps its class name."""
    name, message = type(error).__name__, text_of(error)
    return storable(f"{name}: {message}" if message else name)


def traceback_text(error: BaseException) -> str:
    """The traceback for a log line, secrets masked."""
    try:
        return redact(_well_formed("".join(traceback.format_exception(error)).rstrip()))
    except BaseException:  # what it says may be anything
        return error_text(error)


def storable_traceback(error: BaseException) -> str | None:
    """The traceback as every store accepts it, at most 8,000 characters; None for an error that was never raised."""
    if error.__traceback__ is None:
        return None
    text = traceback_text(error).replace("\x00", "\\x00")
    if len(text) <= MAX_TRACEBACK_LENGTH:
        return text
    gap = "\n  ...\n"
    return text[:_BEGINNING] + gap + text[len(text) - MAX_TRACEBACK_LENGTH + _BEGINNING + len(gap) :]


def text_of(value: object) -> str:
    """What something of a user's says of itself, secrets masked. A text may raise whatever it likes, SystemExit too."""
    try:
        return storable(str(value))
    except BaseException:
        return "(its message cannot be printed)"
