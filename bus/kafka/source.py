"""Reads from Kafka by assignment: the position is the reader's own, kept in its checkpoint.

What can happen to a log is handled here and counted: records gone before they were read, a topic
deleted and made anew, a log cut short, a broker away.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import (
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

from bus.codec import Codec
from bus.kafka import unpacking
from bus.kafka.errors import KafkaError, explained
from bus.kafka.identity import Logs
from bus.kafka.making import made
from bus.kafka.settings import Settings
from bus.memory import opened
from bus.transport import Envelope, Place, Start
from runtime.clock import Instant
from runtime.errors import Unavailable

log = structlog.get_logger()
unpacking.install()

_MILLISECOND = 1_000_000
_REREAD_WAIT_MS = 5_000


class KafkaSource:
    """One reader; it belongs to one thread. It connects when it is first used."""

    def __init__(
        self,
        settings: Settings,
        logs: Logs,
        places: Iterable[str | Place],
        *,
        reader: str,
        start: Start = "earliest",
    ) -> None:
        """Read these topics (all their partitions) or places, from `start` where not told else."""
        self._settings = settings
        self._logs = logs
        self._wanted = list(places)
        names = (one if isinstance(one, str) else one[0] for one in self._wanted)
        self._topics = tuple(dict.fromkeys(names))
        self._start = start
        self._config = settings.client(f"{reader}-reads")
        self._consumer: Any = None
        self._again: dict[Place, Any] = {}
        self._positions: dict[Place, int] = {}
        self._told: dict[Place, int] = {}
        self._ends: dict[Place, int] = {}
        self._identity = ""
        self._skipped = 0
        self._codec = Codec()

    def poll(self, limit: int, timeout_s: float) -> list[Envelope]:
        """Return up to `limit` records; errors as of `bus.transport.Source`."""
        self._begin()
        self._end_rereading()
        if self._logs.identity(self._topics) != self._identity:
            self._begin_anew()
        try:
            found = self._consumer.poll(timeout_ms=int(timeout_s * 1000), max_records=limit)
        except (OffsetOutOfRangeError, NoOffsetForPartitionError, LogTruncationError):
            self._find_again()
            return []
        except KafkaError as error:
            raise self._away(error) from None
        return self._opened(found)

    def reread(self, place: Place, first: int, end: int) -> list[Envelope]:
        """Return the records from `first` up to `end` that still exist.

        Each place has a reader of its own for this, until the next poll. One reader with the other
        places paused would do, were it not that the library (3.0.12) then may never fetch what was
        paused again: what it had fetched already is put aside, and not always taken up.
        """
        self._begin()
        partition = TopicPartition(*place)
        taken: list[Envelope] = []
        try:
            reader = self._reader_of(place)
            begin = self._asked(reader.beginning_offsets, [partition])[partition]
            self._skipped += max(min(begin, end) - first, 0)
            at = max(first, begin)
            reader.seek(partition, at)
            while at < end:
                found = reader.poll(timeout_ms=_REREAD_WAIT_MS, max_records=end - at)
                if not found:
                    raise Unavailable(f"{place[0]} can't be read from {at} to {end} now")
                records = found[partition]
                taken += self._envelopes(place, records)
                at = records[-1].offset + 1
            self._consumer.seek(partition, end)
        except KafkaError as error:
            raise self._away(error) from None
        self._positions[place] = end
        return [one for one in taken if one.offset < end]

    def seek(self, positions: Mapping[Place, int]) -> None:
        """Continue at these next offsets; kept until the reader is connected."""
        if self._consumer is None:
            self._told.update(positions)
            return
        for place, offset in positions.items():
            if place in self._positions:
                self._consumer.seek(TopicPartition(*place), offset)
                self._positions[place] = offset

    def positions(self) -> dict[Place, int]:
        """Return the next offset of each partition; empty before the first connection."""
        return dict(self._positions) or dict(self._told)

    def lag(self) -> dict[Place, int]:
        """Return how many records wait, as of the last answer of the brokers."""
        waiting = {}
        for place, position in self._positions.items():
            end = self._consumer.highwater(TopicPartition(*place))
            waiting[place] = max((self._ends[place] if end is None else end) - position, 0)
        return waiting

    def skipped(self) -> int:
        """Return how many records were gone before they could be read."""
        return self._skipped

    def log(self) -> str:
        """Return the identity of the log; `Unavailable` before the first connection."""
        self._begin()
        return self._identity

    def close(self) -> None:
        """Give the connections back."""
        self._end_rereading()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close(autocommit=False, timeout_ms=1000)

    # --- beginning -----------------------------------------------------------------------------

    def _begin(self) -> None:
        """Connect, and find where to begin, once; `Unavailable` while that can't be."""
        if self._consumer is not None:
            return
        identity = self._logs.looked(self._topics)
        consumer = self._made()
        try:
            self._place(consumer)
        except KafkaError as error:
            consumer.close(autocommit=False, timeout_ms=0)
            raise self._away(error) from None
        except BaseException:
            consumer.close(autocommit=False, timeout_ms=0)
            raise
        self._consumer, self._identity = consumer, identity

    def _made(self) -> Any:  # noqa: ANN401  # no types
        return made(
            KafkaConsumer,
            **self._config,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            allow_auto_create_topics=False,
            client_rack=self._settings.client_rack,
            max_partition_fetch_bytes=8 << 20,
            fetch_max_wait_ms=500,
            metrics_enabled=False,
        )

    def _reader_of(self, place: Place) -> Any:  # noqa: ANN401  # no types
        """Return the reader of one place alone."""
        reader = self._again.get(place)
        if reader is None:
            reader = self._again[place] = self._made()
            reader.assign([TopicPartition(*place)])
        return reader

    def _end_rereading(self) -> None:
        while self._again:
            _, reader = self._again.popitem()
            reader.close(autocommit=False, timeout_ms=1000)

    def _place(self, consumer: Any) -> None:  # noqa: ANN401  # the library has no types
        counts = {topic: self._logs.partitions(topic) for topic in self._topics}
        places: list[Place] = []
        for one in self._wanted:
            if isinstance(one, tuple):
                places.append(one)
            else:
                places += [(one, number) for number in range(counts[one])]
        for topic, number in places:
            if number >= counts[topic]:
                raise Unavailable(
                    f"{topic} has no partition {number} (bus.cells names it): "
                    "farside topics --create adds what is missing"
                )
        partitions = [TopicPartition(*place) for place in places]
        consumer.assign(partitions)
        begins = self._first(consumer, partitions)
        self._ends = {
            (one.topic, one.partition): end
            for one, end in self._asked(consumer.end_offsets, partitions).items()
        }
        for partition, place in zip(partitions, places, strict=True):
            at = self._told.get(place, begins[partition])
            consumer.seek(partition, at)
            self._positions[place] = at
        self._told = {}

    def _first(self, consumer: Any, partitions: list[Any]) -> dict[Any, int]:  # noqa: ANN401
        if isinstance(self._start, Instant):
            wanted = dict.fromkeys(partitions, max(int(self._start) // _MILLISECOND, 0))
            found = self._asked(consumer.offsets_for_times, wanted)
            ends = self._asked(consumer.end_offsets, partitions)
            return {
                one: ends[one] if found.get(one) is None else found[one].offset
                for one in partitions
            }
        ask = consumer.beginning_offsets if self._start == "earliest" else consumer.end_offsets
        return self._asked(ask, partitions)

    def _asked(self, ask: Any, about: Any) -> dict[Any, Any]:  # noqa: ANN401  # no types
        answer: dict[Any, Any] = ask(about, timeout_ms=int(self._settings.request_timeout_s * 1000))
        return answer

    # --- what happens to a log -----------------------------------------------------------------

    def _begin_anew(self) -> None:
        """A topic was deleted and made anew: its new log is read from its start."""
        log.warning("a topic was made anew; reading at its start", topics=self._topics)
        self.close()
        self._positions = {}
        self._start = "earliest"
        self._begin()

    def _find_again(self) -> None:
        """The position lies outside the log: below its start, or beyond an end that moved back."""
        if self._logs.looked(self._topics) != self._identity:
            self._begin_anew()
            return
        partitions = [TopicPartition(*place) for place in self._positions]
        try:
            begins = self._asked(self._consumer.beginning_offsets, partitions)
            ends = self._asked(self._consumer.end_offsets, partitions)
        except KafkaError as error:
            raise self._away(error) from None
        for place, position in list(self._positions.items()):
            partition = TopicPartition(*place)
            begin, end = begins[partition], ends[partition]
            at = min(max(position, begin), end)
            # All of them: what the failed poll had fetched of the others was not handed on.
            self._consumer.seek(partition, at)
            self._positions[place] = at
            self._skipped += max(begin - position, 0)
            if at != position:
                why = "records were gone before they were read"
                if position > end:
                    why = "the log was cut short (a leader was lost that others had not followed)"
                log.warning(why, topic=place[0], partition=place[1], wanted=position, now=at)

    def _opened(self, found: Mapping[Any, list[Any]]) -> list[Envelope]:
        taken: list[Envelope] = []
        for partition, records in found.items():
            place = (partition.topic, partition.partition)
            taken += self._envelopes(place, records)
            if records:
                self._positions[place] = records[-1].offset + 1
        return taken

    def _envelopes(self, place: Place, records: Iterable[Any]) -> list[Envelope]:
        # A record without a value only ends a key of a compacted topic: it says nothing.
        return [self._envelope(place, one) for one in records if one.value is not None]

    def _envelope(self, place: Place, record: Any) -> Envelope:  # noqa: ANN401  # no types
        key = bytes(record.key or b"").decode("utf-8", "replace")
        appended = Instant(record.timestamp * _MILLISECOND)
        return opened(self._codec, place, record.offset, appended, key, bytes(record.value))

    def _away(self, error: Exception) -> Unavailable:
        return Unavailable(str(explained(error, self._settings.address)))
