"""What every executor owes, judged by discovery: a new file in executors/ is judged as it appears.

Each executor needs an arrangement below: something on this machine that its settings declare as its
own. An executor without one fails here, so that none goes unjudged.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import hypothesis
import pytest
from hypothesis import strategies as st
from msgspec import structs

from bus.messages import EXECUTORS_OF, Action, IsolationCommand, Scope, ScopeKind
from executors.base import Context, Executor
from executors.ledger import Verdict
from runtime.clock import Instant, SystemClock
from runtime.errors import FarsideError
from runtime.files import SysTree
from runtime.plugins import available, load
from tests.unit.executors import machine

CLOCK = SystemClock()


@dataclass
class Arranged:
    """Something of its own for an executor to act on.

    stands: whether it stands still now. touches: whether the executor really acts.
    """

    settings: dict[str, object]
    command: Callable[[Action, str], IsolationCommand]
    stands: Callable[[], bool]
    touches: bool = True


@contextlib.contextmanager
def _process() -> Iterator[Arranged]:
    with machine.children(1) as (child,):
        yield Arranged(
            {"own_descendants_of": ("self",), "confirm_s": 10.0},
            lambda action, name: machine.wish(action, child, name),
            lambda: child.state() == "T",
        )


@contextlib.contextmanager
def _dry_run() -> Iterator[Arranged]:
    with machine.children(1) as (child,):
        yield Arranged(
            {},
            lambda action, name: machine.wish(action, child, name),
            lambda: child.state() == "T",
            touches=False,
        )


ARRANGEMENTS = {"process": _process, "dry_run": _dry_run}


class Judged:
    """An executor under judgement, which can be started anew on the same disk."""

    def __init__(self, name: str, folder: Path, arranged: Arranged) -> None:
        self.name = name
        self.folder = folder
        self.arranged = arranged
        self.acting = self.start(arranged.settings)

    def start(self, settings: dict[str, object]) -> Executor:
        module: Any = load("executors", self.name)
        context = Context(SysTree(), CLOCK, machine.NODE, machine.BOOT, self.folder)
        acting: Executor = module.build(module.Settings(**settings), context)
        return acting

    def again(self) -> None:
        """Start anew, as after a kill: nothing is lifted."""
        self.acting.ledger.close()
        self.acting = self.start(self.arranged.settings)

    def act(self, action: Action, name: str = "c1", **changes: object) -> Verdict:
        command = structs.replace(self.arranged.command(action, name), **changes)
        return self.acting.act(command, CLOCK.now())


@pytest.fixture(params=available("executors"))
def judged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Judged]:
    if request.param not in ARRANGEMENTS:
        pytest.fail(f"say in ARRANGEMENTS what the executor {request.param} may act on in a test")
    with ARRANGEMENTS[request.param]() as arranged:
        judged = Judged(request.param, tmp_path / "state", arranged)
        yield judged
        judged.acting.close(CLOCK.now())


def holding(judged: Judged) -> Action:
    """Return an action that holds something, or skip."""
    if "freeze" not in judged.acting.knows:
        pytest.skip(f"{judged.name} holds nothing")
    return "freeze"


def test_it_is_named_as_its_file_and_knows_what_the_table_of_actions_says(judged: Judged) -> None:
    table: set[str] = {action for action, names in EXECUTORS_OF.items() if judged.name in names}
    assert (judged.acting.name, {*judged.acting.knows}) == (judged.name, table)


def test_building_it_and_asking_what_it_can_not_do_touches_nothing(judged: Judged) -> None:
    fresh = judged.start(judged.arranged.settings)
    fresh.cannot()
    assert not judged.folder.exists()


def test_an_action_that_it_does_not_know_is_refused_with_a_reason(judged: Judged) -> None:
    unknown = [action for action in get_args(Action) if action not in judged.acting.knows]
    verdicts = [judged.act(action, action) for action in unknown]
    assert [v.outcome for v in verdicts] == ["refused"] * len(unknown)
    assert all(action in v.detail for action, v in zip(unknown, verdicts, strict=True))


def test_what_it_did_is_true_and_what_it_only_says_touched_nothing(judged: Judged) -> None:
    verdict = judged.act(holding(judged))
    assert verdict.outcome == "done"
    assert judged.arranged.stands() == judged.arranged.touches
    assert (verdict.held_until is not None) == judged.arranged.touches


def test_a_repeated_command_gets_the_same_answer_and_is_not_carried_out_again(
    judged: Judged,
) -> None:
    first = judged.act(holding(judged))
    assert judged.act("freeze") == first._replace(outcome="already")
    judged.again()
    assert judged.act("freeze") == first._replace(outcome="already")
    assert len(judged.acting.held()) == judged.arranged.touches


def test_a_repeated_command_is_not_carried_out_again_after_it_was_lifted(judged: Judged) -> None:
    judged.act(holding(judged))
    judged.acting.lift("c1", CLOCK.now())
    judged.again()
    assert judged.act("freeze").outcome == "already"
    assert not judged.arranged.stands()


def test_what_it_holds_is_found_again_after_a_kill_and_lifted_at_a_clean_stop(
    judged: Judged,
) -> None:
    judged.act(holding(judged))
    judged.again()
    judged.acting.settle(CLOCK.now())
    held = [(held.command, held.scope) for held in judged.acting.held()]
    assert held == [("c1", judged.arranged.command("freeze", "c1").scope)] * judged.arranged.touches
    judged.acting.close(CLOCK.now())
    assert not judged.arranged.stands()


def test_lifting_twice_or_what_it_never_held_is_no_error(judged: Judged) -> None:
    judged.act(holding(judged))
    judged.acting.lift("c1", CLOCK.now())
    outcomes = [judged.acting.lift(name, CLOCK.now()).outcome for name in ("c1", "never")]
    assert outcomes == ["already", "already"]


def test_with_the_default_settings_nothing_is_its_own(judged: Judged) -> None:
    acting = judged.start({})
    for action in sorted(acting.knows):
        verdict = acting.act(judged.arranged.command(action, action), CLOCK.now())
        assert not judged.arranged.stands()
        if judged.arranged.touches and action != "release":
            assert verdict.outcome == "refused"
    acting.ledger.close()


def test_an_objection_is_told_without_touching_anything(judged: Judged) -> None:
    mine = judged.arranged.command(holding(judged), "c1")
    assert judged.acting.objection(mine) == ""
    assert "notify" in judged.acting.objection(structs.replace(mine, action="notify"))
    assert not judged.arranged.stands()


texts = st.text(max_size=30) | st.sampled_from(
    ["", "/", "@", ":", "/@1", "/..@1", "a:1:1", "a:0:0", "a:-1:x", "/x\n@2", "1", "-1", "9" * 30]
)
scopes = st.builds(
    Scope,
    kind=st.sampled_from(get_args(ScopeKind)),
    cell=texts,
    node=st.just(machine.NODE) | texts,
    name=texts,
)
preconditions = st.dictionaries(
    st.sampled_from(["boot", "pid", "start", "cgroup", "inode", "limit_bytes", "command"]),
    st.just(machine.BOOT) | texts,
)


@hypothesis.given(
    action=st.sampled_from(get_args(Action)),
    scope=scopes,
    precondition=preconditions,
    name=texts,
    hold_until=st.none() | st.integers(min_value=0, max_value=1 << 62).map(Instant),
)
@hypothesis.settings(
    max_examples=60,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
def test_whatever_a_command_says_it_is_answered_in_one_plain_line(
    judged: Judged,
    action: Action,
    scope: Scope,
    precondition: dict[str, str],
    name: str,
    hold_until: Instant | None,
) -> None:
    with contextlib.suppress(FarsideError):
        verdict = judged.act(
            action,
            name,
            scope=scope,
            precondition=precondition,
            hold_until=hold_until,
        )
        assert verdict.detail
        assert verdict.detail.isprintable()
    assert not judged.arranged.stands()
