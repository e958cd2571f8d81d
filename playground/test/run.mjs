// The playground in a browser: every preset's figures beside those of the command for the same seed, bit for bit; the time
// that a frame takes; keyboard, addresses, errors, widths; what axe finds; and pictures for the documents.
//
//   npm test            all of it; needs dist/ (make playground) and the command
//   TAUT=FILE           the command, otherwise ../target/release/taut
//   PICTURES=DIRECTORY  where pictures go; none are taken without it
//   CHROMIUM, ONLY      harness.mjs

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createReadStream, existsSync, mkdirSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { accessible, browser, check, finish, spread } from "./harness.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const built = resolve(here, "../dist/index.html");
const taut = process.env.TAUT ?? resolve(here, "../../target/release/taut");
const FRAME_MS = 8;

for (const [file, how] of [[built, "make playground"], [taut, "cargo build --release -p taut-cli"]]) {
  if (!existsSync(file)) throw new Error(`${file} is missing: ${how}`);
}

/** The page, with the preset that takes least. */
async function open(address = `${pathToFileURL(built).href}#run=autosizing`, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.faults = [];
  page.on("pageerror", (error) => page.faults.push(String(error)));
  page.on("console", (message) => message.type() === "error" && page.faults.push(message.text()));
  page.on("request", (request) => {
    const url = request.url();
    const own = url.startsWith("data:") || url.startsWith("blob:") || url.startsWith(new URL(".", address).href);
    if (!own) page.faults.push(`asks for ${url}`);
  });
  await page.goto(address);
  return page;
}

/** Waits until both runs of the page are done, and returns them. */
async function results(page) {
  await page.waitForFunction(() => window.playground.isDone, null, { timeout: 300_000 });
  return page.evaluate(() => ({
    requests: window.playground.requests(),
    runs: window.playground.lanes.map((lane) => (lane.error ? { error: lane.error } : JSON.parse(lane.text))),
  }));
}

async function close(page) {
  assert.deepEqual(page.faults, [], "errors, or requests for what is not in the page");
  await page.context().close();
}

/** What the command says of the same run. */
const commands = new Map();
function commanded(request) {
  const words = ["lab", "run", request.scenario, "--seeds", String(request.seed), "--json", "--no-files"];
  if (request.case) words.push("--case", request.case);
  for (const set of request.set) words.push("--set", set);
  const key = words.join("\0");
  if (!commands.has(key)) {
    commands.set(key, JSON.parse(execFileSync(taut, words, { encoding: "utf8", maxBuffer: 1 << 30, stdio: ["ignore", "pipe", "ignore"] })));
  }
  const sets = [commands.get(key)].flat();
  const run = sets.flatMap((set) => set.runs).find(({ meta }) => meta.variant === request.variant && meta.seed === request.seed);
  assert.ok(run, `the command has no run ${request.variant}`);
  return run;
}

/** Equal in every bit: numbers are compared as JSON writes them, which loses none. */
function same(page, command, what) {
  assert.equal(page.error, undefined);
  assert.ok(Object.keys(command.metrics).length > 20, "the command has metrics");
  assert.deepEqual(page.metrics, command.metrics, `${what}: metrics`);
  assert.deepEqual(page.counters, command.counters, `${what}: counters`);
  assert.deepEqual(page.hosts, command.hosts, `${what}: hosts`);
  for (const part of ["digest", "events", "parameters", "seed", "variant"]) {
    assert.deepEqual(page.meta[part], command.meta[part], `${what}: ${part}`);
  }
}

async function frames(page) {
  await page.evaluate(() => {
    performance.clearMeasures("frame");
    document.getElementById("play").dataset.state === "paused" && document.getElementById("play").click();
  });
  await page.waitForTimeout(1_500);
  // A busy machine draws few frames a second; each of them counts alone.
  await page.waitForFunction(() => performance.getEntriesByName("frame", "measure").length >= 40, null, { timeout: 60_000 });
  const spans = await page.evaluate(() => performance.getEntriesByName("frame", "measure").map((entry) => entry.duration));
  return spread(spans);
}

