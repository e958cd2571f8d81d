// What the tests of pages in a browser share: the browser, checks that go on after a failure, and axe.
//
//   CHROMIUM=FILE       the browser, otherwise chromium, chromium-browser or google-chrome in PATH
//   ONLY=PLAY-5,PLAY-7  only checks whose name has one of these in it

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

function browserPath() {
  const asked = process.env.CHROMIUM;
  const found = (asked ? [asked] : ["chromium", "chromium-browser", "google-chrome"])
    .map((name) => spawnSync("sh", ["-c", `command -v "${name}"`], { encoding: "utf8" }).stdout.trim())
    .find(Boolean);
  if (!found) throw new Error("there is no browser: install Chromium (Debian: apt install chromium), or set CHROMIUM");
  return found;
}

export const browser = await chromium.launch({ executablePath: browserPath(), args: ["--no-sandbox"] });
export const passed = [];
export const problems = [];

export async function check(name, run) {
  if (process.env.ONLY && !process.env.ONLY.split(",").some((part) => name.includes(part))) return;
  const began = performance.now();
  try {
    const said = await run();
    passed.push(name);
    console.log(`ok    ${name}${said ? `: ${said}` : ""} (${((performance.now() - began) / 1e3).toFixed(1)} s)`);
  } catch (error) {
    problems.push(name);
    console.log(`FAIL  ${name}\n${String(error.stack ?? error).replace(/^/gm, "      ")}`);
  }
}

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What axe finds on a page, by all its rules or by these, must be nothing; returns how many it met. The page's policy does not hold for it. */
export async function accessible(page, rules) {
  await page.evaluate(axe);
  const found = await page.evaluate(async (rules) => {
    const { violations, passes } = await window.axe.run(rules ? { runOnly: rules } : {});
    return {
      passes: passes.length,
      violations: violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target} ${node.failureSummary}`)),
    };
  }, rules);
  assert.deepEqual(found.violations, []);
  assert.ok(rules ? found.passes === rules.length : found.passes > 15);
  return found.passes;
}

/** Durations of the page's own measures named "frame", taken while it is left alone. */
export function spread(spans) {
  spans.sort((a, b) => a - b);
  const at = (share) => spans[Math.floor((spans.length - 1) * share)];
  return { median: at(0.5), p95: at(0.95), count: spans.length };
}

/** Ends the browser, and says how it went. Nothing that ran is no success. */
export async function finish(what, more = "") {
  await browser.close();
  console.log(`\n${what}: ${passed.length} passed, ${problems.length} failed${more}`);
  process.exitCode = problems.length === 0 && passed.length > 0 ? 0 : 1;
}
