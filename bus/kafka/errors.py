"""The library's errors in our three words; none of them leaves this folder.

Why a first connection fails the library only logs (its error is that there was no answer in time),
so its log is listened to for that.
"""

import logging

from kafka import errors

from runtime.errors import FarsideError, Misconfigured, NotPermitted, Rejected, Unavailable

# The library tells of every reconnect; what matters is said once, in our own words.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

_CONNECTIONS = "kafka.net.manager"

KafkaError = errors.KafkaError
_NEVER = (
    errors.MessageSizeTooLargeError,
    errors.RecordListTooLargeError,
    errors.InvalidRecordError,
    errors.InvalidTopicError,
    errors.InvalidTimestampError,
)
_CLOSED_DOOR = (
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.AuthorizationError,
)
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_NO_ANSWER = "Unable to bootstrap"
_NO_TOPIC = (errors.UnknownTopicOrPartitionError, errors.UnknownTopicIdError)


class _Listener(logging.Handler):
    """Remembers why brokers closed their door last, until one can't be reached at all."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.why: Exception | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Take one line of the library's log."""
        for error in record.args or () if isinstance(record.args, tuple) else ():
            if isinstance(error, _CLOSED_DOOR) or _UNTRUSTED in str(error):
                self.why = error if isinstance(error, Exception) else None
            elif "ECONNREFUSED" in str(error):
                self.why = None


_listener = _Listener()
_log = logging.getLogger(_CONNECTIONS)
_log.setLevel(logging.WARNING)
_log.propagate = False
_log.addHandler(_listener)


def explained(error: Exception, address: str) -> FarsideError:
    """Return our error for one of the library's; `address` names the brokers."""
    if _NO_ANSWER in str(error) and _listener.why is not None:
        error = _listener.why
    what = _words(error)
    if _UNTRUSTED in what:
        return NotPermitted(
            f"Kafka at {address} shows a certificate that is not trusted: {what}; "
            "judge [bus.kafka] ca_file and check_hostname"
        )
    if isinstance(error, _NEVER):
        return Rejected(f"Kafka refuses the record: {what}")
    if isinstance(error, _CLOSED_DOOR):
        return NotPermitted(
            f"Kafka at {address} does not let us: {what}; "
            "judge [bus.kafka] username, password_file and the rights (ACLs) of this user"
        )
    if isinstance(error, _NO_TOPIC):
        return Unavailable(f"a topic is missing on {address}: farside topics --create makes it")
    if isinstance(error, errors.UnsupportedVersionError | errors.IncompatibleBrokerVersion):
        return Misconfigured(f"Kafka at {address} is too old: {what}")
    return Unavailable(f"Kafka at {address} can't be reached: {what}")


def is_passing(error: Exception) -> bool:
    """Tell whether a repeat can cure an error of the library."""
    return isinstance(error, errors.RetriableError)


def _words(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text[:300] or type(error).__name__
