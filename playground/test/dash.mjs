// The dashboard of `taut serve --dash` in a browser, with a live stack under load: downloads over a slow link, some of which read
// slowly. Run by scripts/dash-test, in a network namespace of its own.
//
//   TAUT=FILE           the command, otherwise ../target/release/taut
//   PICTURES=DIRECTORY  where pictures go; none are taken without it
//   CHROMIUM, ONLY      harness.mjs

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { accessible, browser, check, finish, spread } from "./harness.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const taut = process.env.TAUT ?? resolve(here, "../../target/release/taut");
const TOKEN = "correct-horse-battery-staple";
const AT = "http://127.0.0.1:9118/";
const STACK = "10.9.0.2";
/** Bytes per second of downloads; without a limit, they share what the link has. */
const LIMITS = ["", "", "60k", "80k", "100k", "120k", "150k", "180k", "200k", "250k", "300k", "400k"];
const LINK = "dev taut0 root netem delay 15ms loss 0.2% rate 40mbit limit 1000";
const MANY = 1_000;
const FRAME_MS = 16;
const FRAMES = 60;
const PATIENCE_MS = 300_000;

const directory = mkdtempSync(join(tmpdir(), "taut-dash-test-"));
const env = { ...process.env, TAUT_CONTROL_DIR: join(directory, "control") };
writeFileSync(join(directory, "token"), TOKEN);
const running = new Set();

function start(program, args, options = {}) {
  const child = spawn(program, args, { cwd: directory, env, stdio: ["ignore", "ignore", "pipe"], ...options });
  running.add(child);
  child.on("exit", () => running.delete(child));
  return child;
}

/** Starts `taut`, and waits until it has said so. */
async function begin(args, ready) {
  const child = start(taut, args);
  let said = "";
  await new Promise((done, fail) => {
    child.stderr.on("data", (text) => {
      said += text;
      if (said.includes(ready)) done();
    });
    child.on("exit", () => fail(new Error(`taut ${args.join(" ")} ended: ${said}`)));
  });
  return child;
}

async function end(child, signal = "SIGINT") {
  const ended = new Promise((done) => child.on("exit", done));
  child.kill(signal);
  await ended;
}

const told = (...args) => execFileSync(taut, args, { encoding: "utf8", env, maxBuffer: 1 << 28 });
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const serve = () => begin(["serve", ".", "--quiet", "--dash", "9118", "--dash-token-file", "token"], "serving");

function download(limit) {
  const args = ["--silent", "--output", "/dev/null", ...(limit ? ["--limit-rate", limit] : []), `http://${STACK}/large`];
  return start("curl", args, { stdio: "ignore" });
}

/** Connections that ask for the file and read nothing. */
async function open(count) {
  const sockets = [];
  for (let at = 0; at < count; at++) {
    const socket = connect(80, STACK);
    await new Promise((done, fail) => socket.on("connect", done).on("error", fail));
    socket.write("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
    socket.pause();
    socket.on("error", () => {});
    sockets.push(socket);
  }
  return sockets;
}

async function show(options = {}, token = TOKEN) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.faults = [];
  page.on("pageerror", (error) => page.faults.push(String(error)));
  page.on("console", (message) => message.type() === "error" && page.faults.push(message.text()));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(AT) && !url.startsWith("data:")) page.faults.push(`asks for ${url}`);
  });
  await page.goto(`${AT}#token=${token}`);
  return page;
}

async function close(page) {
  assert.deepEqual(page.faults, [], "errors, or requests for what is not in the page");
  await page.context().close();
}

/** However long it takes: on a busy machine a sample takes longer, and the pause until the next is a hundred times as long. */
const samples = (page, count) =>
  page.waitForFunction((count) => window.dashboard.received >= count, count, { timeout: PATIENCE_MS });

