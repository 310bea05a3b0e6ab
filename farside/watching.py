"""The reader that feeds what people look at."""

import threading

from bus.transport import Source
from farside.view.story import Story


class Watcher:
    """A worker that shows every record to a story."""

    name = "watcher"

    def __init__(self, story: Story, source: Source) -> None:
        """Feed `story` from `source`."""
        self._story = story
        self._source = source

    def run(self, stop: threading.Event) -> None:
        """Read until `stop`."""
        while not stop.is_set():
            self._story.see_all(self._source.poll(1000, 1.0))
