"""What may leave the process as text: secrets masked, length bounded, nothing that a database refuses."""

from __future__ import annotations

import re
import traceback

#: The specification's limit for `last_error`.
MAX_ERROR_LENGTH = 4000

#: Enough to find every secret in a text that will be cut anyway, without running patterns over megabytes.
_SCAN_LENGTH = 4 * MAX_ERROR_LENGTH

_SECRETS = (
    (re.compile(r"(?P<keep>[a-zA-Z][a-zA-Z0-9+.\-]*://[^\s:/@'\"]*:)[^\s@'\"]+(?=@)"), r"\g<keep>***"),
    (
        re.compile(
            r"(?P<keep>\bauthorization[\"']?\s*[:=]\s*[\"']?(?:(?:basic|bearer|digest|token)\s+)?)[^\s\"',;}]+", re.I
        ),
        r"\g<keep>***",
    ),
    (
        re.compile(
            r"(?P<keep>(?:password|passwd|pwd|token|secret|api_?key)[\"']?\s*[:=]\s*)(?:\"[^\"]*\"|'[^']*'|[^\s\"',;&)}\]]+)",
            re.I,
        ),
        r"\g<keep>***",
    ),
)


def redact(text: str) -> str:
    """Mask URL passwords, `Authorization` values and `password=`, `token=`, `secret=` values."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def storable(text: str) -> str:
    """The text as every store accepts it: no NUL, no lone surrogate, at most 4,000 characters, no secrets."""
    text = text[:_SCAN_LENGTH].replace("\x00", "\\x00")
    text = redact(text.encode("utf-8", "backslashreplace").decode("utf-8"))
    return text if len(text) <= MAX_ERROR_LENGTH else text[: MAX_ERROR_LENGTH - 3] + "..."


def error_text(error: BaseException) -> str:
    """`Class: message`, storable. An error that cannot be printed keeps its class name."""
    name = type(error).__name__
    try:
        message = str(error)
    except Exception:
        return storable(f"{name}: (its message cannot be printed)")
    return storable(f"{name}: {message}" if message else name)


def traceback_text(error: BaseException) -> str:
    """The traceback for a log line, secrets masked."""
    try:
        return redact("".join(traceback.format_exception(error)).rstrip())
    except Exception:
        return error_text(error)
