"""What SNS and SQS, and the way to them, say of a message or of a whole request."""

from __future__ import annotations

from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.exceptions import (
    ConnectionError as NoConnection,
)
from botocore.parsers import ResponseParserError

from aftercommit.errors import MessageRefused
from aftercommit.events.outcome import DeadLetter
from aftercommit.relays.aws.entries import MOST_BYTES, Entry
from aftercommit.relays.outage import away

#: Nothing is wrong with any message: too much at once, an outage, or a login that is not valid (any more).
_AWAY: Final = frozenset(
    (
        *("Throttling", "ThrottlingException", "ThrottledException", "Throttled", "RequestThrottled", "SlowDown"),
        *("TooManyRequestsException", "RequestLimitExceeded", "KmsThrottled", "KMSThrottling", "RequestExpired"),
        *("ServiceUnavailable", "InternalFailure", "ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId"),
        *("UnrecognizedClientException", "InvalidAccessKeyId", "SignatureDoesNotMatch", "IncompleteSignature"),
    )
)

_NOWHERE: Final = ("QueueDoesNotExist", "NonExistentQueue", "NotFound", "NotFoundException")
_NEVER: Final = ("InvalidMessageContents", "BatchRequestTooLong", "MessageTooLong")

#: With these a service refuses what is too large, and much else.
_INVALID: Final = ("InvalidParameterValue", "InvalidParameter", "ParameterValueInvalid", "InvalidAttributeValue")
_TOO_LARGE: Final = ("shorter than", "too long", "too large", "message size")

#: No answer came, or nobody is logged in.
_NO_ANSWER: Final = (
    *(NoConnection, HTTPClientError, IncompleteReadError, ResponseParserError),
    *(NoCredentialsError, PartialCredentialsError, CredentialRetrievalError),
)

_SEE: Final = "see what the login may do, and how the queue or topic is set up"

#: What a request may raise.
FAILED: Final = (ClientError, BotoCoreError, ResponseParserError)


def of_request(error: Exception, where: str) -> BaseException | None:
    """What a failed request means for all its messages; None when it may be the fault of one of them."""
    if isinstance(error, _NO_ANSWER):
        return away(where, str(error))
    if not isinstance(error, ClientError):
        return None
    code = code_of(error.response)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _AWAY or status >= 500:
        return away(where, f"{code}: {error}")
    if code in _NOWHERE:
        return MessageRefused(
            f"there is no {where} ({code})", fix="create it, or mend its name; the event is tried again until then"
        )
    if code in _NEVER or code in _INVALID:
        return None
    return MessageRefused(f"{where}: {error}", fix=_SEE)


def of_entry(entry: Entry, code: str, text: str, where: str) -> BaseException:
    """What a service says of one message."""
    code = code.rpartition(".")[2]
    if code in _AWAY:
        return away(where, f"{code}: {text}")
    is_too_large = entry.size > MOST_BYTES or any(words in text.lower() for words in _TOO_LARGE)
    if code in _NEVER or (code in _INVALID and is_too_large):
        return DeadLetter(
            f"{where} does not take the message of {entry.size} bytes ({code}: {text})",
            fix="store the bulk elsewhere and send a reference to it" if is_too_large else "see what it may hold",
        )
    return MessageRefused(f"{where} did not take the message ({code}: {text})", fix=_SEE)


def alone(entry: Entry, error: Exception, where: str) -> BaseException:
    """A request with nothing but this message was refused."""
    if isinstance(error, ClientError):
        return of_entry(entry, code_of(error.response), str(error), where)
    return MessageRefused(f"{where}: {error}", fix=_SEE)


def code_of(response: Any) -> str:
    """Without the prefix that SQS has for some."""
    return str(response.get("Error", {}).get("Code", "")).rpartition(".")[2]
