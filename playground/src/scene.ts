// The picture of a run: send buffer, queue, NIC, router and receiver as vessels with their bytes in them, packets that move
// between them, and a ping that must come through. Both runs are drawn to one scale, so that a vessel twice as full holds
// twice as much.
//
// What is exact: the levels, the numbers, and how many packets pass (to a scale that is the same for both). What is not: a dot
// stands for many packets, and dots take as long over a short wire as over a long one.

import { css } from "./charts";
import * as format from "./format";
import { FRAMES, type Lane } from "./lane";
import type { Side } from "./model";

interface Vessel {
  field: string;
  name: string;
  short: string;
  /** Middle, as a share of the width, with and without a router. */
  at: [number, number | undefined];
  /** Whether its level as a time is what a packet waits there. */
  waits: boolean;
}

const VESSELS: Vessel[] = [
  { field: "unsent_bytes", name: "Send buffer", short: "Unsent", at: [0.075, 0.09], waits: false },
  { field: "qdisc_bytes", name: "Queue", short: "Queue", at: [0.265, 0.325], waits: true },
  { field: "ring_bytes", name: "NIC", short: "NIC", at: [0.435, 0.54], waits: false },
  { field: "bottleneck_bytes", name: "Router", short: "Router", at: [0.68, undefined], waits: true },
  { field: "receiver_bytes", name: "Receiver", short: "Receiver", at: [0.925, 0.91], waits: false },
];

/** Dots a second on a wire that carries the greatest rate of both runs. */
const DOTS = 24;
const DOT_SPEED = 190;
const DOTS_MAX = 80;

interface Dot {
  place: number;
  long: number;
}

interface Drop {
  x: number;
  y: number;
  age: number;
}

interface Colours {
  ink: string;
  quiet: string;
  line: string;
  vessel: string;
  pipe: string;
  own: string;
  wash: string;
  ping: string;
  card: string;
  drop: string;
}

/** What both pictures have in common. */
export interface Common {
  /** Bytes of a full vessel. */
  full: number;
  /** Greatest rate, in bytes a second. */
  rate: number;
  /** Simulated seconds in a second. */
  speed: number;
}

/** Bytes of a full vessel and the greatest rate, of both runs. */
export function common(lanes: [Lane, Lane], speed: number): Common {
  let full = 1;
  let rate = 1;
  for (const lane of lanes) {
    if (lane.count === 0) continue;
    for (const { field } of VESSELS) full = Math.max(full, lane.peak(field));
    const acked = lane.columns.acked_bytes!;
    const seconds = lane.duration / FRAMES;
    for (let index = 10; index < lane.count; index++) {
      rate = Math.max(rate, (acked[index]! - acked[index - 10]!) / (10 * seconds));
    }
  }
  return { full: full * 1.04, rate, speed };
}

/** A ping that both runs send at the same moment, slowed down so that one can watch it. */
export class Race {
  private began = -1;
  private delays: [number, number] = [NaN, NaN];
  private slow = 1;

  /** Goes on; a new ping leaves when the last one has come back everywhere. */
  step(wall: number, lanes: [Lane, Lane], time: number, goes: boolean): void {
    const longest = Math.max(...this.delays.filter(Number.isFinite), 0);
    if (this.began >= 0 && wall - this.began < longest * this.slow + 0.9) return;
    this.began = -1;
    if (!goes) return;
    const delays = lanes.map((lane) => lane.last("request_s", time)) as [number, number];
    const slowest = Math.max(...delays.filter(Number.isFinite), 0);
    if (slowest <= 0) return;
    this.delays = delays;
    this.slow = 2.6 / slowest;
    this.began = wall;
  }

  reset(): void {
    this.began = -1;
  }

  /** How long the ping has been on its way, and how long it will have been; without one, NaN. */
  of(side: Side, wall: number): { gone: number; delay: number; base: number } {
    const delay = this.delays[side];
    if (this.began < 0 || !Number.isFinite(delay)) return { gone: NaN, delay: NaN, base: NaN };
    const base = Math.min(...this.delays.filter(Number.isFinite));
    return { gone: Math.min((wall - this.began) / this.slow, delay), delay, base };
  }
}

export class Scene {
  private readonly context: CanvasRenderingContext2D;
  private width = 0;
  private height = 0;
  private colours!: Colours;
  private dots: Dot[][] = [];
  private due: number[] = [];
  private acks: Dot[] = [];
  private ackDue = 0;
  private drops: Drop[] = [];
  private levels: number[] = [];
  private shownAt = 0;
  private dropped = 0;

