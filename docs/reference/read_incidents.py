# ruff: noqa: INP001, D100, T201  (an example in a page)
import json

from kafka import KafkaConsumer

consumer = KafkaConsumer(
    "farside.incidents",
    bootstrap_servers="127.0.0.1:9092",  # what make kafka prints
    auto_offset_reset="earliest",
)
for record in consumer:
    incident = json.loads(record.value)
    print(incident["opened"], incident["id"], incident["state"], incident["sentence"])
