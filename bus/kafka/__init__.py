"""The bus between processes: Apache Kafka. The only place that imports the client library."""

from bus.kafka.admin import Admin, FoundTopic
from bus.kafka.bus import KafkaBus
from bus.kafka.settings import Settings

__all__ = ["Admin", "FoundTopic", "KafkaBus", "Settings"]
