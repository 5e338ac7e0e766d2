"use strict";
// The script of every page: theme, number cards, filters, the list of rollouts, keys, copying. All text becomes text
// nodes, so text from a model is never parsed as HTML.
(() => {
  const root = document.documentElement;
  const island = document.getElementById("data");
  const data = island ? JSON.parse(island.textContent) : {};
  const one = (selector, within = document) => within.querySelector(selector);
  const every = (selector, within = document) => [...within.querySelectorAll(selector)];
  const SVG = "http://www.w3.org/2000/svg";
  const STATES = { passed: "passed", scored: "scored", wrong: "wrong", zero: "counted as 0", missing: "missing" };

  root.classList.add("js");

  function make(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  function draw(tag, attributes, ...children) {
    const made = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function square(state) {
    return draw("svg", { class: "square", width: 12, height: 12, "aria-hidden": "true" },
      draw("rect", { class: state, x: 1, y: 1, width: 10, height: 10, rx: 2 }));
  }

  function counted(number, word) {
    return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
  }

  // settings that persist between visits; browsers may refuse to store any for file://
  const kept = {
    get(key) { try { return localStorage.getItem(key); } catch { return null; } },
    set(key, value) { try { localStorage.setItem(key, value); } catch { /* not stored */ } },
  };

  // theme
  const themeButton = document.getElementById("theme");
  function isDark() {
    const chosen = root.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function setTheme(theme) {
    root.dataset.theme = theme;
    kept.set("calipers.theme", theme);
    if (themeButton) themeButton.setAttribute("aria-label", `Theme: ${theme}`);
  }
  const before = kept.get("calipers.theme");
  if (before === "dark" || before === "light") root.dataset.theme = before;
  if (themeButton) {
    themeButton.hidden = false;
    themeButton.addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
  }

  // announcements for screen readers
  const announcer = make("div", { class: "hidden", "aria-live": "polite" });
  document.body.append(announcer);
  const announce = (text) => { announcer.textContent = text; };

  // number cards
  let openCard = null;
  function closeCard(back = true) {
    if (!openCard) return;
    const { card, term } = openCard;
    openCard = null;
    card.remove();
    term.setAttribute("aria-expanded", "false");
    if (back) term.focus();
  }
  function showCard(term) {
    const article = document.getElementById(term.hash.slice(1));
    if (!article) return;
    const same = openCard && openCard.term === term;
    closeCard(same);
    if (same) return;
    const inside = article.cloneNode(true);
    inside.removeAttribute("id");
    const name = one("h3", inside).textContent;
    const card = make("div", { class: "open-card", role: "dialog", "aria-label": name, tabindex: "0" }, inside);
    document.body.append(card);
    const row = (term.closest("tr") || term).getBoundingClientRect();
    const left = Math.max(16, Math.min(term.getBoundingClientRect().left - 12, root.clientWidth - card.offsetWidth - 16));
    card.style.left = `${left + scrollX}px`;
    card.style.top = `${row.bottom + scrollY + 6}px`;
    term.setAttribute("aria-expanded", "true");
    openCard = { card, term };
    card.focus({ preventScroll: true });
    const bottom = card.getBoundingClientRect().bottom;
    if (bottom > innerHeight) scrollBy(0, Math.min(bottom - innerHeight + 16, row.top - 8));
  }
  for (const term of every("a.term")) {
    term.setAttribute("role", "button");
    term.setAttribute("aria-haspopup", "dialog");
    term.setAttribute("aria-expanded", "false");
  }
  document.addEventListener("click", (event) => {
    const term = event.target.closest("a.term");
    if (term) {
      event.preventDefault();
      showCard(term);
    } else if (openCard && !openCard.card.contains(event.target)) {
      closeCard(false);
    }
  });

  // copying
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const field = make("textarea", { class: "hidden" });
      field.value = text;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    announce("Copied");
  }
  for (const button of every("[data-copy]")) {
    const said = button.textContent; // read before any click, because the text is "Copied" for a while after one
    button.hidden = false;
    button.addEventListener("click", async () => {
      await copy(button.dataset.copy);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = said; }, 1500);
    });
  }
  for (const button of every("[data-more]")) {
    button.addEventListener("click", () => {
      button.previousElementSibling.classList.add("all");
      button.remove();
    });
  }

  // rollouts
  const rows = data.rollouts;
  const host = document.getElementById("list");
  const list = rows && host ? listOf(rows, host) : null;
  window.calipers = { data, make, draw, square, copy, announce, counted, list };

  function listOf(rows, host) {
    const taskOf = [];
    const startOf = [];
    rows.counts.forEach((count, task) => {
      startOf.push(taskOf.length);
      for (let n = 0; n < count; n++) taskOf.push(task);
    });
    const total = taskOf.length;
    const kindOf = (row) => rows.kinds[rows.kind.charCodeAt(row) - 48];
    const sampleOf = (row) => (rows.samples ? rows.samples[row] : row - startOf[taskOf[row]]);
    const passes = (row) => (rows.rewards ? rows.rewards[row] >= 1 && kindOf(row).state !== "missing" : kindOf(row).state === "passed");
    const textOf = (row) => rows.texts[row] || null;

    const anyText = Object.keys(rows.texts).length > 0;
    const FIRST = 8;
    const MORE = 100;
    const view = { mode: "failed", keys: new Set(), task: null, query: "", shown: FIRST };
    const chips = every("[data-filter]");
    const parts = every(".bar [data-state]").filter((part) => STATES[part.dataset.state]);
    const note = document.getElementById("list-note");

    const search = make("input", { type: "search", "aria-label": "Search tasks and texts", placeholder: "Search tasks and texts" });
    const modes = ["failed", "all"].map((mode) => {
      const button = make("button", { type: "button", class: "chip", "data-mode": mode, "aria-pressed": "false" },
        mode === "all" ? "All" : rows.rewards ? "Below 1" : "Did not pass");
      button.addEventListener("click", () => setView({ mode, keys: new Set(), task: null }));
      return button;
    });
    const ul = make("ul", { class: "rollouts" });
    const NAMED = 16; // letters of a task's name in its column; its middle is cut out, because names differ at both ends
    const cut = (name) => (name.length > NAMED ? `${name.slice(0, NAMED - 9)}…${name.slice(-8)}` : name);
    const longest = rows.tasks.reduce((most, name) => Math.max(most, Math.min(name.length, NAMED)), 0);
    ul.style.setProperty("--task", `${Math.max(104, 8 * (longest + 2 + String(Math.max(...rows.counts)).length))}px`);
    const foot = make("div", { class: "list-foot" });
    host.replaceChildren(make("div", { class: "search" }, search, ...modes), ul, foot);
    search.addEventListener("input", () => setView({ query: search.value }, false));

    function matches(row) {
      if (view.task !== null && taskOf[row] !== view.task) return false;
      if (view.keys.size ? !view.keys.has(kindOf(row).key) : view.mode === "failed" && view.task === null && passes(row)) return false;
      if (!view.query) return true;
      const text = textOf(row);
      const where = [rows.tasks[taskOf[row]], kindOf(row).word, ...(text || [])];
      const sought = view.query.toLowerCase();
      return where.some((words) => words && words.toLowerCase().includes(sought));
    }

    function setView(change, focus = true) {
      Object.assign(view, { shown: FIRST }, change);
      render();
      if (focus && change.keys && view.keys.size) announce(note.textContent);
    }

    function describe(found) {
      const some = found.length > view.shown ? ` Showing ${view.shown.toLocaleString("en")}.` : "";
      const words = rows.kinds.filter((kind) => view.keys.has(kind.key)).map((kind) => kind.word);
      let what = `${counted(found.length, "rollout")}.`;
      if (view.keys.size) what = `${found.length.toLocaleString("en")} ${words.join(", ")}.`;
      else if (view.task !== null) what = `${counted(found.length, "rollout")} of ${rows.tasks[view.task]}.`;
      else if (view.query) what = `${counted(found.length, "rollout")} with “${view.query}”.`;
      else if (view.mode === "failed") what = `${found.length.toLocaleString("en")} ${rows.rewards ? "are below 1, or missing" : "did not pass"}.`;
      const cut = rows.planned > total ? ` The first ${total.toLocaleString("en")} of ${rows.planned.toLocaleString("en")} are listed.` : "";
      return what + some + cut;
    }

    function render() {
      const found = [];
      for (let row = 0; row < total; row++) if (matches(row)) found.push(row);
      ul.replaceChildren(...found.slice(0, view.shown).map(line));
      note.textContent = describe(found);
      foot.replaceChildren();
      if (found.length > view.shown) {
        const more = make("button", { type: "button", class: "control" }, `Show ${Math.min(MORE, found.length - view.shown)} more`);
        more.addEventListener("click", () => {
          const next = view.shown;
          view.shown += MORE;
          render();
          focusLine(next);
        });
        foot.append(more);
      }
      const withText = found.filter((row) => textOf(row)).length;
      if (rows.texts_cut && withText < found.length) {
        foot.append(`Texts of ${withText.toLocaleString("en")} of these ${found.length.toLocaleString("en")} are in this file.`);
      }
      for (const mode of modes) mode.setAttribute("aria-pressed", String(!view.keys.size && view.task === null && mode.dataset.mode === view.mode));
      for (const chip of chips) chip.setAttribute("aria-pressed", String(view.keys.has(chip.dataset.filter)));
      for (const part of parts) part.setAttribute("aria-pressed", String(view.keys.size > 0 && keysOf(part.dataset.state).every((key) => view.keys.has(key))));
      markGrid();
      view.found = found;
    }

    function firstLine(row) {
      const text = textOf(row);
      if (!text) return rows.no_texts ? "" : null;
      return (text[0] || text[1] || text[2] || "").trim().replaceAll("\n", " ⏎ ").slice(0, 160);
    }

    function line(row) {
      const kind = kindOf(row);
      const words = firstLine(row);
      const reward = rows.rewards && rows.rewards[row] !== null ? ` ${rows.rewards[row].toFixed(3)}` : "";
      const button = make("button", { type: "button", class: "rollout", "aria-expanded": "false", "data-row": row },
        make("code", { title: rows.tasks[taskOf[row]] }, make("bdi", {}, cut(rows.tasks[taskOf[row]])), " ", make("span", { class: "number" }, `#${sampleOf(row)}`)),
        make("span", { class: "state" }, square(kind.state), kind.word + reward),
        make("code", { class: "line", dir: "auto" }, ...(words === null ? [make("span", { class: "ctl" }, rows.texts_cut ? "text not in this file" : anyText ? "no text" : "")] : seen(words))),
        make("span", { class: "tokens" }, rows.tokens && rows.tokens[row] ? counted(rows.tokens[row], "token") : ""));
      const item = make("li", {}, button);
      button.addEventListener("click", () => toggle(button));
      return item;
    }

    // control characters, which were made visible when the page was written, are shown in grey
    function seen(text) {
      return text.split(/(␛|⟨U\+[0-9A-F]{4,6}⟩)/).map((piece, at) => (at % 2 ? make("span", { class: "ctl" }, piece) : piece));
    }

    function toggle(button) {
      const open = button.getAttribute("aria-expanded") === "true";
      button.setAttribute("aria-expanded", String(!open));
      if (open) button.nextElementSibling.remove();
      else button.after(blocks(Number(button.dataset.row)));
    }

    function blocks(row) {
      const task = taskOf[row];
      const text = textOf(row);
      const made = make("div", { class: "blocks" });
      const block = (head, words) => {
        if (words) made.append(make("h3", {}, head), make("pre", { dir: "auto" }, ...seen(words)));
      };
      block("Prompt", rows.prompts[task]);
      block("Completion", text && text[0]);
      if (text && text[1] && text[1] !== text[0]) block("Answer", text[1]);
      block("Error", text && text[2]);
      if (!text) made.append(make("p", { class: "small" }, rows.no_texts ? "Texts were left out of this file." : rows.texts_cut ? "The text of this rollout is not in this file." : "The rollout has no text."));
      const squares = make("div", { class: "task-squares" });
      let passed = 0;
      for (let other = startOf[task]; other < startOf[task] + rows.counts[task]; other++) {
        squares.append(square(kindOf(other).state));
        passed += passes(other) ? 1 : 0;
      }
      made.append(make("h3", {}, `This task: ${passed} of ${counted(rows.counts[task], "rollout")} passed`), squares);
      return made;
    }

    // filters: chips, parts of the ledger's bar, columns of the grid
    const keysOf = (state) => rows.kinds.filter((kind) => kind.state === state).map((kind) => kind.key);
    function toggleKeys(keys) {
      const next = new Set(view.keys);
      const off = keys.every((key) => next.has(key));
      for (const key of keys) off ? next.delete(key) : next.add(key);
      setView({ keys: next, task: null });
    }
    for (const chip of chips) chip.addEventListener("click", () => toggleKeys([chip.dataset.filter]));
    for (const part of parts) {
      part.setAttribute("role", "button");
      part.setAttribute("tabindex", "0");
      part.setAttribute("aria-label", `${one("title", part).textContent}, filter`);
      part.closest("svg").setAttribute("role", "group");
      part.addEventListener("click", () => toggleKeys(keysOf(part.dataset.state)));
      part.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          toggleKeys(keysOf(part.dataset.state));
        }
      });
    }

    const grid = document.getElementById("grid");
    if (grid && rows.order) drawGrid();
    if (grid) {
      grid.addEventListener("click", (event) => {
        const column = event.target.closest("svg[data-task]");
        if (column) setView({ task: view.task === Number(column.dataset.task) ? null : Number(column.dataset.task), keys: new Set() });
      });
    }

    function drawGrid() {
      const tallest = Math.max(...rows.counts);
      const wide = 100 / rows.order.length;
      const gap = Math.min(0.22 * wide, 0.35);
      const picture = draw("svg", { class: rows.order.length > 60 ? "squares dense" : "squares", role: "img", "aria-label": grid.dataset.label, width: "100%", height: 10 * tallest });
      const rank = { passed: 0, scored: 1, wrong: 2, zero: 3, missing: 4 };
      rows.order.forEach((task, number) => {
        const column = draw("svg", { "data-task": task, x: `${number * wide + gap / 2}%`, width: `${wide - gap}%`, overflow: "visible" });
        const kinds = [];
        for (let row = startOf[task]; row < startOf[task] + rows.counts[task]; row++) kinds.push(kindOf(row));
        kinds.sort((a, b) => rank[a.state] - rank[b.state]);
        kinds.forEach((kind, at) => column.append(draw("rect", { class: kind.letter, y: 10 * (tallest - 1 - at) + 1, width: "100%", height: 8 })));
        picture.append(column);
      });
      grid.replaceChildren(picture);
    }

    function markGrid() {
      if (!grid) return;
      for (const column of every("svg[data-task]", grid)) {
        column.classList.toggle("dim", view.task !== null && Number(column.dataset.task) !== view.task);
      }
      const letters = new Set(rows.kinds.filter((kind) => view.keys.has(kind.key)).map((kind) => kind.letter));
      for (const rect of every("rect", grid)) {
        rect.classList.toggle("dim", letters.size > 0 && ![...letters].some((letter) => rect.classList.contains(letter)));
      }
    }

    // moving among rollouts
    const buttons = () => every("button.rollout", ul);
    const current = () => {
      const focused = document.activeElement && document.activeElement.closest("li");
      const at = focused ? [...ul.children].indexOf(focused) : -1;
      return at;
    };
    function focusLine(at) {
      const all = buttons();
      if (all.length) all[Math.max(0, Math.min(at, all.length - 1))].focus();
    }
    function nextFailure(step) {
      const all = buttons();
      for (let at = current() + step; at >= 0 && at < all.length; at += step) {
        if (!passes(Number(all[at].dataset.row))) return all[at].focus();
      }
      return undefined;
    }
    function sibling(step) {
      const at = current();
      const button = buttons()[at];
      if (!button) return;
      const row = Number(button.dataset.row) + step;
      if (row < 0 || row >= total || taskOf[row] !== taskOf[Number(button.dataset.row)]) return;
      open(row);
    }
    function open(row) {
      if (!(row >= 0 && row < total)) return;
      if (!matches(row)) Object.assign(view, { mode: "all", keys: new Set(), task: null, query: "" });
      search.value = view.query;
      let at = 0;
      for (let other = 0; other < row; other++) at += matches(other) ? 1 : 0;
      if (at >= view.shown) view.shown = at + FIRST;
      render();
      const button = buttons()[at];
      toggle(button);
      button.focus();
      button.scrollIntoView({ block: "nearest" });
    }
    function link() {
      const button = buttons()[current()];
      if (button) copy(`${location.href.split("#")[0]}#r=${button.dataset.row}`);
    }

    render();
    const asked = /^#r=(\d+)$/.exec(location.hash);
    if (asked) open(Number(asked[1]));
    return {
      move: (step) => focusLine(current() + step),
      nextFailure, sibling, open, link,
      search: () => search.focus(),
      filters: () => (chips[0] || modes[0]).focus(),
      state: (state) => (state ? setView({ keys: new Set(keysOf(state)), task: null }) : setView({ mode: "all", keys: new Set(), task: null })),
      task: (task) => setView({ task, keys: new Set() }),
      close: () => {
        const button = buttons()[current()];
        if (!button || button.getAttribute("aria-expanded") !== "true") return false;
        toggle(button);
        button.focus();
        return true;
      },
    };
  }

  // keys
  const KEYS = [
    ...(list ? [
      ["j, k", "next, previous rollout"], ["n, N", "next, previous failure"], ["[, ]", "previous, next sample of the task"],
      ["/", "search"], ["f", "to the filters"], ["0 to 4", "all, passed, wrong, counted as 0, missing"],
      ["y", "copy a link to the rollout"],
    ] : []),
    ...(one("table.changed") ? [["j, k", "next, previous task"], ["n, N", "next, previous task that got worse"]] : []),
    ["Enter, Escape", "open, close"], ["t", "theme"], ["?", "this list"],
  ];
  let singleKeys = kept.get("calipers.keys") !== "off";
  window.calipers.singleKeys = () => singleKeys;
  function help() {
    const off = make("input", { type: "checkbox" });
    off.checked = !singleKeys;
    off.addEventListener("change", () => {
      singleKeys = !off.checked;
      kept.set("calipers.keys", singleKeys ? "on" : "off");
    });
    const close = make("button", { type: "button", class: "control" }, "Close");
    const dialog = make("dialog", { "aria-label": "Keys" }, make("h2", {}, "Keys"),
      make("dl", {}, ...KEYS.flatMap(([key, does]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, does)])),
      make("label", {}, off, "Single keys off"), close);
    close.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }
  const COMMANDS = {
    t: () => setTheme(isDark() ? "light" : "dark"),
    "?": help,
    ...(list && {
      j: () => list.move(1), k: () => list.move(-1), n: () => list.nextFailure(1), N: () => list.nextFailure(-1),
      "[": () => list.sibling(-1), "]": () => list.sibling(1), "/": list.search, f: list.filters, y: list.link,
      0: () => list.state(null), 1: () => list.state("passed"), 2: () => list.state("wrong"),
      3: () => list.state("zero"), 4: () => list.state("missing"),
    }),
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && openCard) return closeCard();
    if (event.key === " " && event.target.matches && event.target.matches("a.term")) {
      event.preventDefault();
      return showCard(event.target);
    }
    if (event.ctrlKey || event.altKey || event.metaKey || one("dialog[open]")) return undefined;
    if (event.target.closest && event.target.closest("input, textarea, select, [contenteditable]")) return undefined;
    if (event.key === "Escape" && list) return list.close();
    const inList = event.target.closest && event.target.closest("#list");
    if (inList && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      return list.move(event.key === "ArrowDown" ? 1 : -1);
    }
    if (singleKeys && Object.hasOwn(COMMANDS, event.key)) {
      event.preventDefault();
      COMMANDS[event.key]();
    }
    return undefined;
  });
})();
