"use strict";
/* What if: recomputes the numbers of the page from the counts of each task, in closed form.

   The first part is arithmetic and knows no page. It follows calipers/stats: intervals.py, paired.py and
   verdict.py; a test compares both to six digits. The second part is the panel. */

const whatIf = (() => {
  const NOISE = 1e-14; // a spread below this share of the largest value is a rounding error
  const HUGE = 1e150; // its square does not overflow

  /* ---- distributions ---- */

  /** The compensated sum: the rounding error of each addition is added at the end (Neumaier 1974). */
  function sum(values) {
    let total = 0, lost = 0;
    for (const value of values) {
      const next = total + value;
      lost += Math.abs(total) >= Math.abs(value) ? total - next + value : value - next + total;
      total = next;
    }
    return total + lost;
  }
  const dot = (a, b) => sum(a.map((value, i) => value * b[i]));
  const largest = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const stirling = (x) => (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * x * x)) / (x * x)) / (x * x)) / x;

  function lnGamma(x) {
    let shift = 0;
    for (; x < 12; x++) shift += Math.log(x);
    return (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) + stirling(x) - shift;
  }

  /** ln B(a, b); for a large a, computed without the difference of two large logarithms. */
  function lnBeta(a, b) {
    if (a < b) [a, b] = [b, a];
    if (a < 12) return lnGamma(a) + lnGamma(b) - lnGamma(a + b);
    const ratio = (a - 0.5) * -Math.log1p(b / a) - b * Math.log(a + b) + b;
    return lnGamma(b) + ratio + stirling(a) - stirling(a + b);
  }

  /** The regularised incomplete beta function I_x(a, b) by its continued fraction; y is 1 - x. */
  function incompleteBeta(a, b, x, y) {
    if (x <= 0) return 0;
    if (y <= 0) return 1;
    if (x > (a + 1) / (a + b + 2)) return 1 - incompleteBeta(b, a, y, x);
    const log = (p, q) => (q < 0.5 ? Math.log1p(-q) : Math.log(p));
    const front = Math.exp(a * log(x, y) + b * log(y, x) - lnBeta(a, b)) / a;
    let c = 1, d = 1 / (1 - ((a + b) * x) / (a + 1)), fraction = d;
    for (let m = 1; m < 20000; m++) {
      for (const term of [
        (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m)),
        (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1)),
      ]) {
        d = 1 / (1 + term * d || 1e-300);
        c = 1 + term / c || 1e-300;
        fraction *= c * d;
      }
      if (Math.abs(c * d - 1) < 1e-16) break;
    }
    return front * fraction;
  }

  /** The upper tail probability of the normal distribution at z: a series near 0, a continued fraction beyond 3. */
  function normalTail(z) {
    if (z < 0) return 1 - normalTail(-z);
    const density = Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI);
    if (z < 3) {
      let term = z, series = z;
      for (let n = 3; term > 1e-18; n += 2) series += term *= (z * z) / n;
      return 0.5 - density * series;
    }
    let fraction = z;
    for (let n = 200; n > 0; n--) fraction = z + n / fraction;
    return density / fraction;
  }

  /** The upper tail probability of Student's t at t; of the normal distribution if the degrees of freedom are infinite. */
  function upperTail(t, freedom) {
    if (freedom === Infinity) return normalTail(t);
    if (t < 0) return 1 - upperTail(-t, freedom);
    const whole = freedom + t * t;
    return incompleteBeta(freedom / 2, 0.5, freedom / whole, (t * t) / whole) / 2;
  }

  /** The quantile of Student's t with this upper tail probability, by bisection. */
  function quantile(tail, freedom) {
    let low = 0, high = 1;
    while (upperTail(high, freedom) > tail) [low, high] = [high, 2 * high];
    for (let i = 0; i < 100 && high - low > 1e-15 * high; i++) {
      const middle = (low + high) / 2;
      if (upperTail(middle, freedom) > tail) low = middle;
      else high = middle;
    }
    return (low + high) / 2;
  }

  /* ---- the values of tasks ---- */

  /** The tasks that a change keeps. */
  function keptTasks(island, change) {
    const tasks = Array.from({ length: island.tasks }, (_, task) => task);
    if (!change.drop) return tasks;
    if (change.drop === "flagged") {
      const flagged = new Set(island.flagged.map(([task]) => task));
      return tasks.filter((task) => !flagged.has(task));
    }
    const cut = island.slices.find((slice) => slice.key === change.drop.key);
    const code = cut.values.indexOf(change.drop.value);
    return tasks.filter((task) => cut.code[task] !== code);
  }

  /** The rewards of each task as [reward, count] pairs; missing rollouts count as 0, or are left out. */
  function rewardsOf(run, zero) {
    let next = 0;
    return run.distinct.map((distinct, task) => {
      const pairs = [];
      for (const end = next + distinct; next < end; next++) pairs.push([run.rewards[run.code[next]], run.count[next]]);
      if (zero && run.missing[task]) pairs.push([0, run.missing[task]]);
      return pairs;
    });
  }

  /** The probability that k of n samples contain none of c chosen ones, C(n - c, k) / C(n, k). */
  function missAll(n, c, k) {
    let chance = 1;
    for (let i = 0; i < k; i++) chance *= Math.max(n - c - i, 0) / (n - i);
    return chance;
  }

  /** The value of a metric for one task; [passes, samples] for a pooled rate; null if the task has no value. */
  function reduced(metric, pairs) {
    const n = sum(pairs.map(([, count]) => count));
    const passes = sum(pairs.map(([reward, count]) => (reward >= metric.threshold ? count : 0)));
    const total = () => sum(pairs.map(([reward, count]) => reward * count));
    switch (metric.definition) {
      case "mean_reward": return n ? total() / n : null;
      case "solved_rate": return n ? Number(total() / n >= metric.threshold) : null;
      case "pass_rate": return n ? [passes, n] : null;
      case "pass@{k}": return n >= metric.k ? 1 - missAll(n, passes, metric.k) : null;
      case "pass^{k}": return n >= metric.k ? missAll(n, n - passes, metric.k) : null;
    }
    throw new Error(`no closed form for ${metric.definition}`);
  }

  /** Whether values are bounded by 0 and 1: rates always are, and rewards if all of them are between 0 and 1. */
  function isBounded(metric, runs) {
    const inside = (pairs) => pairs.every(([reward]) => reward >= 0 && reward <= 1);
    return metric.definition !== "mean_reward" || runs.every((tasks) => tasks.every(inside));
  }

  /** The rewards, values and clusters of the tasks that a change keeps. */
  function prepared(island, change) {
    const tasks = keptTasks(island, change);
    const zero = change.missing === "zero";
    const runs = island.runs.map((run) => {
      const every = rewardsOf(run, zero);
      return tasks.map((task) => every[task]);
    });
    const by = island.slices.find((slice) => slice.key === change.cluster);
    return {
      values: runs.map((tasksOfRun) => tasksOfRun.map((pairs) => reduced(change.metric, pairs))),
      bounded: isBounded(change.metric, runs),
      clusters: by ? tasks.map((task) => by.code[task]) : null,
    };
  }

  /* ---- one run: stats/intervals.py ---- */

  /** Sums of columns over units, which are tasks or clusters; a sum that cancels except for rounding is 0. */
  function byUnit(clusters, ...columns) {
    if (!clusters) return columns;
    const members = new Map();
    clusters.forEach((cluster, i) => members.has(cluster) ? members.get(cluster).push(i) : members.set(cluster, [i]));
    return columns.map((column) =>
      [...members.values()].map((some) => {
        const parts = some.map((i) => column[i]);
        const value = sum(parts);
        return Math.abs(value) < NOISE * sum(parts.map(Math.abs)) ? 0 : value;
      }),
    );
  }

  function spreadOf(values, weights, clusters) {
    const whole = sum(weights);
    const share = weights.map((weight) => weight / whole);
    const mean = dot(weights, values) / whole;
    const [unitShare, pull] = byUnit(clusters, share, values.map((value, i) => share[i] * (value - mean)));
    const units = unitShare.length;
    const effectiveUnits = 1 / dot(unitShare, unitShare);
    let variance = (units / Math.max(units - 1, 1)) * dot(pull, pull);
    if (Math.sqrt(variance * effectiveUnits) <= NOISE * largest(values)) variance = 0;
    const doubt = (1 + effectiveUnits * dot(share, share)) / 2;
    return { mean, variance, units, effectiveUnits, doubt };
  }

  /** The effective number of 0/1 tasks, and the degrees of freedom, which are infinite if all values are 0 or 1. */
  function strength(spread) {
    const { mean: m, variance, effectiveUnits: u, doubt } = spread;
    const above = m * (1 - m) + variance + 1 / (4 * u);
    const tasks = Math.max(1, above / (variance + doubt / (4 * u * u)));
    const steady = u / tasks;
    return [tasks, steady >= 1 - 1e-9 ? Infinity : Math.max(1, (u - 1) / (1 - steady))];
  }

  /** The ends of Wilson's interval on [0, 1] for an effective number of tasks. */
  function wilson(mean, tasks, q) {
    const shrink = 1 + (q * q) / tasks;
    const centre = (mean + (q * q) / (2 * tasks)) / shrink;
    const spread = Math.max(mean * (1 - mean), 0) / tasks + (q * q) / (4 * tasks * tasks);
    const half = (q / shrink) * Math.sqrt(spread);
    return [
      mean <= 0 ? 0 : Math.max(0, Math.min(centre - half, mean)),
      mean >= 1 ? 1 : Math.min(1, Math.max(centre + half, mean)),
    ];
  }

  /** The default interval: Wilson's if values are bounded, else Student's. */
  function intervalOf(values, weights, bounded, clusters, confidence) {
    const spread = spreadOf(values, weights, clusters);
    if (spread.units < 2) return { why: aloneWhy(clusters && values.length > 1) };
    const tail = (1 - confidence) / 2;
    if (bounded) {
      const [tasks, freedom] = strength(spread);
      const method = freedom === Infinity ? "wilson" : "wilson_t";
      return { interval: wilson(spread.mean, tasks, quantile(tail, freedom)), method };
    }
    if (spread.variance === 0) return { why: "no spread and no known range" };
    const half = quantile(tail, Math.max(1, spread.effectiveUnits - 1)) * Math.sqrt(spread.variance);
    return { interval: [spread.mean - half, spread.mean + half], method: "t" };
  }
  const aloneWhy = (clustered) => `one ${clustered ? "cluster" : "task"} says nothing about others`;

  /** A metric of one run under a change: value, interval, method and tasks, or the reason why there is no value. */
  function score(island, change) {
    const { values: [every], bounded, clusters } = prepared(island, change);
    const there = every.map((value, i) => i).filter((i) => every[i] !== null);
    if (!there.length) return { value: island.undefined ?? null, interval: null, tasks: 0, why: "no task has a value" };
    const pooled = change.metric.definition === "pass_rate";
    const weights = there.map((i) => (pooled ? every[i][1] : 1));
    const values = there.map((i) => (pooled ? every[i][0] / every[i][1] : every[i]));
    const value = (pooled ? sum(there.map((i) => every[i][0])) : sum(values)) / sum(weights);
    const result = { value, interval: null, tasks: there.length };
    if (!bounded && largest(values) > HUGE) return { ...result, why: "the values are too large" };
    const some = clusters && there.map((i) => clusters[i]);
    return { ...result, ...intervalOf(values, weights, bounded, some, island.confidence) };
  }

  /* ---- two runs: stats/paired.py ---- */

  const apart = (a, b) => (Math.abs(a - b) < NOISE * Math.max(Math.abs(a), Math.abs(b)) ? 0 : a - b);
  const effective = (shares) => 1 / dot(shares, shares);

  /** The contribution of each unit to the difference of means, or of pooled rates from [passes, samples]. */
  function unitsOf(first, second, clusters) {
    let pulls, share, residuals;
    if (Array.isArray(first[0])) {
      const whole = [first, second].map((run) => [0, 1].map((column) => sum(run.map((task) => task[column]))));
      const shares = [first, second].map((run, r) => run.map((task) => task[1] / whole[r][1]));
      share = shares[0].map((each, i) => (each + shares[1][i]) / 2);
      pulls = first.map((task, i) => apart(second[i][0] / whole[1][1], task[0] / whole[0][1]));
      const rate = whole.map(([passes, samples]) => passes / samples);
      residuals = pulls.map((pull, i) => pull - apart(shares[1][i] * rate[1], shares[0][i] * rate[0]));
    } else {
      share = first.map(() => 1 / first.length);
      pulls = first.map((value, i) => share[i] * apart(second[i], value));
    }
    const columns = byUnit(clusters, pulls, share, ...(residuals ? [residuals] : []));
    const kept = (column) => column.filter((_, g) => columns[1][g] > 0);
    const total = sum(columns[0]);
    const rest = columns[2] || columns[0].map((pull, g) => pull - columns[1][g] * total);
    return { pulls: kept(columns[0]), shares: kept(columns[1]), residuals: kept(rest), clustered: !!clusters };
  }

  /** The difference of units with the floored t test: half of the largest pull is added to the standard error. */
  function judged({ pulls, residuals, shares, clustered }, bounded, confidence) {
    const count = pulls.length;
    let value = sum(pulls);
    if (Math.abs(value) <= NOISE * sum(pulls.map(Math.abs))) value = 0;
    if (count < 2) return { value, interval: null, p: null, why: aloneWhy(clustered) };
    const u = effective(shares);
    const freedom = Math.max(1, u - 1);
    const variance = (count / (count - 1)) * dot(residuals, residuals);
    const stderr = Math.sqrt(variance + (largest(pulls) / 2) ** 2);
    const tail = (1 - confidence) / 2;
    if (stderr === 0) {
      if (!bounded) return { value, interval: null, p: 1, why: "no spread and no known range" };
      const unseen = 1 - tail ** (1 / u); // the largest share of differing pairs that is compatible with seeing none
      return { value, interval: [-unseen, unseen], p: 1 };
    }
    const half = quantile(tail, freedom) * stderr;
    const ends = [value - half, value + half];
    const interval = bounded ? [Math.max(ends[0], -1), Math.min(ends[1], 1)] : ends;
    return { value, interval, p: Math.min(1, 2 * upperTail(Math.abs(value) / stderr, freedom)) };
  }

  /* ---- what the observed rollouts alone say. Only the command gives a verdict: stats/claims.py ---- */

  function verdictOf({ value, p }, confidence) {
    return value && p !== null && p <= 1 - confidence ? (value > 0 ? "better" : "worse") : "undecided";
  }

  /** A metric of two runs under a change: difference, interval, p, verdict, tasks. */
  function compare(island, change) {
    const { values: [first, second], bounded, clusters } = prepared(island, change);
    const there = first.map((_, i) => i).filter((i) => first[i] !== null && second[i] !== null);
    if (!there.length) {
      const why = "no task has a value in both runs";
      return { value: null, interval: null, p: null, verdict: "undecided", tasks: 0, why };
    }
    const some = (column) => there.map((i) => column[i]);
    const units = unitsOf(some(first), some(second), clusters && some(clusters));
    const difference = judged(units, bounded, island.confidence);
    return { ...difference, verdict: verdictOf(difference, island.confidence), tasks: there.length };
  }

  const compute = (island, change) => (island.kind === "pair" ? compare : score)(island, change);
  return { upperTail, quantile, keptTasks, compute };
})();