const shown = (value) => (value === undefined ? "–" : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4))));

// ---- every preset ----

const page = await open(pathToFileURL(built).href);
const presets = await page.locator("#presets button").evaluateAll((all) => all.map((button) => button.dataset.id));
await check("there are the five published results, and a path of one's own", () => {
  assert.deepEqual(presets, ["small-queues", "autosizing", "autocorking", "notsent-lowat", "pacing", "own"]);
});
const slowest = { median: 0 };
for (const preset of presets) {
  await check(`PLAY-1 ${preset}: the page's figures are the command's`, async () => {
    await page.locator(`#presets button[data-id="${preset}"]`).click();
    const { requests, runs } = await results(page);
    requests.forEach((request, side) => same(runs[side], commanded(request), `${preset}, ${request.variant}`));
    assert.notDeepEqual(runs[0].metrics, runs[1].metrics, "before and after differ");
    // What the table shows is what was compared.
    for (const row of await page.locator("#figures tr").all()) {
      const name = await row.getAttribute("data-metric");
      const cells = await row.locator("td:not(.published)").allTextContents();
      assert.deepEqual(cells, requests.map((request) => shown(commanded(request).metrics[name])), name);
    }
    return runs.map((run) => run.meta.digest).join(", ");
  });
  await check(`PLAY-2 ${preset}: a frame takes at most ${FRAME_MS} ms in the median`, async () => {
    const spans = await frames(page);
    if (spans.median > slowest.median) Object.assign(slowest, spans);
    assert.ok(spans.median <= FRAME_MS, `${spans.median} ms`);
    return `median ${spans.median.toFixed(2)} ms, p95 ${spans.p95.toFixed(2)} ms, ${spans.count} frames`;
  });
}
await check("PLAY-2 also while both runs are simulated", async () => {
  // The preset whose runs take longest.
  await page.locator(`#presets button[data-id="small-queues"]`).click();
  await page.waitForFunction(() => window.playground.lanes.every((lane) => lane.count > 20));
  const spans = await frames(page);
  const running = await page.evaluate(() => window.playground.lanes.some((lane) => !lane.result));
  assert.ok(running, "the runs were done before the measurement");
  assert.ok(spans.median <= FRAME_MS, `${spans.median} ms`);
  return `median ${spans.median.toFixed(2)} ms, p95 ${spans.p95.toFixed(2)} ms`;
});
await close(page);

// ---- what is chosen ----

await check("PLAY-3 sliders, controllers and switches change the runs, and are the command's --set", async () => {
  const page = await open(`${pathToFileURL(built).href}#run=own`);
  const first = await results(page);
  await page.locator("#slider-rate").fill("4");
  await page.locator("#slider-loss").fill("4");
  await page.locator("#controller-1").selectOption("reno");
  await page.locator('input[name="tsq-0"][value="off"]').check({ force: true });
  await page.locator('input[name="lowat-0"][value="off"]').check({ force: true });
  await page.locator('input[name="pacing-1"][value="off"]').check({ force: true });
  const then = await results(page);
  assert.deepEqual(then.requests[0].set, [
    "link.rate=20000kbit", "link.faults.loss=0.002", "hosts.sender.sysctls.taut.tsq=off", "flows.0.options.notsent-lowat=4294967295",
  ]);
  // A switch acts on its side alone.
  assert.deepEqual(then.requests[1].set, [
    "link.rate=20000kbit", "link.faults.loss=0.002", "flows.0.options.congestion=reno", "hosts.sender.sysctls.taut.pacing=off",
  ]);
  then.requests.forEach((request, side) => same(then.runs[side], commanded(request), `side ${side}`));
  for (const side of [0, 1]) assert.notEqual(then.runs[side].meta.digest, first.runs[side].meta.digest);
  const text = await page.locator("#command").textContent();
  assert.ok(text.split("\n").length === 2 && text.includes("--set link.rate=20000kbit"), text);

  // The address has all of it: another window shows the same runs.
  const other = await open(page.url());
  const there = await results(other);
  assert.deepEqual(there.requests, then.requests);
  there.runs.forEach((run, side) => assert.equal(run.meta.digest, then.runs[side].meta.digest));
  await close(other);
  await page.locator("#reset").click();
  const again = await results(page);
  again.runs.forEach((run, side) => assert.equal(run.meta.digest, first.runs[side].meta.digest));
  await close(page);
});

