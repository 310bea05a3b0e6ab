"""What stands on the page of an incident, part by part, from the figure to the fine print."""

from collections.abc import Iterable, Mapping

from bus.messages import Contribution, ExecutionReport, Incident, IsolationCommand
from bus.signals import catalogue
from farside.view.cases import Case, Moment, Truth, lead_words, moments
from farside.view.events import DONE_WORDS, is_dry
from farside.view.figures import Span, countdown_figure, span_of, victim_figure
from farside.view.markup import Child, Html, el, join
from farside.view.paper import clock, foot, listed, small
from runtime.clock import Instant
from runtime.words import (
    bytes_text,
    duration_text,
    interval_text,
    quantity_text,
    rate_text,
    share_text,
)

NATS_FULL = 14.0  # a bar of this many nats is as long as bars get


def headline(case: Case) -> str:
    """Return the incident's sentence: the newest that was told before it was closed."""
    told = [one.sentence for one in case.history if one.sentence and one.state != "closed"]
    return told[-1] if told else (case.incident.sentence or case.incident.scope.label)


def incident_parts(
    case: Case,
    truth: Truth | None,
    versions: Mapping[str, str] | None,
) -> Iterable[Child]:
    """Return the parts of an incident's page from top to bottom."""
    span = span_of(case, truth)
    return (
        _head(case),
        _facts(case, truth),
        _main_figure(case, truth, span),
        _way(case, truth),
        _neighbours(case, span),
        _evidence(case),
        _forecasts(case, truth, span),
        _orders(case),
        _judged(case),
        _fine_print(case, versions),
    )


def _head(case: Case) -> Html:
    incident, sentence = case.incident, headline(case)
    word = (incident.fault or "trouble").replace("_", " ")
    opened = incident.opened.text()
    closing = case.history[-1].sentence if incident.state == "closed" else ""
    return el(
        "header",
        el("p", "Incident: ", el("b", word), f", {incident.severity}, {_state(incident)}",
           class_="kicker"),
        el("h1", sentence),
        el(
            "p",
            f"Opened {opened[:10]} at {opened[11:19]} UTC on {incident.scope.label}."
            + (f" Closed: {closing}" if closing and closing != sentence else ""),
            class_="lead",
        ),
    )  # fmt: skip


def _state(incident: Incident) -> str:
    return {"acting": "being acted on", "probation": "on probation"}.get(
        incident.state, incident.state
    )


def _facts(case: Case, truth: Truth | None) -> Html | None:
    tiles: list[tuple[str, str, str]] = []
    decisive = case.decisive
    ahead = decisive.exhaustion if decisive else None
    done = case.done
    if ahead is not None and ahead.limit > 0:
        used = _held_at(case, done.finished) if done else None
        held = used if used is not None else ahead.used
        limit = f"its limit of {bytes_text(ahead.limit)}"
        when = "when it was stopped" if done else "at the last forecast"
        tiles.append(
            (
                "Memory held",
                bytes_text(held),
                f"{share_text(held / ahead.limit)} of {limit}, {when}",
            ),
        )
        tiles.append(("Growth", rate_text(ahead.growth), "and nothing given back"))
    if decisive is not None and ahead is not None:
        best, low, high = (
            max(moment.since(decisive.time), 0.0) for moment in (ahead.time, ahead.low, ahead.high)
        )
        when = "when it was decided" if case.act else "at the last forecast"
        note = f"to its limit ({interval_text(low, high)}), {when}"
        if truth is not None:
            true_s = truth.limit_time.since(decisive.time)
            note += f"; in truth {duration_text(true_s)}"
        tiles.append(("Forecast", duration_text(best), note))
    if case.act is not None:
        figure, what = lead_words(case, truth)
        word = DONE_WORDS.get(case.act.action, case.act.action)
        if done is None:
            tiles.append(("Lead time", figure, f"{case.act.action} was ordered, but {what}"))
        else:
            tiles.append(("Lead time", figure, f"{word} {what}"))
    if not tiles:
        return None
    return el(
        "dl",
        (
            el("div", el("dt", name), el("dd", value), el("dd", note, class_="small"))
            for name, value, note in tiles
        ),
        class_="facts",
    )


def _held_at(case: Case, moment: Instant) -> float | None:
    points = case.curve.held if case.curve else ()
    before = [value for at, value in points if at <= moment]
    return before[-1] if before else None


