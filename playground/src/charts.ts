// The charts: each shows one quantity of both runs over simulated time, drawn by uPlot, with a line where the picture is.

import uPlot from "uplot";
import * as format from "./format";
import { FRAMES, type Lane } from "./lane";
import type { ChartName } from "./model";

interface Quantity {
  title: string;
  say: (value: number) => string;
  /** The value at a frame. */
  of: (lane: Lane, index: number) => number;
}

const value = (field: string, factor = 1) => (lane: Lane, index: number) => lane.columns[field]![index]! * factor;

/** Growth of one field by that of another (or by time), over the last frames. */
function growth(field: string, by: string, factor: number, frames = 10) {
  return (lane: Lane, index: number) => {
    const from = Math.max(index - frames, 0);
    const over = lane.columns[by]![index]! - lane.columns[by]![from]!;
    return over > 0 ? ((lane.columns[field]![index]! - lane.columns[field]![from]!) / over) * factor : NaN;
  };
}

export const QUANTITIES: Record<ChartName, Quantity> = {
  host: {
    title: "In the sender’s own queues",
    say: format.bytes,
    of: (lane, index) => lane.columns.qdisc_bytes![index]! + lane.columns.ring_bytes![index]!,
  },
  unsent: { title: "Written, not sent", say: format.bytes, of: value("unsent_bytes") },
  router: { title: "In the router’s queue", say: format.bytes, of: value("bottleneck_bytes") },
  ping: { title: "Longest request", say: format.time, of: value("request_s") },
  rtt: { title: "Round-trip time", say: format.time, of: value("srtt_s") },
  goodput: { title: "Goodput", say: format.rate, of: growth("acked_bytes", "t_s", 8) },
  cwnd: { title: "Congestion window", say: format.bytes, of: value("cwnd_bytes") },
  flight: { title: "On the way: left the host, not acknowledged", say: format.bytes, of: value("in_flight_bytes") },
  trains: { title: "Segments in a packet", say: format.count, of: growth("segments", "packets", 1) },
  answered: { title: "Requests answered", say: format.whole, of: value("requests") },
  wakeups: { title: "Wake-ups of the writer a second", say: format.count, of: growth("wakeups", "t_s", 1) },
};

const probe = document.body.appendChild(document.createElement("i"));

