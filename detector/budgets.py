"""How much may be done to the fleet: acts an hour, scopes held, pauses, and the common-mode veto.

Every limit answers with the sentence that says which one it was. Nothing here decides what to do.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from bus.messages import Fault, Scope
from detector.deciding import DeciderSettings
from runtime.clock import Instant
from runtime.words import duration_text


class No(NamedTuple):
    """A refusal in the making: its kind, by which it is counted and told once, and its reason."""

    kind: str
    reason: str


class Ledger(msgspec.Struct, kw_only=True):
    """What was done and seen lately: the token bucket, the pauses, who showed which fault."""

    tokens: float | None = None
    filled: Instant = Instant(0)
    scopes: dict[str, Instant] = {}
    nodes: dict[str, Instant] = {}
    positives: dict[Fault, dict[str, Instant]] = {}

    # --- acts ----------------------------------------------------------------------------------

    def tokens_at(self, now: Instant, settings: DeciderSettings) -> float:
        """Return how many acts are left; a bucket that was never used is full."""
        if self.tokens is None:
            return float(settings.burst)
        gained = max(now.since(self.filled), 0.0) * settings.acts_per_hour / 3600
        return min(self.tokens + gained, float(settings.burst))

    def spend(self, scope: Scope, now: Instant, settings: DeciderSettings) -> None:
        """Take a token and begin the pauses."""
        self.tokens = self.tokens_at(now, settings) - 1.0
        self.filled = now
        self.scopes[scope.key] = now
        if scope.node:
            self.nodes[scope.node] = now

    def forgive(
        self, scope: Scope, now: Instant, settings: DeciderSettings, *, whole: bool
    ) -> None:
        """End the pauses: nothing was done after all. With `whole` the token comes back as well.

        What an executor refused touched nobody, so it must not use up what a real fault needs;
        how often one case is tried is bounded elsewhere.
        """
        self.scopes.pop(scope.key, None)
        self.nodes.pop(scope.node, None)
        if whole and self.tokens is not None:
            self.tokens = min(self.tokens_at(now, settings) + 1.0, float(settings.burst))
            self.filled = now

    def rest(self, scope: Scope, now: Instant) -> None:
        """Begin the pause of a scope without an act: a person let it go."""
        self.scopes[scope.key] = now

    def pause(self, scope: Scope, now: Instant, settings: DeciderSettings) -> No | None:
        """Return why it is too early for another act on this scope or its node."""
        for name, acted in (
            (scope.label, self.scopes.get(scope.key)),
            (scope.node, self.nodes.get(scope.node)),
        ):
            if acted is not None and now.since(acted) < settings.cooldown_s:
                return No(
                    "cooldown",
                    f"cooldown: {name} was acted upon {duration_text(now.since(acted))} ago, "
                    f"the next act comes {duration_text(settings.cooldown_s)} after it",
                )
        return None

    def rate(self, now: Instant, settings: DeciderSettings) -> No | None:
        """Return why no further act is left this hour."""
        tokens = self.tokens_at(now, settings)
        if tokens >= 1.0 - 1e-9:
            return None
        wait_s = (1.0 - tokens) * 3600 / settings.acts_per_hour
        return No(
            "rate",
            f"budget: {settings.burst} acts at once and {settings.acts_per_hour:g} an hour are "
            f"spent, the next is free in {duration_text(wait_s)}",
        )

    # --- the common-mode veto ------------------------------------------------------------------

    def show(self, fault: Fault, node: str, now: Instant) -> None:
        """Note that a node shows a fault."""
        self.positives.setdefault(fault, {})[node] = now

    def common(
        self, fault: Fault, known: int, now: Instant, settings: DeciderSettings
    ) -> tuple[int, bool]:
        """Return how many nodes showed a fault lately, and whether that means a common cause."""
        shown = sum(
            now.since(at) <= settings.veto_s for at in self.positives.get(fault, {}).values()
        )
        several = known >= settings.veto_nodes_min
        return shown, several and shown * 100 > settings.veto_percent * known

    def forget(self, now: Instant, settings: DeciderSettings) -> None:
        """Drop what no longer counts."""
        for pauses in (self.scopes, self.nodes):
            for key in [k for k, at in pauses.items() if now.since(at) >= settings.cooldown_s]:
                del pauses[key]
        for nodes in self.positives.values():
            for node in [n for n, at in nodes.items() if now.since(at) > settings.veto_s]:
                del nodes[node]


def room(scope: Scope, held: Iterable[Scope], known: int, settings: DeciderSettings) -> No | None:
    """Return why nothing more may be held: too many scopes, nodes, or scopes of this node.

    A share of the known nodes is rounded up to one node, and the smaller of both limits holds.
    """
    scopes = [other for other in held if other != scope]
    if len(scopes) >= settings.held_max:
        return No(
            "held",
            f"budget: {len(scopes)} of {settings.held_max} scopes already held",
        )
    nodes = {other.node for other in scopes}
    nodes_max = max(math.ceil(settings.held_percent * known / 100 - 1e-9), 1)
    if scope.node not in nodes and len(nodes) >= nodes_max:
        return No(
            "held nodes",
            f"budget: {len(nodes)} of {nodes_max} nodes already hold something "
            f"({settings.held_percent:g} % of {known} known)",
        )
    here = sum(other.node == scope.node for other in scopes)
    if here >= settings.node_held_max:
        return No(
            "held on node",
            f"budget: {here} of {settings.node_held_max} scopes already held on {scope.node}",
        )
    return None
