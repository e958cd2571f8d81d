// The page: what is chosen, two runs of it side by side, the clock that both pictures follow, and everything that can be
// pressed. `model.ts` knows what can run, `lane.ts` runs it, `scene.ts` and `charts.ts` draw it.

import "uplot/dist/uPlot.min.css";
import "../../crates/taut-cli/src/dash/page/common.css";
import "./style.css";
import { Charts } from "./charts";
import * as format from "./format";
import { Lane, gates, scenarios } from "./lane";
import {
  type About, CONTROLLERS, MECHANISMS, PRESETS, type Preset, SIDES, SLIDERS, type Side, type Slider, type State, command, fresh,
  fromHash, isChanged, request, toHash,
} from "./model";
import { Race, Scene, common } from "./scene";

const find = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;
const quiet = matchMedia("(prefers-reduced-motion: reduce)");

let state: State = fromHash(location.hash);
const lanes: [Lane, Lane] = [new Lane(() => arrived(0)), new Lane(() => arrived(1))];
const scenes: [Scene, Scene] = [new Scene(find("scene-0"), 0), new Scene(find("scene-1"), 1)];
const race = new Race();
const charts = new Charts(find("charts"), lanes, (time) => seek(time));

// ---- the clock ----

let time = 0;
let speed = state.preset.speed;
let isPlaying = !quiet.matches;
/** The user has moved the clock or stopped it, or motion is not wanted: the picture then shows the end when there is one. */
let toTheEnd = quiet.matches;

const SPEEDS = [0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5];
const duration = () => Math.max(lanes[0].duration, lanes[1].duration);
const ready = () => Math.min(...lanes.filter((lane) => !lane.error).map((lane) => lane.ready));

function seek(to: number): void {
  time = Math.min(Math.max(to, 0), Math.max(ready(), 0));
  toTheEnd = false;
  scenes.forEach((scene) => scene.reset());
  race.reset();
}

function play(on: boolean): void {
  if (on && time >= duration() && duration() > 0) seek(0);
  if (on) toTheEnd = false;
  isPlaying = on;
  const button = find<HTMLButtonElement>("play");
  button.dataset.state = on ? "playing" : "paused";
  button.setAttribute("aria-label", on ? "Pause" : "Play");
}

// ---- runs ----

/** What the preset is before any change: the sliders and positions begin there. */
let base: [About | undefined, About | undefined] = [undefined, undefined];
let pending = 0;

/** Starts what the state asks for; runs that it does not change go on. */
function start(): void {
  SIDES.forEach((side) => {
    lanes[side].start(request(state, side, base[side] ?? lanes[side].about));
  });
}

/** After a change: the address says it, and the runs begin when it rests. */
function change(): void {
  history.replaceState(null, "", toHash(state));
  window.clearTimeout(pending);
  pending = window.setTimeout(() => {
    pending = 0;
    start();
    showCommands();
    rewind();
  }, 180);
  showControls();
}

function rewind(): void {
  time = 0;
  toTheEnd = quiet.matches;
  scenes.forEach((scene) => scene.reset());
  race.reset();
  if (!quiet.matches) play(true);
}

function choose(preset: Preset, from: State = fresh(preset)): void {
  state = from;
  base = [undefined, undefined];
  speed = preset.speed;
  history.replaceState(null, "", toHash(state));
  showPreset();
  start();
  showCommands();
  rewind();
}

function arrived(side: Side): void {
  const lane = lanes[side];
  if (lane.about && !base[side]) {
    base[side] = lane.about;
    // Sliders could not be applied before the preset was known: now they can.
    if (Object.keys(state.sliders).length > 0) start();
    showCommands();
    showControls();
  }
  const bar = find(`progress-${side}`);
  bar.style.transform = `scaleX(${lane.duration > 0 ? lane.ready / lane.duration : 0})`;
  bar.parentElement!.hidden = lane.result !== undefined;
  const error = find(`error-${side}`);
  error.textContent = lane.error;
  error.hidden = lane.error === "";
  if (lane.result || lane.error) showResults();
}

