"""A watch for CI: JUnit's XML, a suite for each series and a case for each alarm."""

from __future__ import annotations

from calipers.analyses.watch.document import Watched
from calipers.reports import junit
from calipers.reports.junit import Case, TestSuite


def render(watched: Watched) -> str:
    """The document, with its declaration and a final newline; a file that was not read is an error of its own."""
    suites = []
    for name in dict.fromkeys([*(one.name for one in watched.series), *(alarm.series for alarm in watched.alarms)]):
        cases = []
        for alarm in watched.alarms:
            if alarm.series != name:
                continue
            raised = next((one for one in watched.open_alarms if (one.alarm, one.series) == (alarm.alarm, name)), None)
            if raised is not None:
                cases.append(Case(alarm.alarm, f"watch.{name}", "failure", raised.words, "alarm"))
            elif alarm.why:
                cases.append(Case(alarm.alarm, f"watch.{name}", "skipped", alarm.why))
            else:
                cases.append(Case(alarm.alarm, f"watch.{name}"))
        suites.append(TestSuite(name or "steps", cases))
    if watched.unreadable:
        broken = [Case(path, "watch.files", "error", why, "unreadable") for path, why in watched.unreadable.items()]
        suites.append(TestSuite("files", broken))
    return junit.render("calipers watch", suites)
