// The documentation as a site, target/book, from a static server in a browser: every page loads, every link and heading that a
// reader can click is there, also those that the book's own script adds; nothing is wider than a phone but what scrolls by itself, words
// can be read in light and dark, and the playground inside runs a preset.
//
//   npm run test-book   needs the site (make book)
//   CHROMIUM, ONLY      harness.mjs

import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, extname, join, resolve, sep } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { accessible, browser, check, finish } from "./harness.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const site = resolve(here, "../../target/book");
const alone = resolve(here, "../dist/index.html");
for (const [file, how] of [[join(site, "index.html"), "make book"], [alone, "make playground"]]) {
  if (!existsSync(file)) throw new Error(`${file} is missing: ${how}`);
}

const KINDS = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".json": "application/json" };
const server = createServer((request, answer) => {
  const name = decodeURIComponent(new URL(request.url, "http://book/").pathname);
  const file = resolve(site, `.${name.endsWith("/") ? `${name}index.html` : name}`);
  if (!file.startsWith(site + sep) || !existsSync(file) || !statSync(file).isFile()) {
    answer.writeHead(404).end();
    return;
  }
  answer.writeHead(200, { "Content-Type": KINDS[extname(file)] ?? "application/octet-stream" });
  answer.end(readFileSync(file));
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const root = `http://127.0.0.1:${server.address().port}/`;

/** Pages that a reader comes to by links; print.html repeats them. */
const pages = readdirSync(site, { recursive: true })
  .filter((name) => name.endsWith(".html") && !/(^|\/)(print|404|toc)\.html$/.test(name) && !name.startsWith("playground/"))
  .map((name) => new URL(name.split(sep).join("/"), root).href);

const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });

async function open(address) {
  const page = await context.newPage();
  page.faults = [];
  page.on("pageerror", (error) => page.faults.push(String(error)));
  page.on("console", (message) => message.type() === "error" && page.faults.push(message.text()));
  page.on("response", (response) => response.status() >= 400 && page.faults.push(`${response.status()}: ${response.url()}`));
  page.on("request", (request) => {
    const url = request.url();
    const own = url.startsWith("data:") || url.startsWith("blob:") || url.startsWith(root) || url.startsWith("file:");
    if (!own) page.faults.push(`asks for ${url}`);
  });
  await page.goto(address, { waitUntil: "load" });
  return page;
}

/** What each page links to, and the headings that it has. */
const links = new Map();
const headings = new Map();

await check("PLAY-8 every page of the book loads, and asks for nothing that is not there", async () => {
  assert.ok(pages.length > 40, `${pages.length} pages`);
  const faults = [];
  for (const address of pages) {
    // The playground has a check of its own.
    const page = await open(address);
    await page.waitForSelector("#mdbook-sidebar a, #sidebar a", { state: "attached", timeout: 20_000 });
    links.set(address, await page.evaluate(() => [...document.querySelectorAll("a[href]")].map((link) => link.href)));
    headings.set(address, new Set(await page.evaluate(() => [...document.querySelectorAll("[id]")].map((element) => element.id))));
    faults.push(...page.faults.map((fault) => `${address}: ${fault}`));
    await page.close();
  }
  assert.deepEqual(faults, []);
  return `${pages.length} pages`;
});

await check("PLAY-8 every link of the book leads to a page and a heading that are there", async () => {
  const found = new Map();
  const broken = [];
  let count = 0;
  for (const [from, targets] of links) {
    for (const target of targets.filter((target) => target.startsWith(root))) {
      count += 1;
      const { origin, pathname, hash } = new URL(target);
      const address = origin + pathname;
      if (!found.has(address)) found.set(address, (await fetch(address)).status);
      const page = pathname.endsWith("/") ? `${address}index.html` : address;
      const id = decodeURIComponent(hash.slice(1));
      if (found.get(address) !== 200) broken.push(`${from}: ${target}: ${found.get(address)}`);
      else if (id && headings.has(page) && !headings.get(page).has(id)) broken.push(`${from}: ${target}: no such heading`);
    }
  }
  assert.deepEqual([...new Set(broken)], []);
  assert.ok(count > 1_000, `${count} links`);
  return `${count} links to ${found.size} addresses`;
});

await check("PLAY-8 no page of the book is wider than a phone's 390 px, or 320", async () => {
  const wide = [];
  for (const width of [390, 320]) {
    const phone = await browser.newContext({ viewport: { width, height: 844 }, hasTouch: true, isMobile: true });
    const page = await phone.newPage();
    for (const address of pages) {
      await page.goto(address, { waitUntil: "load" });
      // The book's column hides what is wider: what counts is whether the reader can scroll to it.
      const over = await page.evaluate(() => {
        const scrolls = (element) => element.tagName !== "MAIN" && (/auto|scroll/.test(getComputedStyle(element).overflowX) || scrolls(element.parentElement));
        const wide = [...document.querySelectorAll("main *")].filter((element) => element.getBoundingClientRect().right > innerWidth + 1);
        return wide.filter((element) => !scrolls(element)).map((element) => `${element.tagName} ${element.textContent.slice(0, 40)}`)[0];
      });
      if (over) wide.push(`${address}: on ${width} px: ${over}`);
    }
    await phone.close();
  }
  assert.deepEqual(wide, []);
});

for (const colorScheme of ["light", "dark"]) {
  await check(`PLAY-8 words of the book can be read: axe's contrast of 4.5, ${colorScheme}`, async () => {
    const themed = await browser.newContext({ viewport: { width: 1280, height: 900 }, colorScheme });
    // A table of names, code in five languages, a picture, figures.
    const names = ["index", "spec/conformance", "guide/lab", "guide/python", "guide/embed", "data/2026-11-28-results"];
    for (const name of names) {
      const page = await themed.newPage();
      await page.goto(new URL(`${name}.html`, root).href, { waitUntil: "load" });
      await accessible(page, ["color-contrast"]).catch((error) => {
        throw new Error(`${name}: ${error.message}`);
      });
      await page.close();
    }
    await themed.close();
    return `${names.length} pages`;
  });
}

/** Clicks a preset, and returns both of its runs. */
async function preset(frame, id) {
  await frame.locator(`#presets button[data-id="${id}"]`).click();
  await frame.waitForFunction(() => window.playground.isDone, null, { timeout: 300_000 });
  return frame.evaluate(() => window.playground.lanes.map((lane) => (lane.error ? { error: lane.error } : JSON.parse(lane.text))));
}

await check("PLAY-8 the playground in the book runs a preset, with the figures that it has alone", async () => {
  const page = await open(new URL("try.html", root).href);
  const frame = await (await page.waitForSelector("iframe.playground-frame")).contentFrame();
  const inside = await preset(frame, "autosizing");
  assert.deepEqual(page.faults, []);
  const box = await page.locator("iframe.playground-frame").boundingBox();
  assert.ok(box.width > 600 && box.height > 400, `${box.width} x ${box.height}`);
  await page.close();
  const other = await open(`${pathToFileURL(alone).href}`);
  const outside = await preset(other, "autosizing");
  await other.close();
  assert.equal(inside.length, 2);
  inside.forEach((run, side) => {
    assert.equal(run.error, undefined);
    assert.ok(Object.keys(run.metrics).length > 20);
    assert.deepEqual(run.metrics, outside[side].metrics);
    assert.equal(run.meta.digest, outside[side].meta.digest);
  });
  assert.notEqual(inside[0].meta.digest, inside[1].meta.digest, "before and after differ");
  return inside.map((run) => run.meta.digest).join(", ");
});

server.close();
await finish("book");