/** The sample that the page shows, and the rows of its table, from the same moment. */
const shown = (page) =>
  page.evaluate(() => {
    window.dashboard.draw();
    const text = (element) => [...element.cells].map((cell) => cell.textContent);
    return {
      sample: window.dashboard.state.sample,
      table: [...document.querySelectorAll("#rows tr")].map(text),
      worst: [...document.querySelectorAll("#worst .who b")].map((name) => name.textContent),
    };
  });

/**
 * What a frame costs the page's thread, in ms of its processor time: reading the sample, script, styles and layout. Samples of the
 * stack, in turn, as fast as they are drawn: so it is neither other work of the machine nor the wait for samples that is measured.
 */
async function frames(page, texts) {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  await page.evaluate((texts) => (window.texts = texts), texts);
  const parts = ["ScriptDuration", "RecalcStyleDuration", "LayoutDuration"];
  const spent = async () => {
    const { metrics } = await session.send("Performance.getMetrics");
    return metrics.filter(({ name }) => parts.includes(name)).reduce((sum, { value }) => sum + value * 1e3, 0);
  };
  const spans = [];
  for (let at = 0; at < FRAMES; at++) {
    const before = await spent();
    const drawn = await page.evaluate(async (at) => {
      const count = () => performance.getEntriesByName("frame", "measure").length;
      const before = count();
      // As an event, whose script is counted.
      await new Promise((done) => setTimeout(() => done(window.dashboard.take(window.texts[at % window.texts.length]))));
      // Two: what the first draws is laid out before the second.
      for (let more = 0; more < 2; more++) await new Promise(requestAnimationFrame);
      return count() - before;
    }, at);
    assert.ok(drawn >= 1, "a sample was not drawn");
    spans.push((await spent()) - before);
  }
  return spans;
}

const port = (end) => Number(end.split(":").at(-1));

