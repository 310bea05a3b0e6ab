"""What people say, and what they mean by it."""

from bus.messages import Directive, IsolationCommand, Refusal
from detector import explain
from detector.incidents import Case, short_id
from runtime.clock import Instant


def nothing_held(wish: Directive, now: Instant) -> Refusal:
    """Return that there is nothing to release."""
    return Refusal(
        id=short_id(wish.id, "release"),
        scope=wish.scope,
        incident="",
        action="release",
        reason=f"nothing is held on {explain.name(wish.scope)}",
        time=now,
    )


def means(wish: Directive, case: Case, holding: IsolationCommand) -> bool:
    """Tell whether a person's words mean what is held by this case."""
    if wish.target:
        return wish.target in {case.id, holding.id}
    said, scope = wish.scope, case.scope
    if said.kind == "fleet":
        return True
    if said.cell and said.cell != scope.cell:
        return False
    if said.kind == "node" and said.node == scope.node:
        return True
    return (said.kind, said.node, said.name) == (scope.kind, scope.node, scope.name)
