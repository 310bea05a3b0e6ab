"""`up --record FILE`: everything that passes over the bus, as JSON Lines that `replay` reads."""

import threading
from pathlib import Path

import structlog

from bus.records import dump
from bus.transport import Source
from runtime.errors import NotPermitted

log = structlog.get_logger()


class Recorder:
    """A worker that writes every record that its source gives.

    Beyond `bytes_max` the file is moved to FILE.1 and begun anew. A disk that is full ends the
    recording, not the run, and is told once.
    """

    name = "recorder"

    def __init__(self, path: Path, source: Source, bytes_max: int = 1 << 30) -> None:
        """Open the file; `NotPermitted` where it can't be written."""
        self._path = path
        self._source = source
        self._bytes_max = bytes_max
        try:
            self._file = path.open("wb")
        except OSError as error:
            msg = f"{path} can't be written ({(error.strerror or '').lower()}): name another file"
            raise NotPermitted(msg) from None

    def run(self, stop: threading.Event) -> None:
        """Write until `stop`, then what is still to be read."""
        try:
            while not stop.is_set():
                self._write(1.0)
            while self._write(0.0):
                pass
        except OSError as error:
            why = f"{self._path}: {(error.strerror or '').lower()}"
            log.warning("recording ended", why=why)
            stop.wait()
        finally:
            self._file.close()

    def _write(self, timeout_s: float) -> int:
        envelopes = self._source.poll(1000, timeout_s)
        for envelope in envelopes:
            self._file.write(dump(envelope))
        if envelopes:
            self._file.flush()
        if self._file.tell() > self._bytes_max:
            self._file.close()
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._file = self._path.open("wb")
        return len(envelopes)