try {
  execFileSync("ip", ["link", "set", "lo", "up"]);
  writeFileSync(join(directory, "large"), "");
  truncateSync(join(directory, "large"), 4e9);
  let server = await serve();
  told("qdisc", "replace", ...LINK.split(" "));
  const downloads = LIMITS.map(download);
  await pause(4_000);

  await check("DASH-B1 the page shows what the stack does, as it does it", async () => {
    const page = await show();
    // Until the receive buffers of those that read slowly are full.
    const slow = () => window.dashboard.received >= 8 && window.dashboard.state.sample.rows.filter((row) => row.held?.reason === "peer-window").length >= 3;
    await page.waitForFunction(slow, null, { timeout: 60_000 });
    const { sample, table } = await shown(page);
    const connections = JSON.parse(told("ss", "--json")).connections;
    assert.equal(sample.all.connections, LIMITS.length);
    assert.deepEqual(
      sample.rows.map((row) => port(row.peer)).sort(),
      connections.map((conn) => port(conn.peer)).sort(),
    );
    assert.equal(table.length, LIMITS.length);
    for (const row of sample.rows) {
      const conn = connections.find((one) => one.peer === row.peer);
      assert.equal(row.mss, conn.snd_mss);
      assert.equal(row.state, conn.state);
    }
    assert.ok(sample.rows.some((row) => row.held && row.held.reason !== "peer-window"), "some are held by the link");
    assert.ok(sample.all.goodput * 8 > 10e6 && sample.all.goodput * 8 < 60e6, `${sample.all.goodput * 8} bit/s`);
    const cells = table.find((cells) => cells[0].includes(sample.rows[0].peer));
    assert.ok(cells[3].startsWith(sample.rows[0].held.words), cells[3]);
    // They move.
    const bars = () => page.locator("#rows .bar").evaluateAll((all) => all.map((bar) => [...bar.children].map((part) => part.style.width).join()));
    const before = await bars();
    await samples(page, 14);
    const after = await bars();
    assert.notDeepEqual(after, before, "bars stand still");
    const points = await page.locator("#trend .line").getAttribute("d");
    assert.ok(points.split("L").length >= 8, points);
    await close(page);
    return `${sample.rows.length} connections, ${(sample.all.goodput * 8e-6).toFixed(1)} Mbit/s`;
  });

  await check("DASH-B2 the ten worst are those with the most of it", async () => {
    const page = await show();
    await samples(page, 4);
    await page.locator("#pause").click();
    const rules = {
      wait_ns: (row) => row.wait_ns,
      waiting: ({ queues }) => queues.unsent + queues.device + queues.in_flight,
      retrans: (row) => row.retrans ?? 0,
      rtt_above: (row) => Math.max(0, (row.rtt_ns ?? 0) - (row.min_rtt_ns ?? 0)),
    };
    let counted = 0;
    for (const [id, of] of Object.entries(rules)) {
      await page.locator("#rule").selectOption(id);
      const { sample, worst } = await shown(page);
      const values = sample.rows.map(of).filter((value) => value > 0).sort((a, b) => b - a).slice(0, 10);
      const theirs = worst.map((name) => of(sample.rows.find((row) => `${row.local} → ${row.peer}` === name)));
      assert.deepEqual(theirs, values, id);
      counted += worst.length;
    }
    assert.ok(counted >= 20, `${counted} in all`);
    await close(page);
  });

  await check("DASH-B4 filter, order and stop, by mouse and keyboard", async () => {
    const page = await show();
    await samples(page, 4);
    await page.keyboard.press("/");
    const some = port((await shown(page)).sample.rows[3].peer);
    await page.keyboard.type(`:${some}`);
    let { table } = await shown(page);
    assert.equal(table.length, 1);
    assert.ok(table[0][0].endsWith(`:${some}`), table[0][0]);
    assert.match(await page.locator("#status").textContent(), /^1 of 1 shown, 12 in all/);
    await page.locator("#filter").fill("<b>nothing</b>");
    assert.equal((await shown(page)).table.length, 0);
    await page.locator("#filter").fill("");

    await page.locator('#head button[data-id="goodput"]').click();
    const order = async () => {
      const { sample, table } = await shown(page);
      return table.map((cells) => sample.rows.find((row) => cells[0] === `${row.local} → ${row.peer}`).goodput ?? 0);
    };
    const down = await order();
    assert.deepEqual(down, [...down].sort((a, b) => b - a));
    const head = page.locator("#head th", { hasText: "Goodput" });
    assert.equal(await head.getAttribute("aria-sort"), "descending");
    await page.locator('#head button[data-id="goodput"]').focus();
    await page.keyboard.press("Enter");
    assert.equal(await head.getAttribute("aria-sort"), "ascending");
    const up = await order();
    assert.deepEqual(up, [...up].sort((a, b) => a - b));

    await page.locator("#pause").focus();
    await page.keyboard.press("Space");
    assert.equal(await page.locator("#pause").getAttribute("aria-pressed"), "true");
    const { number } = (await shown(page)).sample;
    const had = await page.evaluate(() => window.dashboard.received);
    await samples(page, had + 3);
    assert.equal((await shown(page)).sample.number, number, "stopped");
    await page.keyboard.press("Space");
    await samples(page, had + 5);
    assert.ok((await shown(page)).sample.number > number);

    // Every control is reached, and shows it.
    const seen = new Set();
    await page.reload();
    await samples(page, 3);
    for (let press = 0; press < 60; press++) {
      await page.keyboard.press("Tab");
      const at = await page.evaluate(() => {
        const on = document.activeElement;
        return { id: on.id || on.dataset.id || on.className || on.tagName, tag: on.tagName, ring: getComputedStyle(on).outlineStyle };
      });
      if (at.tag === "BODY") break;
      assert.notEqual(at.ring, "none", `${at.id} shows no focus`);
      seen.add(at.id);
    }
    const wanted = ["skip", "pause", "theme", "rule", "filter", "scroll", "peer", "wait_ns", "held", "retrans", "state"];
    assert.deepEqual(wanted.filter((id) => !seen.has(id)), [], "not reached by Tab");
    await close(page);
    return `${seen.size} stops`;
  });

  for (const [scheme, width] of [["light", 1280], ["dark", 1280], ["light", 390]]) {
    await check(`DASH-B5 axe finds nothing: ${scheme}, ${width} px`, async () => {
      const page = await show({ colorScheme: scheme, viewport: { width, height: 844 } });
      await samples(page, 4);
      await page.locator("#pause").click();
      const rules = await accessible(page);
      await close(page);
      return `${rules} rules`;
    });
  }

  await check("DASH-B5 nothing is wider than a phone's 390 px, or 320", async () => {
    for (const width of [390, 320]) {
      const page = await show({ viewport: { width, height: 844 }, hasTouch: true, isMobile: true });
      await samples(page, 3);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(wide <= width, `${wide} px on ${width}`);
      await close(page);
    }
  });

  if (process.env.PICTURES) {
    const pictures = resolve(process.env.PICTURES);
    mkdirSync(pictures, { recursive: true });
    for (const [name, options] of [
      ["light", { viewport: { width: 1280, height: 1500 } }],
      ["dark", { viewport: { width: 1280, height: 1500 }, colorScheme: "dark" }],
      ["phone", { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2 }],
    ]) {
      await check(`picture: ${name}`, async () => {
        const page = await show(options);
        await samples(page, 40);
        await page.screenshot({ path: join(pictures, `dashboard-${name}.png`) });
        await close(page);
      });
    }
  }

  await check(`DASH-B3 with ${MANY} more connections a frame takes at most ${FRAME_MS} ms in the median`, async () => {
    const sockets = await open(MANY);
    const page = await show();
    const texts = [];
    while (texts.length < 3) {
      const had = await page.evaluate(() => window.dashboard.received);
      await samples(page, had + 1);
      const { sample } = await shown(page);
      if (sample.rows.length === MANY + LIMITS.length) texts.push(JSON.stringify(sample));
    }
    const spans = spread(await frames(page, texts));
    assert.equal((await shown(page)).table.length, 50);
    await page.locator("#more").click();
    const { table } = await shown(page);
    assert.equal(table.length, 100);
    assert.ok(spans.median <= FRAME_MS, `${spans.median} ms`);
    await close(page);
    for (const socket of sockets) socket.destroy();
    const every = JSON.parse(texts.at(-1)).span_ns / 1e6;
    return `median ${spans.median.toFixed(2)} ms, p95 ${spans.p95.toFixed(2)} ms, ${spans.count} frames, a sample every ${every.toFixed(0)} ms`;
  });

  await check("DASH-B6 a wrong token is said", async () => {
    const page = await show({}, "wrong-horse-battery-staple");
    await page.locator("#error").filter({ hasText: "the token is missing or wrong" }).waitFor({ timeout: 20_000 });
    assert.equal(await page.evaluate(() => window.dashboard.received), 0);
    await page.context().close();
  });

  await check("DASH-B6 the last sample stays when the stack ends, and it goes on when there is one again", async () => {
    const page = await show();
    const broken = async () => {
      await page.locator("#error").filter({ hasText: "has ended or cannot be reached" }).waitFor({ timeout: PATIENCE_MS });
      assert.equal(await page.locator("#link").getAttribute("data-state"), "broken");
    };
    await samples(page, 3);
    // At once: one that is asked to end closes its connections first, and a sample may show that.
    await end(server, "SIGKILL");
    await broken();
    const { sample, table } = await shown(page);
    assert.ok(sample.rows.length >= LIMITS.length && table.length >= LIMITS.length, `${sample.rows.length} connections stay`);
    const had = await page.evaluate(() => window.dashboard.received);
    server = await serve();
    await samples(page, had + 2);
    assert.equal(await page.locator("#error").isVisible(), false);
    assert.match(await page.locator("#title").textContent(), /^0 connections/);
    await end(server);
    await broken();
    assert.match(await page.locator("#title").textContent(), /^(0 connections|No stack is running)/);
    await page.context().close();
  });
  for (const child of downloads) child.kill();
} finally {
  // Only what this test has started.
  for (const child of running) child.kill("SIGKILL");
  await pause(100);
  rmSync(directory, { recursive: true, force: true });
}
await finish("dashboard");
