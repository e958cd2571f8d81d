// What the page can run: the presets, the mechanisms with their positions, the values of the sliders, and how all of that
// becomes a scenario with changes, a command line, and the part of the address after #.

export type Side = 0 | 1;
export const SIDES: readonly Side[] = [0, 1];

/** What the engine is asked for; the same as for `taut lab run`. */
export interface Request {
  scenario: string;
  case?: string;
  variant: string;
  set: string[];
  seed: number;
}

/** What the engine says about a run that began. */
export interface About {
  parameters: Record<string, string>;
  duration_s: number;
  warm_up_s: number;
  has_router: boolean;
  flows: number;
  congestion: string;
}

/** The parts of a run's data that the page reads. */
export interface RunData {
  meta: { digest: string; events: number };
  metrics: Record<string, number>;
  counters: Record<string, number>;
}

// ---- the presets ----

export type ChartName = "host" | "unsent" | "router" | "ping" | "rtt" | "goodput" | "cwnd" | "flight" | "trains" | "wakeups" | "answered";

export interface Preset {
  id: string;
  scenario: string;
  year: string;
  name: string;
  question: string;
  /** What there is to see, in a sentence. */
  story: string;
  case?: string;
  variants: [string, string];
  sides: [string, string];
  set: string[];
  charts: ChartName[];
  headline: { metric: string; label: string; unit: string; scale: number };
  /** Seconds of simulated time in a second. */
  speed: number;
}

export const PRESETS: Preset[] = [
  {
    id: "small-queues",
    scenario: "tsq",
    year: "2012",
    name: "TCP Small Queues",
    question: "Who fills the queue in your own machine?",
    story:
      "One upload pushes its whole window into the queue of its own host, and a ping beside it waits behind four megabytes. " +
      "With 128 KiB below TCP, the ping passes at once, and the upload is as fast as before.",
    case: "1 Gbit/s, TSO",
    variants: ["before", "after"],
    sides: ["No limit", "128 KiB below TCP"],
    set: [],
    charts: ["host", "ping", "goodput", "rtt"],
    headline: { metric: "latency_p50", label: "ping beside the upload", unit: "ms", scale: 1e-3 },
    speed: 0.5,
  },
  {
    id: "autosizing",
    scenario: "tso-autosizing",
    year: "2014",
    name: "TSO autosizing",
    question: "When is a packet's length decided?",
    story:
      "Two megabytes over 40 ms. Sized when the data is written, every super-packet has the length that suited the first " +
      "round trip. Sized when it is sent, it grows with the rate: the same bytes in fewer packets, and fewer ACKs.",
    variants: ["before", "after"],
    sides: ["Sized when written", "Sized when sent"],
    set: [],
    charts: ["trains", "flight", "goodput", "unsent"],
    headline: { metric: "ip_out_requests", label: "packets handed to IP", unit: "", scale: 1 },
    speed: 0.05,
  },
  {
    id: "autocorking",
    scenario: "autocork",
    year: "2013",
    name: "Autocorking",
    question: "May the first byte in line wait for company?",
    story:
      "One byte there, one byte back, over a NIC that reports late. When a lone byte is held until the packet before it is " +
      "reported, a report that gets lost leaves it to a timer, 40 ms later. The head of the queue must never be held.",
    variants: ["before", "after"],
    sides: ["May hold the head", "Never the head"],
    set: [],
    charts: ["ping", "answered", "host", "rtt"],
    headline: { metric: "latency_mean", label: "mean request", unit: "µs", scale: 1 },
    speed: 0.1,
  },
  {
    id: "notsent-lowat",
    scenario: "notsent-lowat",
    year: "2018",
    name: "Low-water mark",
    question: "How much should wait before it is sent?",
    story:
      "A large send buffer is filled with data that will be sent seconds from now, and is stale by then. With a mark of 2 MiB, " +
      "the writer is woken when less than half of it is left: a fifteenth of the memory, the same rate.",
    variants: ["unset", "after"],
    sides: ["No mark", "Mark at 2 MiB"],
    set: ["flows.0.count=2"],
    charts: ["unsent", "wakeups", "goodput", "flight"],
    headline: { metric: "flow_memory", label: "memory of a flow", unit: "MB", scale: 1 },
    speed: 1,
  },
  {
    id: "pacing",
    scenario: "pacing",
    year: "2017",
    name: "Internal pacing",
    question: "Who spaces the packets?",
    story:
      "Flows with a set rate. At first a queue discipline, fq, had to space their packets; since 2017 TCP does it by a timer of " +
      "its own, over any queue. Its rate does not count headers, so it sends a little more, as in the published run.",
    variants: ["fq", "internal"],
    sides: ["fq spaces", "TCP spaces"],
    set: [],
    charts: ["goodput", "host", "trains", "rtt"],
    headline: { metric: "tx_packets", label: "segments a second", unit: "", scale: 1 },
    speed: 0.05,
  },
  {
    id: "own",
    scenario: "playground",
    year: "",
    name: "A path of your own",
    question: "What happens on your own link?",
    story:
      "An upload and a ping share a router, as behind many an uplink. CUBIC fills the router's queue until it drops; BBR " +
      "models the path and leaves it nearly empty. Change anything below.",
    variants: ["before", "after"],
    sides: ["CUBIC", "BBR"],
    set: [],
    charts: ["router", "ping", "cwnd", "goodput"],
    headline: { metric: "latency_p50", label: "ping beside the upload", unit: "ms", scale: 1e-3 },
    speed: 1,
  },
];

