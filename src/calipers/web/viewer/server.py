"""The viewer's server: pages, their data as JSON, and events. It writes only labels, and otherwise only reads.

A page is an empty shell with the style of the report, which its script fills with data from the server.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import signal
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from functools import partial
from html import unescape
from typing import Any, Final

import numpy as np
from aiohttp import web

from calipers.analyses.watch.watch import is_live
from calipers.errors import InputError
from calipers.metrics import PASS_THRESHOLD
from calipers.rollouts.record import OUTCOMES, USAGE
from calipers.web.draw import hatch
from calipers.web.markup import Markup, element, visible
from calipers.web.page import MARK, METAS, asset, html
from calipers.web.report_data import STATES, parts_of
from calipers.web.viewer.guard import MOST_CLIENTS, ViewerGuard, request_log
from calipers.web.viewer.index import Group, RunSource
from calipers.web.viewer.labelling import Labelling
from calipers.web.viewer.library import Library, OpenRun, cached, modified, running
from calipers.web.viewer.rollouts import (
    Query,
    blocks_of,
    numbers_of,
    piece,
    previews,
    raw_block,
    record_of,
    steps_of,
    tokens,
    whole_text,
)
from calipers.web.viewer.summary import (
    RunPair,
    View,
    other_answers,
    pair_report,
    pair_summary,
    report_of,
    run_pair,
)

MOST_ROWS: Final = 200  # rows of a list per request
LARGEST_BODY: Final = 64 << 10  # bytes of a request
PING: Final = 10.0  # seconds between two keep-alive messages of an event stream
MOST_PAIRS: Final = 4  # cached pairs of runs
MOST_EVENTS: Final = 100  # events in the queue of a client
RELOAD: Final = 10  # seconds after which the page of a live watch reloads itself
SOON: Final = 1.0  # seconds that the first page waits for an index
LOOK: Final = 5.0  # seconds between two checks whether a page is open
GRACE: Final = 2.0  # seconds that open requests have when the server stops
ASSETS: Final = {
    "page.css": "text/css",
    "runs.css": "text/css",
    "viewer.css": "text/css",
    "viewer.js": "text/javascript",
}
LABELS_ONLY: Final = re.compile(r"/(asset/[a-z.]+|label|api/label(/\w+)?)\Z")
"""The paths that are answered during blind labelling; others could show the judge's verdicts."""
STYLES = ("page.css", "runs.css", "viewer.css")


