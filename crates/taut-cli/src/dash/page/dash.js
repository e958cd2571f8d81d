// The dashboard: samples come as server-sent events from /samples, each a whole picture (docs/reference/control.md has the fields).
//
// Everything that a sample says is put in as text, never as HTML. Rows of the table are kept and filled again; a sample that comes
// while the last is not drawn replaces it.

const $ = (id) => document.getElementById(id);
const token = new URLSearchParams(location.hash.slice(1)).get("token");
const address = (path) => (token ? `${path}?token=${encodeURIComponent(token)}` : path);

const QUEUES = ["unsent", "device", "in_flight", "unread"];
const QUEUE_WORDS = { unsent: "unsent", device: "below TCP", in_flight: "in flight", unread: "unread" };
const WORST = 10;
const PAGE = 50;
/** Samples that a line of the past has. */
const HISTORY = 60;
const RETRY_MS = 3_000;

const state = { sample: null, stopped: false, filter: "", sort: "wait_ns", down: true, rule: "wait_ns", shown: PAGE };
/** The goodput of each connection, and of all, in the last samples. */
let history = new Map();
let total = [];

// ---- numbers in words ----

// Made once: the toLocaleString of a number makes one each time.
const grouped = new Intl.NumberFormat("en");

function significant(value) {
  if (value >= 99.95) return grouped.format(Math.round(value));
  return value >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

function scaled(value, units) {
  let at = 0;
  while (value >= 1000 && at + 1 < units.length) {
    value /= 1000;
    at++;
  }
  return `${at === 0 ? Math.round(value) : significant(value)} ${units[at]}`;
}

const known = (value) => value !== null && value !== undefined;
const size = (bytes) => (bytes > 0 ? scaled(bytes, ["B", "kB", "MB", "GB"]) : "–");
const rate = (bytes) => (known(bytes) ? scaled(bytes * 8, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"]) : "–");
const count = (value) => (known(value) ? grouped.format(value) : "–");

function time(ns) {
  if (!known(ns) || ns === 0) return "–";
  if (ns < 1e6) return `${significant(ns / 1e3)} µs`;
  return ns < 1e9 ? `${significant(ns / 1e6)} ms` : `${significant(ns / 1e9)} s`;
}

// ---- what a row is ----

const waiting = (row) => row.queues.unsent + row.queues.device + row.queues.in_flight;
const all = (queues) => QUEUES.reduce((sum, name) => sum + queues[name], 0);
const above = (row) => (known(row.rtt_ns) && known(row.min_rtt_ns) ? Math.max(0, row.rtt_ns - row.min_rtt_ns) : 0);
const keyOf = (sample, row) => `${sample.stacks[row.stack]?.pid} ${row.local} ${row.peer}`;
const heldWords = (row) => (row.held ? `${row.held.words} ${Math.round(row.held.share * 100)} %` : "–");
const queueWords = (queues) =>
  QUEUES.filter((name) => queues[name] > 0)
    .map((name) => `${QUEUE_WORDS[name]} ${size(queues[name])}`)
    .join(", ") || "nothing";

/** By what the worst are chosen, and how it is said. */
const RULES = {
  wait_ns: { of: (row) => row.wait_ns, words: (row) => `waits ${time(row.wait_ns)}` },
  waiting: { of: waiting, words: (row) => `${size(waiting(row))} on their way` },
  retrans: { of: (row) => row.retrans ?? 0, words: (row) => `${count(row.retrans)} retransmitted` },
  rtt_above: { of: above, words: (row) => `RTT ${time(above(row))} above its minimum` },
};

const COLUMNS = [
  { id: "peer", name: "Connection", of: (row) => `${row.local} ${row.peer}`, text: (row) => `${row.local} → ${row.peer}`, head: true },
  { id: "bytes", name: "Bytes", of: (row) => all(row.queues), bar: true },
  { id: "wait_ns", name: "Wait", of: (row) => row.wait_ns, text: (row) => time(row.wait_ns) },
  { id: "held", name: "Held by", of: (row) => row.held?.words ?? "", text: heldWords, left: true },
  { id: "cwnd", name: "cwnd", of: (row) => row.cwnd, text: (row) => count(row.cwnd) },
  { id: "ssthresh", name: "ssthresh", of: (row) => row.ssthresh ?? Infinity, text: (row) => count(row.ssthresh) },
  { id: "rtt_ns", name: "RTT", of: (row) => row.rtt_ns ?? 0, text: (row) => time(row.rtt_ns) },
  { id: "goodput", name: "Goodput", of: (row) => row.goodput ?? 0, text: (row) => rate(row.goodput) },
  { id: "received", name: "Received", of: (row) => row.received ?? 0, text: (row) => rate(row.received) },
  { id: "pacing_rate", name: "Paced at", of: (row) => row.pacing_rate ?? Infinity, text: (row) => rate(row.pacing_rate) },
  { id: "delivery_rate", name: "Delivered at", of: (row) => row.delivery_rate, text: (row) => rate(row.delivery_rate || null) },
  { id: "retrans", name: "Retrans.", of: (row) => row.retrans ?? 0, text: (row) => `${count(row.retrans)} / ${count(row.total_retrans)}` },
  { id: "state", name: "State", of: (row) => row.state, text: (row) => `${row.state} ${row.congestion} ${row.ca_state}`, left: true },
];

function matches(row, filter) {
  if (!filter) return true;
  const text = `${row.local} ${row.peer} ${row.state} ${row.congestion} ${row.ca_state} ${row.held?.words ?? ""}`;
  return text.toLowerCase().includes(filter);
}

// ---- elements ----

/** An element with a class, text and children. */
function make(tag, kind, ...inside) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  made.append(...inside);
  return made;
}

function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function makeBar(kind) {
  const bar = make("div", kind, ...QUEUES.map((name) => make("i", name)));
  bar.setAttribute("aria-hidden", "true");
  return bar;
}

/** Bars of one picture have one scale, `full`; what is not nothing is seen. */
function fillBar(bar, queues, full) {
  QUEUES.forEach((name, at) => {
    const share = full > 0 ? (100 * queues[name]) / full : 0;
    const width = queues[name] > 0 ? `max(2px, ${share.toFixed(2)}%)` : "0";
    const part = bar.children[at];
    if (part.dataset.width !== width) {
      part.dataset.width = width;
      part.style.width = width;
    }
  });
}

/** A line through values, and the area below it, in a box. */
function drawTrend(svg, values, width, height) {
  const most = Math.max(1, ...values);
  const step = width / (HISTORY - 1);
  const from = width - step * (values.length - 1);
  const points = values.map((value, at) => `${(from + at * step).toFixed(1)} ${(height - 2 - ((height - 4) * value) / most).toFixed(1)}`);
  const line = points.length > 1 ? `M${points.join("L")}` : "";
  svg.querySelector(".line").setAttribute("d", line);
  svg.querySelector(".area").setAttribute("d", line && `${line}L${width} ${height}L${from.toFixed(1)} ${height}Z`);
}

function makeTrend(kind, width, height) {
  const name = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(name, "svg");
  svg.setAttribute("class", kind);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  for (const part of ["area", "line"]) {
    const path = document.createElementNS(name, "path");
    path.setAttribute("class", part);
    svg.append(path);
  }
  return svg;
}

// ---- the table ----

for (const column of COLUMNS) {
  const button = make("button", "", column.name);
  button.type = "button";
  button.dataset.id = column.id;
  button.addEventListener("click", () => {
    state.down = state.sort === column.id ? !state.down : column.id !== "peer" && column.id !== "held" && column.id !== "state";
    state.sort = column.id;
    draw();
  });
  const cell = make("th", column.head || column.left ? "left" : "", button);
  cell.scope = "col";
  $("head").append(cell);
}

function makeRow() {
  const cells = COLUMNS.map((column) => {
    if (column.bar) return make("td", "bytes", makeBar("bar"), make("span", "hidden"));
    const cell = make(column.head ? "th" : "td", column.head || column.left ? "left" : "");
    if (column.head) cell.scope = "row";
    return cell;
  });
  return make("tr", "", ...cells);
}

function fillRow(line, row, full) {
  COLUMNS.forEach((column, at) => {
    const cell = line.cells[at];
    if (column.bar) {
      fillBar(cell.firstChild, row.queues, full);
      say(cell.lastChild, queueWords(row.queues));
    } else {
      say(cell, column.text(row));
    }
  });
  line.cells[COLUMNS.findIndex((column) => column.id === "retrans")].classList.toggle("alarm", row.retrans > 0);
}

function drawTable(sample) {
  const column = COLUMNS.find((one) => one.id === state.sort);
  const rows = sample.rows.filter((row) => matches(row, state.filter));
  // They come with the longest wait first.
  if (state.sort !== "wait_ns" || !state.down) {
    rows.sort((a, b) => {
      const [x, y] = [column.of(a), column.of(b)];
      const order = x < y ? -1 : x > y ? 1 : 0;
      return state.down ? -order : order;
    });
  }
  const body = $("rows");
  const shown = rows.slice(0, state.shown);
  const full = Math.max(0, ...shown.map((row) => all(row.queues)));
  while (body.rows.length > shown.length) body.deleteRow(-1);
  while (body.rows.length < shown.length) body.append(makeRow());
  shown.forEach((row, at) => fillRow(body.rows[at], row, full));
  [...$("head").cells].forEach((cell, at) => {
    const sort = COLUMNS[at].id === state.sort ? (state.down ? "descending" : "ascending") : "none";
    if (cell.getAttribute("aria-sort") !== sort) cell.setAttribute("aria-sort", sort);
  });
  const { connections } = sample.all;
  const without = connections - sample.rows.length;
  say(
    $("count"),
    `${count(shown.length)} of ${count(rows.length)} shown` +
      (state.filter ? `, ${count(connections)} in all` : "") +
      (without > 0 ? `; of ${count(connections)} connections, the ${count(sample.rows.length)} that wait longest are here` : ""),
  );
  $("more").hidden = shown.length === rows.length;
}

// ---- the worst ----

const FACTS = [
  ["Held by", heldWords],
  ["cwnd", (row) => `${count(row.cwnd)}${known(row.ssthresh) ? ` (ssthresh ${count(row.ssthresh)})` : ""}`],
  ["RTT", (row) => `${time(row.rtt_ns)} (min ${time(row.min_rtt_ns)})`],
  ["Goodput", (row) => rate(row.goodput)],
  ["Paced at", (row) => rate(row.pacing_rate)],
  ["Retrans.", (row) => `${count(row.retrans)} now, ${count(row.total_retrans)} ever`],
];

function makeCard() {
  const facts = FACTS.map(([name]) => make("div", "", make("dt", "", name), make("dd", "")));
  const head = make("p", "who", make("b", ""), make("span", "verdict"));
  return make("li", "card", head, makeBar("bar tall"), make("p", "sizes"), make("dl", "facts", ...facts), makeTrend("trend", 200, 36));
}

function drawWorst(sample) {
  const rule = RULES[state.rule];
  const worst = sample.rows.filter((row) => rule.of(row) > 0);
  if (state.rule !== "wait_ns") worst.sort((a, b) => rule.of(b) - rule.of(a));
  worst.length = Math.min(worst.length, WORST);
  const list = $("worst");
  const full = Math.max(0, ...worst.map((row) => all(row.queues)));
  while (list.children.length > worst.length) list.lastChild.remove();
  while (list.children.length < worst.length) list.append(makeCard());
  worst.forEach((row, at) => {
    const [head, bar, sizes, facts, trend] = list.children[at].children;
    say(head.firstChild, `${row.local} → ${row.peer}`);
    say(head.lastChild, rule.words(row));
    fillBar(bar, row.queues, full);
    say(sizes, queueWords(row.queues));
    FACTS.forEach(([, text], fact) => say(facts.children[fact].lastChild, text(row)));
    drawTrend(trend, history.get(keyOf(sample, row)) ?? [], 200, 36);
  });
  $("worst-none").hidden = worst.length > 0;
}

// ---- everything ----

function stackWords(stack) {
  const queue = stack.qdisc ? ` · ${stack.qdisc.trim()}: ${size(stack.qdisc_backlog)} queued, ${count(stack.qdisc_drops)} dropped` : "";
  // A gateway's device is in the guest's namespace, and has no name here.
  const where = [stack.device, stack.addresses.join(" ")].filter(Boolean).join(", ");
  return `${stack.program} (pid ${stack.pid})${where && ` on ${where}`} · ${count(stack.connections)} connections${queue}`;
}

function drawTop(sample) {
  const { all: sum, stacks } = sample;
  say($("title"), stacks.length === 0 ? "No stack is running" : `${count(sum.connections)} connection${sum.connections === 1 ? "" : "s"}`);
  const list = $("stacks");
  const lines = [...stacks.map(stackWords), ...sample.left_out.map((why) => `left out: ${why}`)];
  while (list.children.length > lines.length) list.lastChild.remove();
  while (list.children.length < lines.length) list.append(make("li", ""));
  lines.forEach((line, at) => say(list.children[at], line));
  say($("goodput"), rate(sum.goodput));
  say($("received"), rate(sum.received));
  say($("retrans"), count(sum.retrans));
  for (const name of QUEUES) say($(`sum-${name}`), size(sum.queues[name]));
  fillBar($("sum"), sum.queues, all(sum.queues));
  drawTrend($("trend"), total, 600, 60);
  $("trend").setAttribute("aria-label", `Goodput of all connections: ${rate(sum.goodput)} now, ${rate(Math.max(0, ...total))} at most in the last ${total.length} samples`);
  say($("pace"), known(sample.span_ns) ? `A sample every ${time(sample.span_ns)}.` : "");
}

function draw() {
  const { sample } = state;
  if (!sample) return;
  const began = performance.now();
  drawTop(sample);
  drawWorst(sample);
  drawTable(sample);
  performance.measure("frame", { start: began, end: performance.now() });
}

let due = false;
function drawSoon() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    draw();
  });
}