def _main_figure(case: Case, truth: Truth | None, span: Span) -> Html | None:
    figure = victim_figure(case, truth, span)
    if figure is None:
        return None
    signal = catalogue().signals.get(case.curve.signal) if case.curve else None
    keys: list[Child] = [_key("path", "held", "memory that can't be taken back")]
    keys.append(_key("path", "limit", "its limit"))
    if case.decisive is not None:
        which = "the one acted on" if case.act else "the newest"
        words = f"forecasts, the first and {which}: early, best, late"
        keys.append(_key("cone", "cone", words))
    if truth is not None and case.done is not None:
        keys.append(_key("path", "without", "how it would have gone on"))
    if "file" in figure and case.curve and case.curve.file and 'class="file"' in figure:
        keys.append(_key("cone", "file", "file pages, given back on demand"))
    return el(
        "section",
        el("h2", "Its memory against its limit"),
        el("p", signal.help if signal else None),
        el("figure", figure, class_="figure"),
        el("ul", keys, class_="key"),
    )


def _key(shape: str, class_: str, words: str) -> Html:
    mark = (
        el("rect", x=0, y=1, width=30, height=10, class_=class_)
        if shape == "cone"
        else el("path", d="M0 6L30 6", class_=class_, fill="none")
    )
    return el("li", el("svg", mark, viewBox="0 0 30 12", aria_hidden="true"), words)


def _way(case: Case, truth: Truth | None) -> Html:
    steps = moments(case, truth)
    zero = truth.onset if truth else (_since(case) or case.incident.opened)
    what = (
        "the leak began" if truth else "the growth began, as judged" if _since(case) else "opening"
    )
    return el(
        "section",
        el("h2", "What happened"),
        el("p", f"Times are UTC; the second column counts from when {what}."),
        el("ol", (_step(step, zero) for step in steps), class_="way"),
    )


def _since(case: Case) -> Instant | None:
    decisive = case.decisive or (case.suspicions[-1] if case.suspicions else None)
    return decisive.since if decisive else None


def _step(step: Moment, zero: Instant) -> Html:
    offset_s = step.time.since(zero)
    return el(
        "li",
        el("time", clock(step.time), datetime=step.time.text()),
        el("span", _offset(offset_s), class_="rel"),
        el("span", el("span", _name(step), class_=step.level), _rest(step)),
    )


def _name(step: Moment) -> str:
    return step.text.split(": ", 1)[0]


def _rest(step: Moment) -> str:
    _, colon, rest = step.text.partition(": ")
    return f"{colon}{rest}"


def _offset(offset_s: float) -> str:
    words = f"{abs(offset_s):.1f} s" if abs(offset_s) < 600 else duration_text(abs(offset_s))
    return ("+" if offset_s >= 0 else "\u2212") + words


def _neighbours(case: Case, span: Span) -> Html | None:
    beside = [one for one in case.neighbours if span.inside(one.held)]
    if case.node is not None and span.inside(case.node.held):
        beside.append(case.node)
    if not beside:
        return None
    act = case.done.finished if case.done else None
    return el(
        "section",
        el("h2", "Beside it on the same node"),
        el(
            "p",
            "Over the same time, each against its own limit: what has the same parent, then the "
            "largest. What is said of each is read off its numbers."
            + (" The thin line is the moment of the act." if act else ""),
        ),
        el("div", (small(one, span, act) for one in beside), class_="beside small"),
    )


def _evidence(case: Case) -> Html | None:
    evidence = case.incident.evidence or (case.decisive.contributions if case.decisive else ())
    if not evidence:
        return None
    head = el(
        "tr",
        el("th", "What was seen"),
        el("th", "Value", class_="n"),
        el("th", "Against", class_="n"),
        el("th", "Weight in nats"),
    )
    return el(
        "section",
        el("h2", "Evidence"),
        el(
            "p",
            "Each row is one piece of evidence. Its weight is the logarithm of how much likelier "
            "it is with the fault than without; weights add up.",
        ),
        el("div", el("table", el("thead", head), el("tbody", map(_evidence_row, evidence))),
           class_="wide"),
    )  # fmt: skip


def _evidence_row(one: Contribution) -> Html:
    signal = catalogue().signals.get(one.signal)
    unit = signal.unit if signal else _unit_of(one)
    width = 84 * min(max(one.nats, 0.0) / NATS_FULL, 1.0)
    # Lengths are our own numbers: style can't carry a name.
    bar = el("span", class_="bar", style=f"width:{width:.0f}px")
    return el(
        "tr",
        el(
            "td",
            one.text or (signal.help if signal else one.signal),
            el("span", one.signal, f", {one.device}" if one.device else None, class_="sub"),
        ),
        el("td", quantity_text(one.value, unit) if one.value is not None else "", class_="n"),
        el("td", quantity_text(one.reference, unit) if one.reference is not None else "",
           class_="n"),
        el("td", bar, f"{one.nats:+.1f}", class_="nats"),
    )  # fmt: skip


