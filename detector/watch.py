"""Silence: who has not been heard, and whether it is one node or the way that telemetry takes.

Silence is counted in log time: only while the log moves (ticks come once a second) does a node's
silence grow. A scorer or a whole machine that was away does not make its nodes silent.
"""

from typing import Annotated

import msgspec
import numpy as np

from bus.messages import Contribution, Scope
from detector.bounds import Nats, Phi, Share
from detector.fusion import Evidence, Fusion
from models.silence import Silence
from runtime.words import duration_text

FAMILY = "heartbeat"


class WatchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """suspect_phi and dead_phi: accrued suspicion (powers of ten against a healthy pause).

    several_nodes and several_share: from both on (or all nodes), silence is telemetry's fault.
    quiet_share: nodes quiet for this share of a silent node's silence count with it.
    counted_gap_s: the longest pause of the log that counts as time in which nodes could be heard.
    """

    suspect_phi: Phi = 8.0
    dead_phi: Phi = 12.0
    suspect_nats: Nats = 9.0
    dead_nats: Nats = 13.0
    several_nodes: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 3
    several_share: Share = 0.02
    quiet_share: Share = 0.6
    counted_gap_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 2.0
    collector_misses: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 3
    collector_nats: Nats = 9.0

    def __post_init__(self) -> None:
        """Keep the order of the bars, and that of what they are worth."""
        for lower, upper in (("suspect_phi", "dead_phi"), ("suspect_nats", "dead_nats")):
            low, high = getattr(self, lower), getattr(self, upper)
            if low > high:
                raise ValueError(
                    f"{lower}: {low:g} is above {upper} ({high:g}), but who is suspected comes "
                    f"before who is given up: lower it, or raise {upper}"
                )


class Watch:
    """When each node was heard last, in counted log time."""

    def __init__(self, settings: WatchSettings, silence: Silence, cell: str) -> None:
        """Watch the nodes of one cell."""
        self._settings = settings
        self._silence = silence
        self._cell = Scope("cell", cell)
        self._counted_s = 0.0
        self._log_ns = 0
        self._beats: list[tuple[int, float]] = []
        self._heard_s: dict[int, float] = {}
        self.silent: set[int] = set()

    def pass_time(self, now_ns: int) -> None:
        """Let the log's time move on."""
        if self._log_ns and now_ns > self._log_ns:
            gap_s = (now_ns - self._log_ns) / 1e9
            self._counted_s += min(gap_s, self._settings.counted_gap_s)
        self._log_ns = max(self._log_ns, now_ns)

    def hear(self, node: int) -> None:
        """Note a batch of a node."""
        self._beats.append((node, self._counted_s))
        self._heard_s[node] = self._counted_s

    def judge(self, names: list[str], fusion: Fusion, now_ns: int) -> list[int]:
        """Judge all nodes once a second of log time; return the nodes that just went silent."""
        self._learn()
        if not self._heard_s:
            return []
        nodes = np.array(sorted(self._heard_s), np.int64)
        phi = self._silence.score(nodes, self._counted_s)
        silent = {int(node) for node in nodes[phi >= self._settings.suspect_phi]}
        gone = sorted(silent - self.silent)
        back = self.silent - silent
        quiet = self._quiet(silent)
        several = quiet == len(nodes) or (
            quiet >= self._settings.several_nodes
            and quiet >= self._settings.several_share * len(nodes)
        )
        accrued = dict(zip(nodes.tolist(), phi.tolist(), strict=True))
        for node in sorted(silent | back):
            scope = Scope("node", self._cell.cell, names[node])
            if node in back or several:
                fusion.hush(scope, "silence", FAMILY)
            else:
                self._say(scope, node, accrued[node], fusion, now_ns)
        self._say_several(quiet, len(nodes), fusion, now_ns, several=bool(silent) and several)
        self.silent = silent
        return gone

    def _quiet(self, silent: set[int]) -> int:
        """Count the silent nodes and those that are well on the way to it.

        Nodes that fall silent together cross the bar one after another, as their phases differ;
        the first to cross must not be blamed alone.
        """
        if not silent:
            return 0
        shortest_s = min(self._counted_s - self._heard_s[node] for node in silent)
        enough_s = self._settings.quiet_share * shortest_s
        return sum(self._counted_s - heard_s >= enough_s for heard_s in self._heard_s.values())

    def retire(self, node: int) -> None:
        """Stop watching a node."""
        self._heard_s.pop(node, None)
        self.silent.discard(node)

    def _learn(self) -> None:
        beats, self._beats = self._beats, []
        while beats:
            now: dict[int, float] = {}
            later = []
            for node, heard_s in beats:
                if node in now:
                    later.append((node, heard_s))
                else:
                    now[node] = heard_s
            nodes = np.array(list(now), np.int64)
            self._silence.grow(_room(self._silence.capacity, int(nodes.max()) + 1))
            self._silence.learn(nodes, np.array(list(now.values())))
            beats = later

    def _say(self, scope: Scope, node: int, phi: float, fusion: Fusion, now_ns: int) -> None:
        quiet_s = self._counted_s - self._heard_s[node]
        dead = phi >= self._settings.dead_phi
        nats = self._settings.dead_nats if dead else self._settings.suspect_nats
        fusion.speak(
            scope,
            "silence",
            FAMILY,
            Evidence(
                nats=nats,
                contributions=(
                    Contribution(
                        signal=FAMILY,
                        value=round(quiet_s, 1),
                        nats=nats,
                        text=f"nothing heard for {duration_text(quiet_s)}",
                    ),
                ),
                since_ns=now_ns - round(quiet_s * 1e9),
            ),
        )

    def _say_several(
        self,
        silent: int,
        nodes: int,
        fusion: Fusion,
        now_ns: int,
        *,
        several: bool,
    ) -> None:
        if not several:
            fusion.hush(self._cell, "telemetry", FAMILY)
            return
        nats = self._settings.dead_nats
        text = (
            f"{silent} of {nodes} nodes fell silent together: the way of telemetry, not the nodes"
        )
        known = fusion.voices(self._cell).get(("telemetry", FAMILY))
        fusion.speak(
            self._cell,
            "telemetry",
            FAMILY,
            Evidence(
                nats=nats,
                contributions=(
                    Contribution(
                        signal=FAMILY,
                        value=float(silent),
                        reference=float(nodes),
                        nats=nats,
                        text=text,
                    ),
                ),
                since_ns=known.since_ns if known else now_ns,
            ),
        )

    def save(self) -> "SavedWatch":
        """Return everything but the model as plain values."""
        self._learn()
        return SavedWatch(
            self._counted_s,
            self._log_ns,
            sorted(self._heard_s.items()),
            sorted(self.silent),
        )

    def load(self, state: "SavedWatch") -> None:
        """Become the saved state."""
        self._counted_s = state.counted_s
        self._log_ns = state.log_ns
        self._heard_s = dict(state.heard_s)
        self.silent = set(state.silent)


class SavedWatch(msgspec.Struct, frozen=True):
    """The form of a saved watch."""

    counted_s: float
    log_ns: int
    heard_s: list[tuple[int, float]]
    silent: list[int]


def _room(have: int, wanted: int) -> int:
    return have if wanted <= have else max(2 * have, wanted)