  constructor(private readonly canvas: HTMLCanvasElement, private readonly side: Side) {
    this.context = canvas.getContext("2d")!;
    this.recolour();
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.resize();
  }

  recolour(): void {
    const own = this.side === 0 ? "--before" : "--after";
    this.colours = {
      ink: css("--ink"), quiet: css("--quiet"), line: css("--line"), vessel: css("--vessel"), pipe: css("--pipe"),
      own: css(own), wash: css(`${own}-wash`), ping: css("--ping"), card: css("--card"), drop: css("--drop"),
    };
  }

  private resize(): void {
    const scale = Math.min(window.devicePixelRatio || 1, 2);
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * scale);
    this.canvas.height = Math.round(this.height * scale);
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
  }

  reset(): void {
    this.dots = [];
    this.due = [];
    this.acks = [];
    this.drops = [];
    this.levels = [];
    this.shownAt = 0;
    this.dropped = 0;
  }

  /** Draws the run at a moment. `passed` is the real time since the last picture, in seconds. */
  draw(lane: Lane, time: number, wall: number, passed: number, { full, rate, speed }: Common, race: Race): void {
    const { context, width, height, colours } = this;
    context.clearRect(0, 0, width, height);
    if (width === 0) return;
    const small = width < 560;
    const router = lane.about?.has_router ?? false;
    const vessels = VESSELS.filter(({ at }) => router || at[1] !== undefined);
    const middle = (vessel: Vessel) => (router ? vessel.at[0] : vessel.at[1]!) * width;
    const wide = Math.max(Math.min(width * 0.1, 116), 44);
    const top = small ? 26 : 30;
    const tall = height - top - (small ? 66 : 70);
    const pipeAt = top + tall * 0.62;
    const thick = small ? 12 : 16;
    const bytesOf = ({ field }: Vessel) => {
      const value = lane.at(field, time);
      return Number.isFinite(value) ? value : 0;
    };

    // ---- where things are ----
    this.move(lane, time, passed, vessels.length - 1, rate * speed, small);

    // The sender's machine around its three vessels.
    const first = middle(vessels[0]!) - wide / 2 - (small ? 4 : 14);
    const last = middle(vessels[2]!) + wide / 2 + (small ? 4 : 14);
    context.fillStyle = colours.wash;
    rounded(context, first, 3, last - first, height - (small ? 34 : 36), 14);
    context.fill();

    // ---- pipes, with what moves in them ----
    for (let index = 0; index + 1 < vessels.length; index++) {
      const from = middle(vessels[index]!) + wide / 2;
      const to = middle(vessels[index + 1]!) - wide / 2;
      const isWire = index >= 2;
      context.fillStyle = colours.pipe;
      const height = isWire ? thick * 0.55 : thick;
      rounded(context, from - 3, pipeAt - height / 2, to - from + 6, height, 3);
      context.fill();
      context.save();
      context.beginPath();
      context.rect(from, pipeAt - thick, to - from, 2 * thick);
      context.clip();
      context.fillStyle = colours.own;
      for (const dot of this.dots[index] ?? []) {
        const long = dot.long;
        const x = from + dot.place * (to - from + long) - long;
        const high = isWire ? (small ? 4 : 5) : thick - 6;
        rounded(context, x, pipeAt - high / 2, long, high, Math.min(high / 2, 3));
        context.fill();
      }
      context.restore();
    }

    // ---- the way back ----
    const back = height - 12;
    const left = middle(vessels[0]!);
    const right = middle(vessels[vessels.length - 1]!);
    context.strokeStyle = colours.line;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(left, back);
    context.lineTo(right, back);
    context.stroke();
    context.fillStyle = colours.quiet;
    for (const dot of this.acks) {
      context.beginPath();
      context.arc(right - dot.place * (right - left), back, 1.8, 0, 2 * Math.PI);
      context.fill();
    }
    context.font = `500 ${small ? 10 : 11}px Inter, system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const word = "ACKs";
    const half = context.measureText(word).width / 2 + 6;
    context.fillStyle = colours.card;
    context.fillRect((left + right) / 2 - half, back - 7, 2 * half, 14);
    context.fillStyle = colours.quiet;
    context.fillText(word, (left + right) / 2, back);

    // ---- vessels ----
    const bytesPerSecond = lane.rate("acked_bytes", time, 16);
    vessels.forEach((vessel, index) => {
      const x = middle(vessel) - wide / 2;
      const bytes = bytesOf(vessel);
      const aim = Math.min(bytes / full, 1);
      const before = this.levels[index] ?? aim;
      // Levels follow within a tenth of a second, which hides the steps between frames.
      const level = before + (aim - before) * Math.min(passed * 14, 1);
      this.levels[index] = level;
      rounded(context, x, top, wide, tall, 10);
      context.fillStyle = colours.vessel;
      context.fill();
      if (bytes > 0) {
        context.save();
        rounded(context, x, top, wide, tall, 10);
        context.clip();
        const high = Math.max(level * tall, 2.5);
        const wave = Math.min(2.2, high * 0.25);
        const surface = top + tall - high;
        const fill = context.createLinearGradient(0, surface, 0, top + tall);
        fill.addColorStop(0, colours.own);
        fill.addColorStop(1, `color-mix(in srgb, ${colours.own} 72%, transparent)`);
        context.fillStyle = fill;
        context.beginPath();
        context.moveTo(x, top + tall);
        for (let at = 0; at <= wide; at += 6) {
          context.lineTo(x + at, surface + wave * Math.sin(at * 0.09 + wall * 2.4 + index * 1.7));
        }
        context.lineTo(x + wide, surface + wave * Math.sin(wide * 0.09 + wall * 2.4 + index * 1.7));
        context.lineTo(x + wide, top + tall);
        context.fill();
        context.restore();
      }
      rounded(context, x, top, wide, tall, 10);
      context.strokeStyle = colours.line;
      context.lineWidth = 1.5;
      context.stroke();

      const at = middle(vessel);
      context.textAlign = "center";
      context.textBaseline = "alphabetic";
      context.fillStyle = colours.quiet;
      context.font = `500 ${small ? 10.5 : 12.5}px Inter, system-ui, sans-serif`;
      context.fillText(small ? vessel.short : vessel.name, at, top - 9);
      context.fillStyle = colours.ink;
      context.font = `650 ${small ? 11.5 : 15}px Inter, system-ui, sans-serif`;
      context.fillText(format.bytes(bytes), at, top + tall + (small ? 17 : 20));
      if (vessel.waits && bytes > 0 && bytesPerSecond > 0) {
        context.fillStyle = colours.quiet;
        context.font = `450 ${small ? 10 : 12}px Inter, system-ui, sans-serif`;
        const wait = format.time(bytes / bytesPerSecond);
        context.fillText(small ? wait : `${wait} to drain`, at, top + tall + (small ? 30 : 36));
      }
    });

    // ---- packets that are dropped ----
    const drops = lane.at("drops", time);
    if (drops > this.dropped + 0.5 && this.drops.length < 6) {
      const place = vessels[router ? 3 : 1]!;
      this.drops.push({ x: middle(place) - wide / 2 - 6, y: pipeAt, age: 0 });
    }
    if (Number.isFinite(drops)) this.dropped = drops;
    this.drops = this.drops.filter((drop) => drop.age < 0.9);
    context.lineWidth = 2.5;
    for (const drop of this.drops) {
      drop.age += passed;
      const y = drop.y + 90 * drop.age * drop.age;
      context.globalAlpha = 1 - drop.age / 0.9;
      context.strokeStyle = colours.drop;
      context.beginPath();
      context.moveTo(drop.x - 4, y - 4);
      context.lineTo(drop.x + 4, y + 4);
      context.moveTo(drop.x + 4, y - 4);
      context.lineTo(drop.x - 4, y + 4);
      context.stroke();
    }
    context.globalAlpha = 1;

    this.ping(lane, time, wall, race, vessels.map(middle), router, pipeAt, back, small);
  }

  /** The ping: along the pipes, through the queue that is fullest, and back with the ACKs. */
  private ping(
    lane: Lane, time: number, wall: number, race: Race, middles: number[], router: boolean, pipeAt: number, back: number,
    small: boolean,
  ): void {
    const { gone, delay, base } = race.of(this.side, wall);
    if (!Number.isFinite(gone)) return;
    // Queue, NIC and router: the fullest is where it waits.
    const places = ["qdisc_bytes", "ring_bytes", ...(router ? ["bottleneck_bytes"] : [])].map((field) => lane.at(field, time));
    const fullest = places.indexOf(Math.max(...places.filter(Number.isFinite)));
    const start = middles[0]!;
    const queue = middles[Math.max(fullest, 0) + 1]!;
    const end = middles[middles.length - 1]!;
    // The way there and back takes the time of the faster of both; what is more than that is waiting.
    const travel = base * 0.98;
    const wait = delay - travel;
    const there = travel / 2;
    const share = (queue - start) / (end - start);
    let x: number;
    let y = pipeAt;
    if (gone < there * share) x = start + (gone / (there * share)) * (queue - start);
    else if (gone < there * share + wait) {
      // It goes on through the vessel, as what is before it leaves.
      const done = (gone - there * share) / wait;
      x = queue + (done - 0.5) * (small ? 26 : 60) * Math.min(1, wait / delay);
    } else if (gone < there + wait) x = queue + ((gone - there * share - wait) / (there * (1 - share))) * (end - queue);
    else {
      x = end - ((gone - there - wait) / there) * (end - start);
      y = back;
    }
    const { context, colours } = this;
    context.beginPath();
    context.arc(x, y, small ? 6 : 7.5, 0, 2 * Math.PI);
    context.fillStyle = colours.ping;
    context.fill();
    context.lineWidth = 2.5;
    context.strokeStyle = colours.card;
    context.stroke();
    const text = format.time(gone);
    context.font = `650 ${small ? 11 : 12.5}px Inter, system-ui, sans-serif`;
    const wide = context.measureText(text).width + 14;
    // Above the dot, and on the way back beside it: there are numbers above.
    const isBack = y === back;
    const boxX = Math.min(Math.max(isBack ? x + 13 : x - wide / 2, 2), this.width - wide - 2);
    const boxY = isBack ? y - 10 : y - (small ? 31 : 36);
    context.fillStyle = colours.ping;
    rounded(context, boxX, boxY, wide, 20, 10);
    context.fill();
    context.fillStyle = colours.card;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(text, boxX + wide / 2, boxY + 10.5);
  }

  /** Moves the dots, and lets new ones in: as many as bytes passed since the last picture. */
  private move(lane: Lane, time: number, passed: number, pipes: number, unit: number, small: boolean): void {
    const from = Math.min(this.shownAt, time);
    this.shownAt = time;
    if (lane.count === 0) return;
    const passedBytes = (field: string) => Math.max(lane.at(field, time) - lane.at(field, from), 0) || 0;
    const acked = passedBytes("acked_bytes");
    const sent = Math.max(acked + lane.at("in_flight_bytes", time) - lane.at("in_flight_bytes", from), 0) || 0;
    const left = passedBytes("segments") * 1_448;
    const goes = time > from;
    const segments = Math.max(lane.rate("segments", time, 12) / lane.rate("packets", time, 12), 1) || 1;
    const train = Math.min(Math.max(segments / 4, 1), 9);
    for (let pipe = 0; pipe < pipes; pipe++) {
      const dots = (this.dots[pipe] ??= []);
      const isWire = pipe >= 2;
      const bytes = pipe < 2 ? sent : pipe === pipes - 1 && pipes > 3 ? acked : left;
      this.due[pipe] = (this.due[pipe] ?? 0) + (bytes / unit) * DOTS;
      if (goes) dots.forEach((dot) => (dot.place += (DOT_SPEED * passed) / (isWire ? (small ? 90 : 230) : small ? 40 : 90)));
      this.dots[pipe] = dots.filter((dot) => dot.place < 1);
      const each = isWire ? 1 : train;
      while (this.due[pipe]! >= each) {
        this.due[pipe]! -= each;
        if (this.dots[pipe]!.length < DOTS_MAX) {
          const long = isWire ? (small ? 4 : 6) : Math.min(4 + 5 * train, small ? 22 : 46);
          // Those that are due in the same picture stand behind each other.
          this.dots[pipe]!.push({ place: Math.max(0, -0.02 * this.due[pipe]!), long });
        } else {
          this.due[pipe] = 0;
        }
      }
    }
    this.ackDue += (acked / unit) * DOTS * 0.5;
    if (goes) this.acks.forEach((dot) => (dot.place += (DOT_SPEED * 1.6 * passed) / Math.max(this.width * 0.84, 1)));
    this.acks = this.acks.filter((dot) => dot.place < 1);
    while (this.ackDue >= 1) {
      this.ackDue -= 1;
      if (this.acks.length < DOTS_MAX) this.acks.push({ place: 0, long: 0 });
      else this.ackDue = 0;
    }
  }
}

function rounded(context: CanvasRenderingContext2D, x: number, y: number, wide: number, high: number, radius: number): void {
  context.beginPath();
  context.roundRect(x, y, Math.max(wide, 0), Math.max(high, 0), Math.max(Math.min(radius, wide / 2, high / 2), 0));
}