// ---- what the page says ----

function showPreset(): void {
  const { preset } = state;
  document.querySelectorAll<HTMLButtonElement>("#presets button").forEach((button) => {
    button.setAttribute("aria-pressed", String(button.dataset.id === preset.id));
  });
  find("question").textContent = preset.question;
  find("story").textContent = preset.story;
  SIDES.forEach((side) => (find(`side-${side}`).textContent = preset.sides[side]));
  find("source").textContent = "";
  charts.show(preset.charts);
  showSpeed();
  showControls();
  showResults();
}

function showSpeed(): void {
  const select = find<HTMLSelectElement>("speed");
  select.value = String(speed);
}

function shown(preset: Preset) {
  return scenarios.find(({ name }) => name === preset.scenario);
}

let said = "";

function showResults(): void {
  const { preset } = state;
  const { metric, label, unit, scale } = preset.headline;
  const values = lanes.map((lane) => lane.result?.metrics[metric]);
  SIDES.forEach((side) => {
    const value = values[side];
    find(`headline-${side}`).textContent = value === undefined ? "…" : format.metric(value * scale) + (unit && ` ${unit}`);
  });
  find("headline-label").textContent = label;
  const [before, after] = values;
  const ratio = find("ratio");
  if (before !== undefined && after !== undefined && before > 0 && after > 0) {
    const less = before / after;
    const close = Math.max(less, 1 / less) < 1.2;
    ratio.textContent = close
      ? `${Math.abs(100 * (after / before - 1)).toFixed(1)} % ${after >= before ? "more" : "less"}`
      : less > 1 ? `${format.times(less)} × less` : `${format.times(1 / less)} × more`;
  } else {
    ratio.textContent = "";
  }

  const scenario = shown(preset);
  find("source").textContent = scenario?.source ?? "";
  find("source-row").hidden = !scenario?.source;
  const body = find<HTMLTableSectionElement>("figures");
  const published = (name: string, side: Side) =>
    scenario?.published.find(
      ([of, metric, variant]) =>
        (of === "" || of === preset.case) && metric === name && variant === preset.variants[side],
    )?.[3];
  const rows = (scenario?.metrics ?? []).map(({ name, label, unit }) => {
    const row = document.createElement("tr");
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = label;
    if (unit) {
      const small = document.createElement("small");
      small.textContent = ` ${unit.replace(/^us$/, "µs")}`;
      head.append(small);
    }
    row.append(head);
    row.dataset.metric = name;
    for (const side of SIDES) {
      const cell = document.createElement("td");
      cell.className = "published";
      cell.textContent = published(name, side) ?? "";
      row.append(cell);
    }
    for (const side of SIDES) {
      const cell = document.createElement("td");
      cell.className = side === 0 ? "before" : "after";
      cell.textContent = format.metric(lanes[side].result?.metrics[name]);
      row.append(cell);
    }
    return row;
  });
  body.replaceChildren(...rows);
  const hasPublished = (scenario?.published ?? []).some(([of]) => of === "" || of === preset.case);
  find("table").classList.toggle("plain", !hasPublished || isChanged(state));

  if (lanes.every((lane) => lane.result || lane.error)) {
    const text = lanes.map((_, side) => `${preset.sides[side as Side]}: ${find(`headline-${side}`).textContent}`).join("; ");
    const took = lanes.map((lane) => lane.tookS);
    find("took").textContent = lanes.every((lane) => lane.result)
      ? `${lanes.reduce((sum, lane) => sum + (lane.result?.meta.events ?? 0), 0).toLocaleString("en")} events in ${Math.max(...took).toFixed(1)} s`
      : "";
    const news = `${label}. ${text}.`;
    if (news !== said) find("status").textContent = news;
    said = news;
  } else {
    find("took").textContent = "simulating …";
  }
}

function showCommands(): void {
  const requests = SIDES.map((side) => request(state, side, base[side]));
  const lines = [...new Set(requests.map(command))];
  find("command").textContent = lines.join("\n");
}

// ---- what can be pressed ----