// ---- the mechanisms ----

export interface Position {
  id: string;
  label: string;
  /** What it is, for people who ask. */
  title: string;
  set: string[];
}

export interface Mechanism {
  id: string;
  name: string;
  since: string;
  history: string;
  positions: Position[];
  /** Which position these parameters of a run are. */
  read: (parameters: Record<string, string>) => string;
}

const SENDER = "hosts.sender.sysctls.";
const RECEIVER = "hosts.receiver.sysctls.";
const UNSET = "4294967295";

/** The same setting at both ends: with requests and responses both send. */
const both = (setting: string) => [`${SENDER}${setting}`, `${RECEIVER}${setting}`];

export const MECHANISMS: Mechanism[] = [
  {
    id: "tsq",
    name: "Small queues",
    since: "Linux 3.6, 2012",
    history:
      "A connection may have little below TCP, and goes on when packets have left. At first 128 KiB, later a millisecond of its " +
      "rate; taut takes the rate at which the path delivers.",
    positions: [
      { id: "off", label: "Off", title: "no limit", set: [`${SENDER}taut.tsq=off`] },
      { id: "fixed", label: "2012", title: "128 KiB", set: [`${SENDER}taut.tsq=fixed:131072`] },
      { id: "scaled", label: "Linux", title: "a millisecond of the pacing rate", set: [`${SENDER}taut.tsq=rate-scaled`] },
      { id: "taut", label: "taut", title: "a millisecond of the delivery rate", set: [`${SENDER}taut.tsq=delivered`] },
    ],
    read: (p) => {
      const value = p[`${SENDER}taut.tsq`] ?? "auto";
      if (value === "off") return "off";
      return value.startsWith("fixed") ? "fixed" : value === "rate-scaled" ? "scaled" : "taut";
    },
  },
  {
    id: "autosizing",
    name: "TSO autosizing",
    since: "Linux 3.12, 2013",
    history:
      "The NIC cuts long packets into segments. A packet should last about a millisecond of the flow's rate, so that slow flows " +
      "do not send in bursts; since 3.19 (2014) that is decided when it is sent.",
    positions: [
      { id: "off", label: "Off", title: "as long as the device accepts", set: [`${SENDER}taut.autosizing=off`] },
      { id: "write", label: "2013", title: "decided when written", set: [`${SENDER}taut.autosizing=at-write`] },
      { id: "transmit", label: "2014", title: "decided when sent", set: [`${SENDER}taut.autosizing=at-transmit`] },
    ],
    read: (p) => ({ off: "off", "at-write": "write" })[p[`${SENDER}taut.autosizing`] ?? ""] ?? "transmit",
  },
  {
    id: "autocork",
    name: "Autocorking",
    since: "Linux 3.14, 2013",
    history:
      "A small write waits for the packet before it to leave, so that writes can share a packet. The first form could hold the " +
      "head of the queue, too, and with it a request that nothing follows.",
    positions: [
      { id: "off", label: "Off", title: "a packet for each write", set: both("taut.autocork=off") },
      { id: "head", label: "First", title: "may hold the head of the queue", set: both("taut.autocork=may-hold-head") },
      { id: "fixed", label: "Fixed", title: "never the head", set: both("taut.autocork=fixed") },
    ],
    read: (p) => ({ off: "off", "may-hold-head": "head" })[p[`${SENDER}taut.autocork`] ?? ""] ?? "fixed",
  },
  {
    id: "lowat",
    name: "Unsent low-water mark",
    since: "Linux 3.12, 2013",
    history:
      "TCP_NOTSENT_LOWAT bounds what is written and not yet sent. Until 5.0 (2018) every ACK then woke the writer; since then " +
      "it is woken below half of the mark. taut sets the mark by itself, from the rate.",
    positions: [
      { id: "off", label: "Off", title: "no mark", set: [`flows.0.options.notsent-lowat=${UNSET}`] },
      {
        id: "mark",
        label: "2013",
        title: "wakes at the mark",
        set: ["flows.0.options.notsent-lowat=MARK", `${SENDER}taut.lowat=wake-at-mark`],
      },
      {
        id: "half",
        label: "2018",
        title: "wakes below half of the mark",
        set: ["flows.0.options.notsent-lowat=MARK", `${SENDER}taut.lowat=wake-at-half`],
      },
      { id: "taut", label: "taut", title: "a mark that follows the rate", set: ["flows.0.options.notsent-lowat=0"] },
    ],
    read: (p) => {
      const mark = p["flows.0.options.notsent-lowat"] ?? "0";
      if (mark === UNSET) return "off";
      if (mark === "0") return "taut";
      return p[`${SENDER}taut.lowat`] === "wake-at-mark" ? "mark" : "half";
    },
  },
  {
    id: "pacing",
    name: "Pacing",
    since: "Linux 4.13, 2017",
    history:
      "Packets are spaced in time instead of leaving as one burst. Until 4.13 that took the queue discipline fq; since then TCP " +
      "does it itself where nothing below does.",
    positions: [
      { id: "off", label: "Off", title: "bursts as they come", set: [`${SENDER}taut.pacing=off`] },
      { id: "fq", label: "fq", title: "the queue discipline fq spaces packets", set: ["hosts.sender.qdisc=fq", `${SENDER}taut.pacing=auto`] },
      { id: "tcp", label: "TCP", title: "TCP spaces packets itself", set: [`${SENDER}taut.pacing=internal`] },
    ],
    read: (p) => {
      if ((p["hosts.sender.qdisc"] ?? "").split(" ")[0] === "fq") return "fq";
      return p[`${SENDER}taut.pacing`] === "off" ? "off" : "tcp";
    },
  },
];

