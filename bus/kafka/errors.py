"""The library's errors in our three words; none of them leaves this folder."""

import logging

from kafka import errors

from runtime.errors import FarsideError, Misconfigured, NotPermitted, Rejected, Unavailable

# The library tells of every reconnect; what matters is said once, in our own words.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

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
_NO_TOPIC = (errors.UnknownTopicOrPartitionError, errors.UnknownTopicIdError)


def explained(error: Exception, address: str) -> FarsideError:
    """Return our error for one of the library's; `address` names the brokers."""
    what = _words(error)
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