function element<K extends keyof HTMLElementTagNameMap>(tag: K, className = "", text = ""): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

function makePresets(): void {
  find("presets").append(
    ...PRESETS.map((preset) => {
      const button = element("button", "preset");
      button.type = "button";
      button.dataset.id = preset.id;
      button.append(element("span", "year", preset.year || "yours"), element("span", "name", preset.name));
      button.addEventListener("click", () => choose(preset));
      return button;
    }),
  );
}

const SAY: Record<Slider["id"], (value: number) => string> = {
  rate: format.rate,
  rtt: format.time,
  loss: (share) => `${format.count(share * 100)} %`,
  queue: (packets) => `${format.count(packets)} packets`,
};

/** The steps of a slider, with the preset's value among them. */
function steps(slider: Slider): number[] {
  const own = base[0] && slider.read(base[0]);
  const all = own === undefined || slider.steps.some((step) => Math.abs(step - own) < 1e-9 * Math.max(step, 1e-9))
    ? slider.steps : [...slider.steps, own];
  return [...all].sort((a, b) => a - b);
}

function valueOf(slider: Slider): number {
  return state.sliders[slider.id] ?? (base[0] ? slider.read(base[0]) : slider.steps[0]!);
}

function makeSliders(): void {
  for (const slider of SLIDERS) {
    const row = element("div", "slider");
    const label = element("label", "", slider.name);
    label.htmlFor = `slider-${slider.id}`;
    const output = element("output");
    output.id = `value-${slider.id}`;
    output.htmlFor.add(label.htmlFor);
    const input = element("input");
    input.type = "range";
    input.id = label.htmlFor;
    input.min = "0";
    input.addEventListener("input", () => {
      const value = steps(slider)[Number(input.value)]!;
      if (base[0] && Math.abs(value - slider.read(base[0])) < 1e-12) delete state.sliders[slider.id];
      else state.sliders[slider.id] = value;
      change();
    });
    row.append(label, output, input);
    find("sliders").append(row);
  }
  const row = element("div", "slider controllers");
  row.append(element("span", "label", "Congestion control"));
  for (const side of SIDES) {
    const select = element("select", side === 0 ? "before" : "after");
    select.id = `controller-${side}`;
    select.setAttribute("aria-label", `Congestion control, ${side === 0 ? "left" : "right"} run`);
    select.append(...CONTROLLERS.map((name) => new Option(name, name)));
    select.addEventListener("change", () => {
      state.controllers[side] = select.value;
      change();
    });
    row.append(select);
  }
  find("sliders").append(row);
}

function makeMechanisms(): void {
  for (const mechanism of MECHANISMS) {
    const row = element("section", "mechanism");
    row.setAttribute("aria-labelledby", `m-${mechanism.id}`);
    const words = element("div", "words");
    const name = element("h3", "", mechanism.name);
    name.id = `m-${mechanism.id}`;
    words.append(name, element("p", "since", mechanism.since), element("p", "history", mechanism.history));
    row.append(words);
    const sides = element("div", "sides");
    for (const side of SIDES) {
      const group = element("fieldset", `segments ${side === 0 ? "before" : "after"}`);
      const legend = element("legend", "hidden", `${mechanism.name}, ${side === 0 ? "left" : "right"} run`);
      group.append(legend);
      for (const position of mechanism.positions) {
        const label = element("label");
        const input = element("input");
        input.type = "radio";
        input.name = `${mechanism.id}-${side}`;
        input.value = position.id;
        input.addEventListener("change", () => {
          state.mechanisms[side][mechanism.id] = position.id;
          change();
        });
        label.title = position.title;
        const text = element("span", "", position.label);
        text.append(element("span", "hidden", `: ${position.title}`));
        label.append(input, text);
        group.append(label);
      }
      sides.append(group);
    }
    row.append(sides);
    find("mechanisms").append(row);
  }
}