/** A colour of the style sheet, as a canvas takes it. */
export function css(name: string): string {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

class Chart {
  readonly figure: HTMLElement;
  private readonly plot: uPlot;
  private readonly head: HTMLElement;
  private readonly now: [HTMLElement, HTMLElement];
  private data: [number[], (number | null)[], (number | null)[]] = [[], [], []];

  constructor(private readonly quantity: Quantity, private readonly lanes: [Lane, Lane], seek: (time: number) => void) {
    this.figure = document.createElement("figure");
    this.figure.className = "chart";
    const caption = document.createElement("figcaption");
    const title = document.createElement("span");
    title.textContent = quantity.title;
    this.now = [document.createElement("b"), document.createElement("b")];
    this.now.forEach((one, side) => (one.className = side === 0 ? "before" : "after"));
    const values = document.createElement("span");
    values.className = "values";
    values.append(...this.now);
    caption.append(title, values);
    this.figure.append(caption);
    const line = (side: 0 | 1): uPlot.Series => ({
      stroke: () => css(side === 0 ? "--before" : "--after"),
      width: 2,
      spanGaps: true,
      points: { show: false },
      fill: () => css(side === 0 ? "--before-wash" : "--after-wash"),
    });
    const axis = (more: uPlot.Axis): uPlot.Axis => ({
      stroke: () => css("--quiet"),
      font: "11px Inter, system-ui, sans-serif",
      grid: { stroke: () => css("--line"), width: 1 },
      ticks: { show: false },
      ...more,
    });
    this.plot = new uPlot(
      {
        width: 300,
        height: 150,
        legend: { show: false },
        padding: [8, 18, 0, 0],
        cursor: { show: false },
        scales: {
          x: { time: false, range: () => [0, Math.max(this.lanes[0].duration, this.lanes[1].duration) || 1] },
          y: { range: (_, __, most) => [0, most > 0 ? most * 1.08 : 1] },
        },
        axes: [
          axis({ size: 24, gap: 4, values: (_, ticks) => ticks.map((tick) => (tick === 0 ? "0" : format.tick(format.time(tick)))), space: 64, grid: { show: false } }),
          axis({ size: 66, gap: 6, values: (_, ticks) => ticks.map((tick) => (tick === 0 ? "0" : format.tick(quantity.say(tick)))), space: 34 }),
        ],
        series: [{}, line(0), line(1)],
      },
      this.data as uPlot.AlignedData,
      this.figure,
    );
    this.head = document.createElement("div");
    this.head.className = "playhead";
    this.plot.over.append(this.head);
    this.plot.over.addEventListener("pointerdown", (event) => {
      const box = this.plot.over.getBoundingClientRect();
      seek(((event.clientX - box.left) / box.width) * Math.max(lanes[0].duration, lanes[1].duration));
    });
  }

  /** Draws what the lanes have now. */
  update(): void {
    const longest = this.lanes[0].duration >= this.lanes[1].duration ? this.lanes[0] : this.lanes[1];
    const count = Math.max(this.lanes[0].count, this.lanes[1].count);
    const times = Array.from({ length: count }, (_, index) => (index / FRAMES) * longest.duration);
    const of = (lane: Lane) =>
      Array.from({ length: count }, (_, index) => {
        const one = index < lane.count ? this.quantity.of(lane, index) : NaN;
        return Number.isFinite(one) ? one : null;
      });
    this.data = [times, of(this.lanes[0]), of(this.lanes[1])];
    this.plot.setData(this.data as uPlot.AlignedData);
  }

  resize(): void {
    const width = Math.floor(this.figure.clientWidth - 2 * parseFloat(getComputedStyle(this.figure).paddingLeft));
    if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: 150 });
  }

  recolour(): void {
    this.plot.redraw(false);
  }

  /** Moves the line to a moment. */
  point(time: number): void {
    const longest = Math.max(this.lanes[0].duration, this.lanes[1].duration) || 1;
    this.head.style.transform = `translateX(${(time / longest) * this.plot.over.clientWidth}px)`;
  }

  /** Says the values at a moment. */
  say(time: number): void {
    this.lanes.forEach((lane, side) => {
      const index = Math.min(Math.floor((time / (lane.duration || 1)) * FRAMES), lane.count - 1);
      let of = NaN;
      for (let at = index; at >= 0 && !Number.isFinite(of); at--) of = this.quantity.of(lane, at);
      const text = this.quantity.say(of);
      if (this.now[side]!.textContent !== text) this.now[side]!.textContent = text;
    });
  }

  remove(): void {
    this.plot.destroy();
    this.figure.remove();
  }
}

/** A row of charts. */
export class Charts {
  private all: Chart[] = [];
  private turn = 0;

  constructor(private readonly place: HTMLElement, private readonly lanes: [Lane, Lane], private readonly seek: (time: number) => void) {
    new ResizeObserver(() => this.all.forEach((chart) => chart.resize())).observe(place);
  }

  show(names: ChartName[]): void {
    this.all.forEach((chart) => chart.remove());
    this.all = names.map((name) => new Chart(QUANTITIES[name], this.lanes, this.seek));
    this.place.append(...this.all.map((chart) => chart.figure));
    this.all.forEach((chart) => chart.resize());
  }

  /** Draws one chart, each time another, so that no frame draws all of them. */
  updateOne(): void {
    this.all[this.turn++ % Math.max(this.all.length, 1)]?.update();
  }

  get size(): number {
    return this.all.length;
  }

  point(time: number): void {
    this.all.forEach((chart) => chart.point(time));
  }

  say(time: number): void {
    this.all.forEach((chart) => chart.say(time));
  }

  recolour(): void {
    this.all.forEach((chart) => chart.recolour());
  }
}
