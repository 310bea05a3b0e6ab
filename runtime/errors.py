"""The three errors that may cross a boundary; a library's own exception never does."""


class FarsideError(Exception):
    """What every error of ours is; its text is one sentence for a person."""


class Unavailable(FarsideError):
    """Not now, perhaps later: the other side is away, slow or full.

    `retry_after_s` is a hint in seconds for whoever tries again.
    """

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        """Keep the sentence and the hint."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Rejected(FarsideError):
    """Never: this input or this wish will not be accepted, however often it is tried."""


class Misconfigured(FarsideError):
    """The program can't start as it is set up; the text says what to edit (exit code 2)."""


class NotPermitted(FarsideError):
    """Something needed is absent or not permitted; the text names the remedy (exit code 3)."""
