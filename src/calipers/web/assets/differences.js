"use strict";
// Two runs and many: filters for tasks, the texts of a task in two columns, the pairs of models, the search for a model.
(() => {
  const island = document.getElementById("data");
  const data = island ? JSON.parse(island.textContent) : {};
  const every = (selector, root) => [...(root || document).querySelectorAll(selector)];
  const made = (tag, words, kind) => {
    const node = document.createElement(tag);
    if (words !== undefined && words !== null) node.textContent = words;
    if (kind) node.className = kind;
    return node;
  };
  // single keys work unless a text field has the focus, or the user has switched them off
  const keys = (event) => !event.ctrlKey && !event.altKey && !event.metaKey && !document.querySelector("dialog[open]")
    && !event.target.closest("input, textarea, select, [contenteditable]")
    && window.calipers.singleKeys();
  const WORDS = { zero: "counted as 0" };

  const changed = document.querySelector("table.changed");
  if (changed) tasks(changed);
  every("table.triangle").forEach(triangle);
  every(".find").forEach(find);

  function tasks(table) {
    const rows = every("tbody tr[data-row]", table);
    const filters = every("button[data-way], button[data-state]");
    const count = document.getElementById("changed-count");
    const between = table.querySelector("button[data-between]");
    let chosen = null;

    function show() {
      const on = filters.filter((button) => same(button, chosen));
      filters.forEach((button) => button.setAttribute("aria-pressed", String(on.includes(button))));
      let left = 0;
      rows.forEach((row) => {
        const fits = !chosen || (chosen.way ? row.dataset.way === chosen.way
          : (row.dataset.states || "").split(" ").includes(chosen.state));
        row.classList.toggle("out", !fits);
        if (!fits && row.dataset.open !== undefined) close(row);
        left += fits ? 1 : 0;
      });
      if (chosen) all();
      count.textContent = chosen ? `${left.toLocaleString("en")} of ${rows.length.toLocaleString("en")} listed tasks` : "";
    }
    const same = (button, other) => other !== null && button.dataset.way === other.way && button.dataset.state === other.state;
    function all() {
      table.classList.add("all");
    }
    filters.forEach((button) => button.addEventListener("click", () => {
      const asked = { way: button.dataset.way, state: button.dataset.state };
      chosen = same(button, chosen) ? null : asked;
      show();
    }));
    every("#ledger .bar [data-state]").forEach((part) => part.addEventListener("click", () => {
      const chip = filters.find((button) => button.dataset.state === part.dataset.state);
      if (chip) chip.click();
    }));
    document.addEventListener("keydown", (event) => {
      const moved = { j: 1, k: -1, n: 1, N: -1 }[event.key];
      if (!moved || !keys(event)) return;
      const shown = rows.filter((row) => row.checkVisibility() && (!"nN".includes(event.key) || row.dataset.way === "worse"));
      const all = rows.filter((row) => row.checkVisibility());
      const here = document.activeElement.closest("tr[data-row]");
      const at = all.indexOf(here);
      const after = shown.filter((row) => (moved > 0 ? all.indexOf(row) > at : at < 0 || all.indexOf(row) < at));
      const next = moved > 0 ? after[0] : after[after.length - 1];
      const opener = next && next.querySelector(".opener");
      if (opener) opener.focus();
    });
    if (between) {
      between.hidden = false;
      between.addEventListener("click", () => {
        const next = table.querySelector("tr.extra .opener");
        all();
        if (next) next.focus();
      });
    }
    if (!data.changed) return;
    rows.forEach((row) => {
      const place = row.querySelector("th code");
      if (!place || !data.changed[Number(row.dataset.row)]) return;
      const opener = made("button", null, "opener");
      opener.type = "button";
      opener.setAttribute("aria-expanded", "false");
      opener.append(...place.childNodes);
      place.append(opener);
      opener.addEventListener("click", () => (row.dataset.open === undefined ? open(row) : close(row)));
      row.addEventListener("keydown", (event) => {
        if (event.key === "Escape" && row.dataset.open !== undefined) {
          close(row);
          opener.focus();
        }
      });
    });

    function open(row) {
      const task = data.changed[Number(row.dataset.row)];
      const detail = made("tr", null, "opened");
      const cell = made("td");
      cell.colSpan = row.children.length;
      const blocks = made("div", null, "blocks");
      if (task.prompt) blocks.append(made("h3", "Prompt"), text(task.prompt));
      const sides = made("div", null, "sides");
      task.runs.forEach((rollouts, side) => sides.append(column("AB"[side], rollouts)));
      blocks.append(sides);
      cell.append(blocks);
      detail.append(cell);
      row.after(detail);
      row.dataset.open = "";
      row.querySelector(".opener").setAttribute("aria-expanded", "true");
      detail.addEventListener("keydown", (event) => {
        if (event.key === "Escape") {
          close(row);
          row.querySelector(".opener").focus();
        }
      });
    }
    function close(row) {
      if (row.nextElementSibling && row.nextElementSibling.classList.contains("opened")) row.nextElementSibling.remove();
      delete row.dataset.open;
      row.querySelector(".opener").setAttribute("aria-expanded", "false");
    }
  }

  function column(label, rollouts) {
    const side = made("div");
    side.append(made("h3", label));
    rollouts.forEach(([sample, state, completion, answer]) => {
      const said = `sample ${sample}, ${WORDS[state] || state}`;
      if (completion === null && answer === null) {
        side.append(made("p", `${said}, no text in this file`, "small"));
        return;
      }
      const fold = made("details");
      fold.append(made("summary", answer === null ? said : `${said}: ${answer.slice(0, 80)}`));
      if (completion !== null) fold.append(text(completion));
      side.append(fold);
    });
    return side;
  }

  // Texts of models are text nodes, never markup.
  function text(words) {
    const block = made("pre", words);
    block.dir = "auto";
    block.tabIndex = 0;
    return block;
  }

  // A cell shows its pair below the table and highlights its row and column; arrow keys move from cell to cell.
  function triangle(table) {
    const said = table.closest(".body").querySelector(".chosen");
    const cells = every("tbody td", table);
    const columns = every("tfoot th", table);
    cells.forEach((cell, number) => {
      const button = made("button", cell.textContent);
      button.type = "button";
      button.setAttribute("aria-label", cell.title);
      button.setAttribute("aria-pressed", "false");
      button.tabIndex = number ? -1 : 0;
      cell.textContent = "";
      cell.append(button);
      button.addEventListener("click", () => choose(cell));
      button.addEventListener("focus", () => light(cell));
      cell.addEventListener("mouseenter", () => light(cell));
    });
    table.addEventListener("mouseleave", () => light(null));
    table.addEventListener("keydown", (event) => {
      const cell = event.target.closest("td");
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (!cell || !step) return;
      const row = table.tBodies[0].rows[cell.parentNode.rowIndex + step[0]];
      const next = row && row.cells[cell.cellIndex + step[1]];
      const button = next && next.querySelector("button");
      if (!button) return;
      event.preventDefault();
      event.target.tabIndex = -1;
      button.tabIndex = 0;
      button.focus();
    });
    function choose(cell) {
      const button = cell.querySelector("button");
      const on = button.getAttribute("aria-pressed") === "true";
      every("button[aria-pressed='true']", table).forEach((other) => other.setAttribute("aria-pressed", "false"));
      button.setAttribute("aria-pressed", String(!on));
      said.textContent = on ? "" : cell.title;
    }
    function light(cell) {
      every(".lit", table).forEach((node) => node.classList.remove("lit"));
      if (!cell) return;
      cell.parentNode.cells[0].classList.add("lit");
      columns[cell.cellIndex - 1].classList.add("lit");
    }
  }

  function find(line) {
    const rows = every("tbody tr", line.parentNode.querySelector("table.board"));
    const field = line.querySelector("input");
    const left = line.querySelector(".left");
    line.hidden = false;
    field.addEventListener("input", () => {
      const wanted = field.value.trim().toLowerCase();
      const out = rows.filter((row) => {
        const name = row.querySelector("th .name");
        const fits = (name.title || name.textContent).toLowerCase().includes(wanted);
        row.classList.toggle("out", !fits);
        return !fits;
      });
      left.textContent = wanted ? `${rows.length - out.length} of ${rows.length} models` : "";
    });
  }
})();