/** Shows the state in everything that can be pressed. */
function showControls(): void {
  for (const slider of SLIDERS) {
    const input = find<HTMLInputElement>(`slider-${slider.id}`);
    const all = steps(slider);
    const value = valueOf(slider);
    let index = 0;
    all.forEach((step, at) => (index = Math.abs(step - value) < Math.abs(all[index]! - value) ? at : index));
    input.max = String(all.length - 1);
    input.value = String(index);
    const text = SAY[slider.id](value);
    input.setAttribute("aria-valuetext", text);
    input.style.setProperty("--share", `${(100 * index) / (all.length - 1)}%`);
    find(`value-${slider.id}`).textContent = text;
  }
  for (const side of SIDES) {
    const about = base[side];
    const own = about?.parameters["flows.0.options.congestion"] ?? about?.congestion ?? "cubic";
    find<HTMLSelectElement>(`controller-${side}`).value = state.controllers[side] ?? own;
    for (const mechanism of MECHANISMS) {
      const position = state.mechanisms[side][mechanism.id] ?? (about ? mechanism.read(about.parameters) : "");
      document.querySelectorAll<HTMLInputElement>(`input[name="${mechanism.id}-${side}"]`).forEach((input) => {
        input.checked = input.value === position;
      });
    }
  }
  find<HTMLButtonElement>("reset").disabled = !isChanged(state);
}

function makeTransport(): void {
  find("play").addEventListener("click", () => play(!isPlaying));
  const scrub = find<HTMLInputElement>("scrub");
  scrub.addEventListener("input", () => {
    play(false);
    seek((Number(scrub.value) / 1000) * duration());
  });
  const select = find<HTMLSelectElement>("speed");
  select.append(...SPEEDS.map((one) => new Option(one === 1 ? "real time" : one > 1 ? `${one} × faster` : `${Math.round(1 / one)} × slower`, String(one))));
  select.addEventListener("change", () => {
    speed = Number(select.value);
  });
  find("reset").addEventListener("click", () => choose(state.preset));
  find("share").addEventListener("click", () => {
    const done = () => {
      find("status").textContent = "The address of this comparison is copied.";
      find("share").dataset.done = "true";
      window.setTimeout(() => delete find("share").dataset.done, 1_800);
    };
    history.replaceState(null, "", toHash(state));
    navigator.clipboard?.writeText(location.href).then(done, () => {
      find("status").textContent = `The address of this comparison: ${location.href}`;
    });
  });
  find("copy").addEventListener("click", () => {
    navigator.clipboard?.writeText(find("command").textContent ?? "").then(
      () => (find("status").textContent = "The command is copied."),
      () => undefined,
    );
  });
  document.addEventListener("keydown", (event) => {
    const isControl = event.target instanceof HTMLElement && event.target.closest("button, input, select, a, summary, textarea");
    if (event.key === " " && !isControl && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      play(!isPlaying);
    }
  });
  window.addEventListener("hashchange", () => {
    const asked = fromHash(location.hash);
    choose(asked.preset, asked);
  });
}

function makeTheme(): void {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const button = find<HTMLButtonElement>("theme");
  const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const show = () => {
    button.setAttribute("aria-label", isDark() ? "Light colours" : "Dark colours");
    scenes.forEach((scene) => scene.recolour());
    charts.recolour();
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    show();
  });
  dark.addEventListener("change", show);
  show();
}

// ---- frames ----

const CHARTS_EVERY_MS = 600;

let shownVersion = -1;
let chartsDue = 0;
let chartsAt = 0;
let saidAt = 0;
let last = 0;
let both = common(lanes, speed);
const frameMs: number[] = [];

