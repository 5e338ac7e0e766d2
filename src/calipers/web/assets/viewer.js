"use strict";
// The viewer's script: the list of runs, rollouts, two runs, labelling. Texts of models become text nodes only. The only
// markup that is parsed are pictures from the server, in which every name is escaped.
(() => {
  const root = document.documentElement;
  const kind = document.body.dataset.page;
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const ROW = 34, PAGE = 50, TALLEST = 8e6; // px, rows per request, px: browsers draw no element that is much taller
  const WORDS = { passed: "passed", scored: "scored", wrong: "wrong", zero: "counted as 0", missing: "missing", left: "not run" };

  function make(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
    return made;
  }
  function square(state) {
    const box = document.createElementNS(SVG, "svg");
    for (const [key, value] of Object.entries({ class: "square", width: 12, height: 12, "aria-hidden": "true" })) box.setAttribute(key, value);
    const rect = document.createElementNS(SVG, "rect");
    for (const [key, value] of Object.entries({ class: state, x: 1, y: 1, width: 10, height: 10, rx: 2 })) rect.setAttribute(key, value);
    box.append(rect);
    return box;
  }
  // a picture from the server
  function drawing(markup) {
    const template = document.createElement("template");
    template.innerHTML = markup || "";
    return template.content;
  }
  const number = (value) => value.toLocaleString("en");
  const counted = (value, word) => `${number(value)} ${word}${value === 1 ? "" : "s"}`;
  const figure = (value) => (value === null || value === undefined ? "–" : Number.isInteger(value) ? String(value) : String(+value.toFixed(3)).replace("-", "−"));
  const fixed = (value) => (value === null || value === undefined ? "–" : value.toFixed(3).replace("-", "−"));
  const signed = (value) => (value === null ? "–" : Math.abs(value) < 5e-4 ? "same" : `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(3)}`);
  const size = (chars) => (chars >= 1e6 ? `${(chars / 1e6).toFixed(1)} MB` : chars >= 1000 ? `${Math.round(chars / 1000)} KB` : `${chars} bytes`);
  // a name without its middle, because related names differ at their ends
  const middle = (name, most) => { const signs = [...name]; return signs.length <= most ? name : `${signs.slice(0, most - 9).join("")}…${signs.slice(-8).join("")}`; };
  const taskName = (name, most) => make("bdi", { class: "mono", title: name }, middle(name, most));
  const announce = (text) => { $("announce").textContent = text; };
  const kept = {
    get(key) { try { return localStorage.getItem(key); } catch { return null; } },
    set(key, value) { try { localStorage.setItem(key, value); } catch { /* not stored */ } },
  };

  async function api(path, body) {
    const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    let answer = await fetch(`/api/${path}`, { ...options, credentials: "same-origin" });
    while (answer.status === 503 && body === undefined) { // the log is being indexed
      announce((await answer.json()).error);
      answer = await fetch(`/api/${path}`, { credentials: "same-origin" });
    }
    const text = await answer.text();
    let data = {};
    try { data = JSON.parse(text); } catch { data = { error: text.trim() }; }
    if (!answer.ok) throw new Error(data.error || `the server answered ${answer.status}`);
    return data;
  }
  function failed(error, where) {
    where.replaceChildren(make("p", { class: "fault", role: "alert" }, error.message));
  }

  // theme
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  function setTheme(theme) {
    root.dataset.theme = theme;
    kept.set("calipers.theme", theme);
  }
  const before = kept.get("calipers.theme");
  if (before === "dark" || before === "light") root.dataset.theme = before;
  $("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));

  // events: a visible page has one stream; a hidden page closes it
  let stream = null;
  const listeners = [];
  function listen() {
    if (document.hidden || stream) return;
    stream = new EventSource("/events");
    stream.onmessage = (message) => {
      const event = JSON.parse(message.data);
      if (event.closing) return stop("The server has stopped.");
      listeners.forEach((listener) => listener(event));
    };
  }
  function stop(words) {
    if (stream) stream.close();
    stream = null;
    if (words) announce(words);
  }
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return stop();
    listen();
    listeners.forEach((listener) => listener({}));
  });
  addEventListener("pagehide", () => stop());

  // keys
  const keys = new Map();
  const KEY_WORDS = {
    run: [["j k", "next, previous row"], ["Enter Escape", "open, back"], ["n N", "next, previous failure"], ["[ ]", "previous, next sample of this task"],
      ["0–4", "all, passed, wrong, counted as 0, missing"], ["/", "search"], ["f", "to the filters"], ["b", "beside another run"], ["r", "raw record"],
      ["e", "open all steps"], ["y", "copy link"], ["t", "theme"], ["?", "this list"]],
    pair: [["j k", "next, previous task"], ["n N", "next, previous worse task"], ["[ ]", "previous, next sample"], ["d", "marks of differences on, off"],
      ["/", "search"], ["f", "to the filters"], ["b", "one run"], ["y", "copy link"], ["t", "theme"], ["?", "this list"]],
    runs: [["j k", "next, previous run"], ["Enter", "open"], ["x", "select a run"], ["c", "compare the two selected"], ["t", "theme"], ["?", "this list"]],
    label: [["1", "correct"], ["0", "wrong"], ["s", "skip"], ["u", "undo"], ["c", "comment"], ["t", "theme"], ["?", "this list"]],
  }[kind];
  const singleKeys = () => kept.get("calipers.keys") !== "off";
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const action = keys.get(event.key);
    const plain = ["Enter", "Escape", "ArrowDown", "ArrowUp", "Home", "End", "PageDown", "PageUp"].includes(event.key);
    if (!action || (!plain && !singleKeys())) return;
    if (event.key === "Enter" && event.target.closest("button, a")) return;
    if (action(event) !== false) event.preventDefault();
  });
  keys.set("t", () => $("theme").click());
  keys.set("?", help);
  function help() {
    const off = make("input", { type: "checkbox" });
    off.checked = !singleKeys();
    off.addEventListener("change", () => kept.set("calipers.keys", off.checked ? "off" : "on"));
    const dialog = make("dialog", { "aria-label": "Keys" }, make("h2", {}, "Keys"),
      make("dl", {}, KEY_WORDS.flatMap(([key, words]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, words)])),
      make("label", {}, off, "Single keys off"),
      make("button", { type: "button", class: "control", onclick: () => dialog.close() }, "Close"));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }
  function strip(shown) {
    if (!$("keys")) return;
    $("keys").replaceChildren(...shown.map(([key, words]) => make("span", {}, make("kbd", {}, key), ` ${words}`)),
      make("button", { type: "button", class: "link", onclick: help }, make("kbd", {}, "?"), " all keys"));
  }
  async function copyLink(button) {
    try {
      await navigator.clipboard.writeText(location.href);
    } catch {
      const field = make("textarea", { class: "hidden" });
      field.value = location.href;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    announce("Link copied");
    if (button) { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy link"; }, 1500); }
  }

  // text from a model: text nodes, with control characters in grey
  function textOf(words) {
    const parts = words.split(/(␛|⟨U\+[0-9A-F]{4,6}⟩)/);
    return parts.map((part, at) => (at % 2 ? make("span", { class: "ctl" }, part) : document.createTextNode(part)));
  }
  function pre(words, label) {
    return make("pre", { dir: "auto", tabindex: "0", role: "region", "aria-label": label }, textOf(words));
  }
  function blockOf(block, fetchText) {
    const parts = [make(kind === "label" ? "h2" : "h3", {}, block.name), pre(block.head, block.name)];
    if (block.size) {
      const rest = make("button", { type: "button", class: "control show" }, `Show ${counted(block.lines, "line")} (${size(block.size)})`);
      const tail = pre(block.tail, `${block.name}, its end`);
      parts.push(rest, tail);
      let next = 0;
      rest.addEventListener("click", async () => {
        try {
          const piece = await fetchText(block.key, next);
          if (next === 0) { parts[1].replaceChildren(); tail.remove(); }
          parts[1].append(...textOf(piece.text));
          next = piece.next;
          if (next === null) rest.remove();
          else rest.textContent = `Show more (${size(piece.size - next)} left)`;
        } catch (error) { announce(error.message); }
      });
    }
    return make("div", { class: "block", "data-key": block.key }, parts);
  }

  // a list of any length: only visible rows are in the page, and rows are loaded when they are scrolled to
  function virtualList(box, load, drawRow, opened) {
    let total = 0, pages = new Map(), chosen = -1, asked = new Set(), round = 0;
    let inSight = false; // whether the chosen row was visible when the list was last drawn
    const inner = make("div", { class: "spacer", role: "presentation" });
    const none = make("p", { class: "none", hidden: true });
    box.before(none);
    box.replaceChildren(inner);
    const tall = () => Math.min(total * ROW, TALLEST);
    const seen = () => Math.ceil(box.clientHeight / ROW);
    const scaled = () => total * ROW > TALLEST;
    const first = () => (scaled()
      ? Math.round((box.scrollTop / Math.max(tall() - box.clientHeight, 1)) * Math.max(total - seen(), 0))
      : Math.floor(box.scrollTop / ROW));
    const rowAt = (position) => (pages.get(Math.floor(position / PAGE)) || [])[position % PAGE];
    async function need(position) {
      const page = Math.floor(position / PAGE);
      if (pages.has(page)) return rowAt(position);
      if (!asked.has(page)) {
        const mine = round, pending = asked;
        pending.add(page);
        try {
          const answer = await load(page * PAGE, PAGE);
          if (mine !== round) return undefined;
          if (pages.size > 40) pages.delete(pages.keys().next().value);
          pages.set(page, answer.rows);
          if (answer.total !== total) total = answer.total;
        } catch (error) {
          announce(error.message);
          return undefined; // scrolling requests it again; drawing now would request it in an endless loop
        } finally {
          pending.delete(page);
        }
        render();
      }
      return rowAt(position);
    }
    function render() {
      inner.style.height = `${tall()}px`;
      const from = Math.max(first(), 0), until = Math.min(from + seen() + 2, total);
      const base = scaled() ? box.scrollTop - (box.scrollTop % 1) : from * ROW;
      const rows = [];
      for (let position = from; position < until; position += 1) {
        const row = rowAt(position);
        if (!row) need(position);
        const option = make("div", {
          role: "option", id: `row-${position}`, class: "row-line", "data-position": position, "aria-selected": String(position === chosen),
          "aria-posinset": position + 1, "aria-setsize": total,
        }, row ? drawRow(row) : make("span", { class: "waiting" }, "…"));
        option.style.top = `${base + (position - from) * ROW}px`;
        rows.push(option);
      }
      inner.replaceChildren(...rows);
      if (rows.some((row) => row.id === `row-${chosen}`)) box.setAttribute("aria-activedescendant", `row-${chosen}`);
      else box.removeAttribute("aria-activedescendant");
      const last = Math.min(from + Math.max(seen(), 1), total);
      inSight = chosen >= from && chosen < last;
      if ($("position")) $("position").textContent = total ? `${box.getAttribute("aria-label").toLowerCase()} ${number(from + 1)} to ${number(last)} of ${number(total)}` : "";
    }
    function show(position) {
      const at = first(), many = Math.max(seen() - 2, 1);
      if (position >= at && position <= at + many) return;
      const wanted = Math.max(position < at ? position : position - many, 0);
      box.scrollTop = scaled() ? (wanted / Math.max(total - seen(), 1)) * (tall() - box.clientHeight) : wanted * ROW;
    }
    async function choose(position, open = true) {
      if (!total) return;
      chosen = Math.max(0, Math.min(position, total - 1));
      show(chosen);
      render();
      const mine = chosen, row = await need(chosen) || await settled(chosen);
      if (mine !== chosen || !row) return;
      render();
      if (open) opened(row, chosen);
    }
    async function settled(position) { // wait for a page of rows that is already requested
      for (let tries = 0; tries < 200; tries += 1) {
        await new Promise((done) => setTimeout(done, 25));
        if (rowAt(position)) return rowAt(position);
      }
      return undefined;
    }
    box.addEventListener("scroll", () => requestAnimationFrame(render));
    new ResizeObserver(() => { if (inSight) show(chosen); render(); }).observe(box);
    inner.addEventListener("click", (event) => {
      const option = event.target.closest(".row-line");
      if (option) choose(+option.dataset.position);
    });
    return {
      get total() { return total; },
      get chosen() { return chosen; },
      row: rowAt,
      choose,
      render,
      async reset(keep = false) { // forget the loaded rows; `keep` keeps the position
        round += 1;
        asked = new Set();
        const mine = round, place = Math.floor((keep ? first() : 0) / PAGE);
        const answer = await load(place * PAGE, PAGE);
        if (mine !== round) return answer;
        pages = new Map([[place, answer.rows]]);
        total = answer.total;
        if (!keep) { chosen = -1; box.scrollTop = 0; }
        none.hidden = total > 0;
        none.textContent = answer.complete === false ? "Nothing was found so far: the search ended before the end of the log." : `No ${box.getAttribute("aria-label").toLowerCase()} here. Filters may exclude them.`;
        render();
        return answer;
      },
    };
  }
  function movement(list) {
    const step = (by) => () => { list.choose(list.chosen < 0 && by > 0 ? 0 : list.chosen + by); };
    for (const key of ["j", "ArrowDown"]) keys.set(key, step(1));
    for (const key of ["k", "ArrowUp"]) keys.set(key, step(-1));
    keys.set("PageDown", step(20));
    keys.set("PageUp", step(-20));
    keys.set("Home", () => { list.choose(0); });
    keys.set("End", () => { list.choose(list.total - 1); });
    keys.set("Enter", () => { if (list.chosen >= 0) { document.body.classList.add("open"); $("detail").focus(); } else list.choose(0); });
    keys.set("Escape", () => { document.body.classList.remove("open"); $("rows").focus(); });
  }
  function pathOf(...parts) {
    const shown = [make("a", { href: "/?all" }, "runs")];
    for (const part of parts) shown.push(make("span", { "aria-hidden": "true" }, " / "), part);
    $("path").replaceChildren(...shown);
  }

  // one rollout
  const seconds = (value) => (value >= 100 ? `${Math.round(value)} s` : `${+value.toFixed(1)} s`);
  const money = (value) => `$${value >= 0.01 ? value.toFixed(2) : value.toPrecision(2)}`;
  function squaresOf(siblings, chosen, open) {
    return make("span", { class: "task-squares" }, siblings.map((each) => make("button", {
      type: "button", class: "sibling", "aria-label": `sample ${each.sample}: ${WORDS[each.state]}`, "aria-current": each.row === chosen ? "true" : null,
      onclick: () => open(each),
    }, square(each.state))));
  }
  function headOf(rollout) {
    const facts = [make("span", {}, square(rollout.state), " ", make("b", {}, rollout.outcome === "scored" ? WORDS[rollout.state] : rollout.outcome)),
      make("span", {}, "reward ", make("b", {}, rollout.reward === null ? "none" : figure(rollout.reward))),
      rollout.counted ? null : make("span", {}, "not in the score"),
      ...Object.entries(rollout.slices).map(([key, value]) => make("span", {}, `${key} `, make("b", {}, value)))];
    const spent = [rollout.tokens === null ? "" : `${number(rollout.tokens)} tokens`,
      rollout.usage.latency_s === undefined ? "" : seconds(rollout.usage.latency_s), rollout.usage.cost_usd === undefined ? "" : money(rollout.usage.cost_usd)];
    if (spent.some(Boolean)) facts.push(make("span", {}, spent.filter(Boolean).join(", ")));
    return make("p", { class: "facts-line" }, facts);
  }
  function rolloutPage(rollout, { run, openRow, tab = "rollout" }) {
    const fetchText = (key, from) => api(`run/${run}/text/${rollout.row}?block=${encodeURIComponent(key)}&from=${from}`);
    const panels = {
      rollout: () => [...rollout.blocks.map((block) => blockOf(block, fetchText)), numbersOf(rollout), attemptsOf(rollout, openRow),
        make("div", { class: "block" }, make("h3", {}, "This task"), squaresOf(rollout.siblings, rollout.row, openRow),
          make("span", { class: "second" }, ` ${rollout.siblings.filter((each) => each.state === "passed").length} of ${rollout.siblings.filter((each) => each.state !== "missing").length} passed`))],
      samples: () => [make("ul", { class: "samples" }, rollout.siblings.map((each) => make("li", {}, make("button", { type: "button", class: "link", onclick: () => openRow(each) },
        square(each.state), ` sample ${each.sample}: ${WORDS[each.state]}`))))],
      trajectory: () => (rollout.steps.length ? rollout.steps.map((step, at) => make("details", { class: "step", open: at === 0 },
        make("summary", {}, make("b", {}, `${at + 1} ${step.who}`), " ", make("span", { class: "second" }, step.text.slice(0, 100).replaceAll("\n", " ⏎ ")),
          step.calls.length ? make("span", { class: "calls" }, ` ${counted(step.calls.length, "tool call")}`) : null),
        pre(step.text + (step.more ? `\n[… ${number(step.more)} more characters: see the raw record]` : ""), `Step ${at + 1}`),
        step.calls.map((call) => make("div", { class: "block" }, make("h3", {}, call.name), pre(call.arguments, call.name))))) : [make("p", { class: "second" }, "The record has no steps.")]),
      raw: () => [make("p", { class: "second" }, `${rollout.path}:${rollout.line}`), blockOf(rollout.raw, fetchText)],
    };
    const names = { rollout: "Rollout", samples: "Other samples of this task", trajectory: "Trajectory", raw: "Raw record" };
    const body = make("div", { class: "blocks", id: "panel", role: "tabpanel", tabindex: "0" });
    const tabs = make("div", { role: "tablist", class: "tabs", "aria-label": "Parts of the rollout" }, Object.entries(names).map(([key, words]) => make("button", {
      role: "tab", type: "button", id: `tab-${key}`, "aria-controls": "panel", "data-tab": key, onclick: () => select(key),
    }, words)));
    function select(key) {
      for (const each of tabs.children) {
        each.setAttribute("aria-selected", String(each.dataset.tab === key));
        each.tabIndex = each.dataset.tab === key ? 0 : -1;
      }
      body.setAttribute("aria-labelledby", `tab-${key}`);
      body.replaceChildren(...panels[key]().filter(Boolean));
      current.tab = key;
    }
    tabs.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const every = [...tabs.children], next = every[(every.findIndex((each) => each.dataset.tab === current.tab) + by + every.length) % every.length];
      select(next.dataset.tab);
      next.focus();
      event.stopPropagation();
    });
    const copy = make("button", { type: "button", class: "control", onclick: () => copyLink(copy) }, "Copy link");
    const back = make("button", { type: "button", class: "control back", onclick: () => keys.get("Escape")({}) }, "‹ List");
    const steps = make("span", { class: "turn" }, make("button", { type: "button", class: "control", "aria-label": "Previous rollout", onclick: () => keys.get("k")({}) }, "‹"),
      make("button", { type: "button", class: "control", "aria-label": "Next rollout", onclick: () => keys.get("j")({}) }, "›"));
    const current = { tab };
    select(tab);
    return { current, select, nodes: [make("div", { class: "detail-head" }, back, make("h2", {}, make("bdi", {}, rollout.task), make("span", {}, ` sample ${rollout.sample} of ${rollout.samples}`)), steps, copy), headOf(rollout), tabs, body] };
  }
  function numbersOf(rollout) {
    const every = Object.entries(rollout.numbers);
    if (!every.length) return null;
    return make("div", { class: "block" }, make("h3", {}, "Numbers of the verifier and the record"),
      make("p", { class: "facts-line" }, every.map(([key, value]) => make("span", {}, `${key} `, make("b", {}, typeof value === "boolean" ? String(value) : figure(value))))));
  }
  function attemptsOf(rollout, openRow) {
    if (!rollout.attempts.length) return null;
    return make("div", { class: "block" }, make("h3", {}, "Attempts"), make("ol", { class: "samples" }, rollout.attempts.map((each) => make("li", {},
      make("button", { type: "button", class: "link", onclick: () => openRow(each) }, square(each.state), ` attempt ${each.attempt}: ${each.outcome}${each.current ? "" : ", replaced"} `),
      make("span", { class: "second" }, each.error || each.text || "")))));
  }

  // pages
  const pages = { runs: runsPage, run: runPage, pair: pairPage, label: labelPage };
  pages[kind]();
  if (kind !== "label") listen();

  // the list of runs
  async function runsPage() {
    let selected = [];
    let waiting = null;
    const content = $("content");
    async function load() {
      let data;
      try { data = await api("runs"); } catch (error) { return failed(error, content); }
      const called = (run) => JSON.stringify([run.dataset, run.model, run.agent]);
      const times = new Map();
      for (const run of data.runs) times.set(called(run), (times.get(called(run)) || 0) + 1);
      const rows = data.runs.map((run) => rowOf(run, times.get(called(run)) > 1));
      const head = make("tr", {}, ["", "", "dataset", "model", "value", "", "95 % interval", "missing", "cost", "changed"].map((word, at) => make("th", { scope: "col" }, word || make("span", { class: "hidden" }, { 0: "select", 1: "ledger", 5: "interval from 0 to 1" }[at]))));
      const compare = make("button", { type: "button", class: "control", id: "compare", disabled: selected.length !== 2, onclick: open }, "Compare the two selected");
      const watches = (data.watches || []).map((each) => make("p", {}, "Training run by step: ", make("a", { href: `/watch/${each.id}` }, make("bdi", {}, each.path))));
      content.replaceChildren(...watches, make("p", { class: "second" }, `${counted(data.runs.length, "run")}. Select two to compare them.`), waiting || "",
        make("div", { class: "scroll" }, make("table", { class: "plain runs" }, make("caption", { class: "hidden" }, "Runs"), make("thead", {}, head), make("tbody", {}, rows))), compare,
        ...data.notes.map((note) => make("p", { class: "small" }, note)));
    }
    function rowOf(run, alike) {
      const box = make("input", { type: "checkbox", "aria-label": `select ${run.model || run.path}`, "data-id": run.id });
      box.checked = selected.includes(run.id);
      box.addEventListener("change", () => toggle(run.id));
      const name = run.dataset || run.path.split("/").pop();
      const link = [run.kind === "result" ? make("bdi", {}, name) : make("a", { href: `/run/${run.id}`, title: run.path }, make("bdi", {}, name)),
        alike ? make("small", {}, make("bdi", {}, run.path)) : null]; // runs with the same name also show their paths
      const who = [run.model, run.agent].filter(Boolean).join(" · ");
      if (run.error && !run.sentence) {
        return make("tr", { "data-run": run.source }, make("td", { class: "pick" }, run.rollouts ? box : null), make("td", { class: "mini" }), make("th", { scope: "row" }, link), make("td", { class: "who" }, make("bdi", {}, who)), make("td", { colspan: 6, class: "second reason" }, run.error));
      }
      const finished = run.finished !== null && run.finished !== undefined;
      const progress = make("progress", { value: run.finished || 0, max: run.planned, "aria-label": `running ${run.finished} of ${run.planned}` });
      const interval = run.interval ? `${fixed(run.interval[0])} to ${fixed(run.interval[1])}` : "no interval";
      return make("tr", { "data-run": run.source, title: `${run.sentence} ${run.detail}` }, make("td", { class: "pick" }, box), make("td", { class: "mini" }, drawing(run.bar)), make("th", { scope: "row" }, link),
        make("td", { class: "who" }, make("bdi", { title: run.path }, who)),
        finished ? make("td", { colspan: 3, class: "going" }, `running ${number(run.finished)} of ${number(run.planned)}`, progress) : [make("td", { class: "value" }, make("b", {}, fixed(run.value))), make("td", { class: "mini-axis" }, drawing(run.axis)), make("td", { class: "ends" }, interval)],
        make("td", { "data-word": "missing" }, run.missing && !finished ? number(run.missing) : ""), make("td", { "data-word": "cost" }, run.cost), make("td", { "data-word": "changed" }, ago(run.age)));
    }
    function toggle(id) {
      selected = selected.includes(id) ? selected.filter((each) => each !== id) : [...selected, id].slice(-2);
      for (const box of content.querySelectorAll("input[data-id]")) box.checked = selected.includes(box.dataset.id);
      $("compare").disabled = selected.length !== 2;
      announce(`${selected.length} selected`);
    }
    function open() { if (selected.length === 2) location.href = `/compare/${selected[0]}/${selected[1]}`; }
    const ago = (then) => { const past = Date.now() / 1000 - then; return past < 90 ? "just now" : past < 5400 ? `${Math.round(past / 60)} min ago` : past < 129600 ? `${Math.round(past / 3600)} h ago` : `${Math.round(past / 86400)} d ago`; };
    const links = () => [...content.querySelectorAll("tbody a")];
    const move = (by) => () => { const all = links(); const next = all[Math.max(0, Math.min(all.indexOf(document.activeElement) + by, all.length - 1))]; if (next) next.focus(); };
    for (const [key, by] of [["j", 1], ["k", -1]]) keys.set(key, move(by));
    keys.set("x", () => { const row = document.activeElement.closest("tr"); const box = row && row.querySelector("input"); if (box) box.click(); });
    keys.set("c", open);
    strip([["j", "next"], ["x", "select"], ["c", "compare"]]);
    listeners.push((event) => {
      const busy = content.matches(":focus-within, :hover");
      if (event.new && busy) { // no row moves while the pointer is over the list
        waiting = make("button", { type: "button", class: "control", onclick: () => { waiting = null; load(); } }, `${counted(event.new, "new run")}`);
        content.prepend(waiting);
        announce(waiting.textContent);
      } else if (!busy || event.run) load();
    });
    await load();
    document.title = "Runs · Calipers";
  }

  // the rollouts of one run
  async function runPage() {
    const id = location.pathname.split("/")[2];
    const params = new URLSearchParams(location.search);
    let run = null, shown = null, token = 0;
    const filters = () => {
      const given = new URLSearchParams();
      for (const key of ["state", "outcome", "least", "most", "q", "sort", "against", "flip", "only"]) if (params.get(key)) given.set(key, params.get(key));
      for (const slice of params.getAll("slice")) given.append("slice", slice);
      return given;
    };
    const load = (from, count, more = {}) => {
      const query = filters();
      for (const [key, value] of Object.entries({ from, count, ...more })) query.set(key, value);
      return api(`run/${id}/rollouts?${query}`);
    };
    const list = virtualList($("rows"), load, (row) => [
      make("span", {}, square(row.state), make("span", { class: "hidden" }, WORDS[row.state])), taskName(row.task, 12), make("span", { class: "dim" }, row.sample),
      make("span", {}, figure(row.reward)), make("span", { class: "mono line" }, row.outcome === "scored" ? null : make("span", { class: "dim" }, `${row.outcome}${row.error ? `: ${row.error}` : ""} `), textOf(row.text || "")),
      make("span", { class: "dim right" }, row.tokens === null ? "–" : number(row.tokens)),
    ], openRollout);
    $("head").append(...["", "task", "#", "reward", "completion", "tokens"].map((word) => make("span", {}, word)));
    const address = () => { const query = params.toString(); history.replaceState(null, "", `${location.pathname}${query ? `?${query}` : ""}`); };

    async function openRollout(row) {
      const mine = token += 1;
      params.set("task", row.task);
      params.set("sample", row.sample);
      address();
      await show(row.row, mine);
    }
    async function show(row, mine = token += 1) {
      try {
        const rollout = await api(`run/${id}/rollout/${row}`);
        if (mine !== token) return;
        const page = rolloutPage(rollout, { run: id, tab: shown ? shown.current.tab : "rollout", openRow: (each) => openSample(each) });
        shown = { ...page, rollout };
        $("detail").replaceChildren(...page.nodes);
        if (innerWidth < 900) document.body.classList.add("open");
      } catch (error) { failed(error, $("detail")); }
    }
    async function openSample(each) {
      params.set("sample", each.sample);
      address();
      const answer = await load(0, 1, { task: params.get("task"), sample: each.sample });
      if (answer.at !== null && answer.at !== undefined && list.row(answer.at)?.row === each.row) list.choose(answer.at);
      else show(each.row);
    }
    async function change(key, value) {
      params.delete(key);
      for (const each of [value].flat()) if (each) params.append(key, each);
      address();
      await refill();
    }
    async function refill() {
      try {
        const answer = await list.reset();
        drawFilters();
        const left = $("left");
        left.textContent = filters().toString() ? `${counted(answer.total, "rollout")}${answer.complete ? "" : " so far: the search ended before the end of the log"}; of these: no score` : "";
        announce(counted(answer.total, "rollout"));
      } catch (error) { announce(error.message); $("left").textContent = error.message; }
    }
    const CHOICES = ["", "passed", "wrong", "zero", "missing"];
    let unfolded = false; // on a phone, a button shows the other filters
    function drawFilters() {
      const counts = {};
      for (const part of run.parts) counts[part.state] = (counts[part.state] || 0) + part.count;
      const on = params.get("state") || "";
      const chips = Object.keys(counts).map((state) => make("button", {
        type: "button", class: "chip", "data-filter": state, "aria-pressed": String(on === state), "aria-label": `${number(counts[state])} ${WORDS[state]}, filter`,
        onclick: () => change("state", on === state ? "" : state),
      }, square(state), make("b", {}, number(counts[state])), ` ${WORDS[state]}`));
      const pick = (key, label, options, chosen) => {
        const select = make("select", { "aria-label": label, "data-pick": key }, options.map(([value, words]) => make("option", { value, selected: value === chosen }, words)));
        select.addEventListener("change", () => (key === "slice" ? change("slice", select.value ? [select.value] : []) : change(key, select.value)));
        return select;
      };
      const outcomes = [...new Set(run.parts.map((part) => part.outcome))];
      const slices = Object.entries(run.slices).flatMap(([key, values]) => values.map((value) => [`${key}=${value}`, `${key}: ${value}`]));
      const reward = ["least", "most"].map((key) => {
        const field = make("input", { type: "number", step: "any", class: "reward", "aria-label": `reward at ${key}`, placeholder: `reward ${key === "least" ? "≥" : "≤"}`, value: params.get(key) || "" });
        field.addEventListener("change", () => change(key, field.value));
        return field;
      });
      const others = run.others.map((other) => [other.id, `flipped against ${other.name}`]);
      const unfold = make("button", { type: "button", class: "chip unfold", "aria-expanded": String(unfolded), onclick: () => { unfolded = !unfolded; drawFilters(); } }, unfolded ? "Fewer filters" : "More filters");
      $("filters").classList.toggle("unfolded", unfolded);
      $("filters").replaceChildren(...chips, unfold,
        outcomes.length > 1 ? pick("outcome", "outcome", [["", "outcome: any"], ...outcomes.map((word) => [word, word.replaceAll("_", " ")])], params.get("outcome") || "") : "",
        slices.length ? pick("slice", "slice", [["", "slice: all"], ...slices], params.get("slice") || "") : "", ...reward,
        others.length ? pick("against", "flipped against another run", [["", "flipped: any"], ...others], params.get("against") || "") : "",
        params.get("against") ? pick("flip", "which flips", [["flipped", "both ways"], ["worse", "failed here, passed there"], ["better", "passed here, failed there"]], params.get("flip") || "flipped") : "",
        pick("sort", "sort", [["order", "in order of the log"], ["task", "by task"], ["reward", "lowest reward first"], ["-reward", "highest reward first"], ["-tokens", "most tokens first"], ["tokens", "fewest tokens first"], ["-seconds", "slowest first"]], params.get("sort") || "order"));
    }
    function drawRun() {
      const name = [run.dataset, run.model || run.agent].filter(Boolean).join(" · ") || run.path;
      pathOf(make("b", {}, make("bdi", {}, name)));
      document.title = `${name} · Calipers`;
      $("title").textContent = `Rollouts of ${name}`;
      const beside = make("select", { "aria-label": "Beside another", id: "beside" }, make("option", { value: "" }, "Beside another"), run.others.map((other) => make("option", { value: other.id }, other.name)));
      beside.addEventListener("change", () => { if (beside.value) location.href = `/compare/${id}/${beside.value}`; });
      $("modes").replaceChildren(make("a", { class: "control", href: `/report/${id}` }, "Report"), run.others.length ? beside : "");
      const open = document.activeElement && $("filters") && $("filters").contains(document.activeElement);
      if (!open) {
        $("ledger").replaceChildren(make("div", { class: "ledger-left" }, make("p", { class: "sentence" }, make("b", {}, run.sentence || run.error || ""), ` ${run.detail || ""}`),
          make("div", { class: "bar-box" }, drawing(run.bar)), make("div", { class: "chips", id: "filters", role: "group", "aria-label": "Filters" }), make("p", { class: "small", id: "left" })), drawing(run.strip));
        drawFilters();
      }
    }
    async function loadRun(summary) {
      const fresh = await api(`run/${id}${summary ? "" : "?summary=no"}`);
      run = { ...(run || {}), ...fresh };
      drawRun();
    }
    const search = $("search");
    search.value = params.get("q") || "";
    search.addEventListener("keydown", (event) => { if (event.key === "Enter") change("q", search.value); });
    search.addEventListener("search", () => { if (!search.value && params.get("q")) change("q", ""); });
    movement(list);
    keys.set("/", () => search.focus());
    keys.set("f", () => { const chip = $("filters").querySelector("button, select"); if (chip) chip.focus(); });
    keys.set("y", () => { copyLink(); });
    keys.set("b", () => { const beside = $("beside"); if (beside) beside.focus(); });
    keys.set("r", () => { if (shown) shown.select(shown.current.tab === "raw" ? "rollout" : "raw"); });
    keys.set("e", () => { if (shown) { shown.select("trajectory"); for (const step of $("detail").querySelectorAll("details")) step.open = true; } });
    CHOICES.forEach((state, at) => keys.set(String(at), () => { change("state", state); }));
    const failure = (back) => async () => {
      const answer = await load(0, 1, { fail: back && list.chosen < 0 ? list.total : list.chosen, way: back ? "back" : "on" });
      if (answer.at === null || answer.at === undefined) announce(back ? "No failure before this one" : "No failure after this one");
      else list.choose(answer.at);
    };
    keys.set("n", () => { failure(false)(); });
    keys.set("N", () => { failure(true)(); });
    const sample = (by) => () => {
      if (!shown) return;
      const every = shown.rollout.siblings, at = every.findIndex((each) => each.row === shown.rollout.row);
      const next = every[at + by];
      if (next) openSample(next);
    };
    keys.set("[", sample(-1));
    keys.set("]", sample(1));
    strip([["j", "next"], ["k", "previous"], ["n", "next failure"], ["f", "filter"], ["b", "beside another run"], ["y", "copy link"]]);
    let busy = false, again = false;
    listeners.push(async (event) => {
      if (event.run && event.run !== id.split(".")[0]) return;
      if (event.new) return;
      if (busy) { again = true; return; }
      do { // load again if something changed during loading
        busy = true;
        again = false;
        try {
          await list.reset(true);
          await loadRun(true);
        } catch (error) { announce(error.message); }
        busy = false;
      } while (again);
    });
    try {
      await loadRun(false);
      const first = await list.reset();
      if (params.get("q") || filters().toString()) $("left").textContent = `${counted(first.total, "rollout")}; of these: no score`;
      if (params.get("task") !== null && params.get("sample") !== null) {
        const answer = await load(0, 1, { task: params.get("task"), sample: params.get("sample") });
        if (answer.at !== null && answer.at !== undefined) await list.choose(answer.at);
        else $("detail").replaceChildren(make("p", { class: "fault" }, "This rollout is not in the list. Its filters may exclude it."));
      } else $("detail").replaceChildren(make("p", { class: "second" }, "Select a rollout to read it."));
      await loadRun(true);
    } catch (error) { failed(error, $("detail")); }
  }

  // two runs
  function marks(first, second) {
    if (first === second || first.length * second.length > 4e6) return [[[first, false]], [[second, false]]];
    const rows = first.length + 1, columns = second.length + 1, table = new Uint16Array(rows * columns);
    for (let i = first.length - 1; i >= 0; i -= 1) {
      for (let j = second.length - 1; j >= 0; j -= 1) {
        table[i * columns + j] = first[i] === second[j] ? table[(i + 1) * columns + j + 1] + 1 : Math.max(table[(i + 1) * columns + j], table[i * columns + j + 1]);
      }
    }
    const sides = [[], []];
    const put = (side, sign, differs) => { const last = side[side.length - 1]; if (last && last[1] === differs) last[0] += sign; else side.push([sign, differs]); };
    let i = 0, j = 0;
    while (i < first.length || j < second.length) {
      if (i < first.length && j < second.length && first[i] === second[j]) { put(sides[0], first[i], false); put(sides[1], second[j], false); i += 1; j += 1; }
      else if (j >= second.length || (i < first.length && table[(i + 1) * columns + j] >= table[i * columns + j + 1])) { put(sides[0], first[i], true); i += 1; }
      else { put(sides[1], second[j], true); j += 1; }
    }
    return sides;
  }
  async function pairPage() {
    const [, , first, second] = location.pathname.split("/");
    const params = new URLSearchParams(location.search);
    let marked = kept.get("calipers.marks") !== "off", shown = null, verdict = null;
    const load = (from, count, more = {}) => api(`compare/${first}/${second}?${new URLSearchParams({ from, count, way: params.get("way") || "all", slice: params.get("slice") || "", q: params.get("q") || "", verdict: "no", ...more })}`);
    const list = virtualList($("rows"), load, (row) => [
      taskName(row.task, 10), ...row.states.map((states) => make("span", { class: "task-squares" }, states.map(square), make("span", { class: "hidden" }, `${states.filter((each) => each === "passed").length} of ${states.length} passed`))),
      make("span", { class: `right ${row.way}` }, signed(row.gain)),
    ], (row) => open(row.task, 0));
    $("head").append(...["task", "A", "B", "change"].map((word) => make("span", {}, word)));
    $("head").classList.add("pair");
    $("rows").classList.add("pair");
    const address = () => history.replaceState(null, "", `${location.pathname}?${params}`);
    async function open(task, sample) {
      params.set("task", task);
      params.set("sample", sample);
      address();
      try {
        shown = { task, sample, data: await api(`compare/${first}/${second}/task?task=${encodeURIComponent(task)}&sample=${sample}`) };
        draw();
        if (innerWidth < 900) document.body.classList.add("open");
      } catch (error) { failed(error, $("detail")); }
    }
    function draw() {
      const { data, task, sample } = shown;
      const sides = data.sides.map((side) => side.rollout);
      const wordsOf = (rollout, key) => (rollout && rollout.blocks.find((block) => block.key === key) || { head: "" }).head;
      const most = Math.max(...data.sides.map((side) => side.samples));
      const same = wordsOf(sides[0], "prompt") === wordsOf(sides[1], "prompt");
      const copy = make("button", { type: "button", class: "control", onclick: () => copyLink(copy) }, "Copy link");
      const back = make("button", { type: "button", class: "control back", onclick: () => keys.get("Escape")({}) }, "‹ List");
      const block = (name, inner) => make("div", { class: "block" }, make("h3", {}, name), inner);
      const marked2 = (key) => (marked ? marks(wordsOf(sides[0], key), wordsOf(sides[1], key)) : [[[wordsOf(sides[0], key), false]], [[wordsOf(sides[1], key), false]]]);
      const column = (at) => {
        const rollout = sides[at], name = make("h3", { class: "who" }, `${"AB"[at]} `, make("bdi", {}, data.sides[at].name));
        if (!rollout) return make("div", {}, name, make("p", { class: "second" }, "No such rollout."));
        const shownText = (key, label) => (wordsOf(rollout, key) ? block(label, make("pre", { dir: "auto", tabindex: "0", role: "region", "aria-label": `${label} of ${"AB"[at]}` }, marked2(key)[at].map(([words, differs]) => (differs ? make("mark", { class: "ab"[at] }, words) : document.createTextNode(words))))) : null);
        return make("div", {}, name, headOf(rollout), shownText("completion", "Completion"), shownText("answer", "Answer"), shownText("error", "Error"),
          block("This task", [squaresOf(rollout.siblings, rollout.row, (each) => open(task, rollout.siblings.findIndex((other) => other.row === each.row))),
            make("span", { class: "second" }, ` ${rollout.siblings.filter((each) => each.state === "passed").length} of ${rollout.siblings.filter((each) => each.state !== "missing").length}`),
            " ", make("a", { href: `/run/${[first, second][at]}?task=${encodeURIComponent(task)}&sample=${rollout.sample}` }, "open")]));
      };
      const prompt = same ? [wordsOf(sides[0], "prompt") ? block("Prompt, the same in both", pre(wordsOf(sides[0], "prompt"), "Prompt")) : null] : [0, 1].map((at) => block(`Prompt of ${"AB"[at]}`, make("pre", { dir: "auto", tabindex: "0", role: "region", "aria-label": `Prompt of ${"AB"[at]}` }, marked2("prompt")[at].map(([words, differs]) => (differs ? make("mark", { class: "ab"[at] }, words) : document.createTextNode(words))))));
      const expected = wordsOf(sides[0], "target") || wordsOf(sides[1], "target");
      $("detail").replaceChildren(make("div", { class: "detail-head" }, back, make("h2", {}, make("bdi", {}, task), make("span", {}, ` sample ${(sides[0] || sides[1] || { sample }).sample} of ${most}`)), copy),
        make("div", { class: "blocks" }, ...prompt.filter(Boolean), make("div", { class: "columns" }, column(0), column(1)), expected ? block("Expected", pre(expected, "Expected")) : ""));
    }
    async function change(key, value) {
      if (value) params.set(key, value);
      else params.delete(key);
      address();
      try {
        if (value === "answer") announce("Reading the answers");
        const fresh = await list.reset();
        drawHead(fresh);
        announce(`${counted(list.total, "task")}${fresh.complete ? "" : " so far: the logs were not read to their end"}`);
      } catch (error) { announce(error.message); failed(error, $("detail")); }
    }
    function drawHead(answer) {
      if (answer.verdict) verdict = answer.verdict;
      pathOf(make("span", {}, make("b", {}, "A "), make("bdi", {}, answer.names[0]), make("b", {}, " · B "), make("bdi", {}, answer.names[1])));
      document.title = `${answer.names.join(" and ")} · Calipers`;
      $("modes").replaceChildren(make("a", { class: "control", href: `/report/${first}/${second}` }, "Report"), make("a", { class: "control", href: `/run/${first}` }, "One run"));
      const way = params.get("way") || "all", sign = { worse: "▼ ", better: "▲ ", same: "", all: "" };
      const chips = ["all", "worse", "better", "same"].map((word) => make("button", {
        type: "button", class: "chip", "data-way": word, "aria-pressed": String(way === word), "aria-label": `${answer.counts[word]} ${word}, filter`, onclick: () => change("way", word),
      }, make("b", {}, number(answer.counts[word])), ` ${sign[word]}${word}`));
      const differs = make("button", { // answers are read only on request
        type: "button", class: "chip", "data-way": "answer", "aria-pressed": String(way === "answer"), title: "The most frequent answer is another one in B", onclick: () => change("way", "answer"),
      }, way === "answer" ? [make("b", {}, number(answer.total)), answer.complete ? " " : " so far, "] : null, "answer differs");
      const slices = Object.entries(answer.slices || {}).flatMap(([key, values]) => values.map((value) => [`${key}=${value}`, `${key}: ${value}`]));
      const slice = make("select", { "aria-label": "slice", "data-pick": "slice" }, [["", "slice: all"], ...slices].map(([value, words]) => make("option", { value, selected: value === (params.get("slice") || "") }, words)));
      slice.addEventListener("change", () => change("slice", slice.value));
      const tasks = verdict && verdict.tasks ? `, ${counted(verdict.tasks, "common task")}` : "";
      $("ledger").replaceChildren(make("div", { class: "ledger-left" }, make("p", { class: "sentence" }, verdict ? [drawing(verdict.badge), " ", make("b", {}, verdict.sentence), ` ${verdict.detail}${tasks}`] : "…"),
        make("div", { class: "chips", id: "filters", role: "group", "aria-label": "Filters" }, chips, differs, slices.length ? slice : null)));
    }
    const search = $("search");
    search.value = params.get("q") || "";
    search.addEventListener("keydown", (event) => { if (event.key === "Enter") change("q", search.value); });
    search.addEventListener("search", () => { if (!search.value && params.get("q")) change("q", ""); });
    keys.set("/", () => search.focus());
    keys.set("f", () => { const chip = $("filters").querySelector("button"); if (chip) chip.focus(); });
    movement(list);
    keys.set("d", () => { marked = !marked; kept.set("calipers.marks", marked ? "on" : "off"); if (shown) draw(); announce(marked ? "Marks on" : "Marks off"); });
    keys.set("b", () => { location.href = `/run/${first}`; });
    keys.set("y", () => { copyLink(); });
    const worse = (by) => async () => {
      for (let at = list.chosen + by; at >= 0 && at < list.total; at += by) {
        const row = list.row(at) || (await load(at, 1)).rows[0];
        if (row && row.way === "worse") return list.choose(at);
        if (by > 0 && row && row.way !== "worse" && (params.get("way") || "all") === "all") break; // the largest losses come first
      }
      return announce("No worse task there");
    };
    keys.set("n", () => { worse(1)(); });
    keys.set("N", () => { worse(-1)(); });
    keys.set("[", () => { if (shown && shown.sample > 0) open(shown.task, shown.sample - 1); });
    keys.set("]", () => { if (shown && shown.sample + 1 < Math.max(...shown.data.sides.map((side) => side.samples))) open(shown.task, shown.sample + 1); });
    strip([["j", "next task"], ["k", "previous"], ["n", "next worse"], ["[", ""], ["]", "sample"], ["d", "marks on or off"]]);
    let busy = false;
    listeners.push(async (event) => {
      if ((event.run && ![first, second].some((each) => each.startsWith(event.run))) || event.new || busy) return;
      busy = true;
      try { await list.reset(true); drawHead(await load(0, 1, { verdict: "yes" })); } catch (error) { announce(error.message); }
      busy = false;
    });
    try {
      drawHead(await list.reset());
      const wanted = params.get("task"), sample = +(params.get("sample") || 0);
      if (wanted !== null) {
        const answer = await load(0, 1, { task: wanted });
        if (answer.at !== null && answer.at !== undefined) await list.choose(answer.at, false);
        await open(wanted, sample);
      } else if (list.total && innerWidth >= 900) list.choose(0);
      drawHead(await load(0, 1, { verdict: "yes" }));
    } catch (error) { failed(error, $("detail")); }
  }

  // blind labelling
  async function labelPage() {
    const content = $("content");
    let state = null, busy = false, reference = true;
    async function act(path, body) {
      if (busy) return;
      busy = true;
      try { state = await api(path, body); draw(); announce(state.finished ? "Finished" : `${state.position} of ${state.total} done`); } catch (error) { announce(error.message); $("fault").textContent = error.message; }
      busy = false;
    }
    const comment = () => ($("comment") ? $("comment").value : "");
    const put = (label) => { if (state && !state.finished && state.position < state.total) act("label", { label, position: state.position, comment: comment() }); };
    function widthBar(share, at) {
      const bar = make("span", { class: at ? "width later" : "width", "aria-hidden": "true" });
      bar.style.width = `${300 * share}px`;
      return bar;
    }
    function widths() {
      if (!state.widths) return null;
      const most = Math.max(...state.widths.bars.map((bar) => bar.width), 1e-9);
      return make("div", { class: "widths" }, make("p", {}, make("b", {}, state.widths.sentence)), make("p", { class: "second" }, "The score itself stays hidden until you finish, so that it cannot steer you."),
        make("table", {}, make("caption", { class: "hidden" }, "Width of the interval"), make("tbody", {}, state.widths.bars.map((bar, at) => make("tr", {}, make("th", { scope: "row" }, bar.word),
          make("td", {}, widthBar(bar.width / most, at)), make("td", {}, bar.width.toFixed(2)))))));
    }
    function draw() {
      $("path").replaceChildren("Blind labelling");
      const left = state.total - state.position;
      const head = make("div", { class: "label-head" }, make("p", {}, make("b", {}, String(Math.min(state.position + (left ? 1 : 0), state.total))), ` of ${state.total}`), make("p", { class: "second" }, "The judge's verdict is hidden."));
      const bar = make("progress", { value: state.position, max: state.total, "aria-label": "Progress" });
      if (state.finished) return content.replaceChildren(make("h1", {}, "Labelling finished"), ...resultOf(state.result));
      const undo = make("button", { type: "button", class: "link", id: "undo", disabled: !state.position, onclick: () => act("label/undo", {}) }, make("kbd", {}, "u"), " undo");
      const finish = make("button", { type: "button", class: "control", id: "finish", onclick: () => act("label/finish", {}) }, "Finish");
      const foot = [make("p", { id: "fault", role: "alert", class: "fault" }), widths(), finish, make("p", { class: "small" }, state.bound)];
      if (!left) return content.replaceChildren(make("h1", { class: "hidden" }, "Blind labelling"), head, bar, make("p", {}, "All rollouts are labelled. Finish to see the score."), undo, ...foot);
      const blocks = (state.blocks || []).filter((block) => block.key !== "target" || reference).map((block) => blockOf({ ...block, size: 0, head: block.size ? `${block.head}\n[…]\n${block.tail}` : block.head }));
      const hide = (state.blocks || []).some((block) => block.key === "target") ? make("button", { type: "button", class: "link", onclick: () => { reference = !reference; draw(); } }, `${reference ? "Hide" : "Show"} the reference answer`) : null;
      const answers = make("div", { class: "answers" }, make("button", { type: "button", class: "answer", id: "correct", onclick: () => put(1) }, make("kbd", {}, "1"), " Correct"), make("button", { type: "button", class: "answer", id: "wrong", onclick: () => put(0) }, make("kbd", {}, "0"), " Wrong"),
        make("p", { class: "more" }, make("button", { type: "button", class: "link", id: "skip", onclick: () => put("skip") }, make("kbd", {}, "s"), " skip"), undo, make("label", {}, make("kbd", {}, "c"), " comment ", make("input", { id: "comment", autocomplete: "off" })), make("span", { class: "second" }, `saved to ${state.file}`)));
      return content.replaceChildren(make("h1", { class: "hidden" }, "Blind labelling"), head, bar, make("div", { class: "blocks" }, blocks, hide), answers, ...foot);
    }
    function resultOf(result) {
      const rows = (result.rows || []).map((row) => make("tr", {}, make("th", { scope: "row" }, row.name), make("td", {}, make("b", {}, fixed(row.value))), make("td", {}, row.interval ? `${fixed(row.interval[0])} to ${fixed(row.interval[1])}` : "no interval")));
      const differ = (result.disagreements || []).map((each) => make("li", {}, make("a", { href: `/run/${result.run}?task=${encodeURIComponent(each.task)}&sample=${each.sample}` }, make("bdi", {}, each.task), ` sample ${each.sample}`), ` you ${each.label}, judge ${figure(each.judge)}`));
      return [make("p", { class: "sentence" }, make("b", {}, result.sentence)), rows.length ? make("table", { class: "plain" }, make("caption", { class: "hidden" }, "Scores"), make("tbody", {}, rows)) : "",
        make("h2", {}, `${counted(differ.length, "disagreement")} with the judge`), make("ul", { class: "samples" }, differ), result.command ? make("pre", { tabindex: "0", role: "region", "aria-label": "Command" }, result.command) : ""];
    }
    keys.set("1", () => put(1));
    keys.set("0", () => put(0));
    keys.set("s", () => put("skip"));
    keys.set("u", () => { act("label/undo", {}); });
    keys.set("c", () => { if ($("comment")) $("comment").focus(); });
    try { state = await api("label"); draw(); } catch (error) { failed(error, content); }
  }
})();