/* ---- the panel ---- */

(() => {
  const panel = document.getElementById("what-if-panel");
  if (!panel) return;
  const { data, make, draw, copy, counted } = window.calipers; // from page.js; all texts become text nodes
  const island = data.what_if;
  const pair = island.kind === "pair";
  const computed = island.metrics.filter((metric) => metric.definition);
  const others = island.metrics.filter((metric) => !metric.definition);
  const base = {
    missing: island.missing === "zero" ? "zero" : "gap",
    threshold: null, metric: computed[0], k: null, drop: null, cluster: island.cluster || null,
  };
  let state = { ...base };

  /* numbers as texts, in the formats of calipers.reports.sentences */
  const figure = (value, digits) => {
    const rounded = Number(value.toFixed(digits));
    const size = Math.abs(rounded);
    const fixed = { minimumFractionDigits: digits, maximumFractionDigits: digits };
    const shown = size < 1e15 ? size.toLocaleString("en", fixed) : size.toPrecision(4);
    return (rounded < 0 ? "−" : pair && rounded > 0 ? "+" : "") + shown;
  };
  /** Three decimals, or four for a narrow interval; for a tiny or large number of a run, four significant digits. */
  const digitsOf = ({ value, interval }) => {
    const size = Math.max(...[value ?? 0, ...(interval || [])].map(Math.abs));
    if (!pair && size > 0 && (size < 0.01 || size >= 10)) return Math.min(Math.max(3 - Math.floor(Math.log10(size)), 0), 12);
    return interval && interval[1] - interval[0] < 0.01 ? 4 : 3;
  };
  const tickText = (size) => (
    size < 1e4 ? size.toLocaleString("en", { maximumSignificantDigits: 6 })
    : size >= 1e9 ? Number(size.toPrecision(6)).toExponential()
    : size >= 1e6 ? `${Number((size / 1e6).toPrecision(6))}M` : `${Number((size / 1e3).toPrecision(6))}k`);
  const to = (ends, digits) => ends.map((end) => figure(end, digits)).join(" to ");
  const pText = (p) => (p < 0.0001 ? "p < 0.0001" : p < 0.01 ? `p = ${Number(p.toPrecision(1))}` : `p = ${p.toFixed(2)}`);
  const level = `${Number((100 * island.confidence).toPrecision(6))}\u00a0% interval`;
  const SIGN = { better: "▲ better", worse: "▼ worse", equivalent: "= equivalent", undecided: "~ undecided" };
  const TONE = { better: "blue", worse: "orange" };

  /* what the switches change */
  const usesThreshold = (metric) => metric.definition !== "mean_reward";
  const usesK = (metric) => metric.k !== null;
  const sliceText = ({ key, value }) => (island.slices.length > 1 ? `${key} ${value}` : value);

  /** The change to compute: the metric with the k and the threshold of the switches. */
  function changeOf({ metric, k, threshold, missing, drop, cluster }) {
    return { metric: { ...metric, k: k ?? metric.k, threshold: threshold ?? metric.threshold }, missing, drop, cluster };
  }

  /** The differences from the original result, in words. In a report of one run, the metric only chooses the number. */
  function changesOf() {
    const { metric, k, threshold, missing, drop, cluster } = state;
    const words = [];
    if (missing !== base.missing) words.push(missing === "zero" ? "missing counted as 0" : "missing excluded");
    if (pair && metric !== base.metric) words.push(`metric ${metric.text}`);
    if (k !== null) words.push(`k = ${k}`);
    if (threshold !== null) words.push(`a reward passes from ${threshold}`);
    if (drop) {
      const left = whatIf.keptTasks(island, state).length;
      const what = drop === "flagged" ? "flagged tasks" : sliceText(drop);
      words.push(`${what} excluded (${counted(left, "task")} remain${left === 1 ? "s" : ""})`);
    }
    if (cluster !== base.cluster) words.push(cluster ? `tasks grouped by ${cluster}` : "tasks not grouped");
    return words;
  }

  /** The metric as a value of --metric. */
  function metricText({ metric, k, threshold }) {
    if (k === null && threshold === null) return metric.text;
    const passes = threshold ?? metric.threshold;
    const params = passes === 1 ? [] : [`threshold=${passes}`];
    if (metric.reward) params.push(`reward=${metric.reward}`);
    return metric.definition.replace("{k}", k ?? metric.k) + (params.length ? `(${params.join(", ")})` : "");
  }

  /** A word quoted for the shell if necessary, with control characters as escapes, so that a terminal ignores them. */
  function quoted(word) {
    if (/^[\w@%+=:,./-]+$/.test(word)) return word;
    if (!/[\p{Cc}\p{Cf}]/u.test(word)) return `'${word.replaceAll("'", `'"'"'`)}'`;
    const escaped = word.replace(/[\\']/g, "\\$&");
    return `$'${escaped.replace(/[\p{Cc}\p{Cf}]/gu, (c) => `\\U${c.codePointAt(0).toString(16).padStart(8, "0")}`)}'`;
  }

  /** The words of the command that computes the same number. */
  function commandOf(text) {
    const words = [...island.command, "--metric", text];
    if (state.missing !== "gap" || !island.native) words.push("--missing", state.missing);
    if (state.cluster) words.push("--cluster", state.cluster);
    const dropped =
      state.drop === "flagged" ? island.flagged.map(([, id]) => `task=${id}`)
      : state.drop ? [`${state.drop.key}=${state.drop.value}`] : [];
    for (const each of dropped) words.push("--exclude", each);
    return words.map(quoted).flatMap((word) => [make("span", { class: "word" }, word), " "]).slice(0, -1);
  }

  /** The state with null for a k or a threshold that is the metric's own, or that the metric does not use. */
  function normalise(some) {
    if (!usesK(some.metric) || some.k === some.metric.k) some.k = null;
    if (!usesThreshold(some.metric) || some.threshold === some.metric.threshold) some.threshold = null;
    return some;
  }

  /* the address: #w=missing:zero;drop:difficulty=hard */
  const coded = (text) => encodeURIComponent(text).replaceAll("%40", "@");
  function addressOf() {
    const parts = [];
    if (state.missing !== base.missing) parts.push(`missing:${state.missing}`);
    if (state.threshold !== null) parts.push(`threshold:${state.threshold}`);
    if (state.metric !== base.metric) parts.push(`metric:${coded(state.metric.text)}`);
    if (state.k !== null) parts.push(`k:${state.k}`);
    if (state.drop === "flagged") parts.push("drop:flagged");
    else if (state.drop) parts.push(`drop:${coded(state.drop.key)}=${coded(state.drop.value)}`);
    if (state.cluster !== base.cluster) parts.push(`cluster:${coded(state.cluster || "")}`);
    return parts.length ? `#w=${parts.join(";")}` : "";
  }

  /** The state in an address; parts that the page does not have are ignored. */
  function stateOf(hash) {
    const read = { ...base };
    for (const part of hash.slice(3).split(";")) {
      const name = part.split(":", 1)[0];
      let value = part.slice(name.length + 1);
      try {
        if (name === "drop" && value !== "flagged") {
          const [key, ...rest] = value.split("=");
          const drop = { key: decodeURIComponent(key), value: decodeURIComponent(rest.join("=")) };
          const cut = island.slices.find((slice) => slice.key === drop.key);
          if (cut && cut.values.includes(drop.value)) read.drop = drop;
          continue;
        }
        value = decodeURIComponent(value);
      } catch {
        continue; // not a valid percent-encoding
      }
      if (name === "missing" && ["gap", "zero"].includes(value)) read.missing = value;
      if (name === "threshold" && island.native && value && Number.isFinite(Number(value))) read.threshold = Number(value);
      if (name === "k" && island.native && /^[1-9]\d{0,5}$/.test(value)) read.k = Number(value);
      if (name === "metric") read.metric = computed.find((metric) => metric.text === value) || read.metric;
      if (name === "drop" && island.flagged.length) read.drop = "flagged";
      if (name === "cluster" && (!value || groupings.includes(value))) read.cluster = value || null;
    }
    return normalise(read);
  }

  const button = (text, act) => {
    const made = make("button", { type: "button", class: "control" }, text);
    made.addEventListener("click", act);
    return made;
  };

  /** A switch: a group of radio buttons, or a list if there are many choices. */
  function choice(label, name, options) {
    const group = make("fieldset", { class: "choice", "data-switch": name }, make("legend", {}, label));
    if (options.length > 12) {
      const list = make("select", { "aria-label": label }, ...options.map(({ text }, i) => make("option", { value: i }, text)));
      list.addEventListener("change", () => change(options[list.value].set));
      group.append(list);
      group.show = () => (list.value = options.findIndex(({ on }) => on()));
      return group;
    }
    const inputs = options.map(({ text, set, disabled }, i) => {
      const input = make("input", { type: "radio", name: `what-if-${name}`, value: i, disabled: !!disabled });
      input.addEventListener("change", () => change(set));
      group.append(make("label", {}, input, make("span", {}, make("bdi", {}, text))));
      return input;
    });
    group.show = () => options.forEach(({ on }, i) => (inputs[i].checked = on()));
    return group;
  }

  /** A switch with many ordered values. */
  function slider(label, name, values, current, set) {
    const input = make("input", { type: "range", min: 0, max: values.length - 1, step: 1, "aria-label": label });
    const shown = make("output");
    input.addEventListener("input", () => change(set(values[input.value])));
    const group = make("fieldset", { class: "choice", "data-switch": name }, make("legend", {}, label), input, shown);
    group.show = () => {
      const at = values.findIndex((value) => value >= current());
      input.value = at < 0 ? values.length - 1 : at;
      input.setAttribute("aria-valuetext", current());
      shown.textContent = current();
    };
    return group;
  }

  function switchesOf() {
    const made = [];
    const is = (key, value) => ({ set: { [key]: value }, on: () => state[key] === value });
    if (island.runs.some((run) => run.missing.some(Boolean)))
      made.push(choice("Missing rollouts", "missing", [
        { text: "excluded", ...is("missing", "gap") }, { text: "count as 0", ...is("missing", "zero") },
      ]));
    /** A choice among ordered numbers: buttons, or a slider if there are too many. */
    const ordered = (label, name, values, most, current) => {
      const set = (value) => ({ [name]: value });
      const options = values.map((value) => ({ text: String(value), set: set(value), on: () => current() === value }));
      made.push(values.length > most ? slider(label, name, values, current, set) : choice(label, name, options));
    };
    const rewards = [...island.runs.flatMap((run) => run.rewards), ...computed.map((metric) => metric.threshold)];
    const thresholds = [...new Set(rewards)].sort((a, b) => a - b).slice(1); // without the lowest, with which everything passes
    if (island.native && thresholds.length > 1 && computed.some(usesThreshold))
      ordered("A reward passes from", "threshold", thresholds, 5, () => state.threshold ?? state.metric.threshold);
    if (island.metrics.length > 1)
      made.push(choice("Metric", "metric", island.metrics.map((metric) => ({
        text: metric.text, disabled: !metric.definition, set: { metric, k: null }, on: () => state.metric === metric,
      }))));
    const ks = Array.from({ length: island.samples }, (_, i) => i + 1);
    if (island.native && ks.length > 1 && computed.some(usesK))
      ordered("Samples, k", "k", ks, 8, () => state.k ?? state.metric.k ?? 1);
    const drops = island.slices.flatMap(({ key, values }) => values.map((value) => ({
      text: sliceText({ key, value }), set: { drop: { key, value } },
      on: () => state.drop?.key === key && state.drop.value === value,
    })));
    const flagged = island.flagged.length;
    if (flagged) drops.push({ text: counted(flagged, "flagged task"), ...is("drop", "flagged") });
    if (drops.length) made.push(choice("Exclude", "drop", [{ text: "nothing", ...is("drop", null) }, ...drops]));
    if (groupings.length)
      made.push(choice("Group tasks by", "cluster", [
        { text: "nothing", ...is("cluster", null) }, ...groupings.map((key) => ({ text: key, ...is("cluster", key) })),
      ]));
    return made;
  }

  /* the picture: the marks of calipers.web.draw */
  function scaleOf(values) {
    if (!pair && values.every((value) => value >= 0 && value <= 1)) return { low: 0, high: 1, ticks: [0, 0.5, 1] };
    const ends = pair ? [...values, 0] : values;
    let low = Math.min(...ends), high = Math.max(...ends);
    const spare = 0.2 * (high - low || Math.abs(high) || 1);
    [low, high] = [low - spare, high + spare];
    const power = 10 ** Math.floor(Math.log10((high - low) / 4));
    const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= (high - low) / 4 - 1e-12 * power) * power;
    const [first, last] = [Math.floor(low / step + 1e-9), Math.ceil(high / step - 1e-9)];
    const ticks = Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
    const shown = ticks.filter((tick, i) => i % Math.ceil(ticks.length / 5) === 0);
    return { low: ticks[0], high: ticks.at(-1), ticks: shown };
  }
  const at = ({ low, high }, value) => `${(100 * Math.min(Math.max((value - low) / (high - low), 0), 1)).toFixed(2)}%`;
  const line = (x1, x2, y1, y2, kind) => draw("line", { class: kind, x1, x2, y1, y2 });

  function axis(scale) {
    const texts = scale.ticks.map((tick, i) => {
      const place = parseFloat(at(scale, tick));
      const anchor = place < 3 ? "start" : place > 97 ? "end" : "middle";
      const sign = tick < 0 ? "−" : pair && tick > 0 ? "+" : "";
      return draw("text", { class: "tick", x: at(scale, tick), y: 12, "text-anchor": anchor }, sign + tickText(Math.abs(tick)));
    });
    return draw("svg", { class: "axis-head", width: "100%", height: 16, "aria-hidden": "true" }, ...texts);
  }

  function picture({ value, interval }, scale, tone, hollow, label) {
    const marks = [];
    if (interval) {
      const [low, high] = interval.map((end) => at(scale, end));
      marks.push(line(low, high, 0, 0, `ci ${tone}`));
      for (const end of [low, high]) marks.push(line(end, end, -4.5, 4.5, `end ${tone}`));
    }
    if (value !== null) {
      const kind = interval || hollow ? tone : "grey";
      const open = hollow || !interval ? " hollow" : "";
      marks.push(draw("circle", { class: `point ${kind}${open}`, cx: at(scale, value), cy: 0, r: 5 }));
    }
    return draw("svg", { class: "row", role: "img", "aria-label": label, width: "100%" },
      line("0%", "100%", "50%", "50%", "track"),
      ...(pair ? [line(at(scale, 0), at(scale, 0), 0, "100%", "zero")] : []),
      draw("svg", { y: "50%", overflow: "visible" }, ...marks));
  }

  function row(head, small, result, scale, digits, tone, hollow) {
    const value = result.value === null ? "–" : figure(result.value, digits);
    const ends = result.interval ? to(result.interval, digits) : null;
    const why = `no interval: ${result.why || "none"}`;
    const verdict = () => [SIGN[result.verdict] || result.verdict, make("small", {}, result.p === null ? "" : pText(result.p))];
    const label = `${head}: ${value}, ${ends ? `${level} ${ends}` : why}`;
    const cell = (kind, ...children) => make("td", { role: "cell", class: kind }, ...children);
    return make("tr", { role: "row" },
      make("th", { scope: "row", role: "rowheader", class: "name-cell" }, make("b", {}, head), make("small", {}, small)),
      cell("value-cell", value), cell("axis-cell", picture(result, scale, tone, hollow, label)),
      cell("interval-cell", ends || make("span", { class: "why" }, why)),
      cell("n-cell", ...(pair ? verdict() : [counted(result.tasks, "task")])));
  }

  function show() {
    const before = asComputed(pair ? base.metric : state.metric);
    const result = whatIf.compute(island, changeOf(state));
    const changes = changesOf();
    const count = counted(changes.length, "change");
    const rows = changes.length ? [before, result] : [before];
    const scale = scaleOf(rows.flatMap(({ value, interval }) => [value ?? 0, ...(interval || [])]));
    const digits = Math.max(...rows.map(digitsOf));
    const named = pair || computed.length > 1 ? `, ${(pair ? base : state).metric.text}` : "";
    const tone = pair ? TONE[before.verdict] || "grey" : "blue";
    const first = row("Result", `as computed${named}`, before, scale, digits, tone, false);
    const second = changes.length ? row("What if", count, result, scale, digits, "orange", true) : null;
    const head = (kind, ...inner) => make("th", { scope: "col", role: "columnheader", class: kind }, ...inner);
    const unseen = (text) => make("span", { class: "hidden" }, text);
    table.replaceChildren(
      make("caption", { class: "hidden" }, "What if"),
      make("thead", { role: "rowgroup" }, make("tr", { role: "row" },
        head("name-cell", unseen("result")), head("value-cell", pair ? "B − A" : "value"),
        head("axis-cell", axis(scale), unseen("picture")), head("interval-cell", level),
        head("n-cell", pair ? "as observed" : "tasks"))),
      make("tbody", { role: "rowgroup" }, first, ...(second ? [second] : [])));

    const differs = pair && changes.length > 0 && result.verdict !== before.verdict;
    const arrow = `${before.verdict} → ${result.verdict}`;
    const words = changes.join("; ");
    const said = (words ? `${words[0].toUpperCase()}${words.slice(1)}.` : "")
      + (pair && words ? " The verdict is that of the command, which also asks what missing rollouts could change." : "");
    banner.classList.toggle("changed", differs);
    const sentence =
      !changes.length ? "Nothing is switched: this is the result as computed."
      : !pair ? `What if, ${count}: ${result.value === null ? "no value" : figure(result.value, digits)}. `
      : differs ? `As observed: ${arrow}. ` : `As observed still ${before.verdict}. `;
    banner.replaceChildren(make(differs ? "strong" : "span", {}, sentence), said);
    strip.hidden = !changes.length;
    stripText.textContent = `What if: ${count}.` + (pair ? ` As observed: ${differs ? arrow : `still ${result.verdict}`}.` : "");
    reset.hidden = !addressOf();
    command.replaceChildren(...commandOf(metricText(state)));
    for (const each of switches) {
      each.show();
      const name = each.dataset.switch;
      each.hidden = (name === "threshold" && !usesThreshold(state.metric)) || (name === "k" && !usesK(state.metric));
    }
    if (elsewhere) elsewhere.replaceChildren(...commandOf(others[0].text));
  }

  /** The result of the page, whose numbers come from the command and are not recomputed here. */
  function asComputed(metric) {
    const again = whatIf.compute(island, changeOf({ ...base, metric }));
    return { ...metric, p: metric.p ?? null, tasks: again.tasks };
  }

  function change(set) {
    state = { ...state, ...set };
    normalise(state);
    const address = addressOf() || location.pathname + location.search;
    try {
      history.replaceState(history.state, "", address);
    } catch {
      location.hash = addressOf(); // if the browser does not allow replaceState
    }
    show();
  }
  const again = () => change(base);

  /** Whether the page reproduces the numbers of the result; if it does not, it must not compute others. */
  function agrees(metric) {
    if (pair && !metric.alone) return true; // its interval and verdict are adjusted for other tests
    const found = whatIf.compute(island, changeOf({ ...base, metric }));
    const near = (a, b) => a === b || (a !== null && b !== null && Math.abs(a - b) <= 1e-8 * Math.max(1, Math.abs(a)));
    const numbers = ({ value, interval }) => [value, ...(interval || [null, null])];
    const again = numbers(found);
    return numbers(metric).every((number, i) => near(number, again[i])) && (!pair || found.verdict === metric.verdict);
  }

  const groupings = island.slices.filter(({ values }) => !values.includes("__missing__")).map(({ key }) => key);
  if (!computed.length || !computed.every(agrees)) {
    panel.append(make("p", {}, "These numbers are not computed again in the page. Run the command for this."));
    panel.hidden = false;
    return;
  }
  const switches = switchesOf();
  const table = make("table", { class: "intervals", role: "table" });
  const banner = make("p", { class: "verdict", role: "status" });
  const reset = button("Reset", again);
  const command = make("code");
  const stripText = make("span");
  const strip = make("div", { class: "what-if-strip", hidden: true }, stripText, button("Reset", again));
  const elsewhere = others.length ? make("code") : null;
  panel.append(
    make("div", { class: "switches" }, ...switches), table, make("div", { class: "outcome" }, banner, reset));
  const copies = (name, text) => {
    const made = button(name, async () => {
      await copy(text());
      made.textContent = "Copied";
    });
    made.addEventListener("blur", () => (made.textContent = name));
    return made;
  };
  const link = copies("Copy link", () => location.href.split("#")[0] + addressOf());
  const words = copies("Copy command", () => command.textContent);
  const known = island.command.length > 0; // rewards in memory have no command
  panel.append(make("div", { class: "command" }, known ? command : null, make("span", {}, link, known ? words : null)));
  if (elsewhere) {
    const names = others.map(({ text }) => text).join(", ");
    const advice = known ? ". Run the command for this: " : ".";
    panel.append(make("p", { class: "small" }, `Not computed in the page: ${names}${advice}`, known ? elsewhere : null));
  }
  panel.hidden = false;
  (document.querySelector("main") || document.body).prepend(strip);
  if (location.hash.startsWith("#w=")) state = stateOf(location.hash);
  window.addEventListener("hashchange", () => {
    if (!location.hash.startsWith("#w=") && location.hash) return; // a link within the page
    state = location.hash ? stateOf(location.hash) : { ...base };
    show();
  });
  show();
})();