/** The words below a picture, which say what it shows. */
function sayScene(side: Side): void {
  const lane = lanes[side];
  const gate = gates[lane.at("gate", time) | 0]?.[1] ?? "";
  const parts = [
    `unsent ${format.bytes(lane.at("unsent_bytes", time))}`,
    `queue ${format.bytes(lane.at("qdisc_bytes", time))}`,
    `NIC ${format.bytes(lane.at("ring_bytes", time))}`,
  ];
  if (lane.about?.has_router) parts.push(`router ${format.bytes(lane.at("bottleneck_bytes", time))}`);
  parts.push(`receiver ${format.bytes(lane.at("receiver_bytes", time))}`);
  find(`scene-${side}`).setAttribute("aria-label", `${state.preset.sides[side]} at ${format.time(time)}: ${parts.join(", ")}`);
  const set = (id: string, text: string) => {
    const at = find(`${id}-${side}`);
    if (at.textContent !== text) at.textContent = text;
  };
  set("goodput", format.rate(lane.rate("acked_bytes", time, 16) * 8));
  set("rtt", format.time(lane.at("srtt_s", time)));
  set("cwnd", format.bytes(lane.at("cwnd_bytes", time)));
  set("drops", format.whole(lane.at("drops", time)));
  set("gate", gate);
}

function frame(now: number): void {
  const began = performance.now();
  const passed = Math.min((now - last) / 1e3, 0.1);
  last = now;
  const until = ready();
  const isDone = lanes.every((lane) => lane.result || lane.error);
  if (toTheEnd) {
    time = until;
  } else if (isPlaying) {
    time = Math.min(time + passed * speed, until);
    if (time >= duration() && duration() > 0 && isDone) play(false);
  }
  const version = lanes[0].version + lanes[1].version;
  // While runs go on, charts follow now and then: most frames draw none.
  if (version !== shownVersion && (isDone || now - chartsAt > CHARTS_EVERY_MS)) {
    shownVersion = version;
    chartsAt = now;
    both = common(lanes, speed);
    chartsDue = charts.size;
  }
  both.speed = speed;
  race.step(now / 1e3, lanes, time, isPlaying && time > 0);
  SIDES.forEach((side) => scenes[side].draw(lanes[side], time, now / 1e3, isPlaying ? passed : 0, both, race));
  if (chartsDue > 0) {
    charts.updateOne();
    chartsDue--;
  }
  charts.point(time);
  if (now - saidAt > 160) {
    saidAt = now;
    charts.say(time);
    SIDES.forEach(sayScene);
    const scrub = find<HTMLInputElement>("scrub");
    scrub.value = String(duration() > 0 ? Math.round((time / duration()) * 1000) : 0);
    scrub.style.setProperty("--share", `${duration() > 0 ? (100 * time) / duration() : 0}%`);
    scrub.style.setProperty("--ready", `${duration() > 0 ? (100 * until) / duration() : 0}%`);
    scrub.setAttribute("aria-valuetext", `${format.time(time)} of ${format.time(duration())}`);
    find("clock").textContent = format.time(Number(time.toPrecision(3)));
    find("ping-note").hidden = !lanes.some((lane) => lane.at("requests", lane.ready) > 0);
    find("full").textContent = format.bytes(both.full / 1.04);
    if (frameMs.length > 0) {
      const sorted = [...frameMs].sort((a, b) => a - b);
      find("frame").textContent = `${sorted[sorted.length >> 1]!.toFixed(1)} ms a frame`;
    }
  }
  // What a frame costs is kept where the browser's own tools show it.
  performance.measure("frame", { start: began, end: performance.now() });
  const entries = performance.getEntriesByName("frame", "measure");
  frameMs.push(entries[entries.length - 1]!.duration);
  if (frameMs.length > 240) frameMs.shift();
  if (entries.length > 600) performance.clearMeasures("frame");
  requestAnimationFrame(frame);
}

makePresets();
makeSliders();
makeMechanisms();
makeTransport();
makeTheme();
showPreset();
play(isPlaying);
start();
showCommands();
requestAnimationFrame(frame);

// For the test, and for people with a console.
declare global {
  interface Window {
    playground: { lanes: [Lane, Lane]; readonly state: State; readonly time: number; readonly isDone: boolean; requests: () => unknown };
  }
}
window.playground = {
  lanes,
  get state() {
    return state;
  },
  get time() {
    return time;
  },
  /** Nothing that was chosen still waits, and both runs have ended. */
  get isDone() {
    return pending === 0 && lanes.every((lane) => lane.result !== undefined || lane.error !== "");
  },
  requests: () => SIDES.map((side) => request(state, side, base[side])),
};