/** The mark of the presets and of flows without one: 2 MiB where much is in flight, 128 KiB elsewhere. */
function withMark(set: string, preset: Preset): string {
  return set.replace("MARK", preset.id === "notsent-lowat" ? "2097152" : "131072");
}

export const CONTROLLERS = ["cubic", "reno", "bbr", "dctcp", "prague"];

// ---- the sliders ----

export interface Slider {
  id: "rate" | "rtt" | "loss" | "queue";
  name: string;
  steps: number[];
  set: (value: number, about: About) => string;
  read: (about: About) => number;
}

const UNITS: Record<string, number> = {
  bit: 1, kbit: 1e3, mbit: 1e6, gbit: 1e9, ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1,
};

/** A number with one of tc's units. */
function amount(text: string | undefined, otherwise: number): number {
  const [, number, unit] = /^([\d.]+)\s*([a-z]*)$/i.exec(text ?? "") ?? [];
  return number === undefined ? otherwise : Number(number) * (UNITS[(unit ?? "").toLowerCase()] ?? 1);
}

export const SLIDERS: Slider[] = [
  {
    id: "rate",
    name: "Rate",
    steps: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000].map((mbit) => mbit * 1e6),
    set: (bps) => `link.rate=${Math.round(bps / 1e3)}kbit`,
    read: ({ parameters }) => amount(parameters["link.rate"], 0),
  },
  {
    id: "rtt",
    name: "Round trip",
    steps: [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 40, 80, 100, 150, 200, 300].map((ms) => ms / 1e3),
    set: (seconds) => `link.delay=${Math.round((seconds / 2) * 1e6)}us`,
    read: ({ parameters }) => 2 * amount(parameters["link.delay"], 0),
  },
  {
    id: "loss",
    name: "Loss",
    steps: [0, 0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05],
    set: (share) => `link.faults.loss=${share === 0 ? "0.0" : share}`,
    read: ({ parameters }) => Number(parameters["link.faults.loss"] ?? 0),
  },
  {
    id: "queue",
    name: "Queue",
    steps: [5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000],
    set: (packets, { has_router }) => `${has_router ? "topology.queue" : "hosts.sender.qdisc"}=pfifo limit ${packets}`,
    read: ({ parameters, has_router }) => {
      const text = parameters[has_router ? "topology.queue" : "hosts.sender.qdisc"] ?? "";
      return Number(/limit (\d+)/.exec(text)?.[1] ?? 1_000);
    },
  },
];