/** Keeps the past of connections that are still there. */
function remember(sample) {
  const kept = new Map();
  for (const row of sample.rows) {
    const key = keyOf(sample, row);
    const past = history.get(key) ?? [];
    if (known(row.goodput)) past.push(row.goodput);
    if (past.length > HISTORY) past.shift();
    kept.set(key, past);
  }
  history = kept;
  if (known(sample.all.goodput)) total.push(sample.all.goodput);
  if (total.length > HISTORY) total.shift();
}

/** A sample has come, as text. */
function take(text) {
  const sample = JSON.parse(text);
  remember(sample);
  if (state.stopped) return;
  state.sample = sample;
  drawSoon();
}

// ---- the connection to the server ----

function link(words, kind) {
  $("link").dataset.state = kind;
  say($("link"), words);
}

function fail(words) {
  say($("error"), words);
  $("error").hidden = words === "";
}

function connect() {
  const events = new EventSource(address("samples"));
  events.onmessage = (event) => {
    fail("");
    link(state.stopped ? "stopped" : "live", state.stopped ? "waiting" : "live");
    window.dashboard.received++;
    take(event.data);
  };
  events.onerror = async () => {
    events.close();
    link("no connection", "broken");
    setTimeout(connect, RETRY_MS);
    // An event stream does not say why it ended.
    try {
      const answer = await fetch(address("sample"));
      if (!answer.ok) fail(await answer.text());
    } catch {
      fail("The stack’s process, or `taut dash`, has ended or cannot be reached. What is shown is the last that was heard of it.");
    }
  };
}

// ---- what people do ----

$("filter").addEventListener("input", (event) => {
  state.filter = event.target.value.trim().toLowerCase();
  state.shown = PAGE;
  draw();
  say($("status"), $("count").textContent);
});
$("more").addEventListener("click", () => {
  state.shown += PAGE;
  draw();
});
$("rule").addEventListener("change", (event) => {
  state.rule = event.target.value;
  draw();
});
$("pause").addEventListener("click", () => {
  state.stopped = !state.stopped;
  $("pause").setAttribute("aria-pressed", String(state.stopped));
  say($("pause"), state.stopped ? "Go on" : "Stop");
  link(state.stopped ? "stopped" : "live", state.stopped ? "waiting" : "live");
  say($("status"), state.stopped ? "Stopped: the last sample stays." : "Live again.");
});
$("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  $("theme").setAttribute("aria-label", isDark ? "Dark colours" : "Light colours");
});
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
  event.preventDefault();
  $("filter").focus();
});

$("sum").replaceChildren(...QUEUES.map((name) => make("i", name)));
/** For the console, and for tests. */
window.dashboard = { state, received: 0, draw, take };
connect();