await check("PLAY-3 every position of every switch and every controller is one that the engine accepts", async () => {
  const page = await open(`${pathToFileURL(built).href}#run=own&rate=1000000`);
  await results(page);
  let count = 0;
  const controls = [
    ...(await page.locator('.mechanism input[name$="-0"]').evaluateAll((all) => all.map((one) => [one.name, one.value]))),
    ...(await page.locator("#controller-0 option").evaluateAll((all) => all.map((one) => ["controller-0", one.value]))),
  ];
  for (const [name, value] of controls) {
    if (name.startsWith("controller")) await page.locator(`#${name}`).selectOption(value);
    else await page.locator(`input[name="${name}"][value="${value}"]`).check({ force: true });
    const { runs } = await results(page);
    assert.equal(runs[0].error, undefined, `${name}=${value}: ${runs[0].error}`);
    count++;
  }
  await close(page);
  return `${count} positions`;
});

await check("PLAY-4 an address that says nonsense does no harm", async () => {
  for (const hash of ["#run=autosizing&rate=NaN&loss=7&a.tsq=%3Cb%3E&b.cc=vegas&seed=-1", "#run=%%%", "#run=own&rate=1e99&queue=-5"]) {
    const page = await open(pathToFileURL(built).href + hash);
    const { runs } = await results(page);
    for (const run of runs) assert.ok(run.metrics, hash);
    await close(page);
  }
});

await check("PLAY-4 a run that fails says why, and the other goes on", async () => {
  const page = await open(`${pathToFileURL(built).href}#run=own`);
  await results(page);
  await page.evaluate(() => {
    const [request] = window.playground.requests();
    window.playground.lanes[0].start({ ...request, set: ["link.rate=fast"] });
  });
  const { runs } = await results(page);
  assert.match(runs[0].error, /link\.rate/);
  assert.match(await page.locator("#error-0").textContent(), /link\.rate/);
  assert.ok(runs[1].metrics);
  await close(page);
});

// ---- keyboard and words ----

await check("PLAY-5 everything can be done with the keyboard", async () => {
  const page = await open();
  await results(page);
  const seen = new Set();
  let preset = false;
  for (let press = 0; press < 80; press++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const on = document.activeElement;
      const ring = getComputedStyle(on.matches(".segments input") ? on.nextElementSibling : on).outlineStyle;
      return { id: on.id || on.name || on.dataset.id || on.tagName, tag: on.tagName, ring };
    });
    if (at.tag === "BODY") break;
    assert.notEqual(at.ring, "none", `${at.id} shows no focus`);
    seen.add(at.id);
    if (at.id === "own" && !preset) {
      preset = true;
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => window.playground.state.preset.id === "own");
      await results(page);
    }
  }
  const wanted = [
    "share", "theme", "small-queues", "own", "play", "scrub", "speed", "slider-rate", "slider-rtt", "slider-loss", "slider-queue",
    "controller-0", "controller-1", "tsq-0", "tsq-1", "autosizing-0", "autocork-1", "lowat-0", "pacing-1", "copy",
  ];
  assert.deepEqual(wanted.filter((id) => !seen.has(id)), [], "not reached by Tab");
  await page.locator("#slider-rate").focus();
  await page.keyboard.press("ArrowLeft");
  await page.locator('input[name="tsq-0"]:checked').focus();
  await page.keyboard.press("ArrowLeft");
  const { requests } = await results(page);
  assert.deepEqual(requests[0].set, ["link.rate=20000kbit", "hosts.sender.sysctls.taut.tsq=rate-scaled"]);
  await page.locator("#scrub").focus();
  await page.keyboard.press("Home");
  for (let press = 0; press < 5; press++) await page.keyboard.press("PageUp");
  assert.equal(await page.locator("#play").getAttribute("data-state"), "paused");
  assert.ok((await page.evaluate(() => window.playground.time)) > 1, "the clock follows the keys");
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("Space");
  assert.equal(await page.locator("#play").getAttribute("data-state"), "playing");
  await close(page);
  return `${seen.size} stops`;
});

