"""What a step gives back: a message and where it belongs. Publishing is the worker's work."""

from typing import NamedTuple

from bus.messages import Message


class Output(NamedTuple):
    """One message on its way out."""

    topic: str
    key: str
    message: Message