// ---- the state ----

/** What the user chose. What is not in it is as in the preset. */
export interface State {
  preset: Preset;
  sliders: Partial<Record<Slider["id"], number>>;
  controllers: [string?, string?];
  mechanisms: [Record<string, string>, Record<string, string>];
  seed: number;
}

export function fresh(preset: Preset): State {
  return { preset, sliders: {}, controllers: [], mechanisms: [{}, {}], seed: 1 };
}

export function isChanged(state: State): boolean {
  const { sliders, controllers, mechanisms, seed } = state;
  return Object.keys(sliders).length + Object.keys(mechanisms[0]).length + Object.keys(mechanisms[1]).length > 0 ||
    controllers.some(Boolean) || seed !== 1;
}

/** The run of one side. `about` is that of the preset, which the sliders need to know where its queue is. */
export function request(state: State, side: Side, about: About | undefined): Request {
  const { preset } = state;
  const set = [...preset.set];
  for (const slider of SLIDERS) {
    const value = state.sliders[slider.id];
    if (value !== undefined && about) set.push(slider.set(value, about));
  }
  const controller = state.controllers[side];
  if (controller) set.push(`flows.0.options.congestion=${controller}`);
  for (const mechanism of MECHANISMS) {
    const position = mechanism.positions.find(({ id }) => id === state.mechanisms[side][mechanism.id]);
    set.push(...(position?.set ?? []).map((one) => withMark(one, preset)));
  }
  return { scenario: preset.scenario, case: preset.case, variant: preset.variants[side], set, seed: state.seed };
}

const quoted = (word: string) => (/^[\w.,:=/+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** The command that prints the same figures, among those of the scenario's other variants. */
export function command({ scenario, case: of, set, seed }: Request): string {
  const words = ["taut", "lab", "run", scenario];
  if (of) words.push("--case", of);
  for (const one of set) words.push("--set", one);
  return [...words, "--seeds", String(seed), "--json", "--no-files"].map(quoted).join(" ");
}

/** The state as the part of the address after #; the least that says it. */
export function toHash(state: State): string {
  const words = new URLSearchParams({ run: state.preset.id });
  for (const [id, value] of Object.entries(state.sliders)) words.set(id, String(value));
  for (const side of SIDES) {
    const letter = side === 0 ? "a" : "b";
    const controller = state.controllers[side];
    if (controller) words.set(`${letter}.cc`, controller);
    for (const [id, position] of Object.entries(state.mechanisms[side])) words.set(`${letter}.${id}`, position);
  }
  if (state.seed !== 1) words.set("seed", String(state.seed));
  return `#${words}`;
}

/** Reads what `toHash` wrote. Words that mean nothing here are left out, so an address can do no harm. */
export function fromHash(hash: string): State {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  const state = fresh(PRESETS.find(({ id }) => id === words.get("run")) ?? PRESETS[0]!);
  for (const { id, steps } of SLIDERS) {
    const value = Number(words.get(id) ?? NaN);
    if (value >= steps[0]! && value <= steps[steps.length - 1]!) state.sliders[id] = value;
  }
  for (const side of SIDES) {
    const letter = side === 0 ? "a" : "b";
    const controller = words.get(`${letter}.cc`) ?? "";
    if (CONTROLLERS.includes(controller)) state.controllers[side] = controller;
    for (const { id, positions } of MECHANISMS) {
      const position = words.get(`${letter}.${id}`);
      if (position && positions.some((one) => one.id === position)) state.mechanisms[side][id] = position;
    }
  }
  const seed = Number(words.get("seed") ?? 1);
  if (Number.isInteger(seed) && seed >= 1 && seed <= 10_000) state.seed = seed;
  return state;
}
