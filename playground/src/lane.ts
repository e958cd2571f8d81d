// One of the two runs: its worker, its frames as they arrive, and what can be read from them at a moment.

import wasmUrl from "./engine/engine_bg.wasm?url";
import type { About, Request, RunData } from "./model";
import type { FromWorker, ToWorker } from "./worker";
import EngineWorker from "./worker?worker&inline";

/** Frames of a run. */
export const FRAMES = 600;

/** The simulator's code, fetched once. */
let code: Promise<ArrayBuffer> | undefined;
function wasm(): Promise<ArrayBuffer> {
  code ??= fetch(wasmUrl).then((response) => response.arrayBuffer());
  return code;
}

export interface Listed {
  name: string;
  title: string;
  about: string;
  source: string | null;
  cases: string[];
  variants: string[];
  metrics: { name: string; label: string; unit: string }[];
  published: [string, string, string, string][];
}

/** What the engine says of itself; equal for all runs. */
export let scenarios: Listed[] = [];
export let gates: [string, string][] = [];
let fields: string[] = [];

export class Lane {
  about: About | undefined;
  result: RunData | undefined;
  /** The result as the engine wrote it. */
  text = "";
  error = "";
  tookS = 0;
  /** The values of all frames, one field after the other, so that charts need no copy. */
  columns: Record<string, Float64Array> = {};
  count = 0;
  /** Grows with every change that a picture must show. */
  version = 0;
  private key = "";
  private worker: Worker | undefined;

  constructor(private readonly changed: () => void) {}

  /** Begins a run, unless it is the one that there is. */
  start(request: Request): void {
    const key = JSON.stringify(request);
    if (key === this.key) return;
    this.worker?.terminate();
    this.key = key;
    this.about = undefined;
    this.result = undefined;
    this.text = "";
    this.error = "";
    this.count = 0;
    this.version++;
    const worker = new EngineWorker();
    this.worker = worker;
    worker.onmessage = ({ data }: MessageEvent<FromWorker>) => this.take(data);
    worker.onerror = (event) => this.take({ kind: "error", message: event.message || "the simulator ended" });
    wasm().then(
      (bytes) => worker.postMessage({ wasm: bytes, request: key, frames: FRAMES } satisfies ToWorker),
      (error: unknown) => this.take({ kind: "error", message: `the simulator is missing: ${String(error)}` }),
    );
  }

  private take(message: FromWorker): void {
    this.version++;
    switch (message.kind) {
      case "about":
        this.about = JSON.parse(message.about) as About;
        fields = JSON.parse(message.fields) as string[];
        gates = JSON.parse(message.gates) as [string, string][];
        scenarios = JSON.parse(message.scenarios) as Listed[];
        this.columns = Object.fromEntries(fields.map((name) => [name, new Float64Array(FRAMES + 1)]));
        break;
      case "frames": {
        const rows = message.values.length / fields.length;
        for (let row = 0; row < rows; row++) {
          fields.forEach((name, index) => {
            this.columns[name]![this.count + row] = message.values[row * fields.length + index]!;
          });
        }
        this.count += rows;
        break;
      }
      case "result":
        this.text = message.data;
        this.result = JSON.parse(message.data) as RunData;
        this.tookS = message.took_s;
        this.worker?.terminate();
        this.worker = undefined;
        break;
      case "error":
        this.error = message.message;
        this.worker?.terminate();
        this.worker = undefined;
        break;
    }
    this.changed();
  }

  get duration(): number {
    return this.about?.duration_s ?? 0;
  }

  /** Simulated time that has been computed. */
  get ready(): number {
    return this.count === 0 ? 0 : ((this.count - 1) / FRAMES) * this.duration;
  }

  /** A field at a moment, between two frames in proportion. NaN where there is none. */
  at(field: string, time: number): number {
    const column = this.columns[field];
    if (!column || this.count === 0 || this.duration === 0) return NaN;
    const place = Math.min(Math.max((time / this.duration) * FRAMES, 0), this.count - 1);
    const index = Math.floor(place);
    const low = column[index]!;
    const high = column[Math.min(index + 1, this.count - 1)]!;
    return Number.isNaN(high) ? low : low + (high - low) * (place - index);
  }

  /** The last value up to a moment that is not NaN, for what has none in every frame. */
  last(field: string, time: number): number {
    const column = this.columns[field];
    if (!column || this.count === 0 || this.duration === 0) return NaN;
    for (let index = Math.min(Math.floor((time / this.duration) * FRAMES), this.count - 1); index >= 0; index--) {
      if (!Number.isNaN(column[index]!)) return column[index]!;
    }
    return NaN;
  }

  /** Growth of a count per second, over so many frames around a moment. */
  rate(field: string, time: number, frames = 8): number {
    const step = this.duration / FRAMES;
    const to = Math.min(time + (frames / 2) * step, this.ready);
    const from = Math.max(to - frames * step, 0);
    return to > from ? (this.at(field, to) - this.at(field, from)) / (to - from) : NaN;
  }

  /** The largest value of a field so far. */
  peak(field: string): number {
    const column = this.columns[field];
    let peak = 0;
    for (let index = 0; index < this.count; index++) {
      const value = column?.[index] ?? 0;
      if (value > peak) peak = value;
    }
    return peak;
  }
}