class Viewer:
    """The request handlers of one server."""

    def __init__(self, library: Library, guard: ViewerGuard, labelling: Labelling | None = None) -> None:
        self.library, self.guard, self.labelling = library, guard, labelling
        self.closing = asyncio.Event()
        self._pairs: OrderedDict[tuple[Any, ...], RunPair] = OrderedDict()
        self._answers: OrderedDict[tuple[Any, ...], tuple[frozenset[int], bool]] = OrderedDict()
        self.pages = 0  # number of open event streams, one for each page
        self.left = asyncio.get_running_loop().time()  # when the last event stream was closed

    def application(self) -> web.Application:
        """The application with all routes."""
        app = web.Application(middlewares=[self.guard.middleware(), self._blind], client_max_size=LARGEST_BODY)
        app.on_response_prepare.append(self.guard.add_headers)
        run, pair = r"{run:[0-9a-f]{12}(?:\.[0-9]{1,5})?}", r"{other:[0-9a-f]{12}(?:\.[0-9]{1,5})?}"
        get = app.router.add_get
        get("/", self._front)
        get("/label", self._page("label"))
        get("/asset/{name}", self._asset)
        get(f"/run/{run}", self._page("run"))
        get(f"/compare/{run}/{pair}", self._page("pair"))
        get(f"/report/{run}", self._report)
        get(f"/report/{run}/{pair}", self._pair_report)
        get("/watch/{watch:[0-9a-f]{12}}", self._watch)
        get("/events", self._events)
        get("/api/runs", self._runs)
        get(f"/api/run/{run}", self._run)
        get(f"/api/run/{run}/rollouts", self._rollouts)
        get(f"/api/run/{run}/rollout/{{row:[0-9]{{1,10}}}}", self._rollout)
        get(f"/api/run/{run}/text/{{row:[0-9]{{1,10}}}}", self._text)
        get(f"/api/compare/{run}/{pair}", self._compare)
        get(f"/api/compare/{run}/{pair}/task", self._compare_task)
        get("/api/label", self._label)
        app.router.add_post("/api/label", self._labelled)
        app.router.add_post("/api/label/{what:undo|finish}", self._label_action)
        return app

    @web.middleware
    async def _blind(self, request: web.Request, handler: Any) -> web.StreamResponse:
        labelling = self.labelling
        if labelling is not None and not labelling.finished and not LABELS_ONLY.match(request.path):
            if request.path == "/":
                raise web.HTTPSeeOther("/label")
            raise web.HTTPForbidden(text="Nothing else is shown until the labelling is finished.\n")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _front(self, request: web.Request) -> web.Response:
        alone = len(self.library.runs) == 1 and not self.library.watches
        only = next(iter(self.library.runs.values())) if alone else None
        if only is not None and "all" not in request.query and only.source.kind != "result":
            with suppress(InputError, TimeoutError):
                async with asyncio.timeout(SOON):
                    several = len((await self.library.index(only)).groups) > 1
                if not several:
                    raise web.HTTPSeeOther(f"/run/{only.source.id}")
        return web.Response(text=shell("runs"), content_type="text/html")

    def _page(self, kind: str) -> Callable[[web.Request], Any]:
        async def page(request: web.Request) -> web.Response:
            return web.Response(text=shell(kind), content_type="text/html")

        return page

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in ASSETS:
            raise web.HTTPNotFound
        return web.Response(text=asset(name), content_type=ASSETS[name], headers={"Cache-Control": "no-cache"})

    # the list of runs

    async def _runs(self, request: web.Request) -> web.Response:
        rows = []
        for run in sorted(self.library.runs.values(), key=lambda run: -modified(run.source)):
            rows += await self._listed(run)
        watches = [{"id": id, "path": visible(folder)} for id, folder in sorted(self.library.watches.items())]
        return _json({"runs": rows, "watches": watches, "notes": [visible(note) for note in self.library.notes]})

    async def _listed(self, run: OpenRun) -> list[dict[str, Any]]:
        source = run.source
        shared = {
            "source": source.id,
            "path": visible(source.name),
            "kind": source.kind,
            "age": modified(source),
            "running": running(source),
        }
        try:
            index = await self.library.index(run)
        except InputError as error:
            return [{**shared, "id": source.id, "error": visible(str(error))}]
        known = dict(await self.library.summary(run))
        rows = []
        for number, group in enumerate(index.groups or [(None, None, None)]):
            summary = known.get(group) or (next(iter(known.values())) if len(known) == 1 else None)
            row = {**shared, "id": run_id(source, number), **_named(group), "rollouts": len(index)}
            rows.append({**row, **(asdict(summary) if summary else {}), "error": visible(run.why_no_summary)})
        return rows

    # one run

    async def _run(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        run = self.library.runs[view.source.id]
        listed = await self._listed(run) if request.query.get("summary") != "no" else []
        own = view.own
        parts = parts_of(own.states[own.rows], own.outcomes[own.rows])  # only of rows in the log
        shown = next((row for row in listed if row["id"] == view.id), {"id": view.id})
        return _json(
            {
                **shown,
                **_named(view.who),
                "path": visible(view.source.name),
                "version": view.version,
                "running": running(view.source),
                "rollouts": len(own.rows),
                "outright": own.outright,
                "parts": [{**asdict(part), "word": part.word} for part in parts],
                "slices": _slices(view),
                "others": [{"id": id, "name": visible(name)} for id, name in self._others(view)],
            }
        )

    def _others(self, view: View) -> list[tuple[str, str]]:
        """The other runs of the same dataset, with which this run can be compared."""
        others = []
        for run in self.library.runs.values():
            for number, group in enumerate(run.index.groups if run.index else []):
                id = run_id(run.source, number)
                if id != view.id and group[2] == view.who[2]:
                    others.append((id, f"{group[1] or group[0] or ''} {run.source.name}".strip()))
        return others

    async def _view(self, request: web.Request, key: str = "run") -> View:
        return await self.library.view(request.match_info[key])

    async def _rollouts(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        query, against, way = await self._query(request, view)
        rows, complete = await self.library.rows(view, query, against, way)
        first, count = _whole(request, "from", 0), min(_whole(request, "count", 50), MOST_ROWS)
        answer: dict[str, Any] = {"total": len(rows), "version": view.version, "complete": complete}
        if "task" in request.query and "sample" in request.query:
            answer["at"] = _position(view, rows, request.query["task"], _whole(request, "sample", 0))
        if "fail" in request.query:  # the next failure after, or the previous one before, a position
            position = -1 if request.query["fail"] == "-1" else _whole(request, "fail", 0)
            answer["at"] = _failure(view, rows, position, request.query.get("way") == "back")
        shown = rows[first : first + count].tolist()
        texts = await self.library.call(previews, view.index, shown)
        answer["rows"] = [_row(view, row, words) for row, words in zip(shown, texts, strict=True)]
        return _json(answer)

    async def _query(self, request: web.Request, view: View) -> tuple[Query, View | None, str]:
        given = request.query
        query = Query(
            group=view.group,
            states=frozenset(filter(None, given.get("state", "").split(","))),
            outcome=given.get("outcome", ""),
            least=_number(given.get("least")),
            most=_number(given.get("most")),
            slices=_chosen_slices(request, view),
            search=given.get("q", "").strip()[:500],
            task=given.get("only", ""),
            sort=given.get("sort", "order"),
        )
        against = await self.library.view(given["against"]) if given.get("against") else None
        return query, against, given.get("flip", "flipped")

    async def _rollout(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        row = _row_of(request, view)
        return _json(await self.library.call(_detail, view, row))

    async def _text(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        row, key, start = _row_of(request, view), request.query.get("block", ""), _whole(request, "from", 0)

        def part() -> dict[str, Any]:
            text = whole_text(*record_of(view.index, row), key)
            words, end = piece(text, start)
            return {"text": words, "next": end if end < len(text) else None, "size": len(text)}

        return _json(await self.library.call(part))

    async def _report(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        return _page_with_policy(await self.library.call(report_of, view))

    async def _watch(self, request: web.Request) -> web.Response:
        """The page of a training run by step, from the last state of its watch; a live watch's page reloads itself."""
        folder = self.library.watches.get(request.match_info["watch"])
        if folder is None:
            raise InputError("no such watch; the list of runs has all of them")
        answer = _page_with_policy(await self.library.call(_watch_html, folder))
        if await self.library.call(is_live, folder):
            answer.headers["Refresh"] = str(RELOAD)
        return answer

    # two runs

    async def _two_views(self, request: web.Request) -> tuple[View, View]:
        return await self._view(request), await self._view(request, "other")

    async def _pair_report(self, request: web.Request) -> web.Response:
        return _page_with_policy(await self.library.call(pair_report, *await self._two_views(request)))

    async def _compare(self, request: web.Request) -> web.Response:
        first, second = await self._two_views(request)
        pair = await self._pair(first, second)
        way = request.query.get("way", "all")
        kept, complete = await self._tasks_found(request, first, second)
        tasks = [task for task in pair.tasks if kept is None or task.hash in kept]
        counts = {word: sum(task.way == word for task in tasks) for word in ("worse", "better", "same")}
        chosen = tasks
        if way == "answer":
            differ, read = await self._other_answers(first, second)
            chosen, complete = [task for task in tasks if task.hash in differ], complete and read
        elif way != "all":
            chosen = [task for task in tasks if task.way == way]
        start, count = _whole(request, "from", 0), min(_whole(request, "count", 50), MOST_ROWS)
        rows = [
            {
                "task": visible(first.index.name(task.codes[0])),
                "gain": task.gain,
                "way": task.way,
                "states": [states(code) for states, code in zip(pair.states, task.codes, strict=True)],
            }
            for task in chosen[start : start + count]
        ]
        answer: dict[str, Any] = {
            "total": len(chosen), "counts": {"all": len(tasks), **counts}, "rows": rows, "complete": complete,
            "names": [_called(first), _called(second)], "version": [first.version, second.version],
            "slices": _slices(first),
        }  # fmt: skip
        if "task" in request.query:
            code = _task_code(first, request.query["task"])
            answer["at"] = next((at for at, task in enumerate(chosen) if task.codes[0] == code), None)
        if request.query.get("verdict") != "no":
            try:
                answer["verdict"] = asdict(await self.library.call(pair_summary, first, second))
            except InputError as error:
                answer["verdict"] = {"sentence": visible(str(error)), "detail": "", "badge": "", "tasks": 0}
        return _json(answer)

    async def _pair(self, first: View, second: View) -> RunPair:
        """The tasks of two runs, cached until either run changes."""
        return await cached(
            self._pairs, MOST_PAIRS, _versions(first, second), lambda: self.library.call(run_pair, first, second)
        )

    async def _other_answers(self, first: View, second: View) -> tuple[frozenset[int], bool]:
        make = partial(self.library.call_while_open, other_answers, first, second)
        return await cached(self._answers, MOST_PAIRS, _versions(first, second), make)

    async def _tasks_found(self, request: web.Request, first: View, second: View) -> tuple[frozenset[int] | None, bool]:
        """The hashes of the tasks that match a request, and whether the search covered both logs.

        A task matches if it is in the requested slices of the first run, and if either run has the requested words. The
        hashes are None if all tasks match.
        """
        words, kept, complete = request.query.get("q", "").strip()[:500], None, True
        if slices := _chosen_slices(request, first):
            rows, _ = await self.library.rows(first, Query(group=first.group, slices=slices), None, "")
            kept = _hashes(first, rows)
        if words:
            matches = frozenset[int]()
            for view in (first, second):
                rows, read = await self.library.rows(view, Query(group=view.group, search=words), None, "")
                matches, complete = matches | _hashes(view, rows), complete and read
            kept = matches if kept is None else kept & matches
        return kept, complete

    async def _compare_task(self, request: web.Request) -> web.Response:
        task, number = request.query.get("task", ""), _whole(request, "sample", 0)
        sides = []
        for view in await self._two_views(request):
            rows = _task_rows(view, task)
            row = rows[min(number, len(rows) - 1)] if rows else None
            detail = await self.library.call(_detail, view, row) if row is not None else None
            sides.append({"name": _called(view), "samples": len(rows), "rollout": detail})
        return _json({"task": task, "sides": sides})

    # events

    async def _events(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MOST_EVENTS)
        self.library.listeners.add(queue)
        self.pages += 1
        try:
            await answer.write(b"retry: 1000\n\n")
            while not self.closing.is_set():
                try:
                    event = await asyncio.wait_for(queue.get(), PING)
                    await answer.write(b"data: %s\n\n" % json.dumps(event).encode())
                except TimeoutError:
                    await answer.write(b": still here\n\n")
        except (ConnectionError, asyncio.CancelledError):
            pass  # the browser closed the stream
        finally:
            self.library.listeners.discard(queue)
            self.pages -= 1
            self.left = asyncio.get_running_loop().time()
        return answer

    # labels

    def _labels(self) -> Labelling:
        if self.labelling is None:
            raise web.HTTPNotFound
        return self.labelling

    async def _label(self, request: web.Request) -> web.Response:
        return _json(await self.library.call(self._labels().state))

    async def _labelled(self, request: web.Request) -> web.Response:
        labelling = self._labels()
        try:
            body = await request.json()
            label, comment, position = body["label"], str(body.get("comment") or ""), int(body["position"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise InputError("expected an object with label and position") from None
        await self.library.call(labelling.put, position, label, comment)
        return _json(await self.library.call(labelling.state))

    async def _label_action(self, request: web.Request) -> web.Response:
        labelling = self._labels()
        await self.library.call(labelling.undo if request.match_info["what"] == "undo" else labelling.finish)
        return _json(await self.library.call(labelling.state))


def _json(value: Any) -> web.Response:
    def finite(value: Any) -> Any:
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if isinstance(value, dict):
            return {key: finite(inner) for key, inner in value.items()}
        return [finite(inner) for inner in value] if isinstance(value, (list, tuple)) else value

    body = json.dumps(finite(value), ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    return web.Response(body=body, content_type="application/json")


def _watch_html(folder: str) -> str:
    from calipers.web.watch_page import watch_data, watch_page

    return html(watch_page(watch_data(folder)))


def _page_with_policy(content: str) -> web.Response:
    """A report with the content security policy of its own, which allows its style and scripts by their hashes."""
    match = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)"', content)
    policy = f"{unescape(match[1])}; frame-ancestors 'none'" if match else "default-src 'none'"
    return web.Response(text=content, content_type="text/html", headers={"Content-Security-Policy": policy})


def _whole(request: web.Request, key: str, default: int) -> int:
    text = request.query.get(key, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > 18:
        raise InputError(f"{key} is {text[:40]!r}; expected a whole number")
    return int(text)


def _number(text: str | None) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"the reward is {text[:40]!r}; expected a number")
    return value


def _chosen_slices(request: web.Request, view: View) -> tuple[tuple[str, str], ...]:
    """The requested slices with keys and values as in the log; in a request, their control characters are visible."""

    def original(key: str, value: str) -> tuple[str, str]:
        for known_key, values in view.index.slices.items():
            if visible(known_key) == key:
                return known_key, next((known for known in values if visible(known) == value), value)
        return key, value

    pairs = (pair.partition("=") for pair in request.query.getall("slice", []))
    return tuple(original(key, value) for key, _, value in pairs if key)


def run_id(source: RunSource, group: int) -> str:
    """The id of a run in addresses."""
    return f"{source.id}.{group}" if group else source.id


def _named(group: Group) -> dict[str, str]:
    return dict(zip(("agent", "model", "dataset"), (visible(name or "") for name in group), strict=True))


def _versions(first: View, second: View) -> tuple[Any, ...]:
    return first.id, first.version, second.id, second.version


def _row(view: View, row: int, words: dict[str, str]) -> dict[str, Any]:
    columns, numbers = view.index.columns, view.own.numbers
    total = tokens(view.index, [row])
    count = float(total.values[0]) if total.given[0] else math.nan
    outcome = OUTCOMES[int(view.own.outcomes[row])]
    return {
        "row": row,
        "task": visible(view.index.name(int(columns["task"][row]))),
        "sample": int(columns["sample"][row]),
        "state": STATES[int(view.own.states[row])],
        "outcome": outcome.replace("_", " "),
        "reward": float(numbers.values[row]) if numbers.given[row] else None,
        "tokens": int(count) if math.isfinite(count) else None,
        **words,
    }


def _row_of(request: web.Request, view: View) -> int:
    row = int(request.match_info["row"])
    if row >= len(view.index):
        raise InputError(f"no rollout {row}; the log has {len(view.index):,}")
    return row


def _position(view: View, rows: Any, task: str, sample: int) -> int | None:
    """The position of a rollout in a list; None if it is not in the list."""
    code = _task_code(view, task)
    if code is None:
        return None
    columns = view.index.columns
    positions = np.flatnonzero((columns["task"][rows] == code) & (columns["sample"][rows] == sample))
    return int(positions[0]) if len(positions) else None


def _task_code(view: View, task: str) -> int | None:
    code = view.index.task(task)
    if code is not None or not task:
        return code
    return next((at for at, name in enumerate(view.index.names()) if visible(name) == task), None)


def _failure(view: View, rows: Any, position: int, back: bool) -> int | None:
    """The position of the nearest rollout that did not pass, after a position or before it; None if there is none."""
    numbers = view.own.numbers
    failed = ~(numbers.given[rows] & (numbers.values[rows] >= PASS_THRESHOLD))
    position = min(position, len(failed))
    ahead = failed[:position][::-1] if back else failed[position + 1 :]
    if not ahead.any():
        return None
    step = int(np.argmax(ahead))
    return position - 1 - step if back else position + 1 + step


def _detail(view: View, row: int) -> dict[str, Any]:
    """The data of the first screen of a rollout."""
    index, columns = view.index, view.index.columns
    line, record = record_of(index, row)
    task, sample = int(columns["task"][row]), int(columns["sample"][row])
    same = np.flatnonzero(columns["task"] == task)
    if len(index.groups) > 1:
        same = same[columns["group"][same] == columns["group"][row]]
    current = index.current()
    words = _row(view, row, {})
    usage = {name: float(column.values[row]) for name in USAGE if (column := index.number("usage", name)).given[row]}
    slices = {
        visible(key): visible(values[code])
        for key, values in index.slices.items()
        if (code := int(columns[f"slice:{key}"][row])) >= 0
    }
    state = words["state"]
    return {
        **words,
        "samples": int(current[same].sum()),
        "counted": state != "missing",
        "passed": state == "passed",
        "usage": usage,
        "slices": slices,
        "numbers": numbers_of(record),
        "blocks": [asdict(block) for block in blocks_of(record)],
        "steps": steps_of(record),
        "raw": asdict(raw_block(line)),
        "line": int(columns["line"][row]),
        "path": visible(index.path if view.source.kind != "other" else view.source.name),
        "siblings": [
            {"row": other, "sample": int(columns["sample"][other]), "state": STATES[int(view.own.states[other])]}
            for other in same[current[same]][:200].tolist()
        ],
        "attempts": _attempts(view, same[columns["sample"][same] == sample].tolist()),
    }


def _attempts(view: View, rows: Sequence[int]) -> list[dict[str, Any]]:
    """The attempts at a rollout; empty if there was only one."""
    if len(rows) < 2:
        return []
    texts = previews(view.index, rows[:50])
    return [
        {
            **_row(view, row, words),
            "attempt": int(view.index.columns["attempt"][row]),
            "current": bool(view.index.current()[row]),
        }
        for row, words in zip(rows[:50], texts, strict=True)
    ]


def _slices(view: View) -> dict[str, list[str]]:
    """The keys of a run's slices with their values."""
    return {visible(key): [visible(value) for value in values] for key, values in view.index.slices.items()}


def _hashes(view: View, rows: Any) -> frozenset[int]:
    """The hashes of the tasks of some rows."""
    return frozenset(view.index.columns["hash"][np.unique(view.index.columns["task"][rows])].tolist())


def _called(view: View) -> str:
    agent, model, _ = view.who
    return visible(model or agent or os.path.basename(view.source.path))


def _task_rows(view: View, task: str) -> list[int]:
    code = _task_code(view, task)
    rows = view.own.rows
    if code is None:
        return []
    chosen = rows[view.index.columns["task"][rows] == code]
    ordered: list[int] = chosen[np.argsort(view.index.columns["sample"][chosen], kind="stable")].tolist()
    return ordered


@asynccontextmanager
async def serving(
    library: Library, *, port: int = 0, labelling: Labelling | None = None
) -> AsyncIterator[tuple[Viewer, str]]:
    """Run a server until the block ends; yields the viewer and the address to open, with its token."""
    loop = asyncio.get_running_loop()
    guard = ViewerGuard()
    viewer = Viewer(library, guard, labelling)
    runner = web.AppRunner(
        viewer.application(), access_log=None, logger=request_log(), handle_signals=False, shutdown_timeout=GRACE
    )
    await runner.setup()
    handlers = runner.server
    if handlers is None:
        raise RuntimeError("the server did not start")
    try:
        server = await loop.create_server(lambda: guard.accept(handlers), "127.0.0.1", port, backlog=MOST_CLIENTS)
    except OSError as error:
        await runner.cleanup()
        library.close()
        raise InputError.at("--port", f"{port} cannot be used ({error.strerror})", "choose another, or 0") from None
    guard.port = server.sockets[0].getsockname()[1]
    work = [loop.create_task(guard.sweep()), loop.create_task(library.watch())]
    try:
        yield viewer, f"http://127.0.0.1:{guard.port}/?token={guard.token}"
    finally:
        viewer.closing.set()
        library.send({"closing": True})
        for task in work:
            task.cancel()
        server.close()
        library.close()
        await runner.cleanup()


async def serve(
    library: Library,
    *,
    port: int,
    labelling: Labelling | None,
    announce: Callable[[str], None],
    stop_after: float | None,
) -> None:
    """Serve until a signal arrives, or until no page was open for ``stop_after`` seconds.

    ``announce`` is called with the address to open.
    """
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    async with serving(library, port=port, labelling=labelling) as (viewer, address):
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        announce(address)
        while not stopped.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), min(stop_after or LOOK, LOOK))
            if stop_after and not viewer.pages and loop.time() - viewer.left > stop_after:
                break


def shell(kind: str) -> str:
    """The HTML of a page without its data; ``kind`` is runs, run, pair or label."""
    title, main = {
        "runs": ("Runs", element("main", element("h1", "Runs"), element("div", id="content"))),
        "run": ("Rollouts", _panes("rollouts")),
        "pair": ("Two runs", _panes("tasks")),
        "label": ("Blind labelling", element("main", element("div", id="content"))),
    }[kind]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        METAS,
        element("title", f"{title} · Calipers"),
        [element("link", rel="stylesheet", href=f"/asset/{style}") for style in STYLES],
    )
    listed = kind in ("run", "pair")
    hint = "Search task, prompt, answer"
    find = element("input", type="search", id="search", placeholder=hint, aria_label=hint, autocomplete="off")
    header = element(
        "header",
        element("a", MARK, element("b", "Calipers"), href="/?all", class_="brand"),
        element("nav", id="path", class_="about", aria_label="Path"),
        find if listed else None,
        element("span", id="modes", class_="modes"),
        element("button", "Theme", type="button", id="theme", class_="control"),
        class_="strip top-bar",
    )
    keys = element("footer", element("span", id="keys"), element("span", id="position"), class_="keys")
    body = element(
        "body",
        hatch(),
        element("a", "Skip to rollouts", href="#rows", class_="skip") if listed else None,
        header,
        main,
        keys if kind != "label" else None,
        element("div", id="announce", class_="hidden", aria_live="polite"),
        element("script", src="/asset/viewer.js", defer=True),
        data_page=kind,
    )
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def _panes(title: str) -> Markup:
    listed = element(
        "div",
        element("div", id="head", class_="list-head", aria_hidden="true"),
        element("div", id="rows", class_="list-rows", role="listbox", tabindex="0", aria_label=title.capitalize()),
        class_="pane-list",
    )
    return element(
        "main",
        element("h1", title.capitalize(), class_="hidden", id="title"),
        element("section", id="ledger", class_="ledger-strip", aria_label="Ledger and filters"),
        element(
            "div",
            listed,
            element("article", id="detail", class_="detail", tabindex="-1", aria_label="Rollout"),
            class_="panes",
        ),
        class_="viewer",
    )