def _unit_of(one: Contribution) -> str:
    """Return the unit of evidence that is no signal: sizes are the only large numbers there."""
    return "bytes" if one.value is not None and abs(one.value) >= 1 << 16 else "count"


def _forecasts(case: Case, truth: Truth | None, span: Span) -> Html | None:
    figure = countdown_figure(case, truth, span)
    if figure is None:
        return None
    return el(
        "section",
        el("h2", "How the forecast held"),
        el(
            "p",
            "Each forecast at the time when it was made: time left until the limit, with the ends "
            "of its 90 % interval."
            + (" The dotted line is what was really left." if truth else ""),
        ),
        el("figure", figure, class_="figure"),
    )


def _orders(case: Case) -> Html | None:
    if not case.commands and not case.refusals:
        return None
    parts: list[Child] = [el("h2", "What was ordered, and what became of it")]
    parts += [_order(wish, case.report_on(wish)) for wish in case.wishes]
    if case.refusals:
        refused = (
            el("li", el("b", one.action), f" at {clock(one.time)}: {one.reason}")
            for one in case.refusals
        )
        parts += [el("h3", "Refused by the decider"), el("ul", refused, class_="plain")]
    return el("section", parts)


def _order(wish: IsolationCommand, reports: Iterable[ExecutionReport]) -> Html:
    valid = duration_text(wish.expires.since(wish.issued))
    dry = ", as a dry run" if is_dry(wish) else ""
    still = [
        join(el("code", f"{key} = {value}"), " ")
        for key, value in sorted(wish.precondition.items())
    ]
    pairs: list[tuple[str, Child]] = [
        ("because", wish.reason),
        ("ordered", f"{clock(wish.issued)}, valid for {valid}{dry}"),
        ("only if still", still or "nothing is asked"),
    ]
    for report in reports:
        until = f", until {clock(report.held_until)}" if report.held_until else ""
        words = f"{clock(report.finished)} by {report.executor}{until}"
        told = f"{report.outcome}: {report.detail}" if report.detail else report.outcome
        pairs.append(("report", [el("b", told), el("br"), words]))
    if len(pairs) == 3:
        pairs.append(("report", "no executor has answered"))
    return join(el("h3", f"{wish.action} {wish.scope.label}"), listed(pairs))


def _judged(case: Case) -> Html | None:
    decisive = case.decisive or (case.suspicions[-1] if case.suspicions else None)
    if decisive is None:
        return None
    widths = ", ".join(duration_text(width) for width in decisive.widths)
    belief = ", ".join(
        f"{fault.replace('_', ' ')} {share_text(share)}"
        for fault, share in sorted(decisive.p_bad.items(), key=lambda pair: -pair[1])
    )
    tests = (
        "The lowest value of each block of time is kept: what a program gives back by itself "
        "never stays in these floors. A leak is suspected when the floors of 24 blocks pass every "
        "test: they rise steadily and not in one step, they do not slow down, nothing is given "
        "back, the growth matters, and the limit is near enough."
    )
    pairs: list[tuple[str, Child]] = [
        ("judged at", clock(decisive.time)),
        ("state", f"{decisive.state}, {decisive.score:+.1f} nats of log-odds"),
        ("belief", belief or "none"),
        ("all tests passed", f"with blocks of {widths}" if widths else "no leak test was involved"),
        ("readings every", duration_text(decisive.period_s) if decisive.period_s else "unknown"),
    ]
    return el(
        "section",
        el("h2", "How it was judged"),
        el("p", tests) if widths else None,
        listed(pairs),
    )


def _fine_print(case: Case, versions: Mapping[str, str] | None) -> Html:
    decisive = case.decisive
    pairs: list[tuple[str, Child]] = [
        ("incident", el("span", case.incident.id, class_="id")),
        ("scope", el("span", case.incident.scope.key, class_="id")),
    ]
    pairs += [("command", el("span", wish.id, class_="id")) for wish in case.wishes]
    pairs += [("refusal", el("span", one.id, class_="id")) for one in case.refusals]
    if decisive is not None:
        place = f"partition {decisive.source.partition}, offset {decisive.source.offset}"
        pairs.append(("judged from", el("span", place, class_="id")))
        pairs.append(("boot", el("span", decisive.boot or "unknown", class_="id")))
    return foot(versions, listed(pairs))
