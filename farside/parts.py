"""The pure parts, made from a configuration: what `up`, `replay` and `detect` share."""

import msgspec

from bus.signals import catalogue
from detector.checkpoint import fingerprint
from detector.decider import Decider
from detector.deciding import DeciderSettings
from detector.scorer import Scorer
from detector.settings import ModelSettings, ScorerSettings
from farside.settings import EXECUTORS, Settings, chosen
from runtime.errors import Misconfigured
from runtime.settings import Table, plugin_settings


class Parts:
    """Scorers and the decider of one configuration."""

    def __init__(self, settings: Settings) -> None:
        """Judge all sections that detection needs; `Misconfigured` where one is wrong."""
        self.settings = settings
        self.scoring = plugin_settings(settings.detect, ScorerSettings)
        self.models = _models(settings.models)
        self.deciding = plugin_settings(settings.decide, DeciderSettings)

    def scorer(self, partition: int = 0) -> Scorer:
        """Return a fresh scorer for the cell of a partition."""
        cell = self.settings.bus.cell_of(partition, self.settings.farside.cell)
        return Scorer(self.scoring, self.models, catalogue(), cell)

    def decider(self, *, rehearsed: bool = False) -> Decider:
        """Return a fresh decider; `rehearsed`: every command is a dry run and nobody answers."""
        settings = self.deciding
        if rehearsed:
            settings = msgspec.structs.replace(settings, dry_run=True)
        # A rehearsal is the last choice: it is asked only for what no other executor knows.
        executors = sorted(chosen(self.settings.execute, EXECUTORS), key=lambda n: n == "dry_run")
        return Decider(settings, self.settings.act, executors=executors, answers=not rehearsed)

    def fingerprint(self) -> str:
        """Return what shapes the scorer's state: other models or signals can't go on with it."""
        return fingerprint(self.models, sorted(catalogue().signals))


def _models(sections: dict[str, Table]) -> ModelSettings:
    known = {field.name: field for field in msgspec.structs.fields(ModelSettings)}
    given = {}
    for name, table in sections.items():
        if name not in known:
            place = table.file or "configuration"
            msg = f"{place}: models.{name} is no model; known: {', '.join(known)}"
            raise Misconfigured(msg)
        given[name] = plugin_settings(table, known[name].type)
    return ModelSettings(**given)