for (const [scheme, width] of [["light", 1280], ["dark", 1280], ["light", 390]]) {
  await check(`PLAY-5 axe finds nothing: ${scheme}, ${width} px`, async () => {
    const page = await open(undefined, { colorScheme: scheme, viewport: { width, height: 844 } });
    await results(page);
    await page.waitForTimeout(300);
    const rules = await accessible(page);
    await close(page);
    return `${rules} rules`;
  });
}

await check("PLAY-5 pictures have words, and results are announced", async () => {
  const page = await open();
  await results(page);
  await page.waitForTimeout(400);
  for (const side of [0, 1]) {
    const label = await page.locator(`#scene-${side}`).getAttribute("aria-label");
    assert.match(label, /at .*: unsent .*, queue .*, NIC .*, receiver /);
  }
  assert.match(await page.locator("#status").textContent(), /packets handed to IP\. Sized when written: \d+; Sized when sent: \d+\./);
  await close(page);
});

await check("PLAY-6 nothing is wider than a phone's 390 px, or 320", async () => {
  for (const width of [390, 320]) {
    const page = await open(undefined, { viewport: { width, height: 844 }, hasTouch: true, isMobile: true });
    await results(page);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= width, `${wide} px on ${width}`);
    await close(page);
  }
});

await check("PLAY-6 without motion, the picture rests at the end", async () => {
  const page = await open(undefined, { reducedMotion: "reduce" });
  await results(page);
  await page.waitForTimeout(300);
  assert.equal(await page.locator("#play").getAttribute("data-state"), "paused");
  assert.equal(await page.evaluate(() => window.playground.time), 1);
  await close(page);
});

await check("PLAY-7 the page works from a static server as from a file", async () => {
  const server = createServer((_, answer) => {
    answer.setHeader("Content-Type", "text/html");
    createReadStream(built).pipe(answer);
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  try {
    const page = await open(`http://127.0.0.1:${server.address().port}/#run=autosizing`);
    const { requests, runs } = await results(page);
    requests.forEach((request, side) => same(runs[side], commanded(request), `side ${side}`));
    await close(page);
  } finally {
    server.close();
  }
});

// ---- pictures ----

if (process.env.PICTURES) {
  const pictures = resolve(process.env.PICTURES);
  mkdirSync(pictures, { recursive: true });
  for (const [name, hash, time, options] of [
    ["light", "#run=small-queues", 3.4, {}],
    ["dark", "#run=own", 6.2, { colorScheme: "dark" }],
    ["phone", "#run=small-queues", 3.4, { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2 }],
  ]) {
    await check(`picture: ${name}`, async () => {
      const page = await open(pathToFileURL(built).href + hash, options);
      await results(page);
      await page.evaluate((time) => {
        const scrub = document.getElementById("scrub");
        scrub.value = String((1000 * time) / window.playground.lanes[0].duration);
        scrub.dispatchEvent(new Event("input"));
        document.getElementById("play").click();
      }, time);
      await page.waitForTimeout(1_900);
      await page.screenshot({ path: join(pictures, `playground-${name}.png`) });
      if (process.env.WHOLE) await page.screenshot({ path: join(pictures, `playground-${name}-whole.png`), fullPage: true });
      await close(page);
    });
  }
}

await finish("playground", slowest.median > 0 ? `; slowest frame ${slowest.median.toFixed(2)} ms in the median` : "");
