// A run in a worker: it simulates as fast as it can and posts its frames as they come, so the page stays free to draw.
// The page ends a run that it no longer wants by ending the worker.

import { Simulation, fields, gates, initSync, scenarios } from "./engine/engine.js";

export type ToWorker = { wasm: ArrayBuffer; request: string; frames: number };
export type FromWorker =
  | { kind: "about"; about: string; fields: string; gates: string; scenarios: string }
  | { kind: "frames"; values: Float64Array }
  | { kind: "result"; data: string; took_s: number }
  | { kind: "error"; message: string };

/** Frames are posted together for this long. */
const POST_EVERY_MS = 40;

const post = (message: FromWorker, transfer: Transferable[] = []) => self.postMessage(message, { transfer });

function run({ wasm, request, frames }: ToWorker): void {
  initSync({ module: wasm });
  const began = performance.now();
  const simulation = new Simulation(request);
  const about = simulation.about();
  post({ kind: "about", about, fields: fields(), gates: gates(), scenarios: scenarios() });
  const duration = (JSON.parse(about) as { duration_s: number }).duration_s;
  let batch: Float64Array[] = [];
  let posted = began;
  for (let frame = 0; frame <= frames; frame++) {
    batch.push(simulation.step((duration * frame) / frames));
    const now = performance.now();
    if (now - posted >= POST_EVERY_MS || frame === frames) {
      const width = batch[0]!.length;
      const values = new Float64Array(batch.length * width);
      batch.forEach((one, index) => values.set(one, index * width));
      post({ kind: "frames", values }, [values.buffer]);
      batch = [];
      posted = now;
    }
  }
  const data = simulation.finish();
  post({ kind: "result", data, took_s: (performance.now() - began) / 1e3 });
}

self.onmessage = ({ data }: MessageEvent<ToWorker>) => {
  try {
    run(data);
  } catch (error) {
    post({ kind: "error", message: error instanceof Error ? error.message : String(error) });
  }
};
